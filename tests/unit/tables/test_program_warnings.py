"""Warnings about programs: runs that trained nothing, and speed-ups that cannot be."""

from __future__ import annotations

import random

import pytest
from measured import around, measured
from tfscaling.tables import data_warnings
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.data_warnings import SERIOUS, DataWarning


def found(
    times: dict[tuple[str, int], list[float]], *, is_silent: bool = True
) -> dict[str, DataWarning]:
    """Return the warnings about these runs by kind."""
    _, runs, planned = measured(times)
    if is_silent:  # as with `observe: nothing`
        runs[["train_time_s", "loss", "accuracy", "test_accuracy", "quality"]] = float("nan")
    table = comparison_table(runs, planned)
    return {each.kind: each for each in data_warnings.find_warnings(table, runs)}


def test_runs_that_resumed_from_the_first_one_are_named_with_the_cause() -> None:
    times = {("east", 1): [4.1, *(round(random.uniform(0.1, 0.3), 4) for _ in range(5))]}
    print(times)
    warning = found(times)["nothing_trained"]
    assert (warning.runs, warning.severity) == (5, SERIOUS)
    assert "{folder}" in warning.text and "TFSCALING_CHECKPOINTS" in warning.text


@pytest.mark.parametrize(
    ("times_s", "is_silent"),
    [
        ([10.0, 11.0, 12.0, 9.0, 10.0, 2.5], True),
        ([10.0, 11.0, 12.0, 9.0, 10.0, 1.0], False),  # its steps were counted
        ([0.2] * 6, True),
        ([4.1], True),
    ],
)
def test_other_runs_are_not(times_s: list[float], is_silent: bool) -> None:
    assert "nothing_trained" not in found({("east", 1): times_s}, is_silent=is_silent)


@pytest.mark.parametrize(
    ("nodes", "time_s", "is_warned"),
    [(2, 4.0, True), (4, 11.0, True), (2, 45.0, False), (4, 20.0, False), (2, 300.0, False)],
)
def test_a_speed_up_far_above_the_number_of_nodes_is_a_warning(
    nodes: int, time_s: float, is_warned: bool
) -> None:
    warnings = found({("east", 1): around(100.0), ("east", nodes): around(time_s)})
    assert ("beyond_linear" in warnings) is is_warned
    if is_warned:
        assert [point.nodes for point in warnings["beyond_linear"].points] == [nodes]


@pytest.mark.parametrize("strategy", ["own", "mirrored"])
@pytest.mark.parametrize(
    ("evaluated", "unlike"), [([1, 0], [2]), ([0.5, 1], [1]), ([1, 1], []), ([0, 0], [])]
)
def test_runs_without_an_evaluation_are_named_if_others_have_one(
    strategy: str, evaluated: list[float], unlike: list[int]
) -> None:
    """A share `evaluated` of the runs on one and on two nodes reports an evaluation."""
    runs_each = random.choice([2, 6, 12])
    print(runs_each)
    _, runs, planned = measured({("east", n): around(100.0, runs=runs_each) for n in (1, 2)})
    share = runs["nodes"].map(dict(zip((1, 2), evaluated, strict=True)))
    is_evaluated = runs["repeat"] <= share * runs_each
    runs["evaluation_time_s"] = is_evaluated.map({True: 2.0, False: float("nan")})
    runs["strategy"] = strategy
    table = comparison_table(runs, planned)
    warnings = {each.kind: each for each in data_warnings.find_warnings(table, runs)}
    expected = unlike if strategy == "own" else []
    assert ("unobserved_evaluations" in warnings) == bool(expected)
    if expected:
        warning = warnings["unobserved_evaluations"]
        assert [point.nodes for point in warning.points] == expected
        assert warning.severity == SERIOUS and warning.runs == (~is_evaluated).sum()
