"""Points that do other work or diverge half the time are ineligible, with the reason."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from measured import NOTHING_PLANNED, around, measured
from tfscaling.conclusions import evidence
from tfscaling.conclusions.evidence import OUT_OF_MEMORY, Study
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.run_samples import read_samples
from tfscaling.tables.table_files import to_rows

DIFFERENT = "does not do the same work: its runs trained 576 to 1,024 examples"


def row(**changes: Any) -> PointRow:
    return PointRow(**{"same_work": True, "examples_trained": 60_000, "runs": 1, **changes})


def why(changes: dict[str, Any], statuses: dict[str, int], examples: float = 0) -> Any:
    found = evidence.find_exclusion(row(**changes), Counter(statuses), examples)
    return found and tuple(found)


@pytest.mark.parametrize(
    ("changes", "statuses", "reason"),
    [
        ({}, {"ok": 6}, None),
        ({"examples_trained_min": 576, "examples_trained_max": 1024}, {"ok": 6}, (DIFFERENT, True)),
        ({}, {"ok": 4, "diverged": 2}, None),
        ({}, {"ok": 3, "diverged": 3}, ("3 of 6 runs diverged", False)),
        ({}, {"ok": 3, "does_not_fit": 3}, (f"{OUT_OF_MEMORY} (3 of 6 runs)", False)),
        ({}, {"diverged": 2, "does_not_fit": 1}, (f"{OUT_OF_MEMORY} (1 of 3 runs)", False)),
        # half of all that is planned, not of those that ended
        ({}, {"ok": 2, "diverged": 2, "missing": 2}, None),
        ({"runs": 0}, {"diverged": 1, "failed": 5}, ("no valid run (1 diverged, 5 failed)", True)),
        (
            {"runs": 0},
            {"does_not_fit": 1, "missing": 5},
            ("no valid run (1 not fitting in memory, 5 missing)", True),
        ),
        # a single run shows nothing
        ({"runs": 0}, {"diverged": 1}, ("no valid run (1 diverged)", True)),
        ({"runs": 0}, {"does_not_fit": 2}, (f"{OUT_OF_MEMORY} (2 of 2 runs)", False)),
        ({}, {"diverged": 6}, ("6 of 6 runs diverged", False)),
        ({}, {"ok": 1, "failed": 5}, None),
    ],
)
def test_what_excludes_a_configuration_and_whether_the_answer_stays_open(
    changes: dict[str, Any], statuses: dict[str, int], reason: tuple[str, bool] | None
) -> None:
    assert why(changes, statuses) == reason


@pytest.mark.parametrize(("trained", "is_ineligible"), [(59_904, False), (59_870, True)])
def test_two_thousandths_are_no_other_work(trained: int, is_ineligible: bool) -> None:
    assert bool(why({"examples_trained": trained}, {"ok": 6}, 60_000)) is is_ineligible


def test_a_point_takes_part_whose_baseline_alone_did_other_work() -> None:
    assert why({"same_work": False}, {"ok": 6}, 60_000) is None


def test_tables_without_these_columns_bar_nothing() -> None:
    comparison, runs, _ = measured({("east", 1): around(1.0), ("east", 2): around(1.0)})
    old = comparison.drop(
        columns=[
            "same_work",
            *(name for name in comparison.columns if name.startswith("examples_trained")),
        ],
        errors="ignore",
    )
    study = Study(old, runs, NOTHING_PLANNED)
    assert study.excluded == {} and len(study.compared_rows) == 2


def test_runs_that_diverged_or_failed_are_told() -> None:
    comparison, runs, _ = measured({("east", 1): around(1.0), ("east", 2): around(1.0, runs=5)})
    runs.loc[(runs["nodes"] == 1) & (runs["repeat"] <= 2), "status"] = "diverged"
    samples = read_samples(runs)
    one, two = to_rows(PointRow, comparison)
    assert evidence.failure_remark(one, samples) == "2 of 6 runs diverged"
    assert evidence.failure_remark(two, samples) == "1 of 6 runs failed"
