"""What a run costs."""

from __future__ import annotations


def run_cost_usd(usd_per_node_hour: float | None, nodes: int, duration_s: float) -> float | None:
    """Price of `nodes` nodes for `duration_s` seconds in US dollars; None without a price.

    Per-second proration without minimum charges: what the training itself costs, not the bill.
    """
    if usd_per_node_hour is None:
        return None
    return usd_per_node_hour * nodes * duration_s / 3600.0
