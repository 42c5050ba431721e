"""What must be known before any number of a data set is read: one list for every output.

The table of points and the table of runs say all of it; `warnings.json` carries the
list to the outputs, so that all of them have the same warnings.
"""

from __future__ import annotations

import math
import tomllib
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median, stdev
from typing import Literal, NamedTuple

import msgspec
import pandas as pd

from tfscaling.estimation.intervals import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.files import program_errors
from tfscaling.record import run_record
from tfscaling.record.run_states import FINISHED, RERUN_STALE, RESULTS, RunState
from tfscaling.study.platforms import LOGICAL
from tfscaling.study.run_spec import Point
from tfscaling.tables import runs_table, table_files, timings
from tfscaling.tables.display import NAMED_MAX, count, point_name, varying
from tfscaling.tables.node_effects import of_platforms, without_slow_nodes
from tfscaling.tables.row_types import PointRow, RunRow
from tfscaling.tables.row_values import by_point, grouped, is_known, point_of
from tfscaling.tables.runs_table import SEPARATOR

#: SERIOUS: the numbers do not mean what they seem to mean. LIMITED: there are fewer than planned,
#: or they are less sure.
SERIOUS, LIMITED = "serious", "limited"


class DataWarning(msgspec.Struct, frozen=True):
    """`text` is a sentence for tables, `short` a few words for the foot of an exported plot.

    It concerns `points`; `runs` counts the runs that it concerns, or all runs of
    these points where it does not depend on the single run.
    """

    kind: str
    severity: str
    text: str
    short: str
    points: tuple[Point, ...]
    runs: int


#: Largest uncertainty of a clock, as a fraction of the time that is measured.
CLOCK_ERROR_MAX = 0.01
#: The largest scatter of runs for which decisions were simulated, as a fraction.
SCATTER_MAX = 0.2


#: Runs of a program that reports nothing and took less than this share of another run are named.
SHORT_SHARE = 0.2
#: Caches explain a scaling efficiency above 1, but none above this.
BEYOND_LINEAR = 2.0


class Found(NamedTuple):
    """The points that a warning concerns, its number of runs, and what its sentences name."""

    points: Sequence[Point]
    runs: int
    named: Mapping[str, object]


class Tables:
    """The table of points and the table of runs as the rules read them."""

    def __init__(
        self, comparison: pd.DataFrame, runs: pd.DataFrame, cpus_per_node: Mapping[str, int]
    ) -> None:
        self.runs, self._cpus_per_node = runs, cpus_per_node
        rows = table_files.typed(PointRow, comparison)
        self.points: dict[Point, PointRow] = {point_of(row): row for row in rows}
        self.planned = {p: row for p, row in self.points.items() if row.status != "excluded"}
        self.measured = {p: row for p, row in self.points.items() if row.runs > 0}
        self.all_runs: Sequence[RunRow] = table_files.typed(RunRow, runs)
        self.valid = [run for run in self.all_runs if run.status == RunState.OK]
        #: Runs with a record: its warnings may explain why a run diverged.
        self.ended = [r for r in self.all_runs if r.status in FINISHED]

    def about(self, points: Iterable[Point], runs: int | None = None, **named: object) -> Found:
        """Make a finding about measured points, with all their runs unless `runs` are counted."""
        own = tuple(points)
        total = sum(self.points[point].runs for point in own) if runs is None else runs
        at = self._at(own, self.measured, "measured configuration")
        return Found(own, total, {"at": at, **named})

    def about_runs(
        self, some: Sequence[RunRow], among: Sequence[RunRow] | None = None, **named: object
    ) -> Found:
        """Make a finding about runs, counted `among` others, by default those with a record."""
        points = tuple(dict.fromkeys(point_of(run) for run in some))
        every = self.ended if among is None else among
        counted = _counted(len(some), len(every), "run")
        at = self._at(points, self.planned, "configuration")
        return Found(points, len(some), {"of": counted, "at": at, **named})

    def shares_cores(self, run: RunRow) -> bool:
        """Return whether the simulated nodes of a run took more CPUs than the machine has."""
        cpus = self._cpus_per_node.get(run.platform)
        return cpus is None or not is_known(run.cpus_online) or run.nodes * cpus > run.cpus_online

    def title(self, platform: str) -> str:
        titles = {row.platform: row.platform_title for row in self.points.values()}
        return str(titles.get(platform, platform))

    def _at(self, points: Sequence[Point], among: Mapping[Point, PointRow], noun: str) -> str:
        """`all 6 points`; `2 of 6 points (nodes 1; nodes 2)`; `9 of 20 points`."""
        counted = _counted(len(points), len(among), noun)
        if len(points) == len(among) or len(points) > NAMED_MAX:
            return counted
        vary = varying([*self.points.values()])
        names = [point_name(self.points[point], vary) for point in points]
        return f"{counted} ({'; '.join(names)})"


def _counted(number: int, among: int, noun: str) -> str:
    if number < among:
        return f"{number} of {among} {noun}s"
    several = f"both {noun}s" if number == 2 else f"all {number} {noun}s"
    return several if number > 1 else f"the only {noun}"


def _listed(names: Sequence[str]) -> str:
    """Join names: `a`, `a and b` or `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _imported(tables: Tables) -> Found:
    """Return the runs that are rows of a file of timings."""
    rows = [run for run in tables.valid if timings.is_imported(run)]
    return tables.about_runs(rows, file=str(rows[0].record).rpartition(": ")[0] if rows else "")


def _logical_devices(tables: Tables) -> Found:
    points = [point for point, row in tables.planned.items() if row.devices == LOGICAL]
    return tables.about(points, at=_counted(len(points), len(tables.planned), "configuration"))


def _diverged(tables: Tables) -> Found:
    runs = [run for run in tables.all_runs if run.status == RunState.DIVERGED]
    return tables.about_runs(runs, tables.all_runs, total=count(len(tables.all_runs), "run"))


def _out_of_memory(tables: Tables) -> Found:
    """Find configurations with some runs that fitted into memory and some that did not."""
    unfit = [run for run in tables.all_runs if run.status == RunState.DOES_NOT_FIT]
    runs = [run for run in unfit if point_of(run) in tables.measured]
    return tables.about_runs(runs, tables.all_runs, total=count(len(tables.all_runs), "run"))


def _one_machine(tables: Tables) -> Found:
    """With the local launcher, or on a virtual cluster, whose nodes are processes."""
    several = [run for run in tables.ended if run.nodes > 1 and run.machines]
    few = (run for run in several if len(str(run.machines).split()) < run.nodes)
    runs = [run for run in few if tables.shares_cores(run)]
    machines = {machine for run in runs for machine in str(run.machines).split()}
    cpus = {f"{run.cpus_online}" for run in runs if is_known(run.cpus_online)}
    with_cpus = f" with {cpus.pop()} CPUs" if len(cpus) == 1 else ""
    one = f"one machine{with_cpus}" if len(machines) == 1 else "fewer machines than nodes"
    return tables.about_runs(runs, several, one=one)


def _environments(tables: Tables) -> Found:
    facts = runs_table.differences(tables.runs)
    named = "; ".join(
        f"{fact}: {_listed([tables.title(name) for name in names])}"
        if len(names) <= NAMED_MAX
        else f"{fact}: {len(names)} platforms"
        for fact, names in facts.items()
    )
    differing = {name for names in facts.values() for name in names}
    return tables.about_runs([r for r in tables.valid if r.platform in differing], facts=named)


def _other_data(tables: Tables) -> Found:
    """Find runs of one task that have read different data, whoever made them."""
    known = (run for run in tables.valid if run.dataset_sha256 is not None)
    works = grouped(known, lambda run: f"{run.model}, {run.recipe}")
    data_of = {work: grouped(own, lambda run: run.dataset_sha256) for work, own in works.items()}
    mixed = {work: data for work, data in data_of.items() if len(data) > 1}
    named = "; ".join(f"{work}: {len(data)}" for work, data in mixed.items())
    runs = [run for data in mixed.values() for own in data.values() for run in own]
    return tables.about_runs(runs, works=named)


def _texts(column: str) -> Callable[[Tables], Iterator[Found]]:
    """Make a rule that finds each text in a column of runs once."""

    def find(tables: Tables) -> Iterator[Found]:
        texts = ((r, t) for r in tables.ended for t in (r[column] or "").split(SEPARATOR) if t)
        for text, own in grouped(texts, lambda both: both[1].rstrip(".")).items():
            yield tables.about_runs([run for run, _ in own], text=text)

    return find


def _not_valid(tables: Tables) -> Found:
    # runs that diverged have a separate warning
    out = [run for run in tables.all_runs if run.status not in RESULTS]
    counts = Counter(str(run.status) for run in out)
    named = _listed([f"{number} {status}" for status, number in counts.items()])
    more = f" Stale ones are rerun with {RERUN_STALE}." if counts["stale"] else ""
    runs = count(len(tables.runs), "run")
    lack = f"{len(out)} of {runs} do not count" if tables.valid else f"None of {runs} counts"
    return tables.about_runs(out, lack=lack, statuses=named, more=more)


def _few_runs(tables: Tables) -> Found:
    few = {p: row for p, row in tables.measured.items() if row.runs_timed < RUNS_FOR_INTERVAL}
    with_times = " with times" * any(row.runs_timed < row.runs for row in few.values())
    runs = f"{RUNS_FOR_INTERVAL} valid runs{with_times}"
    return tables.about(few, needed=runs, total=count(len(tables.measured), "configuration"))


def _missed_targets(tables: Tables) -> Found:
    missed = {
        point: row.runs - row.runs_at_target
        for point, row in tables.measured.items()
        if row.runs_at_target is not None and row.runs_at_target < row.runs
    }
    return tables.about(missed, sum(missed.values()))


def _failed_attempts(tables: Tables) -> Found:
    """Warn if more attempts failed than runs are valid: valid runs may be a selection."""
    failed: Counter[Point] = Counter()
    for run in tables.all_runs:
        failed[point_of(run)] += run.failed_attempts
    points = [p for p, row in tables.measured.items() if failed[p] >= max(1, row.runs)]
    number = sum(failed[point] for point in points)
    return tables.about(points, number, attempts=count(number, "attempt"))


def _wide_scatter(tables: Tables) -> Found:
    """Warn if runs scatter more than in the simulations of decisions (docs/evidence.md)."""
    runs = by_point(run for run in tables.valid if run.execution_time_s > 0)
    logs = {p: [math.log(run.execution_time_s) for run in own] for p, own in runs.items()}
    points = [p for p, own in logs.items() if len(own) > 2 and stdev(own) > SCATTER_MAX]
    number = sum(len(logs[point]) for point in points)
    return tables.about(points, number, most=f"{SCATTER_MAX:.0%}")


def _nothing_trained(tables: Tables) -> Found:
    """Find runs of programs that report no training and took far less time than another run."""
    silent = (r for r in tables.valid if not is_known(r.train_time_s) and not is_known(r.loss))
    timed = by_point(run for run in silent if is_known(run.execution_time_s))
    short = []
    for runs in timed.values():
        longest_s = max(run.execution_time_s for run in runs)
        short += [run for run in runs if run.execution_time_s < SHORT_SHARE * longest_s]
    return tables.about_runs(short, tables.valid, least=f"{SHORT_SHARE:.0%}")


def _slow_nodes(tables: Tables) -> Iterator[Found]:
    vary = varying([*tables.points.values()])
    for platform, effects in of_platforms(tables.valid).items():
        named = ", ".join(f"{e.node} ({e.factor:.2f} times)" for e in effects if e.is_slow)
        own = (run for run in tables.valid if run.platform == platform)
        medians, number = {}, 0
        for point, runs in by_point(run for run in own if is_known(run.execution_time_s)).items():
            times_s = [run.execution_time_s for run in runs]
            parts = [(run.hosts or "").split() for run in runs]
            healthy_s = without_slow_nodes(parts, times_s, effects)
            slowed = sum(a != b for a, b in zip(times_s, healthy_s, strict=True))
            if slowed:
                number += slowed
                times = f"{median(healthy_s):.4g} s instead of {median(times_s):.4g} s"
                medians[point] = f"{point_name(tables.points[point], vary)} {times}"
        shown = [*medians.values()][:NAMED_MAX] + ["…"] * (len(medians) > NAMED_MAX)
        yield tables.about(medians, number, nodes=named, healthy="; ".join(shown))


def _ordered_starts(tables: Tables) -> Iterator[Found]:
    """Each repeat started by rising nodes, or by falling nodes, which is rare by chance."""
    started = (run for run in tables.valid if run.started is not None)
    platforms = grouped(started, lambda run: run.platform)
    for name, of_platform in platforms.items():
        repeats = grouped(of_platform, lambda run: run.repeat)
        orders, chance = [], 2.0
        for runs in repeats.values():
            starts = {datetime.fromisoformat(str(run.started)): run.nodes for run in runs}
            nodes = [starts[start] for start in sorted(starts)]
            # what starts at once has no order
            if len(set(nodes)) > 1 and len(starts) == len(runs):
                orders.append(nodes)
                ties = math.prod(map(math.factorial, Counter(nodes).values()))
                chance *= ties / math.factorial(len(nodes))
        is_rare = chance <= (1 - CONFIDENCE) / len(platforms)
        rises = all(nodes == sorted(nodes) for nodes in orders)
        falls = all(nodes == sorted(nodes, reverse=True) for nodes in orders)
        if is_rare and (rises or falls):
            own = [run for runs in repeats.values() for run in runs]
            yield tables.about_runs(own, tables.valid, platform=tables.title(name))


def _uncertain_clocks(tables: Tables) -> Found:
    times = ((run, run.execution_time_s) for run in tables.valid if is_known(run.execution_time_s))
    runs = [run for run, s in times if run.clock_uncertainty_max_s > CLOCK_ERROR_MAX * s]
    return tables.about_runs(runs, tables.valid, most=f"{CLOCK_ERROR_MAX:.0%}")


def _points(is_concerned: Callable[[PointRow], bool], **named: object) -> Callable[[Tables], Found]:
    """Return a rule about the measured points for which this is true."""

    def find(tables: Tables) -> Found:
        own = (point for point, row in tables.measured.items() if is_concerned(row))
        return tables.about(own, None, **named)

    return find


#: Every kind of warning, in the order in which they are given: severity and rule.
RULES: dict[str, tuple[str, Callable[[Tables], Found | Iterable[Found]]]] = {
    "projected": (SERIOUS, _points(lambda row: row.projected_from_steps is not None)),
    "logical_devices": (SERIOUS, _logical_devices),
    "one_machine": (SERIOUS, _one_machine),
    "shared_machine": (SERIOUS, lambda t: t.about_runs([r for r in t.ended if r.shared_with])),
    "diverged": (SERIOUS, _diverged),
    "out_of_memory": (SERIOUS, _out_of_memory),
    "missed_targets": (SERIOUS, _missed_targets),
    "other_work": (SERIOUS, _points(lambda row: row.same_work is False)),
    "other_data": (SERIOUS, _other_data),
    "failed_attempts": (SERIOUS, _failed_attempts),
    "wide_scatter": (SERIOUS, _wide_scatter),
    "nothing_trained": (SERIOUS, _nothing_trained),
    "beyond_linear": (
        SERIOUS,
        _points(lambda row: row.scaling_efficiency > BEYOND_LINEAR, times=BEYOND_LINEAR),
    ),
    "slow_nodes": (SERIOUS, _slow_nodes),
    "ordered_starts": (SERIOUS, _ordered_starts),
    "uncertain_clocks": (LIMITED, _uncertain_clocks),
    "imported": (LIMITED, _imported),
    "unknown_work": (LIMITED, _points(lambda row: not is_known(row.examples_trained))),
    "of_runs": (SERIOUS, _texts("warnings")),
    "not_valid": (LIMITED, _not_valid),
    "few_runs": (LIMITED, _few_runs),
    "environments": (LIMITED, _environments),
    "unchecked": (LIMITED, _texts("unchecked")),
}
TEXTS = Path(__file__).with_suffix(".toml")


def find(
    comparison: pd.DataFrame,
    runs: pd.DataFrame,
    cpus_per_node: Mapping[str, int] = types.MappingProxyType({}),
) -> list[DataWarning]:
    """Return the warnings of points and runs, serious ones first.

    Args:
        comparison: The table of points.
        runs: The table of runs.
        cpus_per_node: CPUs of each platform's nodes. Nodes that one machine simulates cause a
            warning if the machine had fewer CPUs than they take together, or if their platform is
            missing here.
    """
    tables = Tables(comparison, runs, cpus_per_node)
    texts = tomllib.loads(TEXTS.read_text(encoding="utf-8"))
    warnings = []
    for kind, (severity, rule) in RULES.items():
        every = rule(tables)
        for points, number, values in [every] if isinstance(every, Found) else every:
            if not points:
                continue
            named = {"number": number, "runs": count(number, "run"), "n": len(points)}
            named |= {"configurations": count(len(points), "configuration"), **values}
            text, short = (texts[kind][name].format_map(named) for name in ("text", "short"))
            warnings.append(DataWarning(kind, severity, text, short, tuple(points), number))
    return sorted(warnings, key=lambda warning: warning.severity != SERIOUS)


def footnotes(found: Sequence[DataWarning]) -> list[str]:
    """Return the footnote of a plot: one note, or none."""
    return [f"warnings: {'; '.join(warning.short for warning in found)}"] if found else []


class _File(msgspec.Struct, frozen=True):
    """The content of warnings.json."""

    schema_version: Literal[2]
    warnings: list[DataWarning]


def write(path: Path, found: Sequence[DataWarning]) -> None:
    """Write warnings.json."""
    run_record.write_json(path, _File(2, list(found)))


def read(path: Path) -> list[DataWarning]:
    """Read warnings.json. Raises InputError if it is none of this version."""
    return program_errors.read_json(path, _File).warnings
