"""How often a search is right: a few cells of `make simulate`."""

from __future__ import annotations

import pytest
from race import CELLS, simulate


@pytest.mark.parametrize(
    ("cell", "trials"),
    [
        pytest.param(
            "7 points 20 % apart, best: 30 % of runs 49 % slower", 20, marks=pytest.mark.full
        ),
        pytest.param("random 20, short", 30, marks=pytest.mark.full),
        pytest.param("aws-c4-2xlarge, 5 %, deadline", 60, marks=pytest.mark.full),
        ("8 points, 40 % miss the target", 20),
    ],
)
def test_a_small_cell_keeps_its_requirements(cell: str, trials: int) -> None:
    assert missed_limits(cell, trials) == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("cell", "trials"),
    [
        ("random 60, 5 %", 10),
        ("all 41, 5 %", 10),
        ("all 41, 5 %, smooth", 10),
        ("spike, random 20, 5 %", 20),
        ("slip8, 5 %", 20),
        ("random 20, best 20 %, others 2 %", 20),
        ("random 20, +3 % a round", 10),
        ("random 20, 5 %, accuracy", 20),
        ("8 points, 40 % miss the limit", 20),
        ("random 60, short", 10),
        ("all 41, short", 10),
        ("random 20, short, 10 %", 20),
        ("random 20, short, later", 20),
        ("slip7, 5 %, full grid", 20),
        ("slip7 best, two modes: 40 % of runs 65 % slower, full grid", 40),
    ],
)
def test_a_claimed_cell_keeps_its_requirements(cell: str, trials: int) -> None:
    assert missed_limits(cell, trials) == []


def missed_limits(cell: str, trials: int) -> list[str]:
    """Simulate searches; return the cell's limits of errors that they exceed."""
    found = simulate((cell, CELLS[cell].procedures[0], trials))
    print(found)
    return CELLS[cell].limits.missed(found)


@pytest.mark.full
def test_smooth_lines_do_not_find_a_spike() -> None:
    cell = "spike, random 60, 5 %"
    found = simulate((cell, "smooth lines with a spike", 20))
    assert "wrong_max" in CELLS[cell].limits.missed(found), found
