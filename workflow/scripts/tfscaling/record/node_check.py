"""What a short check before a run found of its nodes, and which of them are much slower.

A node is compared with the others of the same job: nobody has to know what is usual. It is slow if
the median of the others is `factor` times its own value; of a job on one node nothing is told.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

_K = TypeVar("_K")


class NodeRate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one rank measured of its host while all others measured theirs."""

    rank: Annotated[int, Meta(ge=0)]
    host: str
    gflop_per_s: Annotated[
        float, Meta(gt=0, description="Of products of matrices in float32, on its CPUs.")
    ]
    cpu_mhz: Annotated[
        float | None, Meta(description="Clock of the processor then; null: the system tells none.")
    ] = None
    to_host: Annotated[str | None, Meta(description="Host of the next rank; null: none.")] = None
    mb_per_s: Annotated[
        float | None, Meta(description="Received by that host; 1 MB is 1,000,000 bytes.")
    ] = None


class SlowLink(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pair of neighbours of which the first sends much more slowly than others do."""

    host: str
    to_host: str


class NodeCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The check of a run's nodes: what was measured, and what is much slower than its like."""

    duration_s: Annotated[float, Meta(ge=0, description="It is a part of launch_time_s.")]
    rates: tuple[NodeRate, ...]
    slow_hosts: Annotated[tuple[str, ...], Meta(description="The slowest first.")] = ()
    slow_links: tuple[SlowLink, ...] = ()

    @property
    def sentence(self) -> str:
        """What is slow, for the reader of the run's numbers; "" if nothing is."""
        links = ", ".join(f"{link.host} to {link.to_host}" for link in self.slow_links)
        parts = [f"nodes much slower than the others of the job: {', '.join(self.slow_hosts)}"]
        parts = parts if self.slow_hosts else []
        parts += [f"connections much slower than the others of the job: {links}"] if links else []
        return "; ".join(parts)


def judge(rates: Sequence[NodeRate], factor: float, duration_s: float) -> NodeCheck:
    """The check's result. A host both of whose connections are slow is itself slow."""
    of_hosts: dict[str, list[float]] = {}
    of_links: dict[tuple[str, str], float] = {}
    for rate in rates:
        of_hosts.setdefault(rate.host, []).append(rate.gflop_per_s)
        if rate.to_host not in (None, rate.host) and rate.mb_per_s is not None:
            of_links[rate.host, str(rate.to_host)] = rate.mb_per_s
    computing = _slow({host: statistics.fmean(found) for host, found in of_hosts.items()}, factor)
    links = _slow(of_links, factor)
    both_ways = {a for a, _ in links} & {b for _, b in links}
    # of two hosts, none can be told from the other by the connections between them
    cut_off = sorted(both_ways - set(computing)) if len(of_hosts) > 2 else []
    return NodeCheck(
        duration_s=round(duration_s, 3),
        rates=tuple(rates),
        slow_hosts=(*computing, *cut_off),
        slow_links=tuple(SlowLink(host=a, to_host=b) for a, b in links),
    )


def _slow(values: Mapping[_K, float], factor: float) -> list[_K]:
    """Those of which the median of all others is `factor` times as much, the slowest first."""
    found = []
    for key, value in values.items():
        others = [other for name, other in values.items() if name != key]
        if others and value * factor < statistics.median(others):
            found.append(key)
    return sorted(found, key=values.__getitem__)
