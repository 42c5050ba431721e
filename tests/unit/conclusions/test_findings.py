"""Sentences claim no more than the intervals support."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from measured import NOTHING_PLANNED, around, measured, nothing_measured, went_on
from simulated import Sweeps
from tfscaling.conclusions import clouds, findings
from tfscaling.conclusions.evidence import Study
from tfscaling.spec.manifest import Manifest


def find(*arguments: Any, **settings: Any) -> pd.DataFrame:
    return find_in(measured(*arguments, **settings))


def find_in(made: tuple[pd.DataFrame, pd.DataFrame, Manifest]) -> pd.DataFrame:
    comparison, runs, planned = made
    study = Study(comparison, runs, planned)
    return findings.table(study, clouds.table(study))


def one(found: pd.DataFrame, topic: str, start: str = "") -> tuple[str, str]:
    """(text, support) of the only finding of a topic that starts so."""
    rows = found[(found["topic"] == topic) & found["text"].str.startswith(start)]
    assert len(rows) == 1, rows.to_string()
    return rows["text"].iloc[0], rows["support"].iloc[0]


def test_more_nodes_that_are_slower_are_named() -> None:
    found = find({("east", 1): around(10.0), ("east", 2): around(20.0), ("east", 4): around(12.0)})
    text, support = one(found, "scaling", "More nodes are slower than 1")
    assert support == "supported"
    assert "at 2: 2.00 times" in text and "4: 1.20 times" in text
    text, _ = one(found, "scaling", "More nodes than")
    assert text.startswith("More nodes than 1 do not pay: 10.0 (9.9–10.1) s, and no larger")


def test_where_nodes_stop_paying_is_the_last_that_is_shown_to_be_faster() -> None:
    found = find({("east", 1): around(40.0), ("east", 2): around(20.0),
                  ("east", 4): around(19.9), ("east", 8): around(21.0)})  # fmt: skip
    text, support = one(found, "scaling", "More nodes than")
    assert text.startswith("More nodes than 2 do not pay: 20.0 (19.8–20.2) s, 2.00 times (")
    assert support == "supported"


def test_up_to_the_largest_number_measured_nothing_is_said_of_what_lies_beyond() -> None:
    text, _ = one(find({("east", 1): around(40.0), ("east", 2): around(20.0)}), "scaling")
    assert "up to the largest number measured, 2" in text
    assert "lies beyond" in text


def test_accuracy_lost_at_the_fastest_point() -> None:
    times = {("east", 1): around(40.0), ("east", 2): around(20.0)}
    accuracies = {("east", 1): around(0.99, 0.0001), ("east", 2): around(0.95, 0.0001)}
    text, support = one(find(times, accuracies), "quality", "The fastest, 2 nodes,")
    assert support == "supported"
    assert "with test accuracy 0.9500" in text and "against 0.9900" in text
    assert "a global batch of 128 against 64" in text


def test_accuracy_lost_from_no_error_at_all_is_found() -> None:
    """An error of zero has no ratio."""
    times = {("east", 1): around(40.0), ("east", 2): around(20.0)}
    accuracies = {("east", 1): [1.0] * 6, ("east", 2): around(0.9, 0.001)}
    text, support = one(find(times, accuracies), "quality", "The fastest, 2 nodes,")
    assert support == "supported"
    assert "0.1000 (" in text and "more error" in text and "times" not in text


def test_what_looks_slower_is_told_apart_from_what_is_shown_to_be() -> None:
    found = find({("east", 1): around(10.0), ("east", 2): around(20.0),
                  ("east", 4): around(10.1)})  # fmt: skip
    text, support = one(found, "scaling", "More nodes are slower than 1")
    assert support == "supported" and "at 2: 2.00 times" in text and "4:" not in text
    text, support = one(found, "scaling", "More nodes than 1 are slower by their medians")
    assert support == "inconclusive" and "4: 1.01 times" in text


def test_a_flat_line_of_scattered_runs_shows_nothing_of_where_nodes_stop_paying() -> None:
    found = find({("east", n): around(time, 0.2) for n, time in ((1, 100.0), (2, 92), (4, 88))})
    text, support = one(found, "scaling", "More nodes than 1")
    assert support == "inconclusive" and "are not shown to pay" in text


@pytest.mark.parametrize(("lines", "support"), [(1, "supported"), (20, "inconclusive")])
def test_what_one_line_shows_among_many_can_be_chance(lines: int, support: str) -> None:
    times = np.array([around(10.0, 0.1), around(8.7, 0.1)] * lines)
    tables = Sweeps([("east", 1), ("east", 2)], lines).tables(execution_time_s=times)
    found = findings.table(Study(*tables, NOTHING_PLANNED))
    of_scaling = found[found["topic"] == "scaling"]
    assert of_scaling["support"].tolist() == [support] * lines
    assert of_scaling["comparisons"].unique().tolist() == [2 * lines]


def test_with_too_few_runs_the_medians_alone_are_told() -> None:
    found = find({("east", 1): [40.0], ("east", 2): [20.0], ("east", 4): [21.0]})
    text, support = one(found, "scaling", "By the medians alone")
    assert support == "too few runs" and "least at 2 (20.0 s" in text


def test_a_point_without_times_is_not_the_fastest() -> None:
    times = {("east", 1): [90.0] * 3, ("east", 2): [100.0] * 3, ("east", 4): [60.0] * 3}
    text, _ = one(find_in(went_on(measured(times), 1)), "scaling", "By the medians alone")
    assert "up to the largest number measured, 4 (60.0 (" in text and "times as fast as 2)" in text
    text, _ = one(find_in(went_on(measured(times), 4)), "scaling", "By the medians alone")
    assert "least at 1 (90.0 (" in text  # 4 nodes were measured, but nobody knows how fast
    assert find_in(went_on(measured(times), 1, 2, 4)).empty
    one_known = find_in(went_on(measured(times), 1, 2))
    assert "scaling" not in set(one_known["topic"])


def test_what_the_fastest_point_loses_is_found_beside_a_point_without_times() -> None:
    times = {("east", 1): around(40.0), ("east", 2): around(30.0), ("east", 4): around(20.0)}
    good, bad = around(0.99, 0.0001), around(0.95, 0.0001)
    accuracies = {("east", 1): good, ("east", 2): good, ("east", 4): bad}
    for nodes in (1, 2):
        found = find_in(went_on(measured(times, accuracies), nodes))
        text, support = one(found, "quality", "The fastest, 4 nodes,")
        assert support == "supported" and "on 1: " in text
        text, support = one(found, "scaling", "More nodes pay up to the largest")
        assert support == "too few runs" and f"Too few runs to be compared: {nodes} nodes." in text


def test_a_larger_indifference_is_sooner_satisfied() -> None:
    tables = measured({("east", 1): around(10.4), ("east", 2): around(10.0)})[:2]
    (row,) = findings.table(Study(*tables, NOTHING_PLANNED, indifference=0.1)).to_dict("records")
    assert row["text"].startswith("More nodes than 1 do not pay") and row["comparisons"] == 2
    (row,) = findings.table(Study(*tables, NOTHING_PLANNED, indifference=0.01)).to_dict("records")
    assert row["text"].startswith("More nodes pay up to the largest")


def test_points_that_take_no_part_are_named_in_a_finding_of_their_line() -> None:
    comparison, runs, _ = measured({("east", n): around(40.0 / n) for n in (1, 2, 4, 8)})
    comparison["same_work"] = comparison["nodes"] != 8
    comparison.loc[~comparison["same_work"], "examples_trained"] = 576
    reason = "does not do the same work: trained 576 examples, another point 60,000"
    runs.loc[(runs["nodes"] == 4) & (runs["repeat"] > 2), "status"] = "diverged"
    found = findings.table(Study(comparison, runs, NOTHING_PLANNED))
    text, support = one(found, "scaling", "Not compared")
    assert support == "not compared" and reason in text and "4 of 6 runs diverged" in text
    text, support = one(found, "scaling", "More nodes pay up to the largest number measured, 2 ")
    assert support == "supported"


def test_platforms_of_the_same_title_are_lines_of_their_own() -> None:
    times = {("east", 1): around(10.0), ("east", 2): around(5.0), ("west", 1): around(10.0),
             ("west", 2): around(20.0)}  # fmt: skip
    found = find(times, title="The same")
    scaling = found[found["topic"] == "scaling"]
    assert set(scaling["subject"]) == {"east", "west"}
    assert scaling["text"].str.contains("pay up to the largest").sum() == 1
    assert scaling["text"].str.contains("More nodes than 1 do not pay").sum() == 1


def test_a_point_that_diverged_sometimes_is_no_finding_without_saying_so() -> None:
    comparison, runs, _ = measured({("east", 1): around(40.0), ("east", 2): around(20.0)})
    gone = (runs["nodes"] == 2) & (runs["repeat"] == 1)
    runs.loc[gone, ["status", "execution_time_s"]] = "diverged", None
    text, _ = one(findings.table(Study(comparison, runs, NOTHING_PLANNED)), "scaling")
    assert "1 of 6 runs diverged" in text


def test_where_nothing_is_measured_nothing_is_found() -> None:
    assert findings.table(Study(*nothing_measured(), NOTHING_PLANNED)).empty


def test_clouds_win_points_not_the_match() -> None:
    times = {("east", 1): around(10.0), ("west", 1): around(12.0), ("east", 2): around(8.0),
             ("west", 2): around(4.0)}  # fmt: skip
    found = find(times)
    rows = found[(found["topic"] == "clouds") & found["text"].str.contains("execution time")]
    assert list(rows["support"]) == ["supported"]
    text = rows["text"].iloc[0]
    assert "gcp at 1 of 2 points (margin 1.20)" in text
    assert "aws at 1 of 2 points (margin 2.00)" in text
    assert "2 of them supported" in text
    assert set(rows["comparisons"]) == {8}  # two points, four metrics


@pytest.mark.parametrize("topic", findings.TOPICS)
def test_findings_are_shown_by_topic(topic: str) -> None:
    found = find({("east", 1): around(10.0), ("west", 1): around(12.0), ("east", 2): around(8.0),
                  ("west", 2): around(4.0)})  # fmt: skip
    shown = findings.topic_table(found, topic)
    assert list(shown.cells.columns) == ["subject", "finding", "support"]
    assert len(shown.cells) == (found["topic"] == topic).sum()
