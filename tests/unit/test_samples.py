"""Two points differ only if their runs show it."""

from __future__ import annotations

import pytest
from measured import around, measured
from tfscaling.samples import (
    INCONCLUSIVE,
    NOT_MEASURED,
    SUPPORTED,
    TOO_FEW,
    Samples,
    difference,
    point_of,
    weakest,
)


def test_a_clear_difference_is_supported() -> None:
    found = difference(around(10.0), around(20.0))
    assert found is not None and found.interval is not None
    assert found.ratio == pytest.approx(2.0)
    assert found.interval[0] < 2.0 < found.interval[1]
    assert found.support == SUPPORTED


def test_overlapping_samples_are_inconclusive() -> None:
    found = difference(around(10.0, 0.2), around(10.3, 0.2))
    assert found is not None
    assert found.support == INCONCLUSIVE


def test_five_runs_are_too_few_whatever_they_show() -> None:
    found = difference(around(10.0), around(99.0, runs=5))
    assert found is not None
    assert (found.support, found.interval) == (TOO_FEW, None)
    assert found.ratio == pytest.approx(9.9)


def test_nothing_measured_is_no_difference() -> None:
    assert difference([], around(10.0)) is None
    assert difference(around(10.0), []) is None


def test_accuracies_are_compared_by_their_errors() -> None:
    comparison, runs, _ = measured(
        {("east", 1): [1.0], ("east", 2): [1.0]}, {("east", 1): [0.99], ("east", 2): [0.96]}
    )
    samples = Samples(runs)
    one, two = (point_of(row) for row in comparison.to_dict("records"))
    found = samples.difference("accuracy", one, two)
    assert found is not None
    assert found.ratio == pytest.approx(4.0)
    assert samples.values(one, "accuracy") == pytest.approx([0.01])


def test_failed_runs_are_no_samples() -> None:
    comparison, runs, _ = measured({("east", 1): around(5.0), ("east", 2): [4.0]})
    point = point_of(comparison.to_dict("records")[1])
    assert Samples(runs).values(point, "execution_time_s") == [4.0]


@pytest.mark.parametrize(
    ("supports", "expected"),
    [
        ([], SUPPORTED),
        ([SUPPORTED, INCONCLUSIVE], INCONCLUSIVE),
        ([INCONCLUSIVE, TOO_FEW, SUPPORTED], TOO_FEW),
        ([NOT_MEASURED, TOO_FEW], NOT_MEASURED),
    ],
)
def test_a_chain_is_as_strong_as_its_weakest_link(supports: list[str], expected: str) -> None:
    assert weakest(supports) == expected
