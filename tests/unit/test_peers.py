"""The table of `make peers`, from runs with known times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from peers import ratios

#: (strategy, recipe) → milliseconds of a step on one worker and seconds of the execution.
TIMES = {
    ("own", "legacy_fit"): (16.0, 12.0),
    ("own", "pytorch"): (12.0, 9.0),
    ("single", "float32"): (8.0, 6.0),
    ("own", "floor+precision=float32"): (5.0, 4.0),
    ("own", "floor-update+precision=float32"): (6.4, 4.0),
    ("own", "peak+precision=float32"): (4.0, 4.0),
}


def runs(repeats: int, status: str = "ok") -> pd.DataFrame:
    """Runs of which each is 1 % slower than the one before."""
    return pd.DataFrame(
        {
            "strategy": strategy,
            "recipe": recipe,
            "nodes": 1,
            "status": status,
            "global_batch_size": 64,
            "throughput_examples_per_s": 64_000 / step_ms / (1 + number / 100),
            "execution_time_s": execution_s * (1 + number / 100),
            "started": "2026-11-22T10:00:00+00:00",
            **dict.fromkeys(ratios.PLACE, "8"),
        }
        for (strategy, recipe), (step_ms, execution_s) in TIMES.items()
        for number in range(repeats)
    )


def cells(table: pd.DataFrame) -> dict[str, dict[str, str]]:
    found = ratios.rows(ratios.trainings(table, 1))
    return {row[0]: dict(zip(ratios.HEADER, row, strict=True)) for row in found}


def test_ratios_are_those_of_medians() -> None:
    own = cells(runs(1))["single, float32"]
    assert [float(own[name]) for name in ratios.HEADER[1:]] == [8, 2, 1.5, 1.25, 6]
    assert cells(runs(1))["legacy_fit"][ratios.HEADER[2]] == "1"


def test_six_runs_have_intervals_and_fewer_have_none() -> None:
    own = cells(runs(6))["single, float32"]
    assert own["ms per step"] == "8.2 (8.0–8.4)"
    shown, interval = own[ratios.HEADER[2]].split(" ", 1)
    low, high = map(float, interval.strip("()").split("–"))
    assert float(shown) == pytest.approx(2.0) and 1.9 < low < 2.0 < high < 2.1
    assert not any("–" in cell for cell in cells(runs(5))["single, float32"].values())


def test_runs_that_failed_take_no_part() -> None:
    assert cells(runs(6, status="failed")) == {}


FLOOR = {"beside": ratios.FLOOR.format("float32")}


@pytest.mark.parametrize(
    ("repeats", "asked", "verdict"),
    [
        (6, {"at_least": 1.8}, "yes"),
        (6, {"at_least": 2.2}, "no"),
        (6, {"at_least": 1.99}, "open"),  # within the interval
        (5, {"at_least": 1.0}, "open"),  # without one
        (6, {**FLOOR, "at_most": 1.8}, "yes"),
        (6, {**FLOOR, "at_most": 1.4}, "no"),
        (6, {**FLOOR, "at_most": 1.61}, "open"),
        (6, {"recipe": "absent", "at_most": 1.4}, "not measured"),
    ],
)
def test_a_target_is_reached_or_missed_by_the_whole_interval(
    repeats: int, asked: dict[str, Any], verdict: str
) -> None:
    target = ratios.Target(1, "single", "float32", ratios.PUBLISHED)._replace(**asked)
    assert ratios.reached(target, ratios.trainings(runs(repeats), 1))[-1] == verdict


def test_the_page_has_a_line_for_each_target_and_each_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, table = tmp_path / "page.md", tmp_path / "runs.csv"
    page.write_text("before\n<!-- measured -->\nold\n<!-- end of measured -->\nafter\n")
    runs(6).to_csv(table, index=False)
    monkeypatch.setattr("sys.argv", ["ratios.py", str(table), "--page", str(page)])
    ratios.main()
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == (
        2 * 2 + len(ratios.TARGETS) + len(TIMES)
    )
    assert "2026-11-22" in text
