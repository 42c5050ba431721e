"""Trainings that several modules look at are run once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import SCRIPTS
from tfscaling.jobs.launchers import LAUNCHERS, Request
from tfscaling.jobs.ports import ReservedPorts
from tfscaling.study.geometry import Geometry
from tfscaling.training.strategies import STRATEGIES

#: Strategy and shape of trainings with the same global batch.
TRAININGS = {
    "single": ("single", Geometry(1, 1, 0)),
    "mirrored": ("mirrored", Geometry(1, 1, 2)),
    "one_worker_with_two_devices": ("multi_worker_mirrored", Geometry(1, 1, 2)),
    "two_workers": ("multi_worker_mirrored", Geometry(2, 1, 0)),
    "parameter_server": ("parameter_server", Geometry(4, 1, 0)),
    "synchronous_parameter_server": ("synchronous_parameter_server", Geometry(4, 1, 0)),
}


@pytest.fixture(scope="session")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Name of a training → what each of its ranks found; all processes run at the same time."""
    import strategy_rank

    tasks = sum(geometry.tasks for _, geometry in TRAININGS.values())
    processes: list[tuple[str, Path, subprocess.Popen[bytes]]] = []
    with ReservedPorts(tasks) as ports:
        free = iter(ports.numbers)
        for name, (strategy, geometry) in TRAININGS.items():
            folder = tmp_path_factory.mktemp(name)
            spec, servers = STRATEGIES[strategy], strategy_rank.PARAMETERS["parameter_servers"]
            batch = strategy_rank.GLOBAL_BATCH // spec.replicas(geometry, servers)
            own = [next(free) for _ in range(geometry.tasks)]
            jobs = spec.jobs(geometry, servers)
            request = Request([], geometry, jobs, 1, folder, gpus=False, ports=own)
            for command in LAUNCHERS["local"](request):
                output = folder / f"result-{command.rank}.json"
                words = [strategy, str(geometry.gpus_per_task), str(batch), str(output)]
                own_env = {"PYTHONPATH": str(SCRIPTS), "CUDA_VISIBLE_DEVICES": "-1"}
                with output.with_suffix(".log").open("w") as log:
                    process = subprocess.Popen(
                        [sys.executable, strategy_rank.__file__, *words],
                        env={**os.environ, **command.env, **own_env},
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                processes.append((name, output, process))
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in TRAININGS}
        try:
            for name, output, process in processes:
                ended = process.wait(timeout=900)
                assert ended == 0, output.with_suffix(".log").read_text()
                found[name].append(json.loads(output.read_text()))
        finally:
            for *_, process in processes:
                process.kill()
                process.wait()
    return found
