"""Sentences of findings beside the truth."""

from __future__ import annotations

import re

INDIFFERENCE = 0.05


def is_false(text: str, true_s: dict[int, float]) -> bool:
    """Whether a sentence about where nodes stop paying is not true."""
    best = min(true_s.values())
    if found := re.match(r"More nodes than (\d+) do not pay", text):
        later = [time for nodes, time in true_s.items() if nodes > int(found[1])]
        return min(later) * (1 + INDIFFERENCE) < true_s[int(found[1])] * (1 - 1e-9)
    if found := re.match(r"More nodes pay up to the largest number measured, (\d+)", text):
        others = [time for nodes, time in true_s.items() if nodes != int(found[1])]
        return true_s[int(found[1])] > best or min(others) <= best
    return False
