"""Two revisions in one sweep: pairs of runs, verdicts and errors, with known times."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import regressions as regressions_simulated
from measured import Times, around, measured
from msgspec.structs import replace
from simulated import share
from tfscaling.conclusions import headline, regressions
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.time_changes import (
    FASTER,
    OPEN,
    SAME,
    SLOWER,
    judge_changes,
    judge_paired_changes,
)
from tfscaling.estimation.samples import INCONCLUSIVE, SUPPORTED, TOO_FEW
from tfscaling.stages import write_tables
from tfscaling.tables.comparison import comparison_table

INDIFFERENCE = 0.02
Array = np.ndarray


def busy(
    points: int, runs: int, dice: np.random.Generator, noise: float = 0.01
) -> tuple[Array, Array]:
    """Seconds of two equal revisions while other work comes and goes: two (points, runs) arrays.

    The other work slows both runs of a pair by up to a half; each run has its own noise besides.
    """
    load = 1 + 0.5 * dice.random((points, runs))
    first, second = (np.exp(noise * dice.standard_normal((points, runs))) for _ in range(2))
    return 100 * load * first, 100 * load * second


@pytest.mark.parametrize(("points", "runs"), [(1, 4), (1, 6), (3, 6), (12, 6), (6, 12)])
@pytest.mark.parametrize("noise", [0.002, 0.01, 0.05])
def test_equal_revisions_seldom_differ(points: int, runs: int, noise: float) -> None:
    dice = np.random.default_rng(points * 100 + runs)
    pairs = [busy(points, runs, dice, noise) for _ in range(200)]
    found = [{change.verdict for change in judge_paired_changes(*p, INDIFFERENCE)} for p in pairs]
    assert share([SLOWER in verdicts for verdicts in found]) <= 0.05
    assert share([FASTER in verdicts for verdicts in found]) <= 0.05


@pytest.mark.parametrize("runs", [4, 6, 12])
def test_a_change_just_beyond_the_indifference_is_seldom_called_the_same(runs: int) -> None:
    dice = np.random.default_rng(runs)
    found = []
    for _ in range(200):
        before, after = busy(4, runs, dice)
        changes = judge_paired_changes(before, 1.021 * after, INDIFFERENCE)
        found.append(SAME in {change.verdict for change in changes})
    assert share(found) <= 0.05


def test_all_intervals_of_a_sweep_hold_together() -> None:
    dice, missed = np.random.default_rng(5), []
    for _ in range(300):
        before, after = busy(8, 6, dice)
        changes = judge_paired_changes(before, 1.03 * after, INDIFFERENCE)
        missed.append(any(not change.low <= 1.03 <= change.high for change in changes))
    assert share(missed) <= 0.07


@pytest.mark.full
@pytest.mark.parametrize("name", regressions_simulated.PAIRED)
def test_load_within_pairs_slow_modes_and_following_runs_are_no_change(name: str) -> None:
    """A few trials of the cells of `make simulate`."""
    draw = partial(regressions_simulated.PAIRED[name], (8, 6))
    rates = regressions_simulated.error_rates(draw, judge_paired_changes, 100, 1)
    slower, faster, same, _, _ = rates
    assert max(slower, faster, same) <= 0.05


def test_five_per_cent_are_found_under_a_load_that_hides_them_between_sweeps() -> None:
    dice, paired, separate, narrower = np.random.default_rng(6), [], [], []
    for _ in range(100):
        before, after = busy(4, 12, dice)
        pairs = judge_paired_changes(before, 1.05 * after, INDIFFERENCE)
        alone = judge_changes(before, 1.05 * busy(4, 12, dice)[1], INDIFFERENCE)
        paired += [change.verdict == SLOWER for change in pairs]
        separate += [change.verdict == SLOWER for change in alone]
        narrower.append(
            np.mean([np.log(each.high / each.low) for each in alone])
            / np.mean([np.log(each.high / each.low) for each in pairs])
        )
    assert share(paired) >= 0.9 > share(separate)
    assert np.median(narrower) >= 3


def test_an_isolated_slow_run_on_either_side_is_no_change() -> None:
    dice = np.random.default_rng(7)
    for side in range(2):
        found = []
        for _ in range(200):
            times = busy(4, 8, dice)
            times[side][dice.integers(4), dice.integers(8)] *= 3
            verdicts = {change.verdict for change in judge_paired_changes(*times, INDIFFERENCE)}
            found.append(bool(verdicts & {SLOWER, FASTER}))
        assert share(found) <= 0.05


def test_a_verdict_agrees_with_its_ratio_and_interval() -> None:
    scatter = np.exp(0.002 * np.array([-1.5, -0.5, 0.2, 0.4, 0.6, 0.8]))
    before = 100 * np.ones((4, 6))
    after = before * scatter * np.array([[1.2], [0.8], [1.0], [1.018]])
    slower, faster, same, near = judge_paired_changes(before, after, INDIFFERENCE)
    assert [each.verdict for each in (slower, faster, same, near)] == [SLOWER, FASTER, SAME, OPEN]
    assert 1 < slower.low < slower.ratio < slower.high
    assert slower.ratio == pytest.approx(1.2, rel=0.01)
    assert faster.high < 1
    assert 1 / (1 + INDIFFERENCE) < same.low < same.high < 1 + INDIFFERENCE


def test_a_repeat_without_one_of_both_times_is_left_out() -> None:
    dice = np.random.default_rng(8)
    before, after = busy(2, 7, dice)
    whole = judge_paired_changes(before[:, :6], after[:, :6], INDIFFERENCE)
    after[:, 6] = np.nan
    assert judge_paired_changes(before, after, INDIFFERENCE) == whole


USUAL: Times = {("east", nodes): around(40 / nodes) for nodes in (1, 2, 4)}


def study_of(before: Times, after: Times) -> Study:
    """Return a study with the recipe `weak` and its revision `after`, with these times."""
    (_, first, planned), (_, second, other) = measured(before), measured(after)
    revised = tuple(
        replace(run, spec=replace(run.spec, point=replace(run.spec.point, recipe="after")))
        for run in other.runs
    )
    manifest = replace(planned, runs=(*planned.runs, *revised), revisions=("weak", "after"))
    runs = pd.concat([first, second.assign(recipe="after")], ignore_index=True)
    return Study(comparison_table(runs, manifest), runs, manifest)


def rows_of(study: Study) -> list[dict[str, Any]]:
    found = regressions.table(study)
    assert list(found.columns) == list(regressions.COLUMNS)
    return [{str(key): value for key, value in row.items()} for row in found.to_dict("records")]


def test_each_configuration_is_compared_with_the_first_revision() -> None:
    after = {("east", 1): around(60.0), ("east", 2): around(20.0), ("east", 4): around(5.0)}
    rows = rows_of(study_of(USUAL, after))
    assert [(row["nodes"], row["recipe"]) for row in rows] == [(n, "after") for n in (1, 2, 4)]
    assert {row["reference"] for row in rows} == {"weak"}
    assert [row["verdict"] for row in rows] == [SLOWER, SAME, FASTER]
    assert [row["time_ratio"] for row in rows] == pytest.approx([1.5, 1.0, 0.5])
    assert [row["reference_execution_time_s"] for row in rows] == [40.0, 20.0, 10.0]
    assert [(row["pairs"], row["comparisons"]) for row in rows] == [(6, 3)] * 3
    assert write_tables.describe_regressions(pd.DataFrame(rows))


def test_a_load_that_both_runs_of_a_pair_have_is_no_change(dice: random.Random) -> None:
    load = [dice.uniform(1, 2) for _ in range(6)]
    times = {point: [t * n for t, n in zip(given, load, strict=True)]
             for point, given in USUAL.items()}  # fmt: skip
    after = {point: [1.1 * t for t in given] for point, given in times.items()}
    rows = rows_of(study_of(times, after))
    assert [row["verdict"] for row in rows] == [SLOWER] * 3
    assert all(row["time_ratio_low"] > 1.08 for row in rows)


def test_fewer_than_four_pairs_decide_nothing() -> None:
    """Runs of both exist in enough repeats, but only three repeats have both."""
    after = {**USUAL, ("east", 1): [60.0] * 3}
    row = rows_of(study_of(USUAL, after))[0]
    assert (row["pairs"], row["runs"], row["reference_runs"]) == (3, 3, 6)
    assert row["verdict"] == OPEN and math.isnan(row["time_ratio"])


def test_a_revision_of_which_runs_fail_is_failing_or_lost() -> None:
    rows = rows_of(study_of(USUAL, {**USUAL, ("east", 1): [40.0], ("east", 2): []}))
    assert [row["verdict"] for row in rows] == ["failing", "lost", SAME]


def test_a_configuration_without_counterpart_is_a_row() -> None:
    before = {point: times for point, times in USUAL.items() if point != ("east", 4)}
    rows = rows_of(study_of(before, USUAL))
    assert [row["verdict"] for row in rows] == [SAME, SAME, "not compared"]


def test_the_headline_counts_the_verdicts_and_names_the_largest_slowdown() -> None:
    after = {("east", 1): around(60.0), ("east", 2): around(20.0), ("east", 4): around(5.0)}
    study = study_of(USUAL, after)
    (summary,) = regressions.summarize_revisions(study)
    assert (summary.revision, summary.badge) == ("after", SUPPORTED)
    assert list(summary.counts.items()) == [(SLOWER, 1), (FASTER, 1), (SAME, 1)]
    largest = summary.largest_change
    assert largest is not None and (largest.nodes, largest.verdict) == (1, SLOWER)
    first = headline.table(study).iloc[0]
    assert first["badge"] == SUPPORTED
    assert "after against weak" in first["text"] and "1 node, 1.50" in first["text"]


def test_a_revision_that_only_saves_time_is_named_by_its_largest_speed_up() -> None:
    after = {("east", 1): around(36.0), ("east", 2): around(10.0), ("east", 4): around(10.0)}
    (summary,) = regressions.summarize_revisions(study_of(USUAL, after))
    assert summary.largest_change is not None and summary.largest_change.nodes == 2
    assert summary.counts == {FASTER: 2, SAME: 1}


@pytest.mark.parametrize(
    ("changed", "badge"),
    [
        ({("east", 1): [60.0] * 3}, TOO_FEW),
        ({("east", 1): [20.0, 90.0, 30.0, 60.0, 25.0, 70.0]}, INCONCLUSIVE),
        ({("east", 1): []}, SUPPORTED),  # lost: all its runs failed
    ],
)
def test_the_headline_of_a_revision_has_its_weakest_support(changed: Times, badge: str) -> None:
    assert headline.table(study_of(USUAL, {**USUAL, **changed})).iloc[0]["badge"] == badge


def test_questions_without_a_choice_are_no_headline_of_revisions() -> None:
    alone: Times = {("east", 2): around(20.0)}
    rows = headline.table(study_of(alone, alone))
    assert len(rows) == 1 and rows["text"].str.contains("1 same").all()
