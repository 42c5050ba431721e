"""The warning that the recommended training is a wide and short job."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from measured import measured
from tfscaling.conclusions import decision, headline
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.wide_jobs import time_rounded_down
from tfscaling.page import page_answers
from tfscaling.tables.comparison import comparison_table

LIMIT = {"nodes": 16, "minutes": 30}
WORDS = "wide and short"


def study(nodes: int, time_s: float, **columns: Any) -> Study:
    """A study whose fastest configuration has this many nodes and takes this time."""
    limit = columns.pop("limit", LIMIT)
    times = {("east", nodes): [time_s] * 6, ("east", nodes + 1): [2 * time_s] * 6}
    _, runs, planned = measured(times, **({"wide_jobs": limit} if limit else {}))
    runs = runs.assign(**columns)
    return Study(comparison_table(runs, planned), runs, planned)


def answer(*arguments: Any, **columns: Any) -> Answer:
    (found,) = answer_questions(study(*arguments, **columns))
    return found


@pytest.mark.parametrize(
    ("nodes", "time_s", "is_warned"),
    [(16, 1799.9, True), (16, 1800.0, False), (15, 60.0, False), (17, 60.0, True)],
)
def test_a_job_is_warned_of_below_both_numbers(nodes: int, time_s: float, is_warned: bool) -> None:
    found = answer(nodes, time_s)
    assert found.leader is not None and found.leader.row.nodes == nodes
    assert (found.wide_job is not None) == is_warned
    if is_warned:
        text = str(found.wide_job)
        assert f"on {nodes} nodes takes {time_rounded_down(time_s)}; jobs on 16 nodes" in text
        assert "at least 30 min" in text and "one allocation" in text and "fewer nodes" in text
    assert (WORDS in decision.answer_sentence(found)) == is_warned
    assert (WORDS in headline.headline_of_answer(found).sure) == is_warned


def test_without_the_key_nothing_is_warned_of() -> None:
    made = study(64, 1.0, limit=None)
    assert all(each.wide_job is None for each in answer_questions(made))
    table = decision.table(made)
    assert not table["wide_job"].any() and WORDS not in " ".join(table["text"])


def test_the_time_is_of_the_job_with_start_and_end() -> None:
    assert answer(16, 1000.0, wall_time_s=1799.0).wide_job is not None
    assert answer(16, 1000.0, wall_time_s=1800.0).wide_job is None
    assert answer(16, 1000.0, evaluation_time_s=800.0).wide_job is None


def test_the_page_has_the_warning_once() -> None:
    made = study(16, 600.0)
    headlines, answers = headline.table(made), decision.table(made)
    shown = page_answers.headlines_to_show(headlines)
    assert [WORDS in each.more for each in shown] == [True]
    assert sum(WORDS in text for text in answers["text"]) > 1
    cards = page_answers.answers_by_question(answers, None, shown)
    assert not any(WORDS in card.text for own in cards.values() for card in own)


def test_configurations_without_a_platform_have_no_warning() -> None:
    made = study(16, 600.0)
    tables: tuple[pd.DataFrame, pd.DataFrame] = made.comparison, made.runs
    unknown = Study(*tables, measured({("west", 1): [1.0]})[2])
    assert answer_questions(unknown)[0].wide_job is None


@pytest.mark.parametrize(
    ("time_s", "text"),
    [(0.4, "0 s"), (89.99, "89 s"), (90.0, "1.5 min"), (1799.99, "29.9 min"), (1800.0, "30 min")],
)
def test_a_time_below_the_limit_looks_below_it(time_s: float, text: str) -> None:
    assert time_rounded_down(time_s) == text
