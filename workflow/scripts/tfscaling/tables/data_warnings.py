"""Warnings about the measured data, the same in every output of a study.

They are listed above the tables of runs and of configurations. Plots and the page read them from
warnings.json.
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
from tfscaling.study.config_types import PROGRAM_STRATEGY
from tfscaling.study.platforms import LOGICAL
from tfscaling.study.run_spec import Point
from tfscaling.tables import run_environment, table_files, timings
from tfscaling.tables.display import NAMES_IN_SENTENCE_MAX, count_text, point_name, varying_axes
from tfscaling.tables.node_effects import estimate_effects_by_platform, remove_slow_node_effects
from tfscaling.tables.row_types import SEPARATOR, PointRow, RunRow
from tfscaling.tables.row_values import group_by, group_by_point, is_known, point_of

#: SERIOUS: the numbers do not mean what they seem to mean. LIMITED: there are fewer than planned,
#: or they are less sure.
SERIOUS, LIMITED = "serious", "limited"
#: The kind of warning that some configurations have fewer runs than an interval needs.
FEW_RUNS = "few_runs"


class DataWarning(msgspec.Struct, frozen=True):
    """A reason to read the numbers of some configurations with care.

    Attributes:
        kind: The key of the warning in RULES and in data_warnings.toml.
        severity: SERIOUS or LIMITED.
        text: A sentence for tables.
        short: A few words for the top of the page and below exported plots.
        points: The configurations that it concerns.
        runs: Number of runs that it concerns; all runs of `points` if it is not about single runs.
    """

    kind: str
    severity: str
    text: str
    short: str
    points: tuple[Point, ...]
    runs: int


#: Largest uncertainty of a clock without a warning, as a fraction of the measured time.
CLOCK_ERROR_MAX = 0.01
#: Largest standard deviation of a configuration's log times without a warning. The simulations of
#: decisions go up to it.
SCATTER_MAX = 0.2


#: A program's run that reports no training causes a warning below this share of the time of the
#: configuration's longest run.
SHORT_RUN_SHARE = 0.2
#: A scaling efficiency above 1 can come from caches; above this value it causes a warning.
SCALING_EFFICIENCY_MAX = 2.0


class Finding(NamedTuple):
    """The result of a rule; it becomes one `DataWarning`.

    Attributes:
        points: The configurations that it concerns.
        runs: Number of runs that it concerns.
        named: Values for the placeholders of the warning's texts in data_warnings.toml.
    """

    points: Sequence[Point]
    runs: int
    named: Mapping[str, object]


class StudyData:
    """The typed rows of configurations and runs that the rules of warnings read.

    Attributes:
        runs: The table of runs.
        points: Configuration → its row.
        planned: `points` without excluded configurations.
        measured: `points` with at least one valid run.
        all_runs: The rows of all runs.
        valid: The rows of valid runs.
        ended: The rows of valid and diverged runs.
    """

    def __init__(
        self, comparison: pd.DataFrame, runs: pd.DataFrame, cpus_per_node: Mapping[str, int]
    ) -> None:
        """Convert the tables to rows.

        Args:
            comparison: The table of configurations.
            runs: The table of runs.
            cpus_per_node: Platform → CPUs that each of its simulated nodes uses.
        """
        self.runs, self._cpus_per_node = runs, cpus_per_node
        rows = table_files.to_rows(PointRow, comparison)
        self.points: dict[Point, PointRow] = {point_of(row): row for row in rows}
        self.planned = {p: row for p, row in self.points.items() if row.status != "excluded"}
        self.measured = {p: row for p, row in self.points.items() if row.runs > 0}
        self.all_runs: Sequence[RunRow] = table_files.to_rows(RunRow, runs)
        self.valid = [run for run in self.all_runs if run.status == RunState.OK]
        #: Runs with a record: its warnings may explain why a run diverged.
        self.ended = [r for r in self.all_runs if r.status in FINISHED]

    def make_finding(
        self, points: Iterable[Point], runs: int | None = None, **named: object
    ) -> Finding:
        """Return a finding about configurations.

        Args:
            points: The configurations.
            runs: Number of concerned runs; None for all valid runs of these configurations.
            **named: Values for the placeholders of the warning's texts.
        """
        own = tuple(points)
        total = sum(self.points[point].runs for point in own) if runs is None else runs
        at = self._describe_points(own, self.measured, "measured configuration")
        return Finding(own, total, {"at": at, **named})

    def make_run_finding(
        self, concerned: Sequence[RunRow], among: Sequence[RunRow] | None = None, **named: object
    ) -> Finding:
        """Return a finding about runs and their configurations.

        Args:
            concerned: The runs that the finding concerns.
            among: All runs that could have been concerned; None for all valid and diverged
                runs.
            **named: Values for the placeholders of the warning's texts.
        """
        points = tuple(dict.fromkeys(point_of(run) for run in concerned))
        every = self.ended if among is None else among
        counted = _count_among(len(concerned), len(every), "run")
        at = self._describe_points(points, self.planned, "configuration")
        return Finding(points, len(concerned), {"of": counted, "at": at, **named})

    def needs_more_cpus(self, run: RunRow) -> bool:
        """Return whether the simulated nodes of a run needed more CPUs than their machine has.

        True if one of these numbers is unknown.
        """
        cpus = self._cpus_per_node.get(run.platform)
        return cpus is None or not is_known(run.cpus_online) or run.nodes * cpus > run.cpus_online

    def platform_title(self, platform: str) -> str:
        """Return the title of a platform, or its name if no row has it."""
        titles = {row.platform: row.platform_title for row in self.points.values()}
        return str(titles.get(platform, platform))

    def _describe_points(
        self, points: Sequence[Point], among: Mapping[Point, PointRow], noun: str
    ) -> str:
        """Return which configurations are concerned: `2 of 6 configurations (1 node; 2 nodes)`.

        Names are given for at most NAMES_IN_SENTENCE_MAX configurations, and not if all are
        concerned.

        Args:
            points: The concerned configurations.
            among: All configurations that could have been concerned, with their rows.
            noun: What is counted, in the singular, such as `configuration`.
        """
        counted = _count_among(len(points), len(among), noun)
        if len(points) == len(among) or len(points) > NAMES_IN_SENTENCE_MAX:
            return counted
        vary = varying_axes([*self.points.values()])
        names = [point_name(self.points[point], vary) for point in points]
        return f"{counted} ({'; '.join(names)})"


def _count_among(number: int, among: int, noun: str) -> str:
    """Return a number in words: `2 of 6 runs`, `both runs`, `all 6 runs` or `the only run`.

    Args:
        number: The number.
        among: The number of all.
        noun: What is counted, in the singular.
    """
    if number < among:
        return f"{number} of {among} {noun}s"
    several = f"both {noun}s" if number == 2 else f"all {number} {noun}s"
    return several if number > 1 else f"the only {noun}"


def _join_with_and(names: Sequence[str]) -> str:
    """Join names: `a`, `a and b` or `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _find_imported_runs(tables: StudyData) -> Finding:
    """Find runs that are rows of a file of timings."""
    rows = [run for run in tables.valid if timings.is_imported(run)]
    return tables.make_run_finding(rows, file=timings.timings_file(rows[0]) if rows else "")


def _find_logical_devices(tables: StudyData) -> Finding:
    """Find configurations whose devices are logical ones, which simulate GPUs."""
    points = [point for point, row in tables.planned.items() if row.devices == LOGICAL]
    return tables.make_finding(
        points, at=_count_among(len(points), len(tables.planned), "configuration")
    )


def _find_diverged(tables: StudyData) -> Finding:
    """Find runs that diverged."""
    runs = [run for run in tables.all_runs if run.status == RunState.DIVERGED]
    return tables.make_run_finding(
        runs, tables.all_runs, total=count_text(len(tables.all_runs), "run")
    )


def _find_out_of_memory(tables: StudyData) -> Finding:
    """Find runs that ran out of memory although other runs of their configuration are valid."""
    unfit = [run for run in tables.all_runs if run.status == RunState.DOES_NOT_FIT]
    runs = [run for run in unfit if point_of(run) in tables.measured]
    return tables.make_run_finding(
        runs, tables.all_runs, total=count_text(len(tables.all_runs), "run")
    )


def _find_simulated_nodes(tables: StudyData) -> Finding:
    """Find runs whose nodes shared machines, if these had too few CPUs for all nodes.

    With the local launcher or on a virtual cluster, nodes are processes, and several of them may
    run on one machine. Such a run is also found if it is unknown how many CPUs its nodes needed or
    its machine had.
    """
    several = [run for run in tables.ended if run.nodes > 1 and run.machines]
    few = (run for run in several if len(str(run.machines).split()) < run.nodes)
    runs = [run for run in few if tables.needs_more_cpus(run)]
    machines = {machine for run in runs for machine in str(run.machines).split()}
    cpus = {f"{run.cpus_online}" for run in runs if is_known(run.cpus_online)}
    with_cpus = f" with {cpus.pop()} CPUs" if len(cpus) == 1 else ""
    one = f"one machine{with_cpus}" if len(machines) == 1 else "fewer machines than nodes"
    return tables.make_run_finding(runs, several, one=one)


def _find_differing_environments(tables: StudyData) -> Finding:
    """Find platforms whose runs differ in facts of the environment, such as versions."""
    facts = run_environment.varying_facts(tables.runs)
    named = "; ".join(
        f"{fact}: {_join_with_and([tables.platform_title(name) for name in names])}"
        if len(names) <= NAMES_IN_SENTENCE_MAX
        else f"{fact}: {len(names)} platforms"
        for fact, names in facts.items()
    )
    differing = {name for names in facts.values() for name in names}
    return tables.make_run_finding(
        [r for r in tables.valid if r.platform in differing], facts=named
    )


def _find_differing_data(tables: StudyData) -> Finding:
    """Find runs of the same model and recipe that read different data."""
    known = (run for run in tables.valid if run.dataset_sha256 is not None)
    tasks = group_by(known, lambda run: f"{run.model}, {run.recipe}")
    data_of = {task: group_by(own, lambda run: run.dataset_sha256) for task, own in tasks.items()}
    mixed = {task: data for task, data in data_of.items() if len(data) > 1}
    named = "; ".join(f"{task}: {len(data)}" for task, data in mixed.items())
    runs = [run for data in mixed.values() for own in data.values() for run in own]
    return tables.make_run_finding(runs, tasks=named)


def _rule_for_texts(column: str) -> Callable[[StudyData], Iterator[Finding]]:
    """Return a rule that makes one finding for each distinct text in a column of runs."""

    def find(tables: StudyData) -> Iterator[Finding]:
        texts = ((r, t) for r in tables.ended for t in (r[column] or "").split(SEPARATOR) if t)
        for text, own in group_by(texts, lambda both: both[1].rstrip(".")).items():
            yield tables.make_run_finding([run for run, _ in own], text=text)

    return find


def _find_invalid_runs(tables: StudyData) -> Finding:
    """Find runs without a result: failed, unfinished, stale or missing; count each status."""
    # runs that diverged have a separate warning
    out = [run for run in tables.all_runs if run.status not in RESULTS]
    counts = Counter(str(run.status) for run in out)
    named = _join_with_and([f"{number} {status}" for status, number in counts.items()])
    more = f" Stale ones are rerun with {RERUN_STALE}." if counts["stale"] else ""
    runs = count_text(len(tables.runs), "run")
    lack = f"{len(out)} of {runs} do not count" if tables.valid else f"None of {runs} counts"
    return tables.make_run_finding(out, lack=lack, statuses=named, more=more)


def _find_few_runs(tables: StudyData) -> Finding:
    """Find configurations with too few timed runs for an interval."""
    few = {p: row for p, row in tables.measured.items() if row.runs_timed < RUNS_FOR_INTERVAL}
    with_times = " with times" * any(row.runs_timed < row.runs for row in few.values())
    runs = f"{RUNS_FOR_INTERVAL} valid runs{with_times}"
    return tables.make_finding(
        few, needed=runs, total=count_text(len(tables.measured), "configuration")
    )


def _find_missed_targets(tables: StudyData) -> Finding:
    """Find configurations with valid runs that missed their target of quality."""
    missed = {
        point: row.runs - row.runs_at_target
        for point, row in tables.measured.items()
        if row.runs_at_target is not None and row.runs_at_target < row.runs
    }
    return tables.make_finding(missed, sum(missed.values()))


def _find_failed_attempts(tables: StudyData) -> Finding:
    """Find configurations with at least as many failed attempts as valid runs.

    Their valid runs may be a selection of favourable conditions.
    """
    failed: Counter[Point] = Counter()
    for run in tables.all_runs:
        failed[point_of(run)] += run.failed_attempts
    points = [p for p, row in tables.measured.items() if failed[p] >= max(1, row.runs)]
    number = sum(failed[point] for point in points)
    return tables.make_finding(points, number, attempts=count_text(number, "attempt"))


def _find_wide_scatter(tables: StudyData) -> Finding:
    """Find configurations whose times scatter more than in the simulations (docs/evidence.md)."""
    runs = group_by_point(run for run in tables.valid if run.execution_time_s > 0)
    logs = {p: [math.log(run.execution_time_s) for run in own] for p, own in runs.items()}
    points = [p for p, own in logs.items() if len(own) > 2 and stdev(own) > SCATTER_MAX]
    number = sum(len(logs[point]) for point in points)
    return tables.make_finding(points, number, most=f"{SCATTER_MAX:.0%}")


def _find_untrained_programs(tables: StudyData) -> Finding:
    """Find program runs that may have trained nothing, because they are far too short.

    Only runs that report neither a training time nor a loss are checked. Each is compared with the
    longest such run of its configuration.
    """
    silent = (r for r in tables.valid if not is_known(r.train_time_s) and not is_known(r.loss))
    timed = group_by_point(run for run in silent if is_known(run.execution_time_s))
    short = []
    for runs in timed.values():
        longest_s = max(run.execution_time_s for run in runs)
        short += [run for run in runs if run.execution_time_s < SHORT_RUN_SHARE * longest_s]
    return tables.make_run_finding(short, tables.valid, least=f"{SHORT_RUN_SHARE:.0%}")


def _find_unobserved_evaluations(tables: StudyData) -> Finding:
    """Find timed runs of programs that report no evaluation although others of their recipe do."""
    programs = (r for r in tables.valid if r.strategy == PROGRAM_STRATEGY)
    timed = (run for run in programs if is_known(run.execution_time_s))
    found = []
    for runs in group_by(timed, lambda run: (run.model, run.recipe)).values():
        silent = [run for run in runs if not run.evaluation_time_s > 0]  # NaN if unknown
        found += silent if len(silent) < len(runs) else []
    return tables.make_run_finding(found, tables.valid)


def _find_slow_nodes(tables: StudyData) -> Iterator[Finding]:
    """Yield a finding for each platform with nodes on which runs take significantly longer."""
    vary = varying_axes([*tables.points.values()])
    for platform, effects in estimate_effects_by_platform(tables.valid).items():
        named = ", ".join(f"{e.node} ({e.factor:.2f} times)" for e in effects if e.is_slow)
        own = (run for run in tables.valid if run.platform == platform)
        medians, number = {}, 0
        for point, runs in group_by_point(
            run for run in own if is_known(run.execution_time_s)
        ).items():
            times_s = [run.execution_time_s for run in runs]
            parts = [(run.hosts or "").split() for run in runs]
            healthy_s = remove_slow_node_effects(parts, times_s, effects)
            slowed = sum(a != b for a, b in zip(times_s, healthy_s, strict=True))
            if slowed:
                number += slowed
                times = f"{median(healthy_s):.4g} s instead of {median(times_s):.4g} s"
                medians[point] = f"{point_name(tables.points[point], vary)} {times}"
        shown = [*medians.values()][:NAMES_IN_SENTENCE_MAX] + ["…"] * (
            len(medians) > NAMES_IN_SENTENCE_MAX
        )
        yield tables.make_finding(medians, number, nodes=named, healthy="; ".join(shown))


def _find_ordered_starts(tables: StudyData) -> Iterator[Finding]:
    """Yield a finding for each platform whose repeats all started in order of nodes.

    The order is rising or falling, and improbable by chance. A drift of the platform would then
    look like an effect of the number of nodes.
    """
    started = (run for run in tables.valid if run.started is not None)
    platforms = group_by(started, lambda run: run.platform)
    for name, of_platform in platforms.items():
        repeats = group_by(of_platform, lambda run: run.repeat)
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
            yield tables.make_run_finding(own, tables.valid, platform=tables.platform_title(name))


def _find_runs_on_shared_machines(tables: StudyData) -> Finding:
    """Find runs that shared a machine with other runs, and state whether their times count."""
    runs = [run for run in tables.ended if run.shared_with]
    timed = sum(is_known(run.execution_time_s) for run in runs)
    times = "Their times are compared, and may be too long."
    if not timed:
        times = "Their times are not compared."
    elif timed < len(runs):
        times = f"Times of {timed} of them are compared, and may be too long."
    return tables.make_run_finding(runs, times=times)


def _find_uncertain_clocks(tables: StudyData) -> Finding:
    """Find runs whose clocks are more uncertain than CLOCK_ERROR_MAX of the execution time."""
    times = ((run, run.execution_time_s) for run in tables.valid if is_known(run.execution_time_s))
    runs = [run for run, s in times if run.clock_uncertainty_max_s > CLOCK_ERROR_MAX * s]
    return tables.make_run_finding(runs, tables.valid, most=f"{CLOCK_ERROR_MAX:.0%}")


def _rule_for_points(
    is_concerned: Callable[[PointRow], bool], **named: object
) -> Callable[[StudyData], Finding]:
    """Return a rule that finds the measured configurations that fulfil a condition.

    Args:
        is_concerned: The condition on a configuration's row.
        **named: Values for the placeholders of the warning's texts.
    """

    def find(tables: StudyData) -> Finding:
        own = (point for point, row in tables.measured.items() if is_concerned(row))
        return tables.make_finding(own, None, **named)

    return find


#: Kind of warning → its severity and rule, in the order of the outputs.
RULES: dict[str, tuple[str, Callable[[StudyData], Finding | Iterable[Finding]]]] = {
    "projected": (SERIOUS, _rule_for_points(lambda row: row.projected_from_steps is not None)),
    "logical_devices": (SERIOUS, _find_logical_devices),
    "one_machine": (SERIOUS, _find_simulated_nodes),
    "shared_machine": (SERIOUS, _find_runs_on_shared_machines),
    "diverged": (SERIOUS, _find_diverged),
    "out_of_memory": (SERIOUS, _find_out_of_memory),
    "missed_targets": (SERIOUS, _find_missed_targets),
    "other_work": (SERIOUS, _rule_for_points(lambda row: row.same_work is False)),
    "other_data": (SERIOUS, _find_differing_data),
    "failed_attempts": (SERIOUS, _find_failed_attempts),
    "wide_scatter": (SERIOUS, _find_wide_scatter),
    "nothing_trained": (SERIOUS, _find_untrained_programs),
    "unobserved_evaluations": (SERIOUS, _find_unobserved_evaluations),
    "beyond_linear": (
        SERIOUS,
        _rule_for_points(
            lambda row: row.scaling_efficiency > SCALING_EFFICIENCY_MAX,
            times=SCALING_EFFICIENCY_MAX,
        ),
    ),
    "slow_nodes": (SERIOUS, _find_slow_nodes),
    "ordered_starts": (SERIOUS, _find_ordered_starts),
    "uncertain_clocks": (LIMITED, _find_uncertain_clocks),
    "imported": (LIMITED, _find_imported_runs),
    "unknown_work": (
        LIMITED,
        _rule_for_points(lambda row: not is_known(row.examples_trained)),
    ),
    "of_runs": (SERIOUS, _rule_for_texts("warnings")),
    "not_valid": (LIMITED, _find_invalid_runs),
    FEW_RUNS: (LIMITED, _find_few_runs),
    "environments": (LIMITED, _find_differing_environments),
    "unchecked": (LIMITED, _rule_for_texts("unchecked")),
}
TEXTS = Path(__file__).with_suffix(".toml")


def find_warnings(
    comparison: pd.DataFrame,
    runs: pd.DataFrame,
    cpus_per_node: Mapping[str, int] = types.MappingProxyType({}),
) -> list[DataWarning]:
    """Return the warnings about a study's data, serious ones first.

    Args:
        comparison: The table of configurations.
        runs: The table of runs.
        cpus_per_node: Platform → CPUs per node. Where one machine simulates several nodes, a
            warning says that it has fewer CPUs than all these nodes together, or that the number is
            unknown because the platform is missing here.
    """
    tables = StudyData(comparison, runs, cpus_per_node)
    texts = tomllib.loads(TEXTS.read_text(encoding="utf-8"))
    warnings = []
    for kind, (severity, rule) in RULES.items():
        every = rule(tables)
        for points, number, values in [every] if isinstance(every, Finding) else every:
            if not points:
                continue
            named = {"number": number, "runs": count_text(number, "run"), "n": len(points)}
            named |= {"configurations": count_text(len(points), "configuration"), **values}
            text, short = (texts[kind][name].format_map(named) for name in ("text", "short"))
            warnings.append(DataWarning(kind, severity, text, short, tuple(points), number))
    return sorted(warnings, key=lambda warning: warning.severity != SERIOUS)


def make_footnotes(warnings: Sequence[DataWarning]) -> list[str]:
    """Return [all warnings in one text], which exported plots have below; [] without warnings."""
    return [f"warnings: {'; '.join(warning.short for warning in warnings)}"] if warnings else []


class _WarningsFile(msgspec.Struct, frozen=True):
    """The content of warnings.json.

    Attributes:
        schema_version: Version of the file's format.
        warnings: The warnings, serious ones first.
    """

    schema_version: Literal[2]
    warnings: list[DataWarning]


def write_warnings(path: Path, warnings: Sequence[DataWarning]) -> None:
    """Write these warnings to a file warnings.json."""
    run_record.write_json(path, _WarningsFile(2, list(warnings)))


def read_warnings(path: Path) -> list[DataWarning]:
    """Read the warnings in a file warnings.json.

    Raises:
        InputError: If the file cannot be read, or has another format or version.
    """
    return program_errors.read_json(path, _WarningsFile).warnings
