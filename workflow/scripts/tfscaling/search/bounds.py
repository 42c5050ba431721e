"""Which candidates cannot be the best if no scaling line is faster than linear: without their runs.

n times the nodes are then at most n times as fast. So of a line, candidates that differ in their
nodes alone, a larger one costs no less than a smaller one, and takes no less than the smaller one's
time over n. The smallest of each line run first, then the largest of those lines that are left.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfscaling.search.locations import Locations
from tfscaling.search.terms import Candidate
from tfscaling.tables.estimates import Array


def waves(candidates: Sequence[Candidate]) -> tuple[set[int], set[int]]:
    """The numbers of the smallest candidates of each line, and of the largest ones."""
    lines: dict[str, list[int]] = {}
    for n, each in enumerate(candidates):
        lines.setdefault(each.line, []).append(n)
    ordered = [sorted(line, key=lambda n: candidates[n].nodes) for line in lines.values()]
    return {line[0] for line in ordered}, {line[-1] for line in ordered}


@dataclass(frozen=True)
class Seen:
    """What the runs of a goal show: the values are (candidates, blocks), NaN for no run.

    `rows` are the candidates of `found`, `leaders` those of them that may be named the best and may
    let others leave. `grows`: the goal is nodes times a time, else it is a time.
    """

    candidates: Sequence[Candidate]
    values: Array
    rows: Sequence[int]
    found: Locations
    leaders: Container[int]
    grows: bool

    def smaller(self, n: int) -> int | None:
        """The largest candidate on the line of `n` with fewer nodes, all of whose runs ended."""
        own = self.candidates[n]
        smaller = [
            row
            for row in self.rows
            if self.candidates[row].line == own.line
            and self.candidates[row].nodes < own.nodes
            and not np.isinf(self.values[row]).any()
        ]
        return max(smaller, key=lambda row: self.candidates[row].nodes, default=None)

    def leaving(self, waiting: Sequence[int], best: int, tail: float) -> Iterator[Bounded]:
        """Those of `waiting` that cannot be better than another one, with an error of `tail` each.

        `best` is a row of `found`.
        """
        place: Mapping[int, int] = {n: row for row, n in enumerate(self.rows)}
        for n in waiting:
            reference = self.smaller(n)
            if reference is None:
                continue
            if self.grows and reference in self.leaders:
                yield Bounded(n, reference, 0.0)
                continue
            row = place[reference]
            nodes = self.candidates[reference].nodes / self.candidates[n].nodes
            low = self.found.low[row] + (0.0 if self.grows else math.log(nodes))
            ahead = float(low - self.found.high[best])
            if row != best and ahead > self.found.margin(row, best, tail):
                yield Bounded(n, self.rows[best], math.expm1(ahead))


@dataclass(frozen=True)
class Bounded:
    """A candidate that is at least by the fraction `gap` behind `rival`."""

    n: int
    rival: int
    gap: float
