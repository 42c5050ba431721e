"""Findings compared with the truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INDIFFERENCE = 0.05


def nodes_of(finding: Mapping[str, Any]) -> list[int]:
    """The numbers of nodes that a finding is about."""
    return [int(number) for number in finding["nodes"].split("; ")]


def is_false(finding: Mapping[str, Any], true_s: dict[int, float]) -> bool:
    """Whether a finding about scaling is not true."""
    nodes, best, first = nodes_of(finding), min(true_s.values()), true_s[min(true_s)]
    if finding["kind"] == "slower":
        return any(true_s[number] <= first for number in nodes)
    (last,) = nodes
    if finding["kind"] == "stops paying":
        later = [time for number, time in true_s.items() if number > last]
        return min(later) * (1 + INDIFFERENCE) < true_s[last] * (1 - 1e-9)
    assert finding["kind"] == "pays"
    others = [time for number, time in true_s.items() if number != last]
    return true_s[last] > best or min(others) <= best
