"""How much longer runs take on a node than on the others, from runs on different sets of nodes.

A synchronous run is as slow as its slowest node. The logarithm of a run's time is a level of its
configuration, plus an effect of its repeat (the load changes), plus the effect of the slowest of
the slow nodes among its nodes, plus scatter.
Slow nodes are found one by one, or two at once, by t-tests whose error CONFIDENCE leaves holds for
all nodes together; the other nodes are alike. Simulated: benchmarks/node_effects.py.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np
import scipy

from tfscaling.estimation.intervals import CONFIDENCE, Array
from tfscaling.record.run_states import RunState
from tfscaling.study.run_spec import Point
from tfscaling.tables.row_types import RunRow
from tfscaling.tables.row_values import is_known, point_of

#: With fewer repeats too little is known of the scatter to name a node.
REPEATS_MIN = 4
#: The same for degrees of freedom: with five a healthy node was named in 5.5 % of sweeps.
FREEDOM_MIN = 6
#: With more nodes than this, two slow nodes that hide each other are not looked for.
PAIRS_MAX = 24


class NodeEffect(NamedTuple):
    """How many times as long runs take with a node as without it, other slow nodes apart.

    The interval holds for all nodes of a fit together. `is_slow`: it is all above 1.
    """

    node: str
    runs: int
    factor: float
    low: float
    high: float
    is_slow: bool


def node_effects(
    configurations: Sequence[Hashable],
    repeats: Sequence[int],
    parts: Sequence[Collection[str]],
    times_s: Sequence[float],
) -> list[NodeEffect]:
    """Return the effect of each node that the runs determine, in the nodes' order.

    A node has no effect in the result if it served all runs of its configurations, or all runs of
    its repeats. The result is empty below REPEATS_MIN repeats.

    Args:
        configurations: The configuration of each run.
        repeats: The repeat of each run. What all runs of a repeat share is no effect of a node.
        parts: The nodes of each run.
        times_s: The time of each run in seconds.
    """
    if len(set(repeats)) < REPEATS_MIN:
        return []
    fit = _Fit(configurations, repeats, parts, times_s)
    found = []
    for place, node in enumerate(fit.nodes):
        others = [each for each in fit.slow if each != place]
        if (estimate := fit.last([*others, place])) is None:
            continue
        effect, half = estimate.effect, fit.quantile(estimate.freedom) * estimate.error
        factor, low, high = (float(np.exp(x)) for x in (effect, effect - half, effect + half))
        runs = int(fit.has[:, place].sum())
        found.append(NodeEffect(node, runs, factor, low, high, place in fit.slow))
    return found


def of_platforms(runs: Iterable[RunRow]) -> dict[str, list[NodeEffect]]:
    """Return platform → the effects of its nodes, from the execution times of valid runs."""
    found: dict[str, list[tuple[Point, int, list[str], float]]] = {}
    for run in runs:
        time_s = run.execution_time_s
        # a time of zero has no logarithm
        if run.status == RunState.OK and run.hosts and is_known(time_s) and time_s > 0:
            row = (point_of(run), run.repeat, run.hosts.split(), float(time_s))
            found.setdefault(run.platform, []).append(row)
    return {name: node_effects(*zip(*rows, strict=True)) for name, rows in found.items()}


def without_slow_nodes(
    parts: Iterable[Collection[str]], times_s: Iterable[float], effects: Iterable[NodeEffect]
) -> list[float]:
    """Return the seconds that the runs would have taken without the slow nodes of `effects`."""
    factors = {each.node: each.factor for each in effects if each.is_slow}
    return [
        time_s / max((factors.get(node, 1.0) for node in part), default=1.0)
        for part, time_s in zip(parts, times_s, strict=True)
    ]


def _indicators(values: Sequence[Hashable]) -> Array:
    """Return which of the distinct values each one is: (values, distinct values)."""
    distinct = [*dict.fromkeys(values)]
    return np.array([[value == each for each in distinct] for value in values], float)


class _Estimate(NamedTuple):
    """An effect with its standard error and the degrees of freedom."""

    effect: float
    error: float
    freedom: int

    @property
    def t(self) -> float:
        return self.effect / self.error if self.error > 0 else 0.0


class _Fit:
    """Regression of the logarithms of times on slow nodes, configurations and repeats.

    Attributes:
        nodes: Names of all nodes, sorted.
        has: Whether a run used a node, (runs, nodes).
        slow: Indices of the significantly slow nodes, slowest first.
    """

    def __init__(
        self,
        configurations: Sequence[Hashable],
        repeats: Sequence[int],
        parts: Sequence[Collection[str]],
        times_s: Sequence[float],
    ) -> None:
        self.nodes = sorted(set(chain.from_iterable(parts)))
        self.has = np.array([[node in part for node in self.nodes] for part in parts], bool)
        levels = np.column_stack([_indicators(configurations), _indicators(repeats)])
        left, sizes, _ = np.linalg.svd(levels, full_matrices=False)
        #: Orthonormal columns that span the levels of configurations and the effects of repeats.
        self._levels = left[:, sizes > 1e-9 * sizes[0]]
        self._logs = self._centred(np.log(np.asarray(times_s, float)))
        self.slow: list[int] = []
        while found := self._next():
            self.slow = sorted([*self.slow, *found], key=self._mean, reverse=True)

    def quantile(self, freedom: int, tests: int | None = None) -> float:
        """Student's t for an error that nodes, chosen and then measured, or these tests share."""
        tail = (1 - CONFIDENCE) / 2 / (tests or 2 * len(self.nodes))
        return float(scipy.special.stdtrit(freedom, 1 - tail))

    def _centred(self, values: Array) -> Array:
        """Return the values of runs without levels of configurations and effects of repeats."""
        return values - self._levels @ (self._levels.T @ values)

    def _mean(self, place: int) -> float:
        """Return the mean of runs with a node, less levels of configurations and repeats."""
        return float(self._logs[self.has[:, place]].mean())

    def last(self, places: Sequence[int]) -> _Estimate | None:
        """Return the effect of the last of `places`, if each run is as slow as its first of them.

        None if the runs do not determine it, or have fewer than FREEDOM_MIN degrees of freedom.
        """
        left, columns = np.ones(len(self._logs), bool), []
        for place in places:
            columns.append(self._centred((left & self.has[:, place]).astype(float)))
            left &= ~self.has[:, place]
        design = np.column_stack(columns)
        freedom = len(self._logs) - self._levels.shape[1] - len(places)
        if freedom < FREEDOM_MIN or np.linalg.matrix_rank(design, tol=1e-9) < len(places):
            return None
        solution, *_ = np.linalg.lstsq(design, self._logs, rcond=None)
        variance = ((self._logs - design @ solution) ** 2).sum() / freedom
        error = np.sqrt(variance * np.linalg.inv(design.T @ design)[-1, -1])
        return _Estimate(float(solution[-1]), float(error), freedom)

    def _next(self) -> tuple[int, ...]:
        """Return one more node that is shown to be slow, else two at once, else none."""
        rest = [n for n in range(len(self.nodes)) if n not in self.slow]
        found: dict[tuple[int, ...], float] = {(n,): self._test(n) for n in rest}
        if not any(found.values()) and len(rest) <= PAIRS_MAX:
            pairs = list(combinations(rest, 2))
            # each must be slow given the other
            tests = 2 * len(pairs)
            found |= {
                (a, b): min(self._test(a, b, tests), self._test(b, a, tests)) for a, b in pairs
            }
        best = max(found, key=lambda places: found[places], default=())
        return best if found.get(best) else ()

    def _test(self, place: int, with_it: int | None = None, tests: int | None = None) -> float:
        """Return Student's t of a node's effect if it is significant, else 0."""
        others = [*self.slow, *([] if with_it is None else [with_it])]
        estimate = self.last([*others, place])
        if estimate is None or estimate.t <= self.quantile(estimate.freedom, tests):
            return 0.0
        return estimate.t
