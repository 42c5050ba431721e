"""The tables of `make large-batch`, from runs with known accuracies."""

from __future__ import annotations

from pathlib import Path

import large_batch
import pandas as pd
import pytest
from scipy import stats

#: Recipe → accuracies of its runs.
ACCURACIES = {
    "published-64": [0.980, 0.982, 0.984],
    "published-1280": [0.950, 0.952, 0.954],
    "large-batch-64": [0.986, 0.988, 0.990],
    "large-batch-1280": [0.979, 0.981, 0.983],
}
FAILED = "large-batch-64"


def runs() -> pd.DataFrame:
    """One more run of one recipe has failed."""
    rows = [(recipe, "ok", value) for recipe, values in ACCURACIES.items() for value in values] + [
        (FAILED, "failed", None)
    ]
    frame = pd.DataFrame(rows, columns=["recipe", "status", "test_accuracy"])
    frame["model"], frame["started"] = "mnist_cnn", "2026-11-23T10:00:00+00:00"
    frame["accuracy"] = frame["test_accuracy"] + 0.01
    frame["global_batch_size"] = frame["recipe"].str.rpartition("-")[2].astype(int)
    return frame.assign(**dict.fromkeys(large_batch.PLACE, "8"))


def cells() -> dict[str, dict[str, str]]:
    found = large_batch.rows(runs())
    return {row[0]: dict(zip(large_batch.HEADER, row, strict=True)) for row in found}


@pytest.mark.parametrize(
    ("recipe", "verdict"),
    [("published-64", ""), ("published-1280", "below"), ("large-batch-64", "above"),
     ("large-batch-1280", "not significant")],
)  # fmt: skip
def test_a_recipe_is_below_or_above_if_all_of_the_interval_is(recipe: str, verdict: str) -> None:
    assert cells()[recipe]["compared with published-64"] == verdict


def test_a_recipe_diverges_if_a_run_does() -> None:
    table = runs()
    table.loc[table["test_accuracy"] == 0.983, ["status", "test_accuracy"]] = ["diverged", None]
    row = next(row for row in large_batch.rows(table) if row[0] == "large-batch-1280")
    assert row[2] == "2 of 3, 1 diverged"
    assert row[large_batch.HEADER.index("compared with published-64")] == "diverges"


def test_a_difference_is_that_of_the_means_with_welchs_interval() -> None:
    own, other = ACCURACIES["published-1280"], ACCURACIES["published-64"]
    shown = cells()["published-1280"]["minus published-64"]
    value, low, _, high = shown.replace("(", "").replace(")", "").split(" ")
    # three runs of each with the same spread: four degrees of freedom
    half = stats.t.ppf(0.975, 4) * (2 * 0.002**2 / 3) ** 0.5
    assert float(value) == pytest.approx(sum(own) / 3 - sum(other) / 3, abs=1e-4)
    assert [float(low), float(high)] == pytest.approx([-0.03 - half, -0.03 + half], abs=1e-4)
    assert cells()["large-batch-64"]["minus large-batch-64"] == ""


def test_runs_that_are_all_equal_have_no_interval() -> None:
    assert large_batch.difference([0.98] * 3, [0.97] * 3) is None
    assert large_batch.difference([0.98] * 3, [0.97, 0.96]) is not None


def test_runs_that_failed_are_counted_and_take_no_part() -> None:
    row = cells()[FAILED]
    assert row["runs"] == "3 of 4"
    assert row["test accuracy"] == "0.9880 (0.9860–0.9900)"
    assert row["accuracy in training"] == "0.9980 (0.9960–1.0000)"


def test_a_recipe_without_a_valid_run_is_shown() -> None:
    table = runs()
    table.loc[table["recipe"] == "published-1280", "status"] = "failed"
    row = next(row for row in large_batch.rows(table) if row[0] == "published-1280")
    assert row[2:] == ("0 of 3", *["no valid run"] * 2, "", "", "")


def test_the_page_has_both_studies_between_its_markers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, table = tmp_path / "page.md", tmp_path / "runs.csv"
    page.write_text("before\n<!-- measured -->\nearlier\n<!-- end of measured -->\nafter\n")
    runs().to_csv(table, index=False)
    given = ["large_batch.py", str(table), "--choice", str(table), "--page", str(page)]
    monkeypatch.setattr("sys.argv", given)
    large_batch.main()
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "earlier" not in text
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(lines) == 2 * (2 + len(ACCURACIES))
    assert text.count("12 of 13 runs count, 2026-11-23") == 2
