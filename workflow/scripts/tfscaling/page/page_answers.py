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
        support: Level of support.
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
    """The answer by one goal as shown on the page.

    Attributes:
        title: What the answer is best for.
        text: The answer as a sentence.
        support: Level of support.
        is_other: Whether the question of the study names a different goal.
    """

    title: str
    text: str
    support: str
    is_other: bool


def answers_by_question(
    decision: pd.DataFrame,
    asked_goal: str | None = None,
    headlines: Sequence[ShownHeadline] = (),
) -> dict[str, list[ShownAnswer]]:
    """Return question → its answers, one for each measured goal; the key of a single one is "".

    The answer by `asked_goal` is included even if that goal was not measured. Sentences on all
    trainings and on configurations without a comparison are shown once.

    Args:
        decision: The table of the conclusion `decision`.
        asked_goal: The goal of the configuration's `question`; None without this key.
        headlines: The headlines above, whose sentences the answers to a question do not repeat.
    """
    questions: dict[str, list[ShownAnswer]] = {}
    said = {each.question: each.more for each in headlines}
    for row in to_rows(DecisionRow, decision):
        if row.goal == asked_goal or row.support != NOT_MEASURED:
            is_other = asked_goal is not None and row.goal != asked_goal
            text, shown_above = row.text, said.setdefault(row.question, said.get("", ""))
            for sentence in filter(None, (row.totals, row.not_covered)):
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
