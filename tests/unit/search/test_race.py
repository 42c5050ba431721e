"""How often a search is right: a few cells of `make simulate`, with room for fewer trials."""

from __future__ import annotations

import pytest
from race import CELLS, Limits, simulate

TRIALS = 60


@pytest.mark.parametrize(
    ("cell", "limits"),
    [
        ("slip7 5 %", Limits(wrong_max=0.05)),
        ("slip20 5 %", Limits(wrong_max=0.05, right_min=0.93, decided_min=0.75)),
        ("slip20 best 20 %, others 2 %", Limits(wrong_max=0.12, holds_min=0.88)),
        ("all 41 outliers", Limits(right_min=0.95, decided_min=0.92, node_hours_max=0.38)),
        ("aws-m4-large 5 %", Limits(0.0, 1.0, 1.0, node_hours_max=0.5, rounds_max=3)),
        ("slip20 10 %", Limits(wrong_max=0.05, holds_min=0.93)),
        ("slip20 best, two modes: 40 % of runs 49 % slower", Limits(wrong_max=0.08)),
        ("slip20 tenth, two modes: 50 % of runs 35 % slower", Limits(wrong_max=0.08)),
    ],
)
def test_a_search_is_right(cell: str, limits: Limits) -> None:
    found = simulate((cell, "search", TRIALS))
    assert limits.missed(found) == [], found


@pytest.mark.parametrize(
    ("cell", "procedure", "trials"),
    [
        ("gen20 5 %, accuracy", "accuracy, limits", 20),
        ("all 41 5 %, budget, accuracy", "budget, accuracy, limits", 20),
        ("slip20 5 %, deadline", "deadline, limits", 20),
        ("all 41 5 %, screened", "screened", 20),
        ("8 points, 40 % miss the target", "40 % miss the target", 60),
        ("8 points, 50 % miss the limit", "50 % miss the limit", 60),
    ],
)
def test_so_are_its_options(cell: str, procedure: str, trials: int) -> None:
    found = simulate((cell, procedure, trials))
    assert (found.wrong, found.holds, found.false_claims) == (0.0, 1.0, 0.0), found


@pytest.mark.parametrize("cell", [name for name in CELLS if name.endswith("slower, full grid")])
def test_a_second_mode_does_not_make_the_full_grid_wrong(cell: str) -> None:
    found = simulate((cell, "full grid", TRIALS))
    assert found.wrong <= 0.08 and found.holds >= 0.92, found


def test_without_the_correction_it_is_not() -> None:
    found = simulate(("slip7 5 %", "uncorrected", TRIALS))
    assert found.wrong > 0.15
    assert "wrong_max" in CELLS["slip7 5 %"].limits.missed(found)
