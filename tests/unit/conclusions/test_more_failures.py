"""The exact test of failures over all points."""

from __future__ import annotations

import itertools
from math import comb

import pytest
from scipy.stats import fisher_exact
from tfscaling.conclusions.two_sweeps import LEVEL, Ends, chance


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ((5, 6), (0, 6)), ((3, 4), (1, 8)), ((0, 6), (2, 6)), ((6, 6), (6, 6)),
        ((40, 900), (20, 700)),
    ],
)  # fmt: skip
def test_of_one_point_it_is_fishers_exact_test(
    here: tuple[int, int], there: tuple[int, int]
) -> None:
    table = [[bad, runs - bad] for bad, runs in (here, there)]
    expected = fisher_exact(table, alternative="greater").pvalue
    assert chance([(Ends(*here), Ends(*there))]) == pytest.approx(expected)


def test_of_several_points_each_is_compared_with_itself() -> None:
    """One failure of each of n points, with as many runs in both: n tosses of a coin."""
    assert chance([(Ends(1, 6), Ends(0, 6))] * 6) == pytest.approx(1 / 2**6)
    assert chance([(Ends(0, 6), Ends(1, 6))] * 6) == 1.0


def test_a_point_that_fails_often_with_more_runs_now_is_no_difference() -> None:
    """Summed up 24 of 30 runs failed here and 7 of 30 there, but at no point more often."""
    points = [(Ends(24, 24), Ends(6, 6)), (Ends(0, 6), Ends(1, 24))]
    assert fisher_exact([[24, 6], [7, 23]], alternative="greater").pvalue < LEVEL
    assert chance(points) == 1.0


def test_without_runs_or_failures_nothing_is_shown() -> None:
    assert chance([]) == chance([(Ends(0, 0), Ends(0, 6))]) == chance([(Ends(0, 6), Ends(0, 6))])
    assert chance([]) == 1.0


@pytest.mark.parametrize("shares", [(0.1, 0.1), (0.05, 0.5), (0.3, 0.8)])
def test_it_is_seldom_wrong_where_runs_fail_as_often(shares: tuple[float, float]) -> None:
    """Exactly, over all that can happen at two points with 5 runs here and 4 there."""
    wrong = 0.0
    for bad in itertools.product(range(6), range(5), range(6), range(5)):
        ends = [Ends(number, runs) for number, runs in zip(bad, (5, 4, 5, 4), strict=True)]
        probability = 1.0
        for (number, runs), share in zip(ends, (shares[0],) * 2 + (shares[1],) * 2, strict=True):
            probability *= comb(runs, number) * share**number * (1 - share) ** (runs - number)
        wrong += probability * (chance([(ends[0], ends[1]), (ends[2], ends[3])]) <= LEVEL)
    assert 0 < wrong <= LEVEL
