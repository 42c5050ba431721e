"""Sentences claim no more than the intervals support."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from measured import around, measured, nothing_measured
from tfscaling import clouds, findings


def find(*arguments: Any, **settings: Any) -> pd.DataFrame:
    comparison, runs, expected = measured(*arguments, **settings)
    return findings.find(comparison, runs, clouds.table(comparison, runs, expected))


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
    assert text.startswith("More nodes than 2 do not pay: 20.0 (19.8–20.2) s, 2.00 times as fast")
    assert support == "supported"


def test_up_to_the_largest_number_measured_nothing_is_said_of_what_lies_beyond() -> None:
    text, _ = one(find({("east", 1): around(40.0), ("east", 2): around(20.0)}), "scaling")
    assert "up to the largest number measured, 2" in text
    assert "lies beyond" in text


def test_accuracy_lost_at_the_fastest_point() -> None:
    times = {("east", 1): around(40.0), ("east", 2): around(20.0)}
    accuracies = {("east", 1): around(0.99, 0.0001), ("east", 2): around(0.95, 0.0001)}
    text, support = one(find(times, accuracies), "accuracy", "The fastest, 2 nodes,")
    assert support == "supported"
    assert "with training accuracy 0.9500" in text and "against 0.9900" in text
    assert "a global batch of 128 against 64" in text


def test_where_nothing_is_measured_nothing_is_found() -> None:
    assert findings.find(*nothing_measured()).empty


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
    shown = findings.shown(found, topic)
    assert list(shown.cells.columns) == ["subject", "finding", "support"]
    assert len(shown.cells) == (found["topic"] == topic).sum()
