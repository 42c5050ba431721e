"""Headlines, answers and findings as the page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from tfscaling.conclusions.decision import DecisionRow
from tfscaling.conclusions.findings import Finding
from tfscaling.conclusions.headline import HeadlineRow
from tfscaling.estimation.samples import NOT_MEASURED, TOO_FEW
from tfscaling.page.words import TOPICS
from tfscaling.record.metrics import QUALITY
from tfscaling.tables.row_values import group_by
from tfscaling.tables.table_files import to_rows


class ShownHeadline(NamedTuple):
    """A headline as shown on the page: the answer to one question.

    Attributes:
        question: Name of the question.
        text: The answer as a sentence.
        support: Level of support, such as `supported` or `inconclusive`.
        badge: Text of the badge: the level of support, with a short explanation.
        more: An explanation that is too long for the badge, as a sentence; "" without one.
    """

    question: str
    text: str
    support: str
    badge: str
    more: str = ""


#: Characters of the longest explanation in a badge.
_BADGE_MAX = 60


def headlines_to_show(table: pd.DataFrame) -> list[ShownHeadline]:
    """Return the headlines in the order of the table `headline`."""
    found = []
    for row in to_rows(HeadlineRow, table):
        badge, more = row.badge, ""
        if len(row.sure) > _BADGE_MAX:
            more = row.sure
        elif sure := row.sure.removesuffix("."):
            badge = sure if row.badge == TOO_FEW else f"{row.badge}: {sure[0].lower()}{sure[1:]}"
        found.append(ShownHeadline(row.question, row.text, row.badge, badge, more))
    return found


class ShownAnswer(NamedTuple):
    """The answer for one goal as shown on the page.

    Attributes:
        title: The goal in words, such as `Shortest time`.
        text: The answer as a sentence.
        support: Level of support, such as `supported` or `inconclusive`.
        is_other: Whether the question of the study names a different goal.
    """

    title: str
    text: str
    support: str
    is_other: bool


def answers_by_question(
    decision: pd.DataFrame,
    question_goal: str | None = None,
    headlines: Sequence[ShownHeadline] = (),
) -> dict[str, list[ShownAnswer]]:
    """Return name of a question → its answers, one for each measured goal.

    If the study has a single question, its key is "". The answer for `question_goal` is included
    even if that goal was not measured. A sentence about all trainings, about a wide and short
    job, or about configurations without a comparison, is shown only once for each question.

    Args:
        decision: The table of the conclusion `decision`.
        question_goal: The goal of the configuration's `question`; None without this key.
        headlines: The headlines at the top of the page; answers do not repeat their sentences.
    """
    questions: dict[str, list[ShownAnswer]] = {}
    said = {each.question: each.more for each in headlines}
    for row in to_rows(DecisionRow, decision):
        if row.goal == question_goal or row.support != NOT_MEASURED:
            is_other = question_goal is not None and row.goal != question_goal
            text, shown_above = row.text, said.setdefault(row.question, said.get("", ""))
            for sentence in filter(None, (row.totals, row.wide_job, row.not_covered)):
                text = text.replace(sentence, "") if sentence in shown_above else text
                said[row.question] += sentence
            shown = ShownAnswer(row.title, " ".join(text.split()), row.support, is_other)
            questions.setdefault(row.question, []).append(shown)
    return {"": next(iter(questions.values()))} if len(questions) == 1 else questions


def findings_by_topic(findings: pd.DataFrame, quality: str) -> dict[str, list[Finding]]:
    """Return heading of a topic → its findings.

    Args:
        findings: The table of the conclusion `findings`.
        quality: Name of the metric of quality, for the heading.
    """
    found = group_by(to_rows(Finding, findings), lambda row: row.topic)
    return {
        title + quality * (topic == QUALITY): found[topic]
        for topic, title in TOPICS.items()
        if topic in found
    }
