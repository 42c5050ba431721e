"""The headline: the answer of a study in one sentence, and a badge that says how sure it is.

One row per question that has a choice, from the decision on its goal. The console prints it, the
page begins with it.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pandas as pd

from tfscaling.conclusions import search_results
from tfscaling.conclusions.decision import WITH_QUEUE, Choice, decide, ranked
from tfscaling.conclusions.evidence import Study, not_covered_text
from tfscaling.conclusions.shown import TEMPLATES, sentences
from tfscaling.record.metrics import QUALITY
from tfscaling.record.run_states import RunState, words
from tfscaling.search.study_searches import StudySearch
from tfscaling.spec.config import Limit
from tfscaling.tables.comparison import OF_ALL_RUNS
from tfscaling.tables.data_warnings import SERIOUS, DataWarning
from tfscaling.tables.display import GPUS, axis_text, point_name, three_digits, value, varying
from tfscaling.tables.estimates import NOT_COMPARED, Difference, median_interval, weakest
from tfscaling.tables.rows import columns
from tfscaling.tables.table_rows import (
    NOT_MEASURED,
    Row,
    frame,
    grouped,
    is_known,
    line_of,
    metric_of,
    point_of,
    typed,
)

_LINE_WIDTH = 100
_TIME = "execution_time_s"
#: What the answer to a question with limits reports, besides its goal and its limits.
_REPORTED = ("cost_usd", QUALITY, "rank_memory_gb", "gpu_memory_gb")


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
    """The answer to a question, which is not named where the study has only one.

    `badge` is one of estimates.WEAKEST_FIRST, `sure` what that means here.
    """

    work: str = ""
    text: str = "No configuration is to be run."
    sure: str = ""
    badge: str = NOT_MEASURED


COLUMNS = tuple(columns(HeadlineRow))


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
    # the other end of its line, or the next point where the line has no other
    line = sorted(grouped(rows, line_of)[line_of(taken)], key=lambda row: row["nodes"])
    others = [line[-1] if taken is line[0] else line[0], *rows]
    other = next((row for row in others if row is not taken), None)
    if other is None or choice.support == NOT_COMPARED:
        return Headline(work, choice, taken)
    pair = point_of(taken), point_of(other)
    worse = choice.against.get(pair[1])
    if worse is None:  # the choice did not compare the two
        (worse,) = study.samples.differences(choice.goal, [pair], len(rows) - 1)
    return Headline(work, choice, taken, other, worse if worse and worse.ratio else None)


@dataclass(frozen=True)
class LimitText:
    """A limit in words, how many configurations it excludes or may exclude, and the nearest one."""

    text: str
    missed: int
    undecided: int
    nearest: Row
    value: str


def table(study: Study) -> pd.DataFrame:
    """One `HeadlineRow` per question with a choice; a single one where no question has any."""
    found = headlines(study)
    planned = {w: [r for r in own if r["status"] != "excluded"] for w, own in study.works.items()}
    with_choice = [each for each in found if len(planned[each.work]) > 1]
    if not with_choice and len(found) > 1:
        return frame(HeadlineRow, [_without_choice(study, found)])
    rows = [_row(study, headline) for headline in with_choice or found]
    return frame(HeadlineRow, rows or [HeadlineRow()])


def _without_choice(study: Study, found: Sequence[Headline]) -> HeadlineRow:
    """The headline of several questions with one configuration each."""
    measured = [each for each in found if each.taken is not None]
    text = sentences("headline_alone", study.points, study.samples, found=found, measured=measured)
    badges = [each.choice.support for each in measured if each.choice]
    return HeadlineRow(text=text, badge=weakest(badges) if badges else NOT_MEASURED)


def _row(study: Study, headline: Headline) -> HeadlineRow:
    points, choice, samples = study.named(headline.work), headline.choice, study.samples
    row = HeadlineRow(headline.work if len(study.works) > 1 else "")
    if choice is None:
        statuses = _statuses(study, points)
        row.text = sentences("headline", points, samples, headline=headline, statuses=statuses)
        return row
    vary, search = varying(points), study.searches.get(headline.work)
    limits = study.question.limits_for(choice.goal, points[0].get("quality_metric"))
    values = {
        "headline": headline,
        "search": _search_words(study, search) if search else None,
        "words": _words(choice, bool(limits)),
        "reported": _reported(study, choice, headline.taken, limits),
        "limits": limit_texts(choice, limits),
        "has_limits": bool(limits),
        "with_queue": choice.goal == WITH_QUEUE,
        "other": _other_name(headline, vary),
    }
    others = [each for each in choice.not_covered if not each.missed + each.undecided]
    row.text, row.badge = sentences("headline", points, samples, **values), choice.support
    row.sure = sentences(
        "headline_sure",
        points,
        samples,
        runs=[len(samples.values(point_of(row), choice.goal)) for row in choice.compared],
        few=sum(not samples.has_enough(choice.goal, point_of(row)) for row in choice.compared),
        lacks_times=any(row["runs_timed"] < row["runs"] for row in choice.compared),
        not_covered=not_covered_text(others, vary),
        equal={"model", "recipe"} & set(vary) and choice.goal != QUALITY and study.question.equal,
        **values,
    )
    return row


def _reported(study: Study, choice: Choice, taken: Row | None, limits: Mapping[str, Limit]) -> str:
    """Time, goal, price, quality and memory of a point, with the margins to their limits."""
    if not limits or taken is None:
        return ""
    texts = []
    for name in dict.fromkeys([_TIME, choice.goal, *limits, *_REPORTED]):
        if name in taken and is_known(taken[name]):
            interval = median_interval(study.samples.measured(point_of(taken), name))
            if interval and f"{name}_low" not in taken:
                taken = {**taken, f"{name}_low": interval[0], f"{name}_high": interval[1]}
            text = f"{metric_of(name, taken).title} {value(name, taken)}"
            if limit := limits.get(name):
                side = "below" if limit.at_least is None else "above"
                text += f", {three_digits(abs(limit.value - taken[name]))} {side} its limit"
            texts.append(text)
    return "; ".join(texts)


def limit_texts(choice: Choice, limits: Mapping[str, Limit]) -> list[LimitText]:
    """Each limit that excludes configurations, or may.

    The nearest has the best median among those that only this limit excludes, if there are any.
    """
    found = []
    others = [each for each in choice.not_covered if each.missed + each.undecided]
    for name, limit in limits.items():
        own = [each for each in others if name in each.missed + each.undecided]
        only = [each for each in own if {*each.missed, *each.undecided} == {name}]
        near = ranked(name, [each.row for each in only or own])
        if near:
            metric = metric_of(name, near[0])
            side = "at least" if limit.at_most is None else "at most"
            text = f"{metric.title} {side} {limit.value:g} {metric.unit}".rstrip()
            missed = sum(name in each.missed for each in own)
            undecided = sum(name in each.undecided for each in own)
            shown = f"{metric.title} {value(name, near[0])}"
            found.append(LimitText(text, missed, undecided, near[0], shown))
    return found


def _other_name(headline: Headline, vary: Sequence[str]) -> str:
    """A point of the same line by its nodes, and its devices where other lines have others."""
    taken, other = headline.taken, headline.other
    if taken is None or other is None:
        return ""
    is_of_line = line_of(taken) == line_of(other)
    return axis_text("nodes", other) if is_of_line and GPUS not in vary else point_name(other, vary)


def _statuses(study: Study, points: Sequence[Row]) -> Counter[str]:
    """How many runs of these points have which status; empty if none was begun."""
    own = set(map(point_of, points))
    found = Counter(words(row.status) for row in study.run_rows if point_of(row) in own)
    return Counter() if found.keys() <= {RunState.MISSING} else found


def _search_words(study: Study, search: StudySearch) -> dict[str, object]:
    spent = search_results.spent(study, search).values()
    saving = search_results.saving(spent, search.planned.goal)
    rounds, verdict = search.decision.rounds, search_results.verdict_text(search)
    return {"verdict": verdict, "rounds": rounds, "saving": saving}


def page(table: pd.DataFrame, study: Study) -> str:
    """Plain text, a paragraph for each work, of lines of at most 100 characters."""
    rows = typed(HeadlineRow, table)
    texts = (f"{row.work}: {row.text} {row.sure}".removeprefix(": ").strip() for row in rows)
    return "".join(f"{textwrap.fill(text, _LINE_WIDTH)}\n" for text in texts)


def with_warnings(text: str, warnings: Sequence[DataWarning]) -> str:
    """The text with a paragraph of what makes the numbers mean something else, in short."""
    serious = [warning.short for warning in warnings if warning.severity == SERIOUS]
    mind = textwrap.fill(f"Warning: {'; '.join(serious)}.", _LINE_WIDTH)
    return text + f"{mind}\n" * bool(serious)
