"""The headline: the answer of a study in one sentence, with a badge for its support.

It has one row for each question that has a choice. The console prints it, the page begins with it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pandas as pd

from tfscaling.conclusions import search_results
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.answers.answer_types import Answer, Candidate
from tfscaling.conclusions.answers.details import leader_details_text
from tfscaling.conclusions.answers.goals import TIME, WITH_QUEUE
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.goal_comparison import rank_by_metric
from tfscaling.conclusions.regressions import REGRESSIONS, RevisionSummary, summarize_revisions
from tfscaling.conclusions.rendering import TEMPLATES, format_with_interval, render_line
from tfscaling.estimation.samples import NOT_MEASURED, weakest_support
from tfscaling.record.metrics import FINISH_TIME, METRICS, QUALITY
from tfscaling.tables.comparison import ALL_RUNS_METRICS
from tfscaling.tables.data_warnings import SERIOUS, DataWarning
from tfscaling.tables.display import (
    GPUS,
    axis_text,
    format_metric,
    limit_value_text,
    point_name,
    varying_axes,
)
from tfscaling.tables.row_types import columns
from tfscaling.tables.row_values import metric_of
from tfscaling.tables.table_files import to_frame, to_rows

#: Goal → the words of its headlines; other goals use the words of time.
WORDS = tomllib.loads((TEMPLATES / "headline_words.toml").read_text(encoding="utf-8"))


def _headline_words(answer: Answer) -> dict[str, str]:
    """Return key → words of an answer's headline, which depend on its goal, target and limits."""
    goal = "cost_usd" if answer.goal.startswith("cost_") else answer.goal
    words = WORDS[TIME] | WORDS.get(goal, {})
    best = answer.title if answer.goal == QUALITY else words["best"]
    if answer.goal in ALL_RUNS_METRICS:
        best += f" to {answer.title.partition(' to ')[2]}"
    return words | {"best": best + " within the limits" * bool(answer.limits)}


class HeadlineRow(msgspec.Struct):
    """A headline: the answer to one question, or to several questions without a choice.

    Attributes:
        question: Name of the question; empty if the study has a single one.
        text: The sentence.
        sure: Explanation of the support; may be empty.
        badge: Level of support, one of samples.WEAKEST_FIRST.
    """

    question: str = ""
    text: str = "No configuration is to be run."
    sure: str = ""
    badge: str = NOT_MEASURED


COLUMNS = tuple(columns(HeadlineRow))


@dataclass(frozen=True)
class MissedLimit:
    """A limit that excludes configurations of a question, or may exclude them.

    Attributes:
        text: The limit in words.
        missed: Number of configurations that miss it.
        undecided: Number of configurations that may miss it.
        nearest: The one of these configurations that is closest to the limit.
        value: Its metric with the limit as text, such as `cost 41.2 US dollars`.
    """

    text: str
    missed: int
    undecided: int
    nearest: Candidate
    value: str


def table(study: Study) -> pd.DataFrame:
    """Return a `HeadlineRow` for each question with several configurations to choose from.

    A study of revisions begins with a row for each revision. If no question has a choice, and there
    are no revisions, the table has one row for all.
    """
    found = answer_questions(study)
    with_choice = [each for each in found if len(_planned_candidates(each)) > 1]
    rows = [_headline_of_revision(each) for each in summarize_revisions(study)]
    if not rows and not with_choice and len(found) > 1:
        return to_frame(HeadlineRow, [_headline_without_choice(found)])
    rows += [_headline_row(study, each) for each in with_choice or found * (not rows)]
    return to_frame(HeadlineRow, rows or [HeadlineRow()])


def _planned_candidates(answer: Answer) -> list[Candidate]:
    """Return the candidates that the grid does not exclude."""
    return [each for each in answer.candidates if each.row.status != "excluded"]


def _headline_without_choice(answers: Sequence[Answer]) -> HeadlineRow:
    """Return one headline for several questions that each have a single configuration."""
    measured = [each for each in answers if each.leader is not None]
    text = render_line("headline_alone", found=answers, measured=measured)
    badges = [each.support for each in measured]
    return HeadlineRow(text=text, badge=weakest_support(badges) if badges else NOT_MEASURED)


def _headline_of_revision(summary: RevisionSummary) -> HeadlineRow:
    """Return the headline that counts the verdicts on a revision and names its largest change."""
    vary, shown = varying_axes(summary.rows), summary.shown
    text = render_line(
        "headline_revision",
        summary=summary,
        regressed={
            verdict: [point_name(row, vary) for row in summary.rows if row.verdict == verdict]
            for verdict in REGRESSIONS
        },
        name=point_name(shown, vary) if shown else "",
        ratio=format_with_interval(shown, "time_ratio", 2) if shown else "",
    )
    compared = max(row.comparisons or 0 for row in summary.rows)
    return HeadlineRow(
        text=text,
        sure=f"Verdicts hold for all {compared} comparisons together" if compared > 1 else "",
        badge=summary.badge,
    )


def _headline_row(study: Study, answer: Answer) -> HeadlineRow:
    """Return the headline of an answer as a row of headline.csv."""
    row = HeadlineRow(
        answer.question if len(answer_questions(study)) > 1 else "", badge=answer.support
    )
    if not answer.is_measured:
        title = METRICS[answer.goal].title
        row.text = render_line(
            "headline", answer=answer, statuses=answer.runs_by_status, goal=title
        )
        return row
    vary = varying_axes([each.row for each in answer.candidates])
    values = {
        "answer": answer,
        "reported": leader_details_text(study.samples, answer),
        "search": _search_words(study, answer),
        "words": _headline_words(answer),
        "limits": missed_limits(answer),
        "with_queue": answer.goal == WITH_QUEUE,
        "fastest_training": _name_relative_to(
            answer.leader, answer.startup.fastest if answer.startup else None, vary
        ),
        "rival": _name_relative_to(answer.leader, answer.rival, vary),
        "cheaper": _name_relative_to(
            answer.leader, answer.trade_off.cheaper if answer.trade_off else None, vary
        ),
    }
    others = [each for each in answer.not_covered if not each.missed + each.undecided]
    row.text = render_line("headline", **values)
    row.sure = render_line(
        "headline_sure",
        runs=[each.runs for each in answer.candidates_with_value],
        lacks_times=any(
            each.row.runs_timed < each.row.runs for each in answer.candidates_with_value
        ),
        not_covered=answer.not_covered_text(others),
        equal={"model", "recipe"} & set(vary)
        and answer.goal != QUALITY
        and study.question.ignored_qualities,
        **values,
    )
    return row


def missed_limits(answer: Answer) -> list[MissedLimit]:
    """Return the limits of a question that exclude configurations, or may after more runs.

    The field `nearest` of each is the configuration closest to the limit, if possible one that no
    other limit excludes.
    """
    texts = []
    others = [each for each in answer.not_covered if each.missed + each.undecided]
    for name, limit in (answer.limits or {}).items():
        own = [each for each in others if name in each.missed + each.undecided]
        only = [each for each in own if {*each.missed, *each.undecided} == {name}]
        near = rank_by_metric(name, [each.row for each in only or own])
        if near:
            metric = metric_of(name, near[0])
            side = "at least" if limit.at_most is None else "at most"
            unit = f" {metric.unit}" * (bool(metric.unit) and name != FINISH_TIME)
            text = f"{metric.title} {side} {limit_value_text(name, limit)}{unit}"
            missed = sum(name in each.missed for each in own)
            undecided = sum(name in each.undecided for each in own)
            shown = f"{metric.title} {format_metric(name, near[0], is_for_many=False)}"
            (nearest,) = (each for each in own if each.row is near[0])
            texts.append(MissedLimit(text, missed, undecided, nearest, shown))
    return texts


def _name_relative_to(
    leader: Candidate | None, other: Candidate | None, vary: Sequence[str]
) -> str:
    """Return the name of `other`, without the axes that it shares with the leader.

    The number of nodes is always named, and GPUs are if they vary among all configurations. On a
    different platform the name is complete.

    Args:
        leader: The configuration that the sentence has named already.
        other: The configuration to name; None gives "".
        vary: The axes that names of these configurations need.
    """
    if leader is None or other is None:
        return ""
    differs = [axis for axis in vary if str(leader.row[axis]) != str(other.row[axis])]
    if "platform" in differs:
        return other.name
    if not differs and GPUS not in vary:
        return axis_text("nodes", other.row)
    return point_name(other.row, [axis for axis in vary if axis == GPUS or axis in differs])


def _search_words(study: Study, answer: Answer) -> dict[str, object] | None:
    """Return verdict, rounds and savings of an answer's search; None without a search."""
    if answer.search is None:
        return None
    spent = search_results.search_costs(study, answer.search).values()
    saving = search_results.saving_text(spent, answer.goal)
    rounds, verdict = answer.search.decision.rounds, search_results.verdict_text(answer.search)
    return {"verdict": verdict, "rounds": rounds, "saving": saving}


def page(table: pd.DataFrame, study: Study) -> str:
    """Return the content of headline.md: plain text, a line for each question."""
    rows = to_rows(HeadlineRow, table)
    texts = (f"{row.question}: {row.text} {row.sure}".removeprefix(": ").strip() for row in rows)
    return "".join(f"{text}\n" for text in texts)


def with_warnings(text: str, warnings: Sequence[DataWarning]) -> str:
    """Return the headline's text with a line of warnings that change what its numbers mean."""
    serious = [warning.short for warning in warnings if warning.severity == SERIOUS]
    return text + f"Warning: {'; '.join(serious)}.\n" * bool(serious)
