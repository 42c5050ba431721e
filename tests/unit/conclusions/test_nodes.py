"""The page's table of nodes: which one is slow, and how much."""

from __future__ import annotations

import random

from measured import Times, around, measured
from tfscaling.conclusions import nodes
from tfscaling.conclusions.evidence import Study
from tfscaling.tables.display import FormattedNumber


def study_on_nodes(dice: random.Random, slow: str, factor: float) -> Study:
    """A study on 1 and 2 of three nodes in turns; the node `slow` is slower by this factor."""
    names = ("a", "b", "c")
    times: Times = {("east", size): around(20.0 / size, runs=12) for size in (1, 2)}
    comparison, runs, planned = measured(times)
    parts = [
        [names[(repeat + n) % 3] for n in range(size)]
        for repeat, size in zip(runs["repeat"], runs["nodes"], strict=True)
    ]
    runs["hosts"] = [" ".join(part) for part in parts]
    runs["execution_time_s"] *= [
        dice.uniform(0.998, 1.002) * (factor if slow in part else 1.0) for part in parts
    ]
    return Study(comparison, runs, planned)


def test_the_slow_node_is_first_with_its_factor_and_verdict(dice: random.Random) -> None:
    slow = dice.choice("abc")
    # of drawn times one set in twenty may have a false verdict
    text = nodes.as_text(nodes.table(study_on_nodes(random.Random(5), slow, 1.5)))
    rows = text.cells.to_dict("records")
    assert rows[0]["node"] == slow and len(rows) > 1
    others = {row["verdict"] for row in rows[1:]}
    assert (rows[0]["verdict"], others) == ("slow", {"not significantly different"})
    factor = rows[0]["times as long"]
    assert isinstance(factor, FormattedNumber) and 1.4 < factor.value < 1.6
    assert rows[0]["runs"] == "12" and rows[0]["platform"] == "east"


def test_without_different_nodes_there_is_only_a_note(dice: random.Random) -> None:
    study = study_on_nodes(dice, "a", 1.0)
    study.runs["hosts"] = "a"
    text = nodes.as_text(nodes.table(study))
    assert text.cells.empty and len(text.notes) == 1
