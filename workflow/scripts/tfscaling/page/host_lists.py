"""Names of hosts as Slurm writes them: consecutive numbers in brackets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tfscaling.files.outside_text import is_host_name

#: A name with a number, the last one of several: what precedes it, the number, what follows it.
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)")


def fold_host_names(names: Sequence[str]) -> str:
    """Return names as a node list: `n[08-11],login` for n08, n09, n10, n11, login.

    Duplicates are left out. Names that differ only in their last number are joined, at the place
    of the first one. A text that cannot be the name of a host, such as `n[1`, stays unchanged.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name) if is_host_name(name) else None
        before, digits, after = match.groups() if match else (name, "", "")
        groups.setdefault((before, after), []).append(digits)
    return ",".join(
        f"{before}{folded}{after}"
        for (before, after), numbers in groups.items()
        for folded in _fold_numbers(numbers)
    )


def _fold_numbers(numbers: Iterable[str]) -> list[str]:
    """Return the numbers of names as ranges, such as `[08-10,12]`.

    Numbers with leading zeros are joined only with numbers of the same length: 8, 9, 08 and 09
    give `[8-9]` and `[08-09]`.

    Args:
        numbers: Digits with their leading zeros; "" for a name without a number, which gives "".
    """
    padded = {len(digits) for digits in numbers if digits.startswith("0") and digits != "0"}
    by_width: dict[int, set[int]] = {}
    for digits in filter(None, numbers):
        width = len(digits) if len(digits) in padded else 0
        by_width.setdefault(width, set()).add(int(digits))
    texts = ["" for digits in numbers if not digits][:1]
    for width, found in by_width.items():
        ranges = [f"{a:0{width}d}" + f"-{b:0{width}d}" * (b > a) for a, b in _find_ranges(found)]
        is_single = len(found) == 1
        texts.append(ranges[0] if is_single else f"[{','.join(ranges)}]")
    return texts


def _find_ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return (first, last) of each range of consecutive numbers, in ascending order."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
