"""Points that do other work or diverge half the time are ineligible, with the reason."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd
import pytest
from measured import NOTHING_PLANNED, around, measured
from tfscaling.conclusions import evidence
from tfscaling.conclusions.evidence import Study
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.estimates import Samples

ROW: dict[str, Any] = {"same_work": True, "reason": "", "examples_trained": 60_000}
DIFFERENT = "does not do the same work: its runs trained 576 to 1,024 examples"


@pytest.mark.parametrize(
    ("changes", "statuses", "reason"),
    [
        ({}, {"ok": 6}, ""),
        ({"examples_trained_min": 576, "examples_trained_max": 1024}, {"ok": 6}, DIFFERENT),
        ({"examples_trained_min": pd.NA, "examples_trained_max": pd.NA}, {"ok": 6}, ""),
        ({}, {"ok": 4, "diverged": 2}, ""),
        ({}, {"ok": 3, "diverged": 3}, "3 of 6 runs diverged"),
        ({}, {"ok": 2, "diverged": 2, "missing": 2}, "2 of 4 runs diverged"),
        ({}, {"diverged": 6}, "6 of 6 runs diverged"),
        ({}, {"ok": 1, "failed": 5}, ""),
    ],
)
def test_why_a_point_takes_no_part(
    changes: dict[str, Any], statuses: dict[str, int], reason: str
) -> None:
    assert evidence.why_not(ROW | changes, Counter(statuses)) == reason


@pytest.mark.parametrize(("trained", "is_ineligible"), [(59_904, False), (59_870, True)])
def test_two_thousandths_are_no_other_work(trained: int, is_ineligible: bool) -> None:
    row = ROW | {"examples_trained": trained}
    assert bool(evidence.why_not(row, Counter(ok=6), 60_000)) is is_ineligible


def test_a_point_takes_part_whose_baseline_alone_did_other_work() -> None:
    row = ROW | {"same_work": False}
    assert evidence.why_not(row, Counter(ok=6), 60_000) == ""
    different = {"examples_trained_min": 576, "examples_trained_max": 1024}
    assert evidence.why_not(row | different, Counter(ok=6), 60_000) == DIFFERENT


def test_tables_without_these_columns_bar_nothing() -> None:
    comparison, runs, _ = measured({("east", 1): around(1.0), ("east", 2): around(1.0)})
    old = comparison.drop(
        columns=[
            "same_work",
            *(name for name in comparison.columns if name.startswith("examples_trained")),
        ],
        errors="ignore",
    )
    samples = Samples(runs)
    assert Study(old, runs, NOTHING_PLANNED).ineligible == []
    rows: list[Any] = old.to_dict("records")
    fit, unfit = evidence.split(rows, samples)
    assert (len(fit), unfit) == (2, [])


def test_the_counts_of_the_rows_tell_the_same_as_the_runs() -> None:
    times = {("east", nodes): around(1.0) for nodes in (1, 2, 4)}
    _, runs, planned = measured(times)
    runs.loc[(runs["nodes"] == 2) & (runs["repeat"] <= 3), "status"] = "diverged"
    runs.loc[(runs["nodes"] == 4) & (runs["repeat"] <= 2), "status"] = "diverged"
    rows: list[Any] = comparison_table(runs, planned).to_dict("records")
    fit, _ = evidence.split(rows, Samples(runs))
    assert [row["nodes"] for row in fit] == [1, 4]
    assert evidence.split(rows)[0] == fit


def test_runs_that_diverged_or_failed_are_told() -> None:
    comparison, runs, _ = measured({("east", 1): around(1.0), ("east", 2): around(1.0, runs=5)})
    runs.loc[(runs["nodes"] == 1) & (runs["repeat"] <= 2), "status"] = "diverged"
    samples = Samples(runs)
    rows: list[Any] = comparison.to_dict("records")
    one, two = rows
    assert evidence.remark(one, samples) == "; 2 of 6 runs diverged"
    assert evidence.remark(two, samples) == "; 1 of 6 runs failed"
