"""Whether the GPUs of a rank are the model that was asked for, by their names. Layer 1 (plan).

A driver names a GPU as in "Tesla V100-SXM2-16GB", "NVIDIA L4" or "NVIDIA GeForce RTX 2080 Ti"; a
platform's `gpu_type` is "v100", "a100-80gb", "nvidia-tesla-t4", "rtx2080ti", or a typed gres as
Slurm finds it, "nvidia_a100-sxm4-80gb". Both are compared word by word: "l4" is no "L40".
"""

from __future__ import annotations

import re

#: Words that say the maker or the family, which older drivers and newer ones give differently.
_MAKERS = {"nvidia", "tesla", "quadro", "geforce", "amd", "instinct", "radeon", "gpu"}
#: Words that make another model of the one whose name they follow.
_VARIANTS = {"ti", "super", "ada", "pro", "max", "laptop", "mobile", "mig"}
#: So many slices of a GPU, as in "a100_3g.20gb"; the driver says "A100-SXM4-40GB MIG 3g.20gb".
_SLICES = re.compile(r"\d+g")


def is_model(asked: str, name: str) -> bool | None:
    """Whether the driver's `name` is the model `asked`; None if `asked` does not name a model.

    Every word of `asked` is a word of the name, or several that follow each other ("2080ti"), and
    the name has no word that makes another model of it.
    """
    wanted, found = _words(asked), _words(name)
    joined = {"".join(found[i:j]) for i in range(len(found)) for j in range(i + 1, len(found) + 1)}
    text = "".join(wanted)
    variants = {word for word in _VARIANTS & set(found) if word not in text}
    if any(_SLICES.fullmatch(word) for word in wanted):
        variants.discard("mig")
    if wanted and set(wanted) <= joined and not variants:
        return True
    return False if any(character.isdigit() for character in text) else None


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in _MAKERS]
