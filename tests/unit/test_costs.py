"""The price of a run."""

from __future__ import annotations

import pytest
from tfscaling.costs import run_cost_usd


@pytest.mark.parametrize(
    ("price", "nodes", "duration_s", "cost"),
    [(3.6, 1, 3600.0, 3.6), (3.6, 4, 10.0, 0.04), (2.968, 8, 450.0, 2.968), (0.0, 2, 60.0, 0.0)],
)
def test_cost_is_price_times_nodes_times_hours(
    price: float, nodes: int, duration_s: float, cost: float
) -> None:
    assert run_cost_usd(price, nodes, duration_s) == pytest.approx(cost)


def test_without_a_price_there_is_no_cost_rather_than_zero() -> None:
    assert run_cost_usd(None, 4, 100.0) is None
