"""The headline: the answer of a study in one sentence, and a badge that says how sure it is.

One row per work, from the decision on the shortest time, or on what a search is for. The console
prints it, the page begins with it.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

import pandas as pd

from tfscaling.analysis import search_results
from tfscaling.analysis.decision import WITH_QUEUE, ranked
from tfscaling.analysis.eligibility import split
from tfscaling.analysis.evidence import Study
from tfscaling.analysis.search_results import verdict_text
from tfscaling.race.study_searches import StudySearch
from tfscaling.records.run_states import RunState
from tfscaling.study.config import LINE_AXES
from tfscaling.tables.data_warnings import SERIOUS, DataWarning
from tfscaling.tables.display import axis_text
from tfscaling.tables.intervals import CONFIDENCE
from tfscaling.tables.significance import INCONCLUSIVE, NOT_COMPARED, SUPPORTED, TOO_FEW, Samples
from tfscaling.tables.table_rows import NOT_MEASURED, Row, columns_of, point_of, rows_of
from tfscaling.tables.wording import GPUS, percent, point_name, times, value, varying

#: `badge` is one of significance.WEAKEST_FIRST, `sure` what that means here, or empty; `work` is
#: empty where there is only one.
COLUMNS = ("work", "text", "sure", "badge")
_LINE_WIDTH = 100


def table(study: Study, decision: pd.DataFrame) -> pd.DataFrame:
    """COLUMNS: one row per work, at least one; `decision` is the table of that name."""
    choices = {
        row["work"]: row for row in rows_of(decision) if row["goal"] == _goal(study, row["work"])
    }
    rows = []
    for work, points in study.works.items():
        if work not in choices:
            text, sure, badge = _without_run(study, points), "", NOT_MEASURED
        else:
            badge = str(choices[work]["support"])
            choice, search = choices[work], study.searches.get(work)
            made = _searched(study, search, choice) if search else None
            text, sure = made or _sentences(study, points, choice)
        rows.append([work if len(study.works) > 1 else "", text, sure, badge])
    return pd.DataFrame(
        rows or [["", "No point is to be run.", "", NOT_MEASURED]], columns=list(COLUMNS)
    )


def _goal(study: Study, work: str) -> str:
    """What the headline is about: the shortest time, or what a search is for first."""
    search = study.searches.get(work)
    return search.planned.search.goals[0] if search else study.decision_time


def _searched(study: Study, search: StudySearch, choice: Row) -> tuple[str, str]:
    """(the answer of a search, what it took)."""
    verdict = search.verdicts[choice["goal"]]
    said = verdict_text(search, verdict)
    rows = study.works[choice["work"]]
    taken = next((row for row in rows if pd.notna(choice["nodes"]) and _is_of(row, choice)), None)
    rounds = search_results.rounds_text(verdict)
    saving = search_results.saving(search_results.spent(study, search).values())
    sure = f"{rounds.capitalize()}: {saving}"
    if taken is None:
        return f"{choice['title']}: {said}.", sure
    named = f"{point_name(taken, varying(rows))}, {value(choice['goal'], taken)}"
    confidence = f"{search.planned.search.confidence:.0%}"
    return f"{choice['title']}: {named}; {said} ({confidence}).", sure


def _without_run(study: Study, points: Sequence[Row]) -> str:
    """That no run counts, with the states of the runs if any was begun."""
    of_work = set(map(point_of, points))
    states = Counter(str(row["status"]) for row in rows_of(study.runs) if point_of(row) in of_work)
    if states.keys() <= {RunState.MISSING}:
        return "No valid run yet."
    return f"No valid run: {', '.join(f'{number} {state}' for state, number in states.items())}."


def _sentences(study: Study, points: Sequence[Row], choice: Row) -> tuple[str, str]:
    """(the answer, how sure it is)."""
    goal = str(choice["goal"])
    rows = ranked(goal, split(points, study.samples)[0])
    if not rows:
        return "No measured point may be compared with others.", ""
    vary = varying(points)
    taken, bound = rows[0], choice["bound"]
    if pd.notna(choice["nodes"]):
        taken = next(row for row in rows if _is_of(row, choice))
    name = point_name(taken, vary)
    first = {
        SUPPORTED: f"Fastest: {name}.",
        NOT_COMPARED: f"The only point with enough runs: {name}.",
    }.get(str(choice["support"]), f"Fastest so far: {name}.")
    if choice["support"] == SUPPORTED and bound > 0:
        first = f"{name}: within {percent(bound)} of the fastest."
    if goal == WITH_QUEUE:
        first = f"With the wait in the queue: {first[0].lower()}{first[1:]}"
    against = _against(goal, taken, rows, study.samples, vary)
    return f"{first} {against}".strip(), _how_sure(rows, study.samples, choice)


def _is_of(row: Row, choice: Row) -> bool:
    """Whether the choice takes the point of this row."""
    # beside choices without a point, numbers of nodes are no integers
    return all(choice[axis] == value for axis, value in columns_of(point_of(row)).items())


def _against(
    goal: str, taken: Row, rows: Sequence[Row], samples: Samples, vary: Sequence[str]
) -> str:
    """How the time changes with the nodes: the point against the other end of its line.

    Against the next point where its line has no other.
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
    (found,) = samples.differences(goal, [(point_of(taken), point_of(other))], 1)
    if found is None or found.ratio is None:
        return ""
    return f"{name} take{'s' * (other['nodes'] == 1)} {times(found)} as long."


def _how_sure(rows: Sequence[Row], samples: Samples, choice: Row) -> str:
    """What the badge means here."""
    support, alike, goal = choice["support"], int(choice["alike"]), str(choice["goal"])
    points = [point_of(row) for row in rows]
    if support == TOO_FEW and pd.isna(choice["nodes"]):
        made = [len(samples.values(point, goal)) for point in points]
        fewest, most = min(made), max(made)
        each = "One run each" if most == 1 else f"{fewest} runs each"
        each = each if fewest == most else f"{fewest} to {most} runs each"
        timed = " with times" * any(row["runs_timed"] < row["runs"] for row in rows)
        return f"{each}{timed}: too few to be sure."
    few = sum(not samples.has_enough(goal, point) for point in points)
    if support == TOO_FEW:
        return f"{_points(few, 'has', 'have')} too few runs to be compared."
    if support == INCONCLUSIVE:
        as_fast = f"{_points(alike, 'may', 'may')} be as fast" if alike else ""
        bound = choice["bound"]
        slower = ""
        if pd.notna(bound):
            slower = f"it may be {percent(bound)} slower than the fastest"
        text = "; ".join(part for part in (as_fast, slower) if part)
        return f"{text[0].upper()}{text[1:]} ({CONFIDENCE:.0%})." if text else ""
    if support == SUPPORTED and choice["bound"] == 0:
        none = "No other point is as fast" if choice["is_best"] else "No point is faster"
        return f"{none} ({CONFIDENCE:.0%})."
    return ""


def _points(number: int, one: str, several: str) -> str:
    return f"1 other point {one}" if number == 1 else f"{number} other points {several}"


def text(table: pd.DataFrame, study: Study) -> str:
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
