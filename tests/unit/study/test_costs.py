"""The price of a node and of a run."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tfscaling.study.config_types import Platform
from tfscaling.study.platforms import run_cost_usd

PLATFORM = Platform(launcher="srun", cpus_per_node=8, nodes_max=8)


@pytest.mark.parametrize(
    ("per_node", "per_gpu", "price"),
    [
        (0.1, 2.5, lambda gpus: 0.1 + 2.5 * gpus),
        (0.0, 2.5, lambda gpus: 2.5 * gpus),
        (0.1, 0.0, lambda _: 0.1),
        (3.8, None, lambda _: 3.8),
        (None, None, lambda _: None),
        (None, 2.5, lambda _: None),
    ],
)  # fmt: skip
def test_a_run_pays_for_its_nodes_and_for_gpus_that_have_a_price(
    per_node: float | None, per_gpu: float | None, price: Callable[[int], float | None],
    dice: random.Random,
) -> None:  # fmt: skip
    platform = replace(PLATFORM, usd_per_node_hour=per_node, usd_per_gpu_hour=per_gpu)
    for gpus in (0, dice.randint(1, 8)):
        nodes, duration_s = dice.randint(1, 64), dice.uniform(1, 1e5)
        expected = price(gpus)
        assert platform.node_price_usd_per_hour(gpus) == pytest.approx(expected)
        cost = run_cost_usd(platform.node_price_usd_per_hour(gpus), nodes, duration_s)
        without = expected is None
        assert cost == (None if without else pytest.approx(expected * nodes * duration_s / 3600))
