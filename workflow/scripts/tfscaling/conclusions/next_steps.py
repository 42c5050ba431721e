"""Next steps: what to do, and what it takes in runs, time, node-hours and US dollars.

A run is assumed to take the median time of its configuration's valid runs, as in the costed plan.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Any, get_args

import msgspec
import pandas as pd

from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.answers.candidate_types import State
from tfscaling.conclusions.answers.efficiency import BASELINE
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.rendering import render_sentence
from tfscaling.estimation.samples import SUPPORTED
from tfscaling.record.metrics import NAN, number_or_nan
from tfscaling.record.run_states import RERUN_STALE, RunState
from tfscaling.study import platforms
from tfscaling.study.run_spec import Point
from tfscaling.tables import timings
from tfscaling.tables.comparison import DIFFERENT_WORK
from tfscaling.tables.display import duration_text, escape_markdown
from tfscaling.tables.row_types import UntimedReason, columns
from tfscaling.tables.row_values import group_by_point, is_known, is_projected, point_of
from tfscaling.tables.runs_table import NOT_RUN
from tfscaling.tables.table_files import to_frame, to_rows

#: States of runs that the next start of the sweep runs.
_STATES_TO_RUN = (RunState.FAILED, RunState.UNFINISHED, RunState.MISSING)


class NextStep(msgspec.Struct):
    """A suggested next step, a row of next_steps.csv.

    Attributes:
        kind: Name of the situation, such as `stale`; selects the sentence of the template.
        text: What to do, as a sentence.
        runs: Number of runs that the step takes; 0 if it states no number of runs.
        duration_s: Estimated total time of these runs in seconds; 0 without an estimate.
        node_hours: Estimated node-hours of these runs; 0 without an estimate.
        cost_usd: Estimated cost of these runs in US dollars; NaN without an estimate or a price.
    """

    kind: str
    text: str = ""
    runs: int = 0
    duration_s: float = 0.0
    node_hours: float = 0.0
    cost_usd: float = NAN


COLUMNS = tuple(columns(NextStep))


#: A next step without its text, and the values of its sentence's template.
StepWithValues = tuple[NextStep, dict[str, Any]]


def table(study: Study) -> pd.DataFrame:
    """Return one `NextStep` per row, the most useful first."""
    found = [
        *_next_steps_for_missing_runs(study),
        *_next_steps_for_searches(study),
        *_next_steps_for_uncompared(study),
        *_next_steps_for_excluded(study),
    ]
    found += [
        *_next_steps_for_shared_nodes(study),
        *_next_steps_for_repeats(study),
        *_next_steps_for_startup(study),
        *_next_steps_for_prices(study),
    ]
    if not found and any(
        each.support != SUPPORTED and each.has_choice for each in answer_questions(study)
    ):
        found = [(NextStep("none"), {})]
    for step, named in found:
        values = msgspec.structs.asdict(step) | named
        step.text = render_sentence("next_step", study.points, **values)
    return to_frame(NextStep, [step for step, _ in found])


def _next_steps_for_missing_runs(study: Study) -> Iterator[StepWithValues]:
    """Yield next steps about missing, failed and stale runs.

    Runs that failed too often, so that a search gave them up, have a separate step. Extra repeats
    of a search are left out: the search requests the ones that it still needs.
    """
    extra = {(run.spec.point, run.spec.repeat) for run in study.manifest.runs if run.extra_repeat}
    failed_often = (run for run in study.run_rows if run.failed_too_often)
    given_up = [run for run in failed_often if point_of(run) in study.searched_points]
    closed = {point for _, search in study.searches for point in search.closed_points}
    ruled_out = [
        run
        for run in study.run_rows
        if run.reason.startswith(f"{NOT_RUN}:")
        or (run.status == RunState.MISSING and point_of(run) in closed)
        or (
            run.status in _STATES_TO_RUN
            and not run.failed_too_often
            and (point_of(run), run.repeat) in extra
        )
    ]
    counts = Counter(run.status for run in (*study.run_rows, *study.explaining_rows))
    counts.subtract(run.status for run in (*given_up, *ruled_out))
    to_make = {status: counts[status] for status in _STATES_TO_RUN if counts[status]}
    if to_make:
        named = {"counts": to_make, "is_imported": _is_imported(study)}
        yield NextStep("unfinished", runs=sum(to_make.values())), named
    if counts[RunState.STALE]:
        yield NextStep("stale", runs=counts[RunState.STALE]), {"rerun_stale": RERUN_STALE}
    if given_up:
        failed = dict.fromkeys(map(point_of, given_up))
        rows = [row for row in study.points if point_of(row) in failed]
        yield NextStep("failing", runs=len(given_up)), {"points": rows}


def _next_steps_for_searches(study: Study) -> Iterator[StepWithValues]:
    """Yield next steps about searches that need more runs, or ended without a decision."""
    extra = {(run.spec.point, run.spec.repeat) for run in study.manifest.runs if run.extra_repeat}
    for asked in answer_questions(study):
        if (search := asked.search) is None:
            continue
        wanted = list(search.needed_runs())
        if not extra.isdisjoint(wanted):
            yield NextStep("search", runs=len(wanted)), {"due": len(search.decision.runs_to_start)}
        named = {"question": asked.question, "is_named": len(study.searches) > 1}
        if search.decision.not_worth_it:
            yield NextStep("ended search"), {**named, "trainings": study.question.trainings}
        elif search.decision.has_ended and not search.decision.is_decided:
            bound = search.decision.bound
            enough = math.ceil(100 * bound) / 100 if math.isfinite(bound) and bound < 1 else None
            if enough is not None:
                yield NextStep("undecided search"), {**named, "enough": enough}


def _next_steps_for_uncompared(study: Study) -> Iterator[StepWithValues]:
    """Yield a next step for each question with configurations that still have to be compared.

    The step names the configurations without a value of the goal that may still change the
    question's answer, and why they were not compared. Configurations that another next step covers
    are left out. A supported answer has no such step.
    """
    made_again = {
        point_of(run)
        for run in study.run_rows
        if run.status in (*_STATES_TO_RUN, RunState.STALE)
        and not run.reason.startswith(f"{NOT_RUN}:")
    }
    folders = {point.path for point in made_again}
    for asked in answer_questions(study):
        others = [
            each
            for each in asked.not_covered
            if each.is_open
            and each.state != State.UNDECIDED
            and not (each.point in made_again and not each.row.runs)
            and not each.reason.startswith((DIFFERENT_WORK, "no price", "no time that counts"))
            and f": {DIFFERENT_WORK}" not in each.reason  # its baseline does not
            and not (BASELINE in each.reason and each.row.baseline_point in folders)
        ]
        if others and asked.support != SUPPORTED:
            texts = [f"{each.name}: {each.reason}" for each in others]
            yield NextStep("open"), {"open": texts, "several": len(others) > 1}


def _next_steps_for_excluded(study: Study) -> Iterator[StepWithValues]:
    """Yield next steps about excluded configurations, and about runs whose times do not count.

    The configurations are excluded because they trained different numbers of examples. For the
    runs, there is a step for each reason in `RunRow.untimed_reason`.
    """
    others = [
        row
        for row in study.points
        if (why := study.excluded.get(point_of(row))) and why.reason.startswith(DIFFERENT_WORK)
    ]
    if others:
        yield NextStep("work"), {"points": others}
    counts = Counter(run.untimed_reason for run in study.run_rows)
    for reason in get_args(UntimedReason):
        if counts[reason]:
            yield NextStep(reason), {"untimed": counts[reason]}


def _next_steps_for_shared_nodes(study: Study) -> Iterator[StepWithValues]:
    """Yield a next step if Slurm runs shared their nodes with other runs.

    Yield none if all answers are supported.
    """
    if all(each.support == SUPPORTED for each in answer_questions(study)):
        return
    shared = [run for run in study.run_rows if run.shared_with and is_known(run.execution_time_s)]
    found = {name: study.manifest.platforms[name] for name in {run.platform for run in shared}}
    on = sorted(n for n, each in found.items() if each.launcher == "srun" and not each.exclusive)
    if on:
        runs = sum(run.platform in on for run in shared)
        yield NextStep("shared"), {"shared": runs, "platforms": [f"`{name}`" for name in on]}


def _next_steps_for_repeats(study: Study) -> Iterator[StepWithValues]:
    """Yield next steps about repeats that may settle an open answer by the study's goal.

    The key `repeats` is for all configurations of the grid, as in the costed plan: a step counts
    the runs of each that has fewer. If some times are projected from short runs, only these runs
    are repeated.
    """
    durations_s = _durations_s(study)
    is_short = any(map(is_projected, study.points))
    wanted: dict[int, list[Point]] = {}
    for asked in answer_questions(study):
        if asked.repeats is not None:
            wanted.setdefault(asked.repeats, []).extend(_candidates_to_repeat(asked, is_short))
    for repeats, points in sorted(wanted.items()):
        more = _runs_to_add(study, repeats, is_short)
        if any(point in more and point in durations_s for point in points):
            timed = {point: number for point, number in more.items() if point in durations_s}
            all_s = {point: number_of * durations_s[point] for point, number_of in timed.items()}
            costs = (platforms.run_cost_usd(study.prices[p], p.nodes, s) for p, s in all_s.items())
            hours = sum(n * p.nodes * durations_s[p] / 3600 for p, n in timed.items())
            usd, total_s = sum(map(number_or_nan, costs)), sum(all_s.values())
            runs = sum(more.values())
            named = {"repeats": repeats, "duration": duration_text(total_s)}
            named["is_imported"] = _is_imported(study)
            named["untimed"] = runs - sum(timed.values())
            yield NextStep("repeats", "", runs, total_s, hours, usd), named


def _runs_to_add(study: Study, repeats: int, is_short: bool) -> dict[Point, int]:
    """Return configuration → number of runs that it lacks if the grid has this many repeats.

    Configurations of a search are left out, and larger batches that are not run because a smaller
    one does not fit in memory.

    Args:
        study: The evidence.
        repeats: Number of repeats of the grid.
        is_short: Whether configurations with times of complete runs are left out.
    """
    planned = Counter(run.spec.point for run in study.manifest.runs if not run.extra_repeat)
    complete = (row for row in study.points if row.runs_timed and not is_projected(row))
    left_out = {point_of(row) for row in complete} if is_short else set[Point]()
    left_out |= {point_of(run) for run in study.run_rows if run.reason.startswith(f"{NOT_RUN}:")}
    return {
        point: repeats - number
        for point, number in planned.items()
        if number < repeats and point not in study.searched_points | left_out
    }


def _durations_s(study: Study) -> dict[Point, float]:
    """Return configuration → median wall time of its valid runs, in seconds.

    Runs whose times do not count are left out. Imported runs have their execution time only.
    """
    valid = (run for run in study.run_rows if run.status == RunState.OK)
    wall = "execution_time_s" if _is_imported(study) else "wall_time_s"
    timed = group_by_point(run for run in valid if is_known(run[wall] + run.execution_time_s))
    return {point: median(run[wall] for run in runs) for point, runs in timed.items()}


def _is_imported(study: Study) -> bool:
    """Return whether the runs are rows of a file of timings."""
    return any(map(timings.is_imported, study.run_rows))


def _candidates_to_repeat(answer: Answer, is_short: bool) -> Iterator[Point]:
    """Yield the configurations whose further runs may decide an open answer.

    Args:
        answer: The open answer.
        is_short: Whether to yield only configurations with projected times.
    """
    for each in answer.candidates:
        if (each.has_value or each.state == State.UNDECIDED) and (
            is_projected(each.row) or not is_short
        ):
            yield each.point


def _next_steps_for_startup(study: Study) -> Iterator[StepWithValues]:
    """Yield a next step about longer trainings if start-up takes most of the time."""
    answers = answer_questions(study)
    for asked in answers:
        if asked.startup is not None:
            named = {"question": asked.question, "is_named": len(answers) > 1}
            yield NextStep("startup"), {"share": asked.startup.share, **named}


def _next_steps_for_prices(study: Study) -> Iterator[StepWithValues]:
    """Yield a next step about platforms without a price."""
    unpriced = {run.spec.point for run in study.manifest.runs if run.usd_per_node_hour is None}
    measured = [row for row in study.points if row.runs > 0]
    names = dict.fromkeys(f"`{row.platform}`" for row in measured if point_of(row) in unpriced)
    if names:
        yield NextStep("price"), {"platforms": list(names)}


def page(table: pd.DataFrame, _: Study) -> str:
    """Return the page next_steps.md."""
    steps = [f"- {escape_markdown(step.text)}" for step in to_rows(NextStep, table)]
    return "\n".join(["# What to do next\n", *(steps or ["Nothing: all planned runs count."]), ""])
