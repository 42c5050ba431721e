"""The energy of a run: each counter counts once, and what is missing is no energy."""

from __future__ import annotations

import random
from typing import Any

import pytest
from generator import training_report
from msgspec.structs import replace
from tfscaling.record.energy import sum_resource_use
from tfscaling.record.rank_report import GpuUse, ResourceUse, TrainingReport
from tfscaling.record.run_record import Use
from tfscaling.study.geometry import Geometry

HALF_KWH = 1_800_000.0


def rank(number: int, node: str, use: ResourceUse | None) -> TrainingReport:
    made = training_report(number)
    facts = replace(made.host_facts, machine=node, cpus_online=4)
    return replace(made, host=node, host_facts=facts, use=use)


def used(*gpus: str, energy_j: float | None = HALF_KWH, **changes: Any) -> ResourceUse:
    of_gpus = tuple(GpuUse(uuid=uuid, energy_j=energy_j, busy_share=0.5) for uuid in gpus)
    return ResourceUse(duration_s=100.0, gpus=of_gpus, **changes)


def use_of(ranks: list[TrainingReport], gpus_per_task: int = 0) -> Use:
    """The use of a run with a node for each rank and two CPUs for each task."""
    return sum_resource_use(ranks, Geometry(len(ranks), 1, gpus_per_task), 2)


def test_ranks_on_a_node_count_its_processors_once(dice: random.Random) -> None:
    nodes, of_each = dice.randint(1, 5), dice.randint(1, 4)
    uses = [used(processors_energy_j=HALF_KWH, cpu_s=100.0) for _ in range(nodes * of_each)]
    ranks = [rank(number, f"n{number // of_each}", use) for number, use in enumerate(uses)]
    found = use_of(ranks)
    assert (found.energy_kwh, found.energy_of) == (nodes / 2, "processors")


def test_ranks_that_share_a_gpu_count_it_once(dice: random.Random) -> None:
    gpus = [f"gpu{number}" for number in range(dice.randint(1, 5))]
    shared = [*gpus, *dice.choices(gpus, k=dice.randint(0, 4))]
    ranks = [rank(number, "n0", used(gpu)) for number, gpu in enumerate(shared)]
    found = use_of(ranks, 1)
    assert (found.energy_kwh, found.energy_of, found.gpu_busy_share) == (
        len(gpus) / 2, "GPUs", 0.5,
    )  # fmt: skip


def test_gpus_and_processors_are_added() -> None:
    found = use_of([rank(0, "n0", used("a", processors_energy_j=HALF_KWH))], 1)
    assert (found.energy_kwh, found.energy_of) == (1.0, "GPUs and processors")


@pytest.mark.parametrize(
    "use",
    [
        None,
        used("b", energy_j=None, processors_energy_j=HALF_KWH),
        used(processors_energy_j=HALF_KWH),
    ],
)
def test_without_a_gpus_counter_there_is_no_energy(use: ResourceUse | None) -> None:
    first = rank(0, "n0", used("a", processors_energy_j=HALF_KWH))
    found = use_of([first, rank(1, "n1", use)], 1)
    assert (found.energy_kwh, found.energy_of) == (None, "")


def test_the_memory_is_that_of_the_largest_rank() -> None:
    ranks = [rank(n, "n0", used(memory_gb=gb)) for n, gb in enumerate((1.0, 3.0, 2.0))]
    assert use_of(ranks).rank_memory_gb == 3.0


def test_processes_as_nodes_share_the_cpus_of_their_machine() -> None:
    ranks = [rank(number, "n0", used(cpu_s=50.0)) for number in range(4)]
    assert use_of(ranks).cpu_busy_share == 0.5
    apart = [rank(number, f"n{number}", used(cpu_s=50.0)) for number in range(4)]
    assert use_of(apart).cpu_busy_share == 0.25
