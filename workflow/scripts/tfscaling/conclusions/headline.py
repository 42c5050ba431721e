"""The headline: the answer of a study in one sentence, and a badge that says how sure it is.

One row per work, from the decision on the shortest time, or on what a search is for. The console
prints it, the page begins with it.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

import pandas as pd

from tfscaling.conclusions import search_results
from tfscaling.conclusions.decision import GOALS, WITH_QUEUE, Choice, decide, ranked
from tfscaling.conclusions.evidence import Study, not_covered_text, split
from tfscaling.conclusions.search_results import verdict_text
from tfscaling.record.metrics import QUALITY
from tfscaling.record.run_states import RunState
from tfscaling.search.study_searches import StudySearch
from tfscaling.spec.config import LINE_AXES
from tfscaling.tables.comparison import all_at_target
from tfscaling.tables.data_warnings import SERIOUS, DataWarning
from tfscaling.tables.display import GPUS, axis_text, percent, point_name, times, value, varying
from tfscaling.tables.estimates import CONFIDENCE
from tfscaling.tables.significance import INCONCLUSIVE, NOT_COMPARED, TOO_FEW, Samples
from tfscaling.tables.table_rows import NOT_MEASURED, Row, is_known, point_of, rows_of

#: `badge` is one of significance.WEAKEST_FIRST, `sure` what that means here, or empty; `work` is
#: empty where there is only one.
COLUMNS = ("work", "text", "sure", "badge")
_LINE_WIDTH = 100
_TO_TARGET = "time_to_target_s"


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: one row per work, at least one."""
    choices = {(choice.work, choice.goal): choice for choice in decide(study)}
    rows = []
    for work, points in study.works.items():
        search = study.searches.get(work)
        choice = _of_goal(study, search, work, choices)
        if choice is None:
            text, sure, badge = _without_run(study, points), "", NOT_MEASURED
        else:
            badge = choice.support
            made = _searched(study, search, choice) if search else None
            text, sure = made or _sentences(study, points, choice)
        rows.append([work if len(study.works) > 1 else "", text, sure, badge])
    return pd.DataFrame(
        rows or [["", "No configuration is to be run.", "", NOT_MEASURED]], columns=list(COLUMNS)
    )


def _of_goal(
    study: Study, search: StudySearch | None, work: str, choices: dict[tuple[str, str], Choice]
) -> Choice | None:
    """The choice that the headline is about: of the search, else of the target, else of time."""
    if search:
        return choices.get((work, search.planned.search.goals[0]))
    to_target = choices.get((work, _TO_TARGET))
    is_reached = to_target is not None and to_target.support != NOT_MEASURED
    if is_reached and study.decision_time != WITH_QUEUE:
        return to_target
    return choices.get((work, study.decision_time))


def _searched(study: Study, search: StudySearch, choice: Choice) -> tuple[str, str]:
    """(the answer of a search, what it took and what it does not cover)."""
    verdict = search.verdicts[choice.goal]
    said = verdict_text(search, verdict)
    rows = study.works[choice.work]
    vary = varying(rows)
    taken = next((row for row in rows if point_of(row) == choice.point), None)
    rounds = search_results.rounds_text(verdict)
    saving = search_results.saving(search_results.spent(study, search).values())
    parts = (str(choice.whole_run or ""), not_covered_text(choice.not_covered, vary))
    sure = " ".join(filter(None, (*parts, f"{rounds.capitalize()}: {saving}")))
    if taken is None:
        return f"{choice.title}: {said}.", sure
    took = f", {value(choice.goal, taken)}" * is_known(taken[choice.goal])
    confidence = f"{search.planned.search.confidence:.0%}"
    return f"{choice.title}: {point_name(taken, vary)}{took}; {said} ({confidence}).", sure


def _without_run(study: Study, points: Sequence[Row]) -> str:
    """That no run counts, with the states of the runs if any was begun."""
    of_work = set(map(point_of, points))
    states = Counter(str(row.status) for row in study.run_rows if point_of(row) in of_work)
    if states.keys() <= {RunState.MISSING}:
        return "No valid run yet."
    return f"No valid run: {', '.join(f'{number} {state}' for state, number in states.items())}."


def _sentences(study: Study, points: Sequence[Row], choice: Choice) -> tuple[str, str]:
    """(the answer, how sure it is and what it does not cover)."""
    measured, vary = split(points, study.samples)[0], varying(points)
    rows = ranked(choice.goal, measured)
    uncovered = not_covered_text(choice.not_covered, vary)
    if not rows:
        return "No comparison is possible.", uncovered
    taken = next((row for row in rows if point_of(row) == choice.point), rows[0])
    name = point_name(taken, vary)
    to_target = choice.title.removeprefix(GOALS[_TO_TARGET])
    fastest = f"Fastest to {to_target}" if choice.goal == _TO_TARGET else "Fastest"
    among = " of those compared" * choice.is_open
    if choice.support == NOT_COMPARED:
        first = f"Measured: {name}, {value(choice.goal, taken)}."
    elif not choice.is_decided:
        first = f"{fastest} so far: {name}."
    elif choice.bound:
        first = f"{name}: within {percent(choice.bound)} of the {fastest.lower()}{among}."
    else:
        first = f"{fastest}{among}: {name}."
    if choice.goal == WITH_QUEUE:
        first = f"With the wait in the queue: {first[0].lower()}{first[1:]}"
    missed = _misses_target(ranked(study.decision_time, measured), vary)
    against = "" if choice.support == NOT_COMPARED else _against(choice, taken, rows, study, vary)
    text = " ".join(filter(None, (first, against, missed)))
    sure = _how_sure(rows, study.samples, choice)
    return text, " ".join(filter(None, (sure, str(choice.whole_run or ""), uncovered)))


def _misses_target(rows: Sequence[Row], vary: Sequence[str]) -> str:
    """That the fastest of these misses the target, and what it reached; empty if it does not."""
    if not rows or not is_known(rows[0]["target"]) or all_at_target(rows[0]):
        return ""
    row = rows[0]
    made = row["runs"] + row["runs_diverged"]
    missed = f"{made - row['runs_at_target']:.0f} of {made:.0f} runs"
    name = point_name(row, vary)
    return f"The shortest runs, {name}, miss the target in {missed} ({value(QUALITY, row)})."


def _against(
    choice: Choice, taken: Row, rows: Sequence[Row], study: Study, vary: Sequence[str]
) -> str:
    """How the time changes with the nodes: the point against the other end of its line.

    Against the next point where its line has no other. By the estimates of the choice, if it has
    compared the two.
    """
    line = [row for row in rows if all(str(row[axis]) == str(taken[axis]) for axis in LINE_AXES)]
    line.sort(key=lambda row: row["nodes"])
    if len(line) > 1:
        other = line[-1] if taken is line[0] else line[0]
        # with the devices of the line, where other lines have others
        name = point_name(other, vary) if GPUS in vary else axis_text("nodes", other)
    elif len(rows) > 1:
        other = next(row for row in rows if row is not taken)
        name = point_name(other, vary)
    else:
        return ""
    pair = point_of(taken), point_of(other)
    found = choice.against.get(pair[1])
    if found is None:
        (found,) = study.samples.differences(choice.goal, [pair], max(1, len(rows) - 1))
    if found is None or found.ratio is None:
        return ""
    return f"{name} take{'s' * (other['nodes'] == 1)} {times(found)} as long."


def _how_sure(rows: Sequence[Row], samples: Samples, choice: Choice) -> str:
    """What the badge means here."""
    alike, bound = len(choice.alike), choice.bound
    points = [point_of(row) for row in rows]
    if choice.support == TOO_FEW and choice.point is None:
        made = [len(samples.values(point, choice.goal)) for point in points]
        fewest, most = min(made), max(made)
        each = "One run each" if most == 1 else f"{fewest} runs each"
        each = each if fewest == most else f"{fewest} to {most} runs each"
        timed = " with times" * any(row["runs_timed"] < row["runs"] for row in rows)
        return f"{each}{timed}: too few to be sure."
    few = sum(not samples.has_enough(choice.goal, point) for point in points)
    if choice.support == TOO_FEW:
        return f"{_others(few, 'has', 'have')} too few runs to be compared."
    if choice.is_decided:
        if bound:
            return ""
        compared = " compared" * choice.is_open
        none = "No other configuration" if choice.is_best else "No configuration"
        return (
            f"{none}{compared} is {'as fast' if choice.is_best else 'faster'} ({CONFIDENCE:.0%})."
        )
    if choice.support == INCONCLUSIVE:
        as_fast = f"{_others(alike, 'may', 'may')} be as fast" if alike else ""
        slower = ""
        if bound is not None:
            slower = f"it may be {percent(bound)} slower than the fastest"
        text = "; ".join(part for part in (as_fast, slower) if part)
        return f"{text[0].upper()}{text[1:]} ({CONFIDENCE:.0%})." if text else ""
    return ""


def _others(number: int, one: str, several: str) -> str:
    noun = "other configuration"
    return f"1 {noun} {one}" if number == 1 else f"{number} {noun}s {several}"


def page(table: pd.DataFrame, study: Study) -> str:
    """Plain text, a paragraph for each work, of lines of at most 100 characters."""
    paragraphs = [
        f"{row['work']}: {row['text']} {row['sure']}".removeprefix(": ").strip()
        for row in rows_of(table)
    ]
    return "".join(f"{textwrap.fill(paragraph, _LINE_WIDTH)}\n" for paragraph in paragraphs)


def with_warnings(text: str, warnings: Sequence[DataWarning]) -> str:
    """The text with a paragraph of what makes the numbers mean something else, in short."""
    serious = [warning.short for warning in warnings if warning.severity == SERIOUS]
    if not serious:
        return text
    mind = f"Mind: {'; '.join(serious)}."
    return text + textwrap.fill(mind, _LINE_WIDTH) + "\n"
