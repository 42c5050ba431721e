"""What to run next: the plan with its price and how it is submitted, and rounds of further runs.

INPUTS   config.json, manifest.json, the run records; how jobs are submitted (JSON on standard
         input)
OUTPUTS  in details/: plan.csv: one row per configuration with runs still to do and per excluded
         one, with the answers of `sbatch --test-only` and `sacct`; plan.md, to read: first what
         Slurm refuses, then the configurations, the sbatch lines, the sums and the budget;
         repeats/round=<n>.json
"""

from __future__ import annotations

import datetime
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pandas as pd
from msgspec.structs import replace

from tfscaling.files import atomic
from tfscaling.files.program_errors import InputError
from tfscaling.plan import (
    costed_plan,
    extra_repeats,
    local_checks,
    preflight,
    queue_waits,
    sweep_jobs,
)
from tfscaling.plan.costed_plan import PlanRow
from tfscaling.plan.sweep_jobs import Submission
from tfscaling.record import run_record
from tfscaling.record.run_states import RERUN_STALE
from tfscaling.search import study_searches
from tfscaling.spec.config import Budget, Config
from tfscaling.spec.platforms import LOGICAL
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.tables import display, table_rows
from tfscaling.tables.display import MISSING, NAMING, Number, TextTable, rounded

#: The executor that runs a sweep inside one allocation.
ALLOCATION = "slurm-allocation"
SHOWN = (
    *("runs", "tasks", "gpus", "cpus_per_task", "duration", "duration_from", "node_hours"),
    *("cost_usd", "feasibility", "submission", "starts", "wait_bound"),
)
SUBMITTED = (
    "How the Slurm executor plugin submits: `<uuid>` and `<command>` exist only then, `<run>` is "
    "the run's name. Without `-A` it is your default account.\n"
)
DIGITS = {"node_hours": 3, "cost_usd": 4}


def run(study: StudyFolder) -> None:
    """Write and print the plan. Raises InputError if the submission is not what it should be."""
    try:
        how = msgspec.json.decode(sys.stdin.buffer.read(), type=Submission)
    except msgspec.DecodeError as error:
        raise InputError(f"standard input: {error}") from error
    config, planned = study.config, study.manifest
    made = costed_plan.make(config, planned, study.runs_dir)
    points, warnings = answered(made, config, how)
    problem = ""
    if not how.deploys_software:
        due = {row.point for row in points if row.runs}
        specs = [run.spec for run in planned.runs if run.spec.point in due]
        problem = local_checks.cuda_problem(specs, config)
        without = {spec.point for spec in local_checks.runs_without_cuda(specs, config)}
        points = [refused(row) if row.point in without else row for row in points]
    rows = [msgspec.structs.asdict(row) for row in points]
    table = pd.DataFrame(rows, columns=list(costed_plan.COLUMNS), dtype=object)
    table_rows.write_csv(table, study.details / "plan.csv")
    text = "\n\n".join(filter(None, [problem, markdown(made, points, config, warnings)]))
    atomic.write_text(study.details / "plan.md", text)
    print(text)


def refused(row: PlanRow) -> PlanRow:
    """The row of a point whose GPUs would not be used."""
    reason = "no CUDA libraries"
    return replace(row, feasibility=costed_plan.REFUSED, reason=reason, starts=costed_plan.REFUSED)


def answered(
    made: costed_plan.Plan, config: Config, how: Submission
) -> tuple[list[PlanRow], list[str]]:
    """The rows of the points with their submission and Slurm's answer, and what it lets wait."""
    rows = sweep_jobs.submitted(made.rows, config, how)
    if how.executor not in sweep_jobs.SLURM:
        return rows, []
    held = [*allocations(rows, config)] if how.executor == ALLOCATION else []
    try:
        rows = queue_waits.added(preflight.added(rows, config, how), config, how)
    except preflight.NoSlurmError as error:
        return rows, [*held, f"Without Slurm's answer: {error}."]
    waiting = [row for row in rows if not row.is_refused]
    return rows, [*held, *(f"Slurm would let wait {line}" for line in said_by_slurm(waiting))]


def allocations(rows: Iterable[PlanRow], config: Config) -> Iterator[str]:
    """What each allocation takes if each run takes its time limit."""
    found: dict[tuple[str | None, ...], list[PlanRow]] = {}
    for row in rows:
        at = config.platforms[row.platform]
        if row.runs and at.launcher != "local":
            request = (at.partition, at.account, at.qos, at.constraint)
            found.setdefault(request, []).append(row)
    for (partition, *_), own in found.items():
        nodes = max(row.nodes for row in own)
        used_min = sum(
            (row.runs or 0) * row.nodes * config.platforms[row.platform].runtime_min for row in own
        )
        where = f"One allocation of partition {partition}" if partition else "One allocation"
        hours = rounded(used_min / 60, 3)
        yield (
            f"{where}: {nodes} nodes for at most {math.ceil(used_min / nodes)} min, {hours} "
            "node-hours if none is idle, and more where runs leave nodes idle"
        )


def said_by_slurm(rows: Iterable[PlanRow]) -> list[str]:
    """Slurm's words about points, one line for all points of a platform with the same words."""
    return [line for line, _ in preflight.by_words((row, row.slurm) for row in rows if row.slurm)]


def markdown(
    made: costed_plan.Plan,
    points: Sequence[PlanRow],
    config: Config,
    warnings: Sequence[str] = (),
) -> str:
    """The plan to read: what Slurm refuses, the points, the sbatch lines, and the sums."""
    lines: dict[str, int] = {}
    for row in points:
        if row.is_sbatch and row.submission:
            lines.setdefault(row.submission, len(lines) + 1)
    parts = []
    if refused := said_by_slurm(row for row in points if row.is_refused):
        head = (
            "Slurm refuses what these configurations ask for; nothing of this plan would be "
            "submitted:"
        )
        listed = [f"- {line}" for line in refused]
        parts.append("\n".join([head, "", *listed, "", preflight.ADVICE, ""]))
    parts += [display.markdown(points_shown(points, lines)), *([SUBMITTED] if lines else [])]
    for line, number in lines.items():
        parts.append(f"sbatch {number}:\n\n```bash\n{line}\n```\n")
    parts.append(display.markdown(totals_shown(made, points, config, warnings), level=2))
    if made.searches:
        parts.append(display.markdown(searches_shown(made.searches), level=2))
    return "\n".join(parts)


def points_shown(rows: Sequence[PlanRow], lines: Mapping[str, int]) -> TextTable:
    """One row per point; axes that are the same everywhere stand above."""
    values = {axis: {getattr(row, axis) for row in rows} for axis in NAMING if axis != "nodes"}
    fixed = {axis: found.pop() for axis, found in values.items() if len(found) == 1}
    has_starts = any(row.starts for row in rows)
    shown = [name for name in SHOWN if has_starts or name not in ("starts", "wait_bound")]
    names = [*(axis for axis in NAMING if axis not in fixed), *shown]
    cells = ([cell(name, row, lines) for name in names] for row in rows)
    above = f"All: {', '.join(f'{axis} {value}' for axis, value in fixed.items())}."
    title = "Plan of the runs that are still to do"
    return TextTable.of(title, names, cells, (), above if fixed else "")


def cell(name: str, row: PlanRow, lines: Mapping[str, int]) -> str:
    """A value as it is read; of the sbatch line its number in `lines`."""
    if name == "feasibility" and row.is_refused:
        # Slurm's reasons are above the table
        known = row.feasibility == costed_plan.REFUSED
        return costed_plan.REFUSED + f" ({row.reason})" * known
    if name == "feasibility":
        started = not row.reason.startswith("missing: ")
        return row.feasibility + f" ({row.reason})" * started
    is_time = name in ("duration", "wait_bound")
    value = getattr(row, f"{name}_s" if is_time else name)
    if value is None:
        unknown = name in ("cost_usd", "wait_bound") and row.feasibility != costed_plan.EXCLUDED
        return "unknown" if unknown else MISSING
    if name == "submission" and value in lines:
        return f"sbatch {lines[value]}"
    if name == "gpus" and row.devices == LOGICAL:
        # what Slurm may give out as GPUs trains on parts of a CPU
        return Number(f"{value} logical", value)
    if isinstance(value, str):
        return value
    return clock(value) if is_time else rounded(value, DIGITS.get(name, 0))


def clock(duration_s: float) -> Number:
    """Seconds as h:mm:ss, with the days where there are any."""
    return Number(str(datetime.timedelta(seconds=round(duration_s))), duration_s)


def totals_shown(
    made: costed_plan.Plan, points: Sequence[PlanRow], config: Config, warnings: Sequence[str]
) -> TextTable:
    """The sums for each platform and for all, with notes on them and on the budget.

    Of the runs that are not refused.
    """
    wanted = [row for row in points if row.runs and not row.is_refused]
    platforms = dict.fromkeys(row.platform for row in wanted)
    groups = {p: [row for row in wanted if row.platform == p] for p in platforms}
    rows = [[name, *sums(costed_plan.total(runs))] for name, runs in groups.items()]
    rows.append(["all", *sums(costed_plan.total(wanted))])
    names = ["platform", "runs", "node_hours", "cost_usd", "one after the other"]
    return TextTable.of("Totals", names, rows, [*warnings, *notes(made, points, config)])


def searches_shown(searches: Sequence[costed_plan.SearchCost]) -> TextTable:
    """The least, expected and highest cost of each search, and the cost of the full grid."""
    kinds = ("made", "least", "expected", "most", "full_grid")
    rows = [
        [search.work, kind.replace("_", " "), *sums(getattr(search, kind))[:3]]
        for search in searches
        for kind in kinds
    ]
    notes = (
        "All runs of a search, those made included. Least: it is decided after its next round. "
        "Most: all further rounds run the most expensive configurations. Full grid: `repeats` runs "
        "of the same configurations.",
        f"Expected: the mean of {study_searches.TRIALS} simulated searches, where runs scatter by "
        f"{study_searches.SCATTER:.0%} and times not measured yet follow random scaling curves: an "
        "assumption, no bound.",
    )
    names = ["search", "", "runs", "node_hours", "cost_usd"]
    return TextTable.of("The search and the full grid", names, rows, notes)


def sums(total: costed_plan.Total) -> list[str]:
    """Runs, node-hours, US dollars, time if the runs follow one another."""
    known = rounded(total.cost_usd, 2)
    usd = Number(f"{known} + unknown", total.cost_usd) if total.cost_usd else "unknown"
    cost = usd if total.unpriced else known
    return [rounded(total.runs, 0), rounded(total.node_hours, 3), cost, clock(total.duration_s)]


def notes(made: costed_plan.Plan, points: Sequence[PlanRow], config: Config) -> list[str]:
    """What the numbers mean, what they leave out, and whether the budget allows them."""
    to_do, excluded = costed_plan.total(made.runs), len(made.rows) - len(made.runs)
    wanted = made.finished + made.stale + to_do.runs
    found = [f"{made.finished} of {wanted} runs are finished and cost nothing."]
    if made.spent.attempts:
        usd = made.spent.lost_cost_usd
        cost = "unknown" if usd is None else f"{usd:.2f}"
        found.append(
            f"Attempts that failed so far: {made.spent.attempts}, {made.spent.lost_node_hours:.3f} "
            f"node-hours, {cost} US dollars; not in the sums."
        )
    if refused := sum(row.runs or 0 for row in points if row.is_refused):
        found.append(f"Not in the sums: {refused} of these runs, which are refused.")
    found += [
        f"Recipe {name} trains more examples on more replicas (steps_per_epoch with a batch per "
        "replica): its configurations will not be compared; use global_batch_size."
        for name in costed_plan.of_other_work(made.runs, config.recipes)
    ]
    if made.stale:
        number = f"{made.stale} run{'s' if made.stale > 1 else ''}"
        found.append(f"{number} of other code or data count no more: {RERUN_STALE} adds them here.")
    if excluded:
        found.append(f"Excluded configurations, with the reason in their row: {excluded}.")
    if if_needed := sum(row.runs or 0 for row in made.if_needed):
        found.append(
            f"{if_needed} runs are done only if the others leave open what they are to "
            "show: sums are upper bounds."
        )
    found += [
        f"question.limits.{name}: at most {limit.value:g} s is less than the shortest start-up "
        f"measured so far, {made.startup_s:.3g} s: no configuration is expected to keep it."
        for name, limit in config.question.limits.items()
        if name in ("execution_time_s", "time_with_queue_s") and limit.value < made.startup_s
    ]
    if made.elsewhere:
        found.append(f"{made.elsewhere} runs are not on the chosen cluster {config.cluster}.")
    found.append(
        "duration: of one run: median wall time, from launch to teardown, of the valid runs of the "
        "same configuration, "
        f"else the platform's runtime_min ({costed_plan.TIME_LIMIT}). "
        "Neither queue nor repeated attempts. Node-hours are nodes x duration, also where nodes "
        "are processes of one machine."
    )
    if any(row.starts for row in points):
        found.append(
            "starts: when Slurm would start one run of the row, if nothing else were submitted "
            "(`sbatch --test-only`); local time."
        )
        found.append(
            "wait_bound: 95 % of similar jobs of the partition wait for less; unknown without "
            f"accounting, or below {queue_waits.JOBS_MIN} of them in {queue_waits.DAYS} days."
        )
        found += waits_judged(points, config)
    assumed = (row for row in points if row.duration_from == costed_plan.TIME_LIMIT)
    if any(not row.is_sbatch for row in assumed):
        found.append("Only Slurm enforces runtime_min: elsewhere it is assumed.")
    if unpriced := to_do.unpriced:
        found.append(f"No price, so unknown dollars: {', '.join(unpriced)}.")
    if problems := costed_plan.budget_problems(config, made.runs):
        return found + [f"The budget refuses this sweep: {line}" for line in problems]
    budgeted = config.budget != Budget()
    return [*found, "The budget allows it." if budgeted else "No budget is set."]


def waits_judged(points: Sequence[PlanRow], config: Config) -> list[str]:
    """Whether configurations without runs are expected to keep the limit of the time with queue."""
    name = "time_with_queue_s"
    if (limit := config.question.limits.get(name)) is None:
        return []

    def expected(row: PlanRow) -> str:
        if row.duration_s is None or row.wait_bound_s is None:
            return "unknown"
        is_kept = row.wait_bound_s + row.duration_s <= limit.value
        return "kept" if is_kept else "may be missed"

    new = [row for row in points if row.runs and not row.is_refused and not row.is_measured]
    found = preflight.by_words((row, expected(row)) for row in new)
    head = f"question.limits.{name}, at most {limit.value:g} s, by duration and wait_bound"
    return [f"{head}: {line}." for line, _ in found]


def assess_repeats(study: StudyFolder) -> None:
    """Write the file of the round and print what it decides."""
    number = study.round
    previous = extra_repeats.read(file_of_round(study, number - 1)) if number > 1 else None
    before = previous.runs if previous else ()
    made = extra_repeats.next_round(study.manifest, study.runs_dir, before, number)
    for search in made.searches:
        more = f", {len(search.wanted)} run next" if search.wanted else ""
        ended = "decided" if search.is_decided else "undecided"
        print(
            f"search, {search.work}: {len(search.left)} of {search.points} "
            f"configurations are excluded{more or f'; {ended}'}"
        )
    print(f"round {number}: {made.added} more runs")
    run_record.write_json(file_of_round(study, number), made)


def file_of_round(study: StudyFolder, number: int) -> Path:
    return study.details / "repeats" / f"round={number}.json"
