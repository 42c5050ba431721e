"""What a run costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def node_price_usd(platform: Mapping[str, Any], gpus_per_node: int) -> float | None:
    """Price of one node with so many GPUs for one hour in US dollars; None without a price."""
    price: float | None = platform["usd_per_node_hour"]
    if price is None or platform["usd_per_gpu_hour"] is None:
        return price
    extra: float = platform["usd_per_gpu_hour"] * gpus_per_node
    return price + extra


def run_cost_usd(usd_per_node_hour: float | None, nodes: int, duration_s: float) -> float | None:
    """Price of `nodes` nodes for `duration_s` seconds in US dollars; None without a price.

    Per-second proration without minimum charges: what the training itself costs, not the bill.
    """
    if usd_per_node_hour is None:
        return None
    return usd_per_node_hour * nodes * duration_s / 3600.0
