"""The headline: the answer of a study in one sentence, with a badge for its support.

It has one row for each question that has a choice. The console prints it, the page begins with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pandas as pd

from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.regressions import REGRESSIONS, RevisionSummary, summarize_revisions
from tfscaling.conclusions.rendering import format_with_interval, render_line
from tfscaling.estimation.samples import NOT_MEASURED, weakest_support
from tfscaling.record.metrics import METRICS
from tfscaling.tables.data_warnings import SERIOUS, DataWarning
from tfscaling.tables.display import point_name, varying_axes
from tfscaling.tables.row_types import columns
from tfscaling.tables.table_files import to_frame, to_rows


class HeadlineRow(msgspec.Struct):
    """A headline on one question, on one revision, or on all questions if none has a choice.

    Attributes:
        question: Name of the question; empty if the study has a single one.
        text: The headline, in one or more sentences.
        sure: Explanation of the support; may be empty.
        badge: Level of support, one of samples.WEAKEST_FIRST.
    """

    question: str = ""
    text: str = "No configuration is to be run."
    sure: str = ""
    badge: str = NOT_MEASURED


COLUMNS = tuple(columns(HeadlineRow))


def table(study: Study) -> pd.DataFrame:
    """Return a `HeadlineRow` for each question with several configurations to choose from.

    A study of revisions begins with a row for each revision. If no question has a choice, and there
    are no revisions, the table has one row for all.
    """
    answers = answer_questions(study)
    with_choice = [each for each in answers if each.has_choice]
    rows = [_headline_of_revision(each) for each in summarize_revisions(study)]
    if not rows and not with_choice and len(answers) > 1:
        return to_frame(HeadlineRow, [_headline_without_choice(answers)])
    for each in with_choice or answers * (not rows):
        question = each.question if len(answers) > 1 else ""
        rows.append(headline_of_answer(each, question))
    return to_frame(HeadlineRow, rows or [HeadlineRow()])


def _headline_without_choice(answers: Sequence[Answer]) -> HeadlineRow:
    """Return one headline for several questions that each have a single configuration.

    It reports what was measured, because no question has a choice.
    """
    measured = [each for each in answers if each.leader is not None]
    text = render_line("headline_alone", found=answers, measured=measured)
    badges = [each.support for each in measured]
    return HeadlineRow(text=text, badge=weakest_support(badges) if badges else NOT_MEASURED)


def _headline_of_revision(summary: RevisionSummary) -> HeadlineRow:
    """Return the headline that counts the verdicts on a revision and names its largest change."""
    vary, shown = varying_axes(summary.rows), summary.largest_change
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


def headline_of_answer(answer: Answer, question: str = "") -> HeadlineRow:
    """Return the headline of an answer: its sentence, and how sure it is.

    Args:
        answer: The answer.
        question: Name of the question; empty if the study has a single one.
    """
    values = {"answer": answer, "search": answer.search, "words": answer.words}
    text = render_line("headline", goal=METRICS[answer.goal].title, **values)
    sure = render_line("headline_sure", **values) if answer.is_measured else ""
    return HeadlineRow(question, text, sure, answer.support)


def page(table: pd.DataFrame, study: Study) -> str:
    """Return the content of headline.md: plain text, a line for each question."""
    rows = to_rows(HeadlineRow, table)
    texts = (f"{row.question}: {row.text} {row.sure}".removeprefix(": ").strip() for row in rows)
    return "".join(f"{text}\n" for text in texts)


def add_warnings(text: str, warnings: Sequence[DataWarning]) -> str:
    """Return the headline's text with a further line that lists the serious warnings, if any."""
    serious = [warning.short for warning in warnings if warning.severity == SERIOUS]
    return text + f"Warning: {'; '.join(serious)}.\n" * bool(serious)
