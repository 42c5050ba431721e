"""The factor by which single nodes slow runs down, estimated from runs on different sets of nodes.

Warnings about data and the conclusion `nodes` use it. A synchronous run is as slow as its slowest
node. The logarithm of a run's time is the sum of a level of its configuration, an effect of its
repeat (the load changes), the effect of the slowest of the slow nodes among its nodes, and scatter.
Slow nodes are found one by one, or two at once, by t-tests whose error rate 1 - CONFIDENCE holds
for all nodes together; all other nodes are assumed to be equal. Simulated:
benchmarks/node_effects.py.
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

#: Fewest repeats with which a node is named: with fewer, the scatter is not known well enough.
REPEATS_MIN = 4
#: Fewest degrees of freedom with which a node is named: with five, 5.5 % of the simulated sweeps
#: named a healthy node.
FREEDOM_MIN = 6
#: With more nodes than this, pairs of slow nodes that hide each other are not searched.
PAIRS_MAX = 24


class NodeEffect(NamedTuple):
    """The factor by which runs take longer with a node than without it.

    Attributes:
        node: Name of the node.
        runs: Number of runs that used it.
        factor: Time with the node divided by time without it; effects of other slow nodes are
            removed.
        low: Lower end of the factor's interval. With 95 % confidence, the intervals of all nodes
            together contain the true factors.
        high: Upper end of this interval.
        is_slow: Whether the search for slow nodes has found the node to be significantly slow.
    """

    node: str
    runs: int
    factor: float
    low: float
    high: float
    is_slow: bool


def estimate_node_effects(
    configurations: Sequence[Hashable],
    repeats: Sequence[int],
    nodes_of_runs: Sequence[Collection[str]],
    times_s: Sequence[float],
) -> list[NodeEffect]:
    """Return the effect of each node that the runs determine, sorted by the name of the node.

    A node has no result if it was used by all runs of its configurations or of its repeats. The
    list is empty with fewer than REPEATS_MIN repeats.

    Args:
        configurations: The configuration of each run.
        repeats: The repeat of each run; effects that all runs of a repeat share are removed.
        nodes_of_runs: The nodes of each run.
        times_s: The time of each run in seconds.
    """
    if len(set(repeats)) < REPEATS_MIN:
        return []
    fit = _NodeRegression(configurations, repeats, nodes_of_runs, times_s)
    found = []
    for place, node in enumerate(fit.nodes):
        others = [each for each in fit.slow_nodes if each != place]
        if (estimate := fit.effect_of_last([*others, place])) is None:
            continue
        effect, half = estimate.effect, fit.t_quantile(estimate.freedom) * estimate.error
        factor, low, high = (float(np.exp(x)) for x in (effect, effect - half, effect + half))
        runs = int(fit.uses_node[:, place].sum())
        found.append(NodeEffect(node, runs, factor, low, high, place in fit.slow_nodes))
    return found


def estimate_effects_by_platform(runs: Iterable[RunRow]) -> dict[str, list[NodeEffect]]:
    """Return platform → the effects of its nodes, from the execution times of valid runs."""
    found: dict[str, list[tuple[Point, int, list[str], float]]] = {}
    for run in runs:
        time_s = run.execution_time_s
        # a time of zero has no logarithm
        if run.status == RunState.OK and run.hosts and is_known(time_s) and time_s > 0:
            row = (point_of(run), run.repeat, run.hosts.split(), float(time_s))
            found.setdefault(run.platform, []).append(row)
    return {name: estimate_node_effects(*zip(*rows, strict=True)) for name, rows in found.items()}


def remove_slow_node_effects(
    nodes_of_runs: Iterable[Collection[str]],
    times_s: Iterable[float],
    effects: Iterable[NodeEffect],
) -> list[float]:
    """Return the times that the runs would have taken without the slow nodes, in seconds.

    Args:
        nodes_of_runs: The nodes of each run.
        times_s: The measured time of each run in seconds.
        effects: The effects of the nodes.
    """
    factors = {each.node: each.factor for each in effects if each.is_slow}
    return [
        time_s / max((factors.get(node, 1.0) for node in part), default=1.0)
        for part, time_s in zip(nodes_of_runs, times_s, strict=True)
    ]


def _number_distinct(values: Sequence[Hashable]) -> Array:
    """Return for each value its number among the distinct values, by first appearance."""
    numbers = {each: number for number, each in enumerate(dict.fromkeys(values))}
    return np.array([numbers[value] for value in values])


class _EffectEstimate(NamedTuple):
    """A node's effect on the logarithm of the time.

    Attributes:
        effect: The effect; exp(effect) is the factor on the time.
        error: Its standard error.
        freedom: Degrees of freedom of the error.
    """

    effect: float
    error: float
    freedom: int

    @property
    def t(self) -> float:
        """Student's t of the effect."""
        return self.effect / self.error if self.error > 0 else 0.0


class _NodeRegression:
    """Regression of log times on configurations, repeats and slow nodes.

    Attributes:
        nodes: Names of all nodes, sorted.
        uses_node: Whether each run used each node, (runs, nodes).
        slow_nodes: Indices of the significantly slow nodes, slowest first.
    """

    def __init__(
        self,
        configurations: Sequence[Hashable],
        repeats: Sequence[int],
        nodes_of_runs: Sequence[Collection[str]],
        times_s: Sequence[float],
    ) -> None:
        """Fit the times and find the slow nodes; arguments are as in `estimate_node_effects`."""
        self.nodes = sorted(set(chain.from_iterable(nodes_of_runs)))
        self.uses_node = np.array(
            [[node in part for node in self.nodes] for part in nodes_of_runs], bool
        )
        self._configurations = _number_distinct(configurations)
        self._runs = np.bincount(self._configurations)
        numbers = _number_distinct(repeats)
        of_repeats = (numbers[:, None] == np.arange(numbers.max() + 1)).astype(float)
        for column in of_repeats.T:
            column -= self._level(column)
        left, sizes, _ = np.linalg.svd(of_repeats, full_matrices=False)
        #: Orthonormal columns that span what repeats add to the levels of configurations.
        self._repeats = left[:, sizes > 1e-9 * np.sqrt(len(numbers))]
        self._logs = self._center(np.log(np.asarray(times_s, float)))
        self.slow_nodes: list[int] = []
        while found := self._find_next_slow():
            self.slow_nodes = sorted(
                [*self.slow_nodes, *found], key=self._mean_with_node, reverse=True
            )

    def t_quantile(self, freedom: int, tests: int | None = None) -> float:
        """Return the quantile of Student's t for a number of simultaneous two-sided tests.

        Args:
            freedom: Degrees of freedom.
            tests: Number of tests. None counts two for each node: its selection and its interval.
        """
        tail = (1 - CONFIDENCE) / 2 / (tests or 2 * len(self.nodes))
        return float(scipy.special.stdtrit(freedom, 1 - tail))

    def _center(self, values: Array) -> Array:
        """Subtract from values of runs the parts that configurations and repeats explain; (runs,).

        Args:
            values: A value for each run.
        """
        values = values - self._level(values)
        return np.asarray(values - self._repeats @ (self._repeats.T @ values))

    def _level(self, values: Array) -> Array:
        """Return for each run the mean value of its configuration, (runs,).

        Args:
            values: A value for each run.
        """
        sums = np.bincount(self._configurations, weights=values)
        return np.asarray((sums / self._runs)[self._configurations])

    def _mean_with_node(self, place: int) -> float:
        """Return the mean log time of the runs that used a node.

        The parts that configurations and repeats explain have been subtracted.

        Args:
            place: Index of the node.
        """
        return float(self._logs[self.uses_node[:, place]].mean())

    def effect_of_last(self, places: Sequence[int]) -> _EffectEstimate | None:
        """Return the effect of the last of several nodes, given the effects of the others.

        A run that used several of these nodes is assumed to be as slow as the slowest one, which
        comes first.

        Args:
            places: Indices of the nodes, from slow to fast.

        Returns:
            None if the runs do not determine the effect, or with fewer than FREEDOM_MIN degrees of
            freedom.
        """
        left, columns = np.ones(len(self._logs), bool), []
        for place in places:
            columns.append(self._center((left & self.uses_node[:, place]).astype(float)))
            left &= ~self.uses_node[:, place]
        design = np.column_stack(columns)
        levels = len(self._runs) + self._repeats.shape[1]
        freedom = len(self._logs) - levels - len(places)
        if freedom < FREEDOM_MIN or np.linalg.matrix_rank(design, tol=1e-9) < len(places):
            return None
        solution, *_ = np.linalg.lstsq(design, self._logs, rcond=None)
        variance = ((self._logs - design @ solution) ** 2).sum() / freedom
        error = np.sqrt(variance * np.linalg.inv(design.T @ design)[-1, -1])
        return _EffectEstimate(float(solution[-1]), float(error), freedom)

    def _find_next_slow(self) -> tuple[int, ...]:
        """Return the index of the next slow node, or the indices of a pair of slow nodes.

        A single node is significantly slow by itself. If no such node exists, pairs are tested:
        each node of a pair is significantly slow if the other is assumed to be slow. The result is
        () if neither is found.
        """
        rest = [n for n in range(len(self.nodes)) if n not in self.slow_nodes]
        found: dict[tuple[int, ...], float] = {(n,): self._significant_t(n) for n in rest}
        if not any(found.values()) and len(rest) <= PAIRS_MAX:
            pairs = list(combinations(rest, 2))
            # each must be slow given the other
            tests = 2 * len(pairs)
            found |= {
                (a, b): min(self._significant_t(a, b, tests), self._significant_t(b, a, tests))
                for a, b in pairs
            }
        best = max(found, key=lambda places: found[places], default=())
        return best if found.get(best) else ()

    def _significant_t(
        self, place: int, assumed_slow: int | None = None, tests: int | None = None
    ) -> float:
        """Return Student's t of a node's slowness if it is significant, else 0.

        Args:
            place: Index of the node.
            assumed_slow: Index of another node that is assumed to be slow in addition to
                `slow_nodes`; None for none.
            tests: Number of simultaneous tests, as for `t_quantile`.
        """
        others = [*self.slow_nodes, *([] if assumed_slow is None else [assumed_slow])]
        estimate = self.effect_of_last([*others, place])
        if estimate is None or estimate.t <= self.t_quantile(estimate.freedom, tests):
            return 0.0
        return estimate.t
