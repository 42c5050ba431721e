"""Bottlenecks of a configuration: the parts of a step and of the wall time, and slow ranks.

The built-in trainer measures the parts of its steps. For a program they are estimated: a step on
one replica, with as many examples per replica, is its computation, and what a step takes longer on
several replicas is communication and waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Annotated, NamedTuple

import pandas as pd

from tfscaling.conclusions import rendering
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.intervals import (
    CONFIDENCE,
    RUNS_FOR_INTERVAL,
    median_interval,
    median_rank,
)
from tfscaling.estimation.samples import INCONCLUSIVE, SUPPORTED, TOO_FEW
from tfscaling.record.metrics import NAN
from tfscaling.record.run_states import RunState
from tfscaling.study.run_spec import Point, RunSpec
from tfscaling.tables.display import TextTable, point_name, varying_axes
from tfscaling.tables.row_types import Column, ConfigurationRow, RunRow, columns
from tfscaling.tables.row_values import (
    axes_and_devices,
    group_by_point,
    is_known,
    is_projected,
    point_of,
)
from tfscaling.tables.table_files import to_frame, to_rows

#: A rank is slow if it computes this many times as long as the median rank, in every run.
SLOW_RANK_RATIO = 1.3
#: Parts of a training step, in the order of the tables.
STEP_PARTS = ("input", "computation", "stragglers", "communication")
_ENDS = ("", "_low", "_high")
_SHARES = {f"{part}_share{end}": Column() for part in STEP_PARTS for end in _ENDS}
_LARGEST = {f"{part}_largest": Column() for part in STEP_PARTS}
MEASURED, ESTIMATED = "measured", "estimated"
#: Part of the wall time → the phases that it consists of, in the order of time. A program's first
#: step belongs to its start, because nothing shows when it begins.
WALL_PARTS = {
    "start": (
        *("launch_time_s", "import_time_s", "rendezvous_time_s", "data_time_s", "build_time_s"),
        "preparation_time_s",
    ),
    "first_step": ("first_step_time_s",),
    "steps": ("train_time_s",),
    "evaluation": ("evaluation_time_s",),
    "rest": ("program_time_s", "checkpoint_time_s", "probe_time_s", "teardown_time_s"),
}
#: Parts of the wall time that are start-up.
_STARTUP = ("start", "first_step")
_WALL = {f"{part}_s": Column() for part in WALL_PARTS}
#: Part of the wall time → its heading in the table of the page.
_WALL_HEADINGS = {
    "start": "of it start",
    "first_step": "first step",
    "steps": "steps",
    "evaluation": "evaluations",
    "rest": "rest",
}
#: Examples per step and replica of two runs may differ by this factor if their work is the same.
#: They follow from a mean and a median, so they vary.
_WORK_RATIO_MAX = 1.25


class AttributionRow(ConfigurationRow):
    """How the time of a configuration's training step, and its wall time, split into parts.

    Attributes:
        runs: Number of valid runs whose steps are split into STEP_PARTS; if there are none, number
            of runs whose wall time is split.
        step_time_s: Median time of a step in seconds; NaN if no part of a step is known.
        shares: `<part>_share<end>` → median share of a part in the step; with the end `_low` or
            `_high`, a bound of its interval.
        largest: `<part>_largest` → number of runs in which this part of the step is the largest.
        held_back_by: The parts that may be the bottleneck of a step, the likeliest first, joined by
            "or"; "" if no part is known.
        method: MEASURED, or ESTIMATED from runs of one replica; "" if no part of a step is known.
        wall_time_s: Wall time in seconds of the run in the middle, when runs are sorted by wall
            time; of two in the middle, the shorter one.
        wall_parts: Seconds of each part of `wall_time_s`: `<part>_s`; NaN for an unknown part. The
            known parts sum to `wall_time_s`.
    """

    runs: int
    step_time_s: float = NAN
    shares: Annotated[dict[str, float], _SHARES] = {}
    largest: Annotated[dict[str, int], _LARGEST] = {}
    held_back_by: str = ""
    method: str = ""
    wall_time_s: float = NAN
    wall_parts: Annotated[dict[str, float], _WALL] = {}

    @property
    def startup_share(self) -> float:
        """Start-up as a fraction of the wall time; 0 unless start-up is the largest part of it."""
        known = {part: s for part in WALL_PARTS if is_known(s := self.wall_parts.get(f"{part}_s"))}
        startup_s = sum(known.pop(part, 0.0) for part in _STARTUP)
        return startup_s / self.wall_time_s if startup_s > max(known.values(), default=NAN) else 0.0


COLUMNS = tuple(columns(AttributionRow))


def table(study: Study) -> pd.DataFrame:
    """Return the table of the parts of a configuration's time, such as communication and start-up.

    It has an `AttributionRow` for each configuration with at least one known part.
    """
    valid = [run for run in study.run_rows if run.status == RunState.OK]
    specs = {run.spec.point: run.spec for run in study.manifest.runs}
    measured = group_by_point(
        run for run in valid if _has_measured_parts(run, specs.get(point_of(run)))
    )
    rows = [
        _attribution_row(runs, [*map(_measured_parts, runs)], MEASURED)
        for runs in measured.values()
    ]
    programs = {point for point, spec in specs.items() if spec.recipe.program}
    of_programs = [run for run in valid if point_of(run) in programs]
    for pairs in _pairs_with_one_replica(of_programs, _explaining_runs(study)):
        runs, parts = [run for run, _ in pairs], [_estimated_parts(*pair) for pair in pairs]
        references = len({(point_of(one), one.repeat) for _, one in pairs})
        rows.append(_attribution_row(runs, parts, ESTIMATED, references))
    found, ordered = {point_of(row): row for row in rows}, []
    for point, runs in group_by_point(valid).items():
        row = found.get(point)
        if split := _split_wall_time(runs):
            row = row or AttributionRow(**axes_and_devices(runs[0]), runs=len(split))
            middle = split[(len(split) - 1) // 2]
            row.wall_time_s = _sum_known(middle.values())
            row.wall_parts = {f"{part}_s": seconds for part, seconds in middle.items()}
        if row is not None:
            ordered.append(row)
    return to_frame(AttributionRow, ordered)


def _sum_known(times_s: Iterable[float]) -> float:
    """Return the sum of the known times in seconds; NaN if none is known."""
    known = [seconds for seconds in times_s if is_known(seconds)]
    return sum(known) if known else NAN


def _split_wall_time(runs: Sequence[RunRow]) -> list[dict[str, float]]:
    """Return a split of the wall time, part → seconds, for each run with a known training time.

    Runs are sorted by wall time, the shortest first. Short runs, whose times are projected, are
    left out.
    """
    known = [run for run in runs if is_known(run.train_time_s) and not is_projected(run)]
    split = [
        {part: _sum_known(map(run.__getitem__, names)) for part, names in WALL_PARTS.items()}
        for run in known
    ]
    return sorted(split, key=lambda parts: _sum_known(parts.values()))


def _explaining_runs(study: Study) -> dict[Point, RunRow]:
    """Return configuration → its valid run on one replica, which the key `explain` adds."""
    made = {point_of(run): run for run in study.explaining_rows if run.status == RunState.OK}
    planned = ((run, made.get(run.spec.point)) for run in study.manifest.explaining)
    return {point: one for run, one in planned if one is not None for point in run.explains}


def _has_measured_parts(run: RunRow, spec: RunSpec | None) -> bool:
    """Return whether the built-in trainer measured the parts of a run's step.

    On several replicas it measures them in separate steps without communication. A run on one
    replica, without parameter servers, needs no such steps, as it does not communicate.

    Args:
        run: The run.
        spec: The specification of a run of its configuration; None if none is planned.
    """
    if is_known(run.synchronisation_time_s):
        return True
    if spec is None or spec.recipe.program or spec.jobs.keys() != {"worker"}:
        return False
    return run.replicas == 1 and is_known(run.step_time_s)


def _measured_parts(run: RunRow) -> dict[str, float]:
    """Return part of a step, one of STEP_PARTS → its seconds in a step of the run.

    A single replica has only input and computation: it neither waits for stragglers nor
    communicates.
    """
    computation_s, rest_s = run.compute_time_s, run.synchronisation_time_s
    if run.replicas == 1:
        input_s = _input_wait_s(run)
        return {"input": input_s, "computation": max(0.0, run.step_time_s - input_s)}
    stragglers_s = min(rest_s, (run.straggler_ratio - 1.0) * computation_s)
    times_s = _input_wait_s(run), computation_s, stragglers_s, rest_s - stragglers_s
    return dict(zip(STEP_PARTS, times_s, strict=True))


def _input_wait_s(run: RunRow) -> float:
    """Return the seconds of a step in which the run waits for input; 0 if it reports none."""
    return run.input_wait_s if is_known(run.input_wait_s) else 0.0


def _pairs_with_one_replica(
    runs: Sequence[RunRow], explaining: Mapping[Point, RunRow]
) -> Iterator[list[tuple[RunRow, RunRow]]]:
    """Yield for each configuration of several replicas its runs, paired with runs on one replica.

    A pair is (run, run on one replica) of the same repeat. All replicas of both runs do the same
    work on equal devices. Where no such run exists, all repeats are paired with the run that
    `explain` adds, which is made once. Runs without a counterpart are left out.

    Args:
        runs: Valid runs of programs.
        explaining: Configuration → the run that `explain` adds for it.
    """
    timed = [run for run in runs if is_known(run.step_time_s) and run.replicas]
    alone = {_replica_work_key(run): run for run in timed if run.replicas == 1}
    several = group_by_point(run for run in timed if run.replicas != 1)
    for point, own in several.items():
        added = explaining.get(point)
        if added is not None and not is_known(added.step_time_s):
            added = None
        found = [(run, alone.get(_replica_work_key(run), added)) for run in own]
        pairs = [(run, one) for run, one in found if one is not None and _is_same_work(run, one)]
        if pairs:
            yield pairs


def _replica_work_key(run: RunRow) -> tuple[object, ...]:
    """Return a key that is equal for runs whose replicas do the same work on equal devices."""
    # tasks on one node share its CPUs
    tasks = run.tasks_per_node if run.gpus_per_node == 0 else ""
    axes = run.platform, run.model, run.strategy, run.recipe, run.repeat
    return *axes, run.per_replica_batch_size, run.gpus_per_node > 0, tasks


def _is_same_work(run: RunRow, one: RunRow) -> bool:
    """Return whether the replicas of both runs train equally many examples in a step.

    A program may divide a batch among its ranks although its recipe does not state it. The result
    is True if a run reports no throughput.

    Args:
        run: A run on several replicas.
        one: A run on one replica.
    """
    examples = [
        each.throughput_examples_per_s * each.step_time_s / (each.replicas or 1)
        for each in (run, one)
        if is_known(each.throughput_examples_per_s)
    ]
    return len(examples) < 2 or max(examples) <= _WORK_RATIO_MAX * min(examples)


def _estimated_parts(run: RunRow, one: RunRow) -> dict[str, float]:
    """Return part → its estimated seconds in a step of a program's run.

    The computation takes as long as on one replica; the rest of the step is communication.

    Args:
        run: The run, on several replicas.
        one: A run on one replica that does the same work as each replica of `run`.
    """
    input_s, alone_s = _input_wait_s(run), one.step_time_s - _input_wait_s(one)
    computation_s = min(alone_s, run.step_time_s - input_s)
    rest_s = run.step_time_s - input_s - computation_s
    return {"input": input_s, "computation": computation_s, "communication": rest_s}


def _attribution_row(
    runs: Sequence[RunRow],
    parts_by_run: Sequence[dict[str, float]],
    method: str,
    references: int | None = None,
) -> AttributionRow:
    """Return the row of a configuration: each part's share of the step time.

    Intervals need RUNS_FOR_INTERVAL independent runs. In an estimate, runs that are compared with
    the same run on one replica share its error. The runs on one replica are then counted instead.

    Args:
        runs: Its runs.
        parts_by_run: For each of these runs: part → its seconds in a step.
        method: MEASURED or ESTIMATED.
        references: Number of different runs on one replica with which an estimate compares; None
            if the parts are measured.
    """
    independent = len(runs) if references is None else references
    has_enough = independent >= RUNS_FOR_INTERVAL
    leads = Counter(max(parts, key=parts.__getitem__) for parts in parts_by_run)
    shares: dict[str, float] = {}
    for part in parts_by_run[0]:
        own = [parts[part] / sum(parts.values()) for parts in parts_by_run]
        share = (median(own), *((median_interval(own) if has_enough else None) or (NAN, NAN)))
        shares |= {f"{part}_share{end}": value for end, value in zip(_ENDS, share, strict=True)}
    return AttributionRow(
        **axes_and_devices(runs[0]),
        runs=len(runs),
        step_time_s=median(sum(parts.values()) for parts in parts_by_run),
        shares=shares,
        largest={f"{part}_largest": leads[part] for part in STEP_PARTS},
        held_back_by=" or ".join(_likely_bottlenecks(leads, has_enough)),
        method=method,
    )


def _likely_bottlenecks(leads: Counter[str], has_enough: bool) -> list[str]:
    """Return the parts of a step that may be its bottleneck, the likeliest first.

    The first part is the largest one in most runs. It is the only one unless its lead may be
    chance.

    Args:
        leads: Part → number of runs in which it is the largest.
        has_enough: Whether the runs are enough, and independent, for a claim.
    """
    (first, led), *others = leads.most_common()
    rank = median_rank(leads.total()) or 1
    if leads.total() - led < rank and has_enough:
        return [first]
    return [first, *(part for n, (part, of) in enumerate(others) if n == 0 or of >= rank)]


def as_text(table: pd.DataFrame) -> TextTable:
    """Return the table for the page: shares in percent with their intervals."""
    none = (
        "Not known: the workflow's own trainer without parameter servers measures this on several "
        "replicas, with `measure_computation`; for a program that reports steps it is estimated if "
        "one replica was measured, too (`explain`)."
    )
    rows = to_rows(AttributionRow, table)
    vary = varying_axes(rows)
    slow = [(point_name(row, vary), row.startup_share) for row in rows if row.startup_share]
    notes = rendering.render_notes(
        "attribution", is_estimated=ESTIMATED in {row.method for row in rows}, slow_to_start=slow
    )
    return rendering.make_text_table(
        "Bottleneck analysis", table, AttributionRow, _cells, notes, none
    )


def _cells(row: AttributionRow) -> dict[str, str]:
    """Return heading → text of each cell in a row of the page's table."""
    step_time = f"{row.step_time_s:.5f}" if is_known(row.step_time_s) else ""
    cells = {"runs": str(row.runs), "step_time_s": step_time}
    for part in STEP_PARTS:
        value, low, high = (row.shares.get(f"{part}_share{end}", NAN) for end in _ENDS)
        cells[part] = f"{value:.0%}" if is_known(value) else ""
        cells[part] += f" ({low:.0%}–{high:.0%})" if is_known(low) else ""
    held_back_by = row.held_back_by + f" ({ESTIMATED})" * (row.method == ESTIMATED)
    cells |= {"what holds it back": held_back_by}
    cells["wall_time_s"] = f"{row.wall_time_s:.1f}" if is_known(row.wall_time_s) else ""
    for part in WALL_PARTS:
        seconds = row.wall_parts.get(f"{part}_s", NAN)
        cells[_WALL_HEADINGS[part]] = (
            f"{seconds / row.wall_time_s:.0%}" if is_known(seconds) else ""
        )
    return cells


class SlowRank(NamedTuple):
    """A configuration in which the same rank was slow in every run.

    Attributes:
        point: The configuration.
        text: The finding as a sentence.
        support: Level of support, one of `samples.WEAKEST_FIRST`.
        comparisons: Number of configurations that were tested together.
    """

    point: Point
    text: str
    support: str
    comparisons: int


def find_slow_ranks(runs: Sequence[RunRow], points: Collection[Point]) -> Iterator[SlowRank]:
    """Yield each configuration with one rank that was slow in every run.

    If R ranks are equal, one rank is the slowest in each of n runs with probability 1 / R**(n - 1).
    The finding is supported if this is improbable for all configurations together.

    Args:
        runs: The rows of all runs.
        points: The configurations to test.
    """
    valid = (r for r in runs if r.status == RunState.OK and is_known(r.straggler_ratio))
    groups = group_by_point(run for run in valid if point_of(run) in points)
    ranks_of = {
        point: (own[0].replicas or 1) // max(1, point.geometry.gpus_per_task)
        for point, own in groups.items()
    }
    comparisons = sum(
        ranks_of[point] > 1 and len(own) >= RUNS_FOR_INTERVAL for point, own in groups.items()
    )
    for point, own in groups.items():
        ratios = [run.straggler_ratio for run in own]
        ranks = {run.slowest_rank for run in own}
        if len(ranks) > 1 or min(ratios) < SLOW_RANK_RATIO:
            continue
        support = TOO_FEW
        if len(own) >= RUNS_FOR_INTERVAL:
            by_chance = comparisons * ranks_of[point] ** (1.0 - len(own))
            support = SUPPORTED if by_chance <= 1 - CONFIDENCE else INCONCLUSIVE
        text = rendering.render_line(
            "slow_rank",
            rank=ranks.pop(),
            hosts=list(dict.fromkeys(run.slowest_host for run in own)),
            low=f"{min(ratios):.2f}",
            high=f"{max(ratios):.2f}",
            runs=len(own),
            comparisons=comparisons if support == INCONCLUSIVE else 0,
        )
        yield SlowRank(point, text, support, comparisons)
