"""Whether the GPUs of a rank are the model that was asked for, by their names.

A driver names a GPU as in "Tesla V100-SXM2-16GB", "NVIDIA L4" or "NVIDIA GeForce RTX 2080 Ti"; a
platform's `gpu_type` is "v100", "a100-80gb", "nvidia-tesla-t4", "rtx2080ti", or a typed gres as
Slurm finds it, "nvidia_a100-sxm4-80gb". Both are compared word by word: "l4" is no "L40". Sites
add sizes and form factors in ways of their own ("v100l", "a100_80"): what cannot be understood of
these is no contradiction.
"""

from __future__ import annotations

import re

#: Words that say the maker or the family, which older drivers and newer ones give differently.
_MAKERS = {"nvidia", "tesla", "quadro", "geforce", "amd", "instinct", "radeon", "gpu"}
#: Words that make another model of the one whose name they follow.
_VARIANTS = {"ti", "super", "ada", "pro", "max", "laptop", "mobile", "mig"}
#: So many slices of a GPU, as in "a100_3g.20gb"; the driver says "A100-SXM4-40GB MIG 3g.20gb".
_SLICES = re.compile(r"[1-7]g")
_MEMORY = re.compile(r"(\d+)g(?:i?b)?")
_FORM_FACTOR = re.compile(r"sxm\d*|pcie\d*|hbm\d*\w?")
#: One letter after the number, as of V100L or MI250X, may say size or form factor; not those of
#: V100S, L40S, A10G, which are other models.
_LETTER = re.compile(r"(?<=\d)[a-fh-rt-z]$")


def is_model(asked: str, name: str) -> bool | None:
    """Whether the driver's `name` is the model `asked`; None if they cannot be compared.

    It is if every word of `asked` is a word of the name, or several that follow each other
    ("2080ti"), and the name has no word that makes another model of it. It is not if the number of
    the model is another, or such a word, or the size of the memory. Otherwise None.
    """
    wanted, found = _words(asked), _words(name)
    joined = {"".join(found[i:j]) for i in range(len(found)) for j in range(i + 1, len(found) + 1)}
    core = next((word for word in wanted if _names_a_model(word)), None)
    if core is None:
        return True if wanted and set(wanted) <= joined and not _VARIANTS & set(found) else None
    if _LETTER.sub("", core) not in {_LETTER.sub("", word) for word in joined}:
        return False
    if _is_variant(wanted, found) or _has_other_memory(wanted, found):
        return False
    sizes = _memory_gb(found)
    unknown = [word for word in wanted if word not in joined]
    return True if all(_size(word) in sizes for word in unknown) else None


def _names_a_model(word: str) -> bool:
    is_other = any(kind.fullmatch(word) for kind in (_MEMORY, _FORM_FACTOR))
    return any(character.isdigit() for character in word) and not is_other


def _is_variant(wanted: list[str], found: list[str]) -> bool:
    """Whether one has a word that makes another model of it, and the other has not."""
    slices = {word for word in wanted if _SLICES.fullmatch(word)}
    in_text, in_name = "".join(wanted), "".join(found)
    others = {word for word in _VARIANTS & set(found) if word not in in_text}
    others |= {word for word in _VARIANTS & set(wanted) if word not in in_name}
    return bool(others - ({"mig"} if slices else set()) or slices - set(found))


def _has_other_memory(wanted: list[str], found: list[str]) -> bool:
    asked_gb, sizes_gb = _memory_gb(wanted), _memory_gb(found)
    # of Grace Hopper ("GH200 480GB") the driver's name has the memory of the processor
    return bool(sizes_gb) and not asked_gb <= sizes_gb and "gh200" not in found


def _memory_gb(words: list[str]) -> set[int]:
    matches = (_MEMORY.fullmatch(word) for word in words if not _SLICES.fullmatch(word))
    return {int(match[1]) for match in matches if match}


def _size(word: str) -> int | None:
    """The size that a word may mean, as 80 in "a100_80"; None if it can mean none."""
    if word.isdigit():
        return int(word)
    return next(iter(_memory_gb([word])), None)


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in _MAKERS]
