"""Trainings that several modules look at are run once."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import loaded_python
import pytest
from builders import SCRIPTS
from shared import made_once
from tfscaling.launch.launchers import LAUNCHERS, Request
from tfscaling.spec.config import MPI_STRATEGY
from tfscaling.spec.geometry import Geometry
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


@pytest.fixture(scope="session")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Name of a training → what each of its ranks found."""
    return trained(tmp_path_factory, "trainings", TRAININGS)


@pytest.fixture(scope="session")
def mpi_trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The same of MPI_TRAININGS."""
    return trained(tmp_path_factory, "mpi_trainings", MPI_TRAININGS)


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

    processes: list[tuple[Path, subprocess.Popen[bytes]]] = []
    with contextlib.ExitStack() as stack:
        for name, (strategy, geometry) in shapes.items():
            (folder / name).mkdir()
            spec, servers = STRATEGIES[strategy], strategy_rank.PARAMETERS["parameter_servers"]
            batch = strategy_rank.GLOBAL_BATCH // spec.replicas(geometry, servers)
            jobs = spec.jobs(geometry, servers)
            request = Request([], geometry, jobs, 1, folder / name, False, mpi="", held=stack)
            for command in LAUNCHERS["local"](request):
                output = folder / name / f"{command.rank}.json"
                words = [strategy, str(geometry.gpus_per_task), str(batch), str(output)]
                own_env = {"PYTHONPATH": str(SCRIPTS), "CUDA_VISIBLE_DEVICES": "-1"}
                environ = loaded_python.environ({**os.environ, **command.env, **own_env})
                with output.with_suffix(".log").open("w") as log:
                    process = subprocess.Popen(
                        [sys.executable, strategy_rank.__file__, *words],
                        env=environ,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                processes.append((output, process))
        try:
            for output, process in processes:
                ended = process.wait(timeout=900)
                assert ended == 0, output.with_suffix(".log").read_text()
        finally:
            for _, process in processes:
                process.kill()
                process.wait()
