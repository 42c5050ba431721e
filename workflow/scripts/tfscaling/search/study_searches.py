"""The searches of a study: candidates from the table of runs, decisions, expected runs.

The expected number of runs is the mean of simulated searches: candidates without runs get times
from random scaling curves at the level of the measured ones, the others their median; all runs
scatter by SIMULATED_SCATTER. A candidate without runs is assumed to keep the limits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tfscaling.estimation.intervals import Array
from tfscaling.estimation.run_counts import CLOSED_RUNS
from tfscaling.record.attempts import Kind
from tfscaling.record.run_states import FINISHED, RunState
from tfscaling.search.proposals import ROUNDS_MAX, batch_size
from tfscaling.search.scaling_search import decide
from tfscaling.search.search_costs import CandidateCosts, SearchSaving, candidate_costs
from tfscaling.search.search_types import (
    FAILURE_REASONS,
    PRICE_RATIO,
    PROJECTION_ERROR,
    Candidate,
    Decision,
    Reason,
    Run,
    list_needed_runs,
)
from tfscaling.study import platforms
from tfscaling.study.config_types import LINE_AXES, SHORT_RUNS_MAX
from tfscaling.study.manifest import Manifest, PlannedSearch
from tfscaling.study.run_spec import Point
from tfscaling.tables import row_values, table_files
from tfscaling.tables.comparison import ALL_RUNS_METRICS, are_equal_work
from tfscaling.tables.row_types import RunRow
from tfscaling.tables.row_values import axes_without_nodes, is_known

#: Kinds of failures that do not depend on the configuration: the next run replaces such a run.
_INFRASTRUCTURE_KINDS: frozenset[Kind] = frozenset(
    {"launch_failed", "launcher_failed", "missing_gpus", "node_failed", "preempted", "requeued"}
)
#: Maximum number of runs of a configuration that are replaced; after more it counts as failed.
_REPLACED_MAX = 2


@dataclass(frozen=True)
class StudySearch:
    """A search of a study, with its runs and its decision.

    Attributes:
        planned: The search in the manifest.
        points: Name of a candidate → its configuration.
        all_points: `points`, and names of short runs → their configurations.
        points_with_less_work: Configurations that are no candidates because they trained fewer
            examples.
        candidates: The candidates with their runs.
        decision: The result of the analyses so far.
        costs: Configuration → what its runs cost, and what they would cost in the full grid.
    """

    planned: PlannedSearch
    points: Mapping[str, Point]
    all_points: Mapping[str, Point]
    points_with_less_work: tuple[Point, ...]
    candidates: tuple[Candidate, ...]
    decision: Decision
    costs: Mapping[Point, CandidateCosts]

    @property
    def may_miss(self) -> bool:
        """Whether runs may miss a limit or the target."""
        return bool(self.planned.limits) or self.planned.goal in ALL_RUNS_METRICS

    @property
    def saving(self) -> SearchSaving:
        """The cost of the search, compared with the full grid."""
        return SearchSaving.from_candidates(self.costs.values(), self.planned.goal)

    def needed_runs(self) -> Iterator[tuple[Point, int]]:
        """Yield (configuration, repeat from 1) of each run that the next analysis needs."""
        for block, name in list_needed_runs(self.decision, self.candidates):
            yield self.all_points[name], block + 1

    @property
    def finished_runs(self) -> dict[Point, int]:
        """Configuration → number of its finished runs."""
        each = [*self.candidates, *(own.short for own in self.candidates if own.short)]
        return {self.all_points[own.name]: own.run_count for own in each}

    @property
    def closed_points(self) -> frozenset[Point]:
        """The configurations, short runs included, whose missing runs will not be made."""
        each = [*self.candidates, *(own.short for own in self.candidates if own.short)]
        return frozenset(self.all_points[own.name] for own in each if own.closed is not None)

    def may_need_runs(self, point: Point) -> bool:
        """Return whether a later analysis may need further runs of the configuration."""
        return any(self.all_points[name] == point for name in self.decision.possible_runs)

    def most_runs(self, costs: Mapping[Point, float]) -> dict[Point, int]:
        """Return configuration → number of its runs if the search becomes as expensive as possible.

        All further rounds then run the most expensive configurations. Finished runs are included.

        Args:
            costs: Configuration → cost of a run.
        """
        found, points = self.finished_runs, self.all_points
        wanted = self.decision.runs_to_start
        found |= {points[name]: max(found[points[name]], n) for name, n in wanted.items()}
        left = (ROUNDS_MAX - self.decision.rounds) * batch_size(len(self.points)) if wanted else 0
        for point in sorted(self.points.values(), key=lambda point: -costs[point]):
            if self.may_need_runs(point):
                more = min(left, self.planned.search.repeats_max - found[point])
                found[point] += more
                left -= more
        return found


def decide_searches(planned: Manifest, runs: pd.DataFrame) -> list[StudySearch]:
    """Return the searches of a study with their decisions from the runs so far.

    Args:
        planned: The manifest.
        runs: The table of runs.
    """
    rows = row_values.group_by_point(table_files.to_rows(RunRow, runs) if planned.searches else ())
    prices = {run.spec.point: run.usd_per_node_hour for run in planned.runs}
    closed = _find_closed_batches(planned, rows) if planned.searches else {}
    return [_make_search(each, rows, closed, prices) for each in planned.searches]


def _make_search(
    planned: PlannedSearch,
    by_point: Mapping[Point, Sequence[RunRow]],
    closed: Mapping[Point, Reason],
    prices: Mapping[Point, float | None],
) -> StudySearch:
    """Return one search of a study with its decision from the runs so far.

    Args:
        planned: The search in the manifest.
        by_point: Configuration → its rows in the table of runs.
        closed: Configuration → why none of its missing runs will be made.
        prices: Configuration → US dollars per node and hour; None without a price.
    """
    short_of = {each.point: each.short for each in planned.points if each.short}
    rows = {point: by_point.get(point, ()) for point in planned.all_points}
    trained: dict[Point, float] = {}
    examples_of_tasks: dict[tuple[str, str], list[float]] = {}
    for each in planned.points:
        own_rows = (row for p in filter(None, (each.point, each.short)) for row in rows[p])
        valid = (row.examples_trained for row in own_rows if row.status == RunState.OK)
        if known := [examples for examples in valid if is_known(examples)]:
            trained[each.point] = min(known)
            examples_of_tasks.setdefault((each.point.model, each.point.recipe), []).append(
                min(known)
            )
    other = [
        point
        for point, own in trained.items()
        for usual in [most_common_examples(examples_of_tasks[point.model, point.recipe])]
        if own < usual and not are_equal_work(own, usual)
    ]
    points = {each.point.path: each.point for each in planned.points if each.point not in other}
    shorts = {short.path: short for point, short in short_of.items() if point not in other}
    candidates = tuple(
        _make_candidate(point, rows, planned, short_of, closed) for point in points.values()
    )
    asked = planned.search, planned.goal, planned.limits, planned.indifference
    decision = decide(candidates, *asked, planned.trainings)
    costs = candidate_costs(planned, by_point, prices)
    return StudySearch(planned, points, points | shorts, tuple(other), candidates, decision, costs)


def most_common_examples(examples: Iterable[float]) -> float:
    """Return the most frequent number of trained examples among configurations; 0 without any.

    Numbers that differ by less than SAME_WORK_TOLERANCE count as equal. Among equally frequent
    numbers the largest is returned.

    Args:
        examples: Number of trained examples of each configuration.
    """
    counts = Counter(examples)
    alike = {
        own: sum(number for each, number in counts.items() if are_equal_work(each, own))
        for own in counts
    }
    return max(counts, key=lambda own: (alike[own], own), default=0.0)


def _find_closed_batches(
    planned: Manifest, by_point: Mapping[Point, Sequence[RunRow]]
) -> dict[Point, Reason]:
    """Return configuration → why it is not run, if a smaller batch of it failed.

    Short and complete runs of a configuration count together. A configuration that trained to its
    end is never closed.

    Args:
        planned: The manifest.
        by_point: Configuration → its rows in the table of runs.
    """
    complete_of = {
        each.short: each.point
        for search in planned.searches
        for each in search.points
        if each.short
    }
    rows_of: dict[Point, list[RunRow]] = {}
    for point, rows in by_point.items():
        rows_of.setdefault(complete_of.get(point, point), []).extend(rows)
    points = {run.spec.point.path: run.spec.point for run in planned.runs}
    larger = [run for run in planned.runs if run.smaller]
    closed: dict[Point, Reason] = {}
    for run in sorted(larger, key=lambda run: run.spec.per_replica_batch_size):
        point, smaller = run.spec.point, points[run.smaller or ""]
        own, rows = (rows_of.get(complete_of.get(p, p), ()) for p in (point, smaller))
        if any(row.status in FINISHED for row in own):
            continue
        if reason := closed.get(smaller) or _why_no_larger_batch(rows):
            closed[point] = reason
    return closed


def _why_no_larger_batch(rows: Sequence[RunRow]) -> Reason | None:
    """Return why the next larger batch of a configuration is not run; None if it may be run.

    Args:
        rows: The rows of the configuration's short and complete runs.
    """
    finished = sum(row.status in FINISHED for row in rows)
    unfit = sum(row.status == RunState.DOES_NOT_FIT for row in rows)
    if unfit and unfit >= finished:
        is_shown = not finished and unfit >= CLOSED_RUNS
        return Reason.NO_MEMORY if is_shown else Reason.SMALLER_BATCH
    failed, _ = _sort_failures(rows)
    return Reason.SMALLER_BATCH if failed and not finished else None


def _sort_failures(rows: Iterable[RunRow]) -> tuple[frozenset[int], frozenset[int]]:
    """Return (failed, skipped): numbers of blocks whose run failed too often to be retried.

    Blocks are numbered from 0. In failed blocks, the configuration is the cause. In skipped blocks,
    it is the infrastructure, and a run in a later block replaces the run. More than _REPLACED_MAX
    skipped blocks count as failed.

    Args:
        rows: The rows of a configuration.
    """
    failed: set[int] = set()
    replaced: set[int] = set()
    for row in rows:
        if row.failed_too_often and row.status == RunState.FAILED:
            kind = str(row.reason).partition(":")[0]
            (replaced if kind in _INFRASTRUCTURE_KINDS else failed).add(int(row.repeat) - 1)
    if len(replaced) > _REPLACED_MAX:
        failed, replaced = failed | replaced, set()
    return frozenset(failed), frozenset(replaced)


def _make_candidate(
    point: Point,
    rows: Mapping[Point, Sequence[RunRow]],
    planned: PlannedSearch,
    short_of: Mapping[Point, Point],
    closed: Mapping[Point, Reason],
) -> Candidate:
    """Return a candidate from the rows of its runs.

    Args:
        point: The configuration of the candidate.
        rows: Configuration → its rows of runs.csv.
        planned: The search.
        short_of: Configuration → the same configuration with a shortened training, for searches
            that begin with short runs.
        closed: Configuration → why none of its missing runs will be made.
    """
    is_short, short = point in short_of.values(), short_of.get(point)
    runs: list[Run | None] = [None] * (SHORT_RUNS_MAX if is_short else planned.search.repeats_max)
    unfit: set[int] = set()
    own_rows = [row for row in rows[point] if row.repeat <= len(runs)]
    for row in own_rows:
        block = int(row.repeat) - 1
        if row.status in (RunState.OK, RunState.DIVERGED):
            runs[block] = _run_from_row(row, planned)
        elif row.status == RunState.DOES_NOT_FIT:
            unfit.add(block)
    failed, replaced = _sort_failures(own_rows)
    # another process may have taken the memory: one such run is replaced
    if len(unfit) < CLOSED_RUNS:
        replaced |= unfit
    else:
        failed |= unfit
    return Candidate(
        point.path,
        tuple(runs),
        failed,
        replaced,
        len(runs),
        str([getattr(point, axis) for axis in LINE_AXES]),
        point.nodes,
        _make_candidate(short, rows, planned, short_of, closed) if short else None,
        frozenset(unfit),
        closed.get(point),
    )


def _run_from_row(row: RunRow, planned: PlannedSearch) -> Run:
    """Return metric → value of a run that ended: goal, limits, projection error, price ratio."""
    is_ok = row.status == RunState.OK
    limited = {name: getattr(row, name) for name in planned.limits if is_ok}
    known = {name: float(value) for name, value in limited.items() if is_known(value)}
    if is_known(row.projection_error_s) and is_known(row.execution_time_s):
        known[PROJECTION_ERROR] = row.projection_error_s / row.execution_time_s
    trained_s = row.time_to_target_s if planned.goal in ALL_RUNS_METRICS else row.execution_time_s
    if is_known(row.wall_time_s) and is_known(trained_s):
        known[PRICE_RATIO] = row.wall_time_s / trained_s
    return {**known, planned.goal: _goal_value(row, planned.goal)}


def _goal_value(row: RunRow, goal: str) -> float:
    """Return a run's value of the goal metric.

    It is infinite if the run diverged or missed the target, or if it has a time but no value of
    this goal, such as a cost without a price. It is NaN if the times of the run do not count, or if
    the run reports no quality for the target.
    """
    if row.status != RunState.OK:
        return math.inf
    if is_known(getattr(row, goal)):
        return float(getattr(row, goal))
    if goal in ALL_RUNS_METRICS:
        is_missed = is_known(row.target_reached) and not row.target_reached
        return math.inf if is_missed else math.nan
    return math.inf if is_known(row.execution_time_s) else math.nan


# how many runs a search is expected to make

#: Type of the sources of random numbers in simulations.
RandomGenerator = np.random.Generator
#: Standard deviation of the logarithm of simulated runs.
SIMULATED_SCATTER = 0.05
#: Number of simulated searches, whose mean is the expected number of runs.
SIMULATIONS = 5


def simulate_scaling_times(devices: Array, lines: Array, generator: RandomGenerator) -> Array:
    """Simulate times by Amdahl's law and the universal scalability law, with deviations of 2 %.

    Args:
        devices: Number of devices of each configuration.
        lines: Number of each configuration's curve, from 0.
        generator: Random generator.

    Returns:
        Times in seconds of shape (configurations,).
    """
    count = int(lines.max()) + 1
    one = np.exp(generator.normal(np.log(600), 0.5, count))[lines]
    sigma = generator.uniform(0.01, 0.25, count)[lines]
    has_kappa = generator.random(count) < 0.6
    kappa = np.where(has_kappa, 10 ** generator.uniform(-4, -2, count), 0)[lines]
    time_s = one * (1 + sigma * (devices - 1) + kappa * devices * (devices - 1)) / devices
    return np.asarray(time_s * np.exp(generator.normal(0, 0.02, len(devices))))


def expected_runs(
    search: StudySearch, prices: Mapping[Point, float | None], trials: int = SIMULATIONS
) -> dict[Point, float]:
    """Return configuration → expected number of its runs when the search ends.

    Finished runs are included. The number is the mean over simulated searches. Simulated runs of a
    candidate scatter around the median of its complete runs, or else of its short runs.

    Args:
        search: The search.
        prices: Configuration → US dollars per node and hour.
        trials: Number of simulations.
    """
    points = [search.points[each.name] for each in search.candidates]
    if not points:
        return {}
    names = [axes_without_nodes(point.axes) for point in points]
    own = {name: number for number, name in enumerate(dict.fromkeys(names))}
    lines = np.array([own[name] for name in names])
    devices = np.array([point.nodes * max(1, point.gpus_per_node) for point in points], float)
    goal, asked = search.planned.goal, search.planned.search
    rates = np.array([_goal_per_second(goal, point, prices.get(point)) for point in points])
    measured = np.array([_measured_value(each, goal) for each in search.candidates])
    limits = {name: each for name, each in search.planned.limits.items() if name != goal}
    kept = {
        name: each.value + (0.5 if each.at_most is None else -0.5) * max(1, abs(each.value))
        for name, each in limits.items()
    }
    # what is out gets no further runs
    reasons = (*FAILURE_REASONS, Reason.NOT_ALLOWED)
    standings = search.decision.standings.items()
    out = {name: each.reason for name, each in standings if each.reason in reasons}
    candidates = [
        replace(each, closed=each.closed or out.get(each.name)) for each in search.candidates
    ]
    generator, sums = np.random.default_rng(1), dict.fromkeys(search.all_points.values(), 0.0)
    for _ in range(trials):
        usual = rates * simulate_scaling_times(devices, lines, generator)
        usual *= _measured_level(measured, usual, lines)
        filled = [
            _fill_missing_runs(each, goal, value, kept, generator)
            for each, value in zip(candidates, usual.tolist(), strict=True)
        ]
        found = decide(
            filled,
            asked,
            goal,
            limits,
            search.planned.indifference,
            search.planned.trainings,
            is_simulated=True,
        )
        for each in filled:
            sums[search.points[each.name]] += found.runs[each.name] / trials
            if each.short:
                short = search.all_points[each.short.name]
                sums[short] += found.standings[each.name].short_runs / trials
    return sums


def _goal_per_second(goal: str, point: Point, usd_per_node_hour: float | None) -> float:
    """Return the goal of a run of one second.

    Args:
        goal: The goal's metric.
        point: The configuration of the run.
        usd_per_node_hour: Its price; None if unknown.
    """
    if goal.startswith("cost_"):
        return platforms.run_cost_usd(usd_per_node_hour or 1.0, point.nodes, 1.0) or 0.0
    return 1.0


def _measured_value(candidate: Candidate, goal: str) -> float:
    """Return the median goal of complete runs, or of short runs; NaN if none has a finite value."""
    values = [run[goal] for run in candidate.runs if run is not None]
    short = _measured_value(candidate.short, goal) if candidate.short else math.nan
    return _median_or(values, short)


def _measured_level(measured: Array, simulated: Array, lines: Array) -> Array:
    """Return, for each candidate, the factor that scales simulated values to measured ones.

    Candidates of a curve share a factor: the median ratio of measured to simulated values. A curve
    without a measured candidate has the median of all ratios, or 1 if nothing is measured.

    Args:
        measured: Measured value of each candidate, above 0; NaN if it is unknown.
        simulated: Its simulated value.
        lines: Number of each candidate's curve, from 0.
    """
    ratios = np.log(measured / simulated)
    is_known = np.isfinite(ratios)
    if not is_known.any():
        return np.ones(len(ratios))
    levels = np.full(int(lines.max()) + 1, np.median(ratios[is_known]))
    for line in np.unique(lines[is_known]):
        levels[line] = np.median(ratios[is_known & (lines == line)])
    return np.asarray(np.exp(levels[lines]))


def _fill_missing_runs(
    candidate: Candidate,
    goal: str,
    usual: float,
    kept: Mapping[str, float],
    generator: RandomGenerator,
) -> Candidate:
    """Return the candidate with a simulated run in each block that has no run and may get one.

    Values scatter around the median of the candidate's own runs.

    Args:
        candidate: The candidate.
        goal: The goal's metric.
        usual: Median of the goal for a candidate without a run.
        kept: Metric → value within its limit, for a candidate whose runs lack the metric.
        generator: Random generator.
    """
    if candidate.short:
        short = _fill_missing_runs(candidate.short, goal, usual, {}, generator)
        candidate = replace(candidate, short=short)
        usual = _median_or([run[goal] for run in short.runs if run], usual)
    made = [run for run in candidate.runs if run is not None]
    value = _median_or([run[goal] for run in made], usual)
    limited = {
        name: _median_or([run[name] for run in made if name in run], otherwise)
        for name, otherwise in kept.items()
    }
    factors = np.exp(SIMULATED_SCATTER * generator.standard_normal(len(candidate.runs))).tolist()
    runs = [
        run
        if run is not None or candidate.closed is not None or block in candidate.failed_blocks
        else {**limited, goal: value * factor}
        for block, (run, factor) in enumerate(zip(candidate.runs, factors, strict=True))
    ]
    return replace(candidate, runs=tuple(runs))


def _median_or(values: Sequence[float], otherwise: float) -> float:
    """Return the median of the finite values; `otherwise` if there are none."""
    finite = [value for value in values if math.isfinite(value)]
    return float(np.median(finite)) if finite else otherwise
