"""What a headline reports about the leader of an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measured import NOTHING_PLANNED, around, measured
from tfscaling.conclusions.answers import details
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.answers.candidate_types import Candidate, State
from tfscaling.conclusions.evidence import Study
from tfscaling.study.config_types import Limit
from tfscaling.tables.comparison import comparison_table

TIME, MEMORY = "execution_time_s", "rank_memory_gb"


def report(limits: dict[str, Limit], runs: int = 6) -> list[str]:
    """The parts of the report on a configuration whose runs need 1, 2, 3, ... GB."""
    _, table, planned = measured({("east", 1): around(100.0, 0.1, runs)})
    table[MEMORY] = [float(number) for number in range(1, runs + 1)]
    study = Study(comparison_table(table, planned), table, NOTHING_PLANNED)
    row, names = study.points[0], (TIME, *limits, *details.DETAIL_COLUMNS)
    found = details.describe_metrics(study.samples, row, names)
    leader = Candidate(row, "n1", State.COMPARED, details=found)
    answer = Answer("w", TIME, "t", 0.05, (leader,), leader=leader, limits=limits)
    assert replace(answer, leader=None).leader_details == ""
    return list(filter(None, answer.leader_details.split("; ")))


@pytest.mark.parametrize(
    ("runs", "time", "memory"),
    [(6, "100.0 (90.0–110.0) s", "3.50 (1.00–6.00) GB"), (3, "100.0 (90.0–110.0) s", "2.00 GB")],
)
def test_a_metric_has_its_interval_if_the_runs_are_enough(
    runs: int, time: str, memory: str
) -> None:
    """Times have their range in the table; of memory only the runs have values."""
    first, *others = report({MEMORY: Limit(at_most=8)}, runs)
    assert time in first and "limit" not in first
    (own,) = [text for text in others if text.startswith("rank memory")]
    margin = {6: "4.50", 3: "6.00"}[runs]
    assert own == f"rank memory {memory}, {margin} below its limit"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({TIME: Limit(at_most=150)}, ["50.0 below"]), ({TIME: Limit(at_least=40)}, ["60.0 above"]),
        ({TIME: Limit(at_most=150), MEMORY: Limit(at_least=1)}, ["50.0 below", "2.50 above"]),
        ({}, None),
    ],
)  # fmt: skip
def test_a_limit_has_its_margin(limits: dict[str, Limit], expected: list[str] | None) -> None:
    found = report(limits)
    margins = [text.partition(", ")[2] for text in found if "limit" in text]
    assert margins == [f"{margin} its limit" for margin in expected or []]
    assert bool(found) is (expected is not None)
