"""The headline: the answer of a study in one sentence, and a badge that says how sure it is.

One row per work, from the decision on the question's goal. The console prints it, the page begins
with it.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pandas as pd

from tfscaling.conclusions import search_results
from tfscaling.conclusions.decision import WITH_QUEUE, Choice, decide
from tfscaling.conclusions.evidence import Study, not_covered_text
from tfscaling.conclusions.search_results import verdict_text
from tfscaling.conclusions.shown import TEMPLATES, sentences
from tfscaling.record.metrics import QUALITY
from tfscaling.record.run_states import RunState, words
from tfscaling.search.study_searches import StudySearch
from tfscaling.spec.config import LINE_AXES
from tfscaling.tables.comparison import OF_ALL_RUNS
from tfscaling.tables.data_warnings import SERIOUS, DataWarning
from tfscaling.tables.display import GPUS, axis_text, point_name, varying
from tfscaling.tables.estimates import NOT_COMPARED, Difference
from tfscaling.tables.table_rows import NOT_MEASURED, Row, frame, point_of, typed

_LINE_WIDTH = 100
_TIME = "execution_time_s"


#: Goal → the words of its headlines; other goals use the words of time.
WORDS = tomllib.loads((TEMPLATES / "headline_words.toml").read_text(encoding="utf-8"))


def _words(choice: Choice, has_limits: bool) -> dict[str, str]:
    """The words of its goal, with the target or the quality, and that there are limits."""
    goal = "cost_usd" if choice.goal.startswith("cost_") else choice.goal
    words = WORDS[_TIME] | WORDS.get(goal, {})
    best = choice.title if choice.goal == QUALITY else words["best"]
    if choice.goal in OF_ALL_RUNS:
        best += f" to {choice.title.partition(' to ')[2]}"
    return words | {"best": best + " within the limits" * has_limits}


class HeadlineRow(msgspec.Struct):
    """The answer for a work, which is not named where there is only one.

    `badge` is one of estimates.WEAKEST_FIRST, `sure` what that means here.
    """

    work: str = ""
    text: str = "No configuration is to be run."
    sure: str = ""
    badge: str = NOT_MEASURED


@dataclass(frozen=True)
class Headline:
    """The answer for a work: `taken`, and how many times as long as it `other` takes.

    `taken` is the point of the `choice`, or else the best median of those compared.
    """

    work: str
    choice: Choice | None
    taken: Row | None = None
    other: Row | None = None
    worse: Difference | None = None


def headlines(study: Study) -> list[Headline]:
    """One for each work."""
    choices = {each.work: each for each in decide(study) if each.goal == study.question.goal}
    return [_headline(study, work, choices.get(work)) for work in study.works]


def _headline(study: Study, work: str, choice: Choice | None) -> Headline:
    if choice is None:
        return Headline(work, None)
    if work in study.searches:
        own = (row for row in study.works[work] if point_of(row) == choice.point)
        return Headline(work, choice, taken=next(own, None))
    rows = choice.compared
    if not rows:
        return Headline(work, choice)
    taken = next((row for row in rows if point_of(row) == choice.point), rows[0])
    other = _other(taken, rows) if choice.support != NOT_COMPARED else None
    worse = _worse(study, choice, taken, other, len(rows) - 1) if other else None
    return Headline(work, choice, taken, other, worse)


def _line(taken: Row, rows: Sequence[Row]) -> list[Row]:
    """The points that differ from one in their nodes only, and itself, fewest nodes first."""
    line = [row for row in rows if all(str(row[axis]) == str(taken[axis]) for axis in LINE_AXES)]
    return sorted(line, key=lambda row: row["nodes"])


def _other(taken: Row, rows: Sequence[Row]) -> Row | None:
    """The other end of the line of the point taken; the next point where it has no other."""
    line = _line(taken, rows)
    if len(line) > 1:
        return line[-1] if taken is line[0] else line[0]
    return next((row for row in rows if row is not taken), None)


def _worse(
    study: Study, choice: Choice, taken: Row, other: Row, comparisons: int
) -> Difference | None:
    """How much longer the other takes: by the estimates of the choice, if it compared the two."""
    pair = point_of(taken), point_of(other)
    found = choice.against.get(pair[1])
    if found is None:
        (found,) = study.samples.differences(choice.goal, [pair], max(1, comparisons))
    return None if found is None or found.ratio is None else found


def table(study: Study) -> pd.DataFrame:
    """One `HeadlineRow` per work, at least one."""
    rows = [_row(study, headline) for headline in headlines(study)]
    return frame(HeadlineRow, rows or [HeadlineRow()])


def _row(study: Study, headline: Headline) -> HeadlineRow:
    points, choice, samples = study.works[headline.work], headline.choice, study.samples
    row, vary, rows = HeadlineRow(), varying(points), choice.compared if choice else ()
    search = study.searches.get(headline.work)
    asked, quality = study.question, points[0].get("quality_metric")
    has_limits = choice is not None and bool(asked.limits_for(choice.goal, quality))
    values = {
        "headline": headline,
        "statuses": _statuses(study, points),
        "search": _search_words(study, search) if search and choice else None,
        "words": _words(choice, has_limits) if choice else WORDS[_TIME],
        "has_limits": has_limits,
        "with_queue": choice is not None and choice.goal == WITH_QUEUE,
        "other": _other_name(headline, vary),
    }
    row.work = headline.work if len(study.works) > 1 else ""
    row.text = sentences("headline", points, samples, **values)
    if choice:
        row.badge = choice.support
        row.sure = sentences(
            "headline_sure",
            points,
            samples,
            runs=[len(samples.values(point_of(row), choice.goal)) for row in rows],
            few=sum(not samples.has_enough(choice.goal, point_of(row)) for row in rows),
            lacks_times=any(row["runs_timed"] < row["runs"] for row in rows),
            not_covered=not_covered_text(choice.not_covered, vary),
            **values,
        )
    return row


def _other_name(headline: Headline, vary: Sequence[str]) -> str:
    """A point of the same line by its nodes, and its devices where other lines have others."""
    taken, other = headline.taken, headline.other
    if headline.choice is None or taken is None or other is None:
        return ""
    is_of_line = any(row is other for row in _line(taken, headline.choice.compared))
    return axis_text("nodes", other) if is_of_line and GPUS not in vary else point_name(other, vary)


def _statuses(study: Study, points: Sequence[Row]) -> Counter[str]:
    """How many runs of these points have which status; empty if none was begun."""
    own = set(map(point_of, points))
    found = Counter(words(row.status) for row in study.run_rows if point_of(row) in own)
    return Counter() if found.keys() <= {RunState.MISSING} else found


def _search_words(study: Study, search: StudySearch) -> dict[str, object]:
    return {
        "verdict": verdict_text(search),
        "rounds": search.decision.rounds,
        "saving": search_results.saving(
            search_results.spent(study, search).values(), search.planned.goal
        ),
    }


def page(table: pd.DataFrame, study: Study) -> str:
    """Plain text, a paragraph for each work, of lines of at most 100 characters."""
    paragraphs = [
        f"{row.work}: {row.text} {row.sure}".removeprefix(": ").strip()
        for row in typed(HeadlineRow, table)
    ]
    return "".join(f"{textwrap.fill(paragraph, _LINE_WIDTH)}\n" for paragraph in paragraphs)


def with_warnings(text: str, warnings: Sequence[DataWarning]) -> str:
    """The text with a paragraph of what makes the numbers mean something else, in short."""
    serious = [warning.short for warning in warnings if warning.severity == SERIOUS]
    if not serious:
        return text
    mind = f"Warning: {'; '.join(serious)}."
    return text + textwrap.fill(mind, _LINE_WIDTH) + "\n"
