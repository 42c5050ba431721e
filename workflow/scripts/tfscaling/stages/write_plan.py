"""What to run next: the plan with its price and how it is submitted, and rounds of further runs.

INPUTS   config.json, manifest.json (of a plan in details/planned/details), the run records; how
         jobs are submitted (JSON on standard input)
OUTPUTS  in details/: plan.csv: one row per configuration with runs still to do and per excluded
         one, with the answers of `sbatch --test-only` and `sacct`; plan.md, to read: first what
         Slurm refuses, then the configurations, the sbatch lines, the sums and the budget;
         repeats/round=<n>.json
"""

from __future__ import annotations

import datetime
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pandas as pd
from msgspec.structs import replace

from tfscaling.conclusions import rendering, search_results, wide_jobs
from tfscaling.files import atomic, program_errors
from tfscaling.files.program_errors import InputError
from tfscaling.plan import (
    budget,
    conditional_runs,
    costed_plan,
    local_checks,
    preflight,
    queue_waits,
    run_durations,
)
from tfscaling.plan.costed_plan import PlanRow
from tfscaling.record import run_record, step_estimates
from tfscaling.record.run_states import RERUN_STALE
from tfscaling.search import study_searches
from tfscaling.snakemake_adapter.submission import SLURM, Submission
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.study import variants
from tfscaling.study.config_types import AUTO, AUTO_STEPS, Budget, Config
from tfscaling.study.platforms import LOGICAL
from tfscaling.tables import display, runs_table, table_files
from tfscaling.tables.display import (
    MISSING,
    NAMING_COLUMNS,
    FormattedNumber,
    TextTable,
    format_value,
)

#: Folder in `details` with the configuration and the manifest of the plan.
PLANNED = "planned"
#: File next to them with the folders of the runs that the user forces to be repeated.
FORCED = "forced.json"
#: Name of the executor that runs a sweep inside one allocation.
ALLOCATION = "slurm-allocation"
#: Columns of the plan's table after the axes.
SHOWN = (
    *("runs", "tasks", "gpus", "cpus_per_task", "duration", "duration_from", "node_hours"),
    *("cost_usd", "feasibility", "submission", "starts", "wait_bound"),
)
#: Column of the plan's table → its decimals.
DIGITS = {"node_hours": 3, "cost_usd": 4}


def run(study: StudyFolder) -> None:
    """Write plan.csv and plan.md and print the plan.

    How jobs are submitted is read from standard input.

    Raises:
        InputError: Standard input has no valid `Submission`.
    """
    try:
        how = msgspec.json.decode(sys.stdin.buffer.read(), type=Submission)
    except msgspec.DecodeError as error:
        raise InputError(f"standard input: {error}") from error
    # not the files of the study: a sweep with another configuration may be running
    apart = StudyFolder(study.details / PLANNED)
    config, planned = apart.config, apart.manifest
    forced = program_errors.read_json(apart.details / FORCED, frozenset[str])
    made = costed_plan.make_plan(config, planned, study.runs_dir, forced)
    points, warnings = add_slurm_answers(made, config, how)
    problem = ""
    if not how.deploys_software:
        due = {row.point for row in points if row.runs}
        specs = [run.spec for run in planned.all_runs if run.spec.point in due]
        checks = (local_checks.package_problem, local_checks.cuda_problem)
        problem = "\n\n".join(filter(None, (check(specs, config) for check in checks)))
        without = {spec.point for spec in local_checks.runs_without_cuda(specs, config)}
        marks = dict.fromkeys(("feasibility", "starts"), costed_plan.REFUSED)
        points = [
            replace(row, reason="no CUDA libraries", **marks) if row.point in without else row
            for row in points
        ]
    rows = [msgspec.structs.asdict(row) for row in points]
    table = pd.DataFrame(rows, columns=list(costed_plan.COLUMNS), dtype=object)
    table_files.write_csv(table, study.details / "plan.csv")
    text = "\n\n".join(filter(None, [problem, plan_as_markdown(made, points, config, warnings)]))
    atomic.write_text(study.details / "plan.md", text + "\n")
    print(text)


def add_slurm_answers(
    plan: costed_plan.Plan, config: Config, submission: Submission
) -> tuple[list[PlanRow], list[str]]:
    """Return the plan's rows with Slurm's answers to their sbatch lines, and warnings.

    Slurm is only queried if the executor submits to it. Jobs are tested, not started.

    Args:
        plan: The plan.
        config: The configuration.
        submission: How jobs are submitted.

    Returns:
        The rows, and lines about the allocations or about wide and short jobs, about jobs that must
        wait, and about missing answers.
    """
    rows = costed_plan.add_submission(plan.rows, config, submission)
    if submission.executor not in SLURM:
        return rows, []
    describe_jobs = allocation_lines if submission.executor == ALLOCATION else wide_job_lines
    held = [*describe_jobs(rows, config)]
    if refused := preflight.variables_problem(os.environ):
        held.append(f"The sweep would be refused. {refused}.")
    try:
        rows = queue_waits.add_wait_bounds(
            preflight.add_test_results(rows, config, submission), config, submission
        )
    except preflight.NoSlurmError as error:
        return rows, [*held, f"Without Slurm's answer: {error}."]
    waiting = [row for row in rows if not row.is_refused]
    return rows, [*held, *(f"Slurm would let wait {line}" for line in slurm_messages(waiting))]


def allocation_lines(rows: Iterable[PlanRow], config: Config) -> Iterator[str]:
    """Yield a line about each allocation that the executor `slurm-allocation` needs.

    The line has the number of nodes, minutes and node-hours. Runs with equal partition, account,
    QOS and constraint share an allocation.

    Args:
        rows: The rows of the plan.
        config: The configuration, with the time limits.
    """
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
        hours = format_value(used_min / 60, 3)
        yield (
            f"{where}: {nodes} nodes for at most {math.ceil(used_min / nodes)} min, {hours} "
            "node-hours if none is idle, and more where runs leave nodes idle"
        )


def wide_job_lines(rows: Iterable[PlanRow], config: Config) -> Iterator[str]:
    """Yield a line about the jobs of each platform that are wide and short, by its `wide_jobs`.

    Runs without a measured time count if their time limit is too short.

    Args:
        rows: The rows of the plan.
        config: The configuration, with the platforms.
    """
    short: dict[str, list[PlanRow]] = {}
    for row in rows:
        time_s = row.duration_s if row.runs and row.duration_s else math.nan
        if row.is_sbatch and config.platforms[row.platform].is_wide_and_short(row.nodes, time_s):
            short.setdefault(row.platform, []).append(row)
    for name, own in short.items():
        limit = config.platforms[name].wide_jobs
        assert limit is not None, "without this key no job is wide and short"
        longest = wide_jobs.time_rounded_down(max(row.duration_s or 0.0 for row in own))
        words = f"a run takes up to {longest}; {wide_jobs.limit_text(limit)} (`wide_jobs`)"
        for line, _ in preflight.group_by_message((row, words) for row in own):
            yield f"Wide and short jobs: {line}. {wide_jobs.PLAN_ADVICE}"


def slurm_messages(rows: Iterable[PlanRow]) -> list[str]:
    """Return lines with Slurm's messages about the rows of the plan.

    Rows of a platform with equal messages share a line.
    """
    return [
        line
        for line, _ in preflight.group_by_message((row, row.slurm) for row in rows if row.slurm)
    ]


def plan_as_markdown(
    plan: costed_plan.Plan, points: Sequence[PlanRow], config: Config, warnings: Sequence[str] = ()
) -> str:
    """Return the plan as Markdown: Slurm's refusals, the configurations, sbatch lines and sums.

    Args:
        plan: The plan.
        points: Its rows with Slurm's answers.
        config: The configuration.
        warnings: Lines that precede the notes.
    """
    lines: dict[str, int] = {}
    for row in points:
        if row.is_sbatch and row.submission:
            lines.setdefault(row.submission, len(lines) + 1)
    return rendering.render(
        "plan",
        refused=slurm_messages(row for row in points if row.is_refused),
        advice=preflight.ADVICE,
        lines=lines,
        points=display.to_markdown(configurations_table(points, lines)),
        totals=display.to_markdown(totals_table(plan, points, config, warnings), level=2),
        searches=plan.searches and display.to_markdown(searches_table(plan.searches), level=2),
    )


def configurations_table(rows: Sequence[PlanRow], lines: Mapping[str, int]) -> TextTable:
    """Return the plan as a table with one row per configuration; constant axes are named above it.

    Args:
        rows: The rows of the plan.
        lines: sbatch line → its number.
    """
    values = {
        axis: {getattr(row, axis) for row in rows} for axis in NAMING_COLUMNS if axis != "nodes"
    }
    fixed = {axis: found.pop() for axis, found in values.items() if len(found) == 1}
    has_starts = any(row.starts for row in rows)
    columns = [name for name in SHOWN if has_starts or name not in ("starts", "wait_bound")]
    names = [*(axis for axis in NAMING_COLUMNS if axis not in fixed), *columns]
    cells = ([format_cell(name, row, lines) for name in names] for row in rows)
    above = f"All: {', '.join(f'{axis} {value}' for axis, value in fixed.items())}."
    title = "Plan of the runs that are still to do"
    return TextTable.from_rows(title, names, cells, (), above if fixed else "")


def format_cell(name: str, row: PlanRow, lines: Mapping[str, int]) -> str:
    """Return a value of the plan as text.

    Args:
        name: Column of the table.
        row: Row of the plan.
        lines: sbatch line → its number, which is shown in place of the line.
    """
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
        return FormattedNumber(f"{value} logical", value)
    if isinstance(value, str):
        return value
    return format_hours(value) if is_time else format_value(value, DIGITS.get(name, 0))


def format_hours(duration_s: float) -> FormattedNumber:
    """Return seconds as `h:mm:ss`, or `2 days, h:mm:ss`, sortable by the number."""
    return FormattedNumber(str(datetime.timedelta(seconds=round(duration_s))), duration_s)


def totals_table(
    plan: costed_plan.Plan, points: Sequence[PlanRow], config: Config, warnings: Sequence[str]
) -> TextTable:
    """Return a table of the sums for each platform and in total, with notes.

    Runs that Slurm refuses are excluded.

    Args:
        plan: The plan.
        points: Its rows with Slurm's answers.
        config: The configuration.
        warnings: Lines that precede the notes.
    """
    wanted = [row for row in points if row.runs and not row.is_refused]
    platforms = dict.fromkeys(row.platform for row in wanted)
    groups = {p: [row for row in wanted if row.platform == p] for p in platforms}
    rows = [[name, *total_cells(costed_plan.sum_rows(runs))] for name, runs in groups.items()]
    rows.append(["all", *total_cells(costed_plan.sum_rows(wanted))])
    names = ["platform", "runs", "node_hours", "cost_usd", "one after the other"]
    return TextTable.from_rows(
        "Totals", names, rows, [*warnings, *plan_notes(plan, points, config)]
    )


def searches_table(searches: Sequence[costed_plan.SearchCost]) -> TextTable:
    """Return a table with the costs of each search (see `SearchCost.costs`) and its full grid."""
    rows = [
        [search.question, kind, *total_cells(cost)[:3]]
        for search in searches
        for kind, cost in search.costs.items()
    ]
    trials, scatter = study_searches.SIMULATIONS, study_searches.SIMULATED_SCATTER
    ended = {each.question: each.end_verdict for each in searches if each.end_verdict}
    notes = rendering.render_notes("plan_searches", trials=trials, scatter=scatter, ended=ended)
    names = ["search", "", "runs", "node_hours", "cost_usd"]
    return TextTable.from_rows("The search and the full grid", names, rows, notes)


def total_cells(total: costed_plan.RunTotals) -> list[str]:
    """Return the cells of a total: runs, node-hours, US dollars, time of all runs in sequence."""
    known = format_value(total.cost_usd, 2)
    usd = FormattedNumber(f"{known} + unknown", total.cost_usd) if total.cost_usd else "unknown"
    cost = usd if total.unpriced else known
    return [
        format_value(total.runs, 0),
        format_value(total.node_hours, 3),
        cost,
        format_hours(total.duration_s),
    ]


def plan_notes(
    plan: costed_plan.Plan, points: Sequence[PlanRow], config: Config
) -> tuple[str, ...]:
    """Return the notes below the plan: about its estimates, excluded costs, and the budget.

    Args:
        plan: The plan.
        points: Its rows with Slurm's answers.
        config: The configuration.
    """
    assumed = (row for row in points if row.duration_from == run_durations.TIME_LIMIT)
    autos = {name for name, each in config.recipes.items() if each.stop_after_steps == AUTO}
    used = {name for row in points for name in (row.recipe, variants.base_recipe(row.recipe))}
    ends_itself = used & autos or any(f"stop_after_steps={AUTO}" in name for name in used)
    return rendering.render_notes(
        "plan",
        made=plan,
        config=config,
        to_do=costed_plan.sum_rows(plan.runs),
        changed=count_changed_parameters(plan.runs),
        excluded=len(plan.rows) - len(plan.runs),
        refused=sum(row.runs or 0 for row in points if row.is_refused),
        if_needed=sum(r.runs or 0 for r in plan.runs if r.feasibility == costed_plan.IF_NEEDED),
        explaining=sum(r.runs or 0 for r in plan.runs if r.feasibility == costed_plan.EXPLAINS),
        other_work=costed_plan.recipes_with_different_examples(plan.runs, config.recipes),
        deadlines=budget.deadline_problems(config, plan),
        beyond_budget=budget.budget_problems(config, plan),
        has_budget=config.budget != Budget(),
        has_starts=any(row.starts for row in points),
        waits=describe_queue_limits(points, config),
        ends_itself=ends_itself,
        enough=(AUTO_STEPS, step_estimates.ENOUGH_S, step_estimates.ENOUGH_ERROR),
        is_assumed=any(not row.is_sbatch for row in assumed),
        rerun_stale=RERUN_STALE,
        time_limit=run_durations.TIME_LIMIT,
        jobs_min=queue_waits.JOBS_MIN,
        days=queue_waits.DAYS,
    )


def count_changed_parameters(rows: Sequence[PlanRow]) -> dict[str, float]:
    """Count the planned runs by how their parameters differ from the most similar record.

    Returns:
        Difference, such as `epochs: 7, now 2` → number of runs that differ in this way.
    """
    found: dict[str, float] = {}
    for row in rows:
        change = row.reason.partition(f"{runs_table.NEAREST_RECORD}: ")[2]
        if change:
            found[change] = found.get(change, 0) + (row.runs or 0)
    return found


def describe_queue_limits(points: Sequence[PlanRow], config: Config) -> list[str]:
    """Return lines on whether configurations are expected to keep `time_with_queue_s`.

    A line says `kept`, `may be missed` or `unknown`. The upper bound of the time in the queue plus
    the expected duration is compared with the limit. Configurations with a measured duration are
    left out.

    Args:
        points: Rows of the plan with Slurm's answers.
        config: The configuration, with the limit.

    Returns:
        The lines; [] without such a limit.
    """
    name = "time_with_queue_s"
    if (limit := config.question.limits_in_force.get(name)) is None:
        return []

    def expected(row: PlanRow) -> str:
        """Return the expected time with queue of a configuration as text."""
        if row.duration_s is None or row.wait_bound_s is None:
            return "unknown"
        is_kept = row.wait_bound_s + row.duration_s <= limit.value
        return "kept" if is_kept else "may be missed"

    due = [row for row in points if row.runs and not row.is_refused]
    new = [row for row in due if not (row.duration_from or "").startswith("measured")]
    found = preflight.group_by_message((row, expected(row)) for row in new)
    head = f"question.limits.{name}, at most {limit.value:g} s, by duration and wait_bound"
    return [f"{head}: {line}." for line, _ in found]


def assess_repeats(study: StudyFolder) -> None:
    """Decide which conditional runs the round `study.round` adds; write its file, print a summary.

    Conditional runs are the runs of searches, and larger batches of doublings.
    """
    number = study.round
    previous = conditional_runs.read_round(round_file(study, number - 1)) if number > 1 else None
    before = previous.runs if previous else ()
    made, searches = conditional_runs.next_round(study.manifest, study.runs_dir, before, number)
    for search in searches:
        decision = search.decision
        excluded = sum(each.reason is not None for each in decision.standings.values())
        ended = "decided" if decision.is_decided else "undecided"
        ended = search_results.verdict_text(search) if decision.not_worth_it else ended
        print(
            f"search, {search.planned.question}: {excluded} of {len(search.points)} configurations "
            "are excluded"
            + (f", {n} run next" if (n := len(decision.runs_to_start)) else f"; {ended}")
        )
    print(f"round {number}: {made.added} more runs")
    run_record.write_json(round_file(study, number), made)


def round_file(study: StudyFolder, number: int) -> Path:
    """Return the path of the file of a round of conditional runs, by the round's number."""
    return study.details / "repeats" / f"round={number}.json"
