"""What must be known before any number of a data set is read: one list for every output.

The table of points and the table of runs say all of it; `warnings.json` carries the
list to the outputs, so that all of them have the same warnings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import stdev
from typing import Literal

import msgspec
import pandas as pd

from tfscaling.files import program_errors
from tfscaling.record import run_record
from tfscaling.record.run_states import FINISHED, RERUN_STALE, RunState
from tfscaling.spec.config import POINT_AXES
from tfscaling.spec.platforms import LOGICAL
from tfscaling.spec.run_spec import Point
from tfscaling.tables import environments, table_rows
from tfscaling.tables.display import NAMED_MAX, axis_text, count
from tfscaling.tables.estimates import RUNS_FOR_INTERVAL
from tfscaling.tables.rows import PointRow, RunRow
from tfscaling.tables.table_rows import is_known, point_of

#: SERIOUS: the numbers do not mean what they seem to mean. LIMITED: there are fewer than planned,
#: or they are less sure.
SERIOUS, LIMITED = "serious", "limited"


class DataWarning(msgspec.Struct, frozen=True):
    """`text` is a sentence for tables, `short` a few words for the foot of a plot.

    It concerns `points`; `runs` counts the runs that it concerns, or all runs of
    these points where it does not depend on the single run.
    """

    kind: str
    severity: str
    text: str
    short: str
    points: tuple[Point, ...]
    runs: int


#: The largest scatter of runs for which decisions were simulated, as a fraction.
SCATTER_MAX = 0.2


class Tables:
    """The table of points and the table of runs as the warnings look at them."""

    def __init__(self, comparison: pd.DataFrame, runs: pd.DataFrame) -> None:
        self.runs = runs
        rows = table_rows.typed(PointRow, comparison)
        self.points: dict[Point, PointRow] = {point_of(row): row for row in rows}
        self.planned = {p: row for p, row in self.points.items() if row.status != "excluded"}
        self.measured = {p: row for p, row in self.points.items() if row.runs > 0}
        self.all_runs: Sequence[RunRow] = table_rows.typed(RunRow, runs)
        self.valid = [run for run in self.all_runs if run.status == RunState.OK]
        #: Those that have a record: what it warns of may explain why a run diverged.
        self.ended = [r for r in self.all_runs if r.status in FINISHED]

    def title(self, platform: str) -> str:
        titles = {row.platform: row.platform_title for row in self.points.values()}
        return str(titles.get(platform, platform))

    def of_points(
        self, points: Sequence[Point], among: Mapping[Point, PointRow], measured: str
    ) -> str:
        """`all 6 points`; `2 of 6 points (nodes 1; nodes 2)`; `9 of 20 points of A`."""
        noun = f"{measured} point" if measured else "point"
        if len(points) == len(among):
            return _all(len(points), noun)
        counted = f"{len(points)} of {len(among)} {noun}s"
        if len(points) <= NAMED_MAX:
            return f"{counted} ({'; '.join(self._name(point) for point in points)})"
        return f"{counted}{self._of_platforms([self.points[point] for point in points])}"

    def _name(self, point: Point) -> str:
        """The axes in which the points of the data set differ, in words."""
        return ", ".join(axis_text(axis, self.points[point]) for axis in self._varying)

    @cached_property
    def _varying(self) -> list[str]:
        return [axis for axis in POINT_AXES if len({getattr(p, axis) for p in self.points}) > 1]

    def of_runs(self, some: Sequence[RunRow], among: Sequence[RunRow]) -> str:
        """`all 24 runs` or `3 of 24 runs of A`."""
        if len(some) == len(among):
            return _all(len(some), "run")
        return f"{len(some)} of {len(among)} runs{self._of_platforms(some)}"

    def _of_platforms(self, rows: Sequence[RunRow | PointRow]) -> str:
        """On which platforms these are, where that tells something."""
        names = dict.fromkeys(row.platform for row in rows)
        if len(names) == len({row.platform for row in self.points.values()}):
            return ""
        return f" of {_listed([self.title(name) for name in names])}"

    def about(
        self, kind: str, severity: str, points: Sequence[Point], text: str, short: str
    ) -> DataWarning:
        """A warning that concerns all runs of these points."""
        runs = sum(self.points[point].runs for point in points)
        return DataWarning(kind, severity, text, short, tuple(points), runs)


def find(comparison: pd.DataFrame, runs: pd.DataFrame) -> list[DataWarning]:
    """The warnings of these points and runs, serious ones first."""
    tables = Tables(comparison, runs)
    found = [warning for rule in RULES for warning in rule(tables) if warning.points]
    return sorted(found, key=lambda warning: warning.severity != SERIOUS)


def _about_runs(
    kind: str, severity: str, runs: Sequence[RunRow], text: str, short: str
) -> DataWarning:
    return DataWarning(kind, severity, text, short, _points(runs), len(runs))


def _logical_devices(tables: Tables) -> Iterator[DataWarning]:
    points = [point for point, row in tables.planned.items() if row.devices == LOGICAL]
    every = len(points) == len(tables.planned)
    at = _all(len(points), "point") if every else f"{len(points)} of {len(tables.planned)} points"
    yield tables.about(
        "logical_devices",
        SERIOUS,
        points,
        f"Logical devices, which are parts of a CPU, replace GPUs at {at}: no GPU took "
        "part there, and the times say nothing about any GPU.",
        f"logical devices, parts of a CPU, at {at}",
    )


def _projected(tables: Tables) -> Iterator[DataWarning]:
    points = [p for p, row in tables.measured.items() if row.projected_from_steps is not None]
    yield tables.about(
        "projected",
        SERIOUS,
        points,
        "Times and costs of the whole training are projected from short runs at "
        f"{tables.of_points(points, tables.measured, 'measured')} (column projected_from_steps). "
        "Quality is not projected, nor is time or cost to a target.",
        f"times and costs are projected from short runs at {count(len(points), 'point')}",
    )


def _one_machine(tables: Tables) -> Iterator[DataWarning]:
    """With the local launcher, or on a virtual cluster, whose nodes are processes."""
    several = [run for run in tables.ended if run.nodes > 1 and machines_of(run.machines)]
    runs = [run for run in several if len(machines_of(run.machines)) < run.nodes]
    machines = {machine for run in runs for machine in machines_of(run.machines)}
    cpus = {f"{run.cpus_online}" for run in runs if is_known(run.cpus_online)}
    with_cpus = f" with {cpus.pop()} CPUs" if len(cpus) == 1 else ""
    one = f"one machine{with_cpus}" if len(machines) == 1 else "fewer machines than nodes"
    yield _about_runs(
        "one_machine",
        SERIOUS,
        runs,
        f"{one[0].upper()}{one[1:]} stood for the nodes of {tables.of_runs(runs, several)} on "
        "several nodes: they shared cores, and the times say nothing about a cluster.",
        f"{one} stood for the nodes: the times say nothing about a cluster",
    )


def _shared_machine(tables: Tables) -> Iterator[DataWarning]:
    runs = [run for run in tables.ended if is_known(run.shared_with) and run.shared_with > 0]
    yield _about_runs(
        "shared_machine",
        SERIOUS,
        runs,
        f"Runs took each other's time: {tables.of_runs(runs, tables.ended)} shared a machine "
        "with another of these runs at the same time (column shared_with of runs.csv).",
        f"{count(len(runs), 'run')} shared a machine with another at the same time",
    )


def _other_work(tables: Tables) -> Iterator[DataWarning]:
    points = [point for point, row in tables.measured.items() if row.same_work is False]
    at = tables.of_points(points, tables.measured, "measured")
    yield tables.about(
        "other_work",
        SERIOUS,
        points,
        f"Another number of examples than at the baseline was trained at {at}: they have no "
        "speed-up, and no law, finding or decision has those that trained fewer than others "
        "(column examples_trained).",
        f"another number of examples was trained at {at}",
    )


def _unknown_work(tables: Tables) -> Iterator[DataWarning]:
    points = [p for p, row in tables.measured.items() if not is_known(row.examples_trained)]
    yield tables.about(
        "unknown_work",
        LIMITED,
        points,
        "A program told no number of examples at "
        f"{tables.of_points(points, tables.measured, 'measured')}: that it does the same work at "
        "all of them is taken from its recipe.",
        f"{count(len(points), 'point')} tell no number of examples",
    )


def _diverged(tables: Tables) -> Iterator[DataWarning]:
    runs = [run for run in tables.all_runs if run.status == RunState.DIVERGED]
    yield _about_runs(
        "diverged",
        SERIOUS,
        runs,
        f"The loss of {tables.of_runs(runs, tables.all_runs)} became NaN or infinite, at "
        f"{tables.of_points(_points(runs), tables.planned, '')}: medians are of the other runs "
        "alone, and look better than the training is.",
        f"{len(runs)} of {count(len(tables.all_runs), 'run')} diverged",
    )


def _environments(tables: Tables) -> Iterator[DataWarning]:
    facts: dict[str, list[str]] = {}  # fact → the platforms in whose runs it differs
    found = environments.differences(tables.runs)
    for fact, platform in zip(found["fact"], found["platform"], strict=True):
        if fact in environments.ALIKE:
            facts.setdefault(fact, []).append(platform)
    named = "; ".join(
        f"{fact}: {_listed([tables.title(name) for name in names])}"
        if len(names) <= NAMED_MAX
        else f"{fact}: {len(names)} platforms"
        for fact, names in facts.items()
    )
    differing = {name for names in facts.values() for name in names}
    yield _about_runs(
        "environments",
        LIMITED,
        [run for run in tables.valid if run.platform in differing],
        f"Runs of one platform were made in different environments ({named}): differences "
        "between points may be of that.",
        "runs of one platform differ in their environment",
    )


def _other_data(tables: Tables) -> Iterator[DataWarning]:
    """Runs of the same work must have read the same data, whoever made them."""
    by_work: dict[tuple[str, str], dict[str, list[RunRow]]] = {}
    for run in tables.valid:
        if run.dataset_sha256 is not None:
            data = by_work.setdefault((run.model, run.recipe), {})
            data.setdefault(run.dataset_sha256, []).append(run)
    mixed = {work: data for work, data in by_work.items() if len(data) > 1}
    named = "; ".join(f"{', '.join(work)}: {len(data)}" for work, data in mixed.items())
    yield _about_runs(
        "other_data",
        SERIOUS,
        [run for data in mixed.values() for own in data.values() for run in own],
        f"Points that are compared were trained on different data (model, recipe: number of "
        f"data sets: {named}; column dataset_sha256 of runs.csv).",
        "compared points were trained on different data",
    )


def _own_warnings(tables: Tables) -> Iterator[DataWarning]:
    """What the runs themselves warn of, once each."""
    for text, runs in _texts(tables.ended, "warnings").items():
        of = tables.of_runs(runs, tables.ended)
        yield _about_runs("of_runs", SERIOUS, runs, f"{text} ({of}).", text)


def _unchecked(tables: Tables) -> Iterator[DataWarning]:
    """What of the request no check of the runs could compare."""
    for text, runs in _texts(tables.ended, "unchecked").items():
        long = f"Not checked in {tables.of_runs(runs, tables.ended)}: {text}."
        yield _about_runs("unchecked", LIMITED, runs, long, f"not checked: {text}")


def _texts(runs: Sequence[RunRow], column: str) -> dict[str, list[RunRow]]:
    """Each of the texts in a column → the runs that have it."""
    found: dict[str, list[RunRow]] = {}
    for run in runs:
        for text in (run[column] or "").split(environments.SEPARATOR):
            if text:
                found.setdefault(text.rstrip("."), []).append(run)
    return found


def _not_valid(tables: Tables) -> Iterator[DataWarning]:
    # runs that diverged have a warning of their own
    out = [run for run in tables.all_runs if run.status not in FINISHED]
    counts = Counter(str(run.status) for run in out)
    named = _listed([f"{number} {status}" for status, number in counts.items()])
    runs = count(len(tables.runs), "run")
    more = f" Stale ones are made again with {RERUN_STALE}." if counts["stale"] else ""
    short = f"{len(out)} of {runs} do not count" if tables.valid else f"none of {runs} counts"
    yield _about_runs(
        "not_valid",
        LIMITED,
        out,
        f"{short[0].upper()}{short[1:]} ({named}), at "
        f"{tables.of_points(_points(out), tables.planned, '')}.{more}",
        short,
    )


def _few_runs(tables: Tables) -> Iterator[DataWarning]:
    few = {p: row for p, row in tables.measured.items() if row.runs_timed < RUNS_FOR_INTERVAL}
    with_times = " with times" * any(row.runs_timed < row.runs for row in few.values())
    runs = f"ewer than {RUNS_FOR_INTERVAL} valid runs{with_times} at"
    yield tables.about(
        "few_runs",
        LIMITED,
        [*few],
        f"F{runs} {tables.of_points([*few], tables.measured, 'measured')}: no confidence interval.",
        f"f{runs} {len(few)} of {count(len(tables.measured), 'point')}",
    )


def _missed_targets(tables: Tables) -> Iterator[DataWarning]:
    missed = {
        point: row.runs - row.runs_at_target
        for point, row in tables.measured.items()
        if row.runs_at_target is not None and row.runs_at_target < row.runs
    }
    number = sum(missed.values())
    yield DataWarning(
        "missed_targets",
        SERIOUS,
        f"{count(number, 'run')} missed the target of the quality, at "
        f"{tables.of_points([*missed], tables.measured, 'measured')}.",
        f"{count(len(missed), 'configuration')} missed the target in some runs",
        tuple(missed),
        number,
    )


def _failed_attempts(tables: Tables) -> Iterator[DataWarning]:
    """More attempts than valid runs failed: what passed may be a selection."""
    failed: Counter[Point] = Counter()
    for run in tables.all_runs:
        failed[point_of(run)] += run.failed_attempts
    points = tuple(p for p, row in tables.measured.items() if failed[p] >= max(1, row.runs))
    number = sum(failed[point] for point in points)
    attempts = f"{count(number, 'attempt')} failed at"
    yield DataWarning(
        "failed_attempts",
        SERIOUS,
        f"{attempts} {tables.of_points(points, tables.measured, 'measured')}, as many as succeeded "
        "or more: a time limit, for example, lets only fast runs pass.",
        f"{attempts} {count(len(points), 'configuration')}",
        points,
        number,
    )


def _wide_scatter(tables: Tables) -> Iterator[DataWarning]:
    """Beyond the scatter for which decisions were simulated (docs/method.md)."""
    times: dict[Point, list[float]] = {}
    for run in tables.valid:
        if is_known(time_s := run.execution_time_s) and time_s > 0:
            times.setdefault(point_of(run), []).append(math.log(time_s))
    points = tuple(p for p, logs in times.items() if len(logs) > 2 and stdev(logs) > SCATTER_MAX)
    scatter = f"scatter by more than {SCATTER_MAX:.0%} at"
    yield DataWarning(
        "wide_scatter",
        SERIOUS,
        f"Execution times {scatter} {tables.of_points(points, tables.measured, 'measured')}: "
        "conclusions are simulated for less, and hold less surely here.",
        f"times {scatter} {count(len(points), 'configuration')}",
        points,
        sum(len(times[point]) for point in points),
    )


#: Every kind of warning, in the order in which they are given.
RULES: tuple[Callable[[Tables], Iterator[DataWarning]], ...] = (
    _projected,
    *(_logical_devices, _one_machine, _shared_machine, _diverged, _missed_targets, _other_work),
    *(_other_data, _failed_attempts, _wide_scatter, _unknown_work),
    *(_own_warnings, _not_valid, _few_runs, _environments, _unchecked),
)


def machines_of(names: object) -> list[str]:
    """The machines of a run, from the column `machines`; none where they are not known."""
    return names.split() if isinstance(names, str) else []


def _points(runs: Sequence[RunRow]) -> tuple[Point, ...]:
    return tuple(dict.fromkeys(point_of(run) for run in runs))


def _all(number: int, noun: str) -> str:
    several = f"both {noun}s" if number == 2 else f"all {number} {noun}s"
    return several if number > 1 else f"the only {noun}"


def _listed(names: Sequence[str]) -> str:
    """`a`, `a and b` or `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def footnotes(found: Sequence[DataWarning]) -> list[str]:
    """The footnote of a plot: one note, or none."""
    return [f"warnings: {'; '.join(warning.short for warning in found)}"] if found else []


class _File(msgspec.Struct, frozen=True):
    """The content of warnings.json."""

    schema_version: Literal[2]
    warnings: list[DataWarning]


def write(path: Path, found: Sequence[DataWarning]) -> None:
    """Write warnings.json."""
    run_record.write_json(path, _File(2, list(found)))


def read(path: Path) -> list[DataWarning]:
    """The warnings of a warnings.json. Raises InputError if it is none of this version."""
    return program_errors.read_json(path, _File).warnings
