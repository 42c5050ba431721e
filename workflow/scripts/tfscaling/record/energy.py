"""Energy and utilisation of a run, summed over its ranks without counting a meter twice.

`run_results` puts the sums into the record.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfscaling.record.metrics import JOULES_PER_KWH
from tfscaling.record.rank_report import GpuUse, Rank, ResourceUse
from tfscaling.record.run_record import Use
from tfscaling.study.geometry import Geometry


def sum_resource_use(reports: Sequence[Rank], geometry: Geometry, cpus_per_task: int) -> Use:
    """Return a run's energy, its peak memory, and the shares of time that GPUs and CPUs were busy.

    Ranks of a node read the same counters of its processors, and may share GPUs: each counter is
    added once. Unless all ranks report what they used, all values are unknown.

    Args:
        reports: Reports of all ranks.
        geometry: Nodes, tasks and GPUs of the run.
        cpus_per_task: CPUs of each rank.
    """
    uses = [report.use for report in reports if report.use is not None]
    if not uses or len(uses) < len(reports):
        return Use()
    gpus: dict[str, GpuUse] = {}
    nodes: dict[str, ResourceUse] = {}
    cpus_online: dict[str, int | None] = {}
    for report, use in zip(reports, uses, strict=True):
        node = report.host_facts.machine or report.host
        nodes[node] = max(nodes.get(node, use), use, key=lambda each: each.duration_s)
        cpus_online[node] = report.host_facts.cpus_online
        for gpu in use.gpus:
            known = gpus.get(gpu.uuid, gpu)
            gpus[gpu.uuid] = max(known, gpu, key=lambda each: each.energy_j or 0.0)
    energies_j = {"processors": _sum_known([node.processors_energy_j for node in nodes.values()])}
    if geometry.gpus_per_task:
        of_workers = [
            use for report, use in zip(reports, uses, strict=True) if report.job == "worker"
        ]
        has_all = all(len(use.gpus) >= geometry.gpus_per_task for use in of_workers)
        gpus_j = _sum_known([gpu.energy_j for gpu in gpus.values()]) if has_all else None
        # processors alone would be a small part of the energy
        energies_j = {"GPUs": gpus_j, **(energies_j if gpus_j is not None else {})}
    known_j = {name: energy_j for name, energy_j in energies_j.items() if energy_j is not None}
    cpus = geometry.tasks * cpus_per_task
    if all(cpus_online.values()):  # processes as nodes share the CPUs of their machine
        cpus = min(cpus, sum(filter(None, cpus_online.values())))
    duration_s = max(use.duration_s for use in uses)
    busy = _sum_known([gpu.busy_share for gpu in gpus.values()])
    return Use(
        energy_kwh=sum(known_j.values()) / JOULES_PER_KWH if known_j else None,
        energy_of=" and ".join(known_j),
        energy_unknown=tuple(dict.fromkeys(text for use in uses for text in use.unknown)),
        gpu_busy_share=None if busy is None else busy / len(gpus),
        gpu_memory_gb=max((gpu.memory_gb or 0.0 for gpu in gpus.values()), default=0.0) or None,
        rank_memory_gb=max((use.memory_gb or 0.0 for use in uses), default=0.0) or None,
        cpu_busy_share=min(1.0, sum(use.cpu_s for use in uses) / duration_s / cpus),
    )


def _sum_known(values: Sequence[float | None]) -> float | None:
    """Return the sum of the values; None if one of them is unknown, or without values."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
