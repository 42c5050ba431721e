"""Trainings that several modules look at are run once."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ranks import ranks_of
from shared import made_once
from tfscaling.study.config_types import MPI_STRATEGY
from tfscaling.study.geometry import Geometry
from tfscaling.train.strategies import STRATEGIES

#: Strategy and shape of trainings with the same global batch.
TRAININGS = {
    "single": ("single", Geometry(1, 1, 0)),
    "mirrored": ("mirrored", Geometry(1, 1, 2)),
    "one_worker_with_two_devices": ("multi_worker_mirrored", Geometry(1, 1, 2)),
    "two_workers": ("multi_worker_mirrored", Geometry(2, 1, 0)),
    "parameter_server": ("parameter_server", Geometry(4, 1, 0)),
    "synchronous_parameter_server": ("synchronous_parameter_server", Geometry(4, 1, 0)),
}
#: The same by the ranks of an MPI job.
MPI_TRAININGS = {"two_mpi_workers": (MPI_STRATEGY, Geometry(2, 1, 0))}


@pytest.fixture
def dice(random_seed: int) -> random.Random:
    """Draws of what a test would hold constant."""
    return random.Random(random_seed)


@pytest.fixture(scope="session")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Name of a training → what each of its ranks found."""
    return trained(tmp_path_factory, "trainings", TRAININGS)


@pytest.fixture(scope="session")
def mpi_trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The same of MPI_TRAININGS."""
    return trained(tmp_path_factory, "mpi_trainings", MPI_TRAININGS)


@pytest.fixture(params=["two_workers", "two_mpi_workers"])
def two_ranks(
    request: pytest.FixtureRequest,
    trainings: dict[str, list[dict[str, Any]]],
    mpi_trainings: dict[str, list[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """What each of two workers found: by TensorFlow's all-reduce, and by MPI."""
    return {**trainings, **mpi_trainings}[request.param]


Shapes = Mapping[str, tuple[str, Geometry]]


def trained(
    factory: pytest.TempPathFactory, name: str, shapes: Shapes
) -> dict[str, list[dict[str, Any]]]:
    folder = made_once(factory, name, lambda folder: train(folder, shapes))
    return {
        name: [json.loads(path.read_text()) for path in sorted((folder / name).glob("[0-9].json"))]
        for name in shapes
    }


def train(folder: Path, shapes: Shapes) -> None:
    """All processes of all trainings at the same time; each rank writes into `folder`/<name>."""
    import strategy_rank

    servers = strategy_rank.PARAMETERS["parameter_servers"]
    with ranks_of(strategy_rank) as ranks:
        for name, (strategy, geometry) in shapes.items():
            (folder / name).mkdir()
            spec = STRATEGIES[strategy]
            batch = strategy_rank.GLOBAL_BATCH // spec.count_replicas(geometry, servers)
            words = (strategy, str(geometry.gpus_per_task), str(batch))
            ranks.start_job(folder / name, geometry, spec.tasks_by_job(geometry, servers), *words)
        ranks.found()
