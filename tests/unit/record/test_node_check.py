"""Which nodes a check calls much slower than the others."""

from __future__ import annotations

import pytest
from tfscaling.record import rank_report
from tfscaling.record.rank_report import NodeRate


def rates(computing: list[float], sending: list[float] | None = None) -> list[NodeRate]:
    """One rank on each node, each sending to the next."""
    number = len(computing)
    return [
        NodeRate(
            rank=k, host=f"n{k}", gflop_per_s=computing[k], to_host=f"n{(k + 1) % number}",
            mb_per_s=sending[k] if sending else 1000.0,
        )
        for k in range(number)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("computing", "sending", "hosts", "links"),
    [
        ([50, 50], None, (), []),
        ([50, 20], None, ("n1",), []),
        ([50, 26, 50], None, (), []),
        ([9, 50, 50, 20], None, ("n0", "n3"), []),
        # both connections of n2 are slow, and one of n0
        ([50] * 4, [1000, 100, 100, 1000], ("n2",), [("n1", "n2"), ("n2", "n3")]),
        ([50] * 4, [1000, 1000, 1000, 100], (), [("n3", "n0")]),
        ([50] * 2, [1000, 100], (), [("n1", "n0")]),
    ],
)
def test_a_node_is_compared_with_the_others(
    computing: list[float],
    sending: list[float] | None,
    hosts: tuple[str, ...],
    links: list[tuple[str, str]],
) -> None:
    found = rank_report.judge_nodes(rates(computing, sending), 2.0, 1.5)
    assert found.slow_hosts == hosts
    assert [(link.host, link.to_host) for link in found.slow_links] == links
    assert bool(found.sentence) == bool(hosts or links)
    assert all(host in found.sentence for host in hosts)


def test_ranks_of_one_node_are_one_and_send_to_nobody() -> None:
    both = [
        NodeRate(rank=k, host="n0", gflop_per_s=value, to_host="n0", mb_per_s=10.0 ** (3 * k))
        for k, value in enumerate([50.0, 1.0])
    ]
    found = rank_report.judge_nodes(both, 2.0, 1.5)
    assert (found.slow_hosts, found.slow_links) == ((), ())
