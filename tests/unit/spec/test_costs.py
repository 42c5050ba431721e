"""The price of a node and of a run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tfscaling.spec.config import Platform
from tfscaling.spec.platforms import run_cost_usd

PLATFORM = Platform(launcher="srun", cpus_per_node=8, nodes_max=8)


@pytest.mark.parametrize(
    ("price", "nodes", "duration_s", "cost"),
    [(3.6, 1, 3600.0, 3.6), (3.6, 4, 10.0, 0.04), (2.968, 8, 450.0, 2.968), (0.0, 2, 60.0, 0.0)],
)
def test_cost_is_price_times_nodes_times_hours(
    price: float, nodes: int, duration_s: float, cost: float
) -> None:
    assert run_cost_usd(price, nodes, duration_s) == pytest.approx(cost)


@pytest.mark.parametrize(
    ("per_node", "per_gpu", "gpus", "price"),
    [
        (0.1, 2.5, 0, 0.1), (0.1, 2.5, 1, 2.6), (0.1, 2.5, 4, 10.1), (0.0, 2.5, 2, 5.0),
        (0.1, 0.0, 4, 0.1), (3.8, None, 1, 3.8), (3.8, None, 4, 3.8),
        (None, None, 2, None), (None, 2.5, 2, None),
    ],
)  # fmt: skip
def test_gpus_are_added_to_the_price_of_the_node_if_they_have_one_of_their_own(
    per_node: float | None, per_gpu: float | None, gpus: int, price: float | None
) -> None:
    platform = replace(PLATFORM, usd_per_node_hour=per_node, usd_per_gpu_hour=per_gpu)
    expected = None if price is None else pytest.approx(price)
    assert platform.price_usd(gpus) == expected


def test_a_run_pays_for_the_gpus_of_all_its_nodes() -> None:
    platform = replace(PLATFORM, usd_per_node_hour=0.1, usd_per_gpu_hour=2.5)
    cost = run_cost_usd(platform.price_usd(2), 4, 1800.0)
    assert cost == pytest.approx((0.1 + 2 * 2.5) * 4 / 2)


def test_without_a_price_there_is_no_cost_rather_than_zero() -> None:
    assert run_cost_usd(None, 4, 100.0) is None
