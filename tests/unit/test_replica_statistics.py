"""Batch normalization: each replica has moments of its own, the evaluated model has their mean."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import loaded_python
import normalized_rank
import numpy as np
import pytest
from builders import SCRIPTS
from tfscaling.cluster import process_management
from tfscaling.launch.launchers import ReservedPorts
from tfscaling.spec.config import MPI_STRATEGY

#: Strategies of two workers, a device each.
WORKERS = ("multi_worker_mirrored", MPI_STRATEGY)
BATCH = 8  # two replicas: the global batch of the other trainings
Ranks = list[dict[str, Any]]


def start(folder: Path, name: str, words: list[str], environ: dict[str, str]) -> subprocess.Popen:
    output = folder / f"{name}.json"
    own = {"PYTHONPATH": str(SCRIPTS), "CUDA_VISIBLE_DEVICES": "-1"}
    with output.with_suffix(".log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, normalized_rank.__file__, *words, str(BATCH), str(output)],
            env=loaded_python.environ({**os.environ, **own, **environ}),
            stdout=log,
            stderr=subprocess.STDOUT,
        )


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ranks]:
    """One worker with two devices, and two workers; all processes run at the same time."""
    folder = tmp_path_factory.mktemp("normalized")
    with ReservedPorts(2) as ports, process_management.served(2) as pmi:
        workers = [f"127.0.0.1:{port}" for port in ports.numbers]
        processes = {"mirrored": start(folder, "mirrored", ["mirrored", "2"], {})}
        for strategy in WORKERS:
            for index in range(2):
                task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
                own = {"TF_CONFIG": json.dumps(task), **process_management.variables(pmi, index)}
                name = f"{strategy}-{index}"
                processes[name] = start(folder, name, [strategy, "0"], own)
        try:
            for name, process in processes.items():
                assert process.wait(timeout=900) == 0, (folder / f"{name}.log").read_text()
        finally:
            for process in processes.values():
                process.kill()
                process.wait()
    found = {name: json.loads((folder / f"{name}.json").read_text()) for name in processes}
    of_workers = {name: [found[f"{name}-0"], found[f"{name}-1"]] for name in WORKERS}
    return {"mirrored": [found["mirrored"]], **of_workers}


def of_replicas(ranks: Ranks, when: str) -> list[np.ndarray]:
    """Moving mean and variance, each (replicas, features), over all ranks."""
    return [np.concatenate([np.array(rank[when][number]) for rank in ranks]) for number in range(2)]


@pytest.mark.parametrize("training", ["mirrored", *WORKERS])
def test_replicas_are_evaluated_with_the_mean_of_their_moments(
    ranks: dict[str, Ranks], training: str
) -> None:
    trained = of_replicas(ranks[training], "trained")
    evaluated = of_replicas(ranks[training], "evaluated")
    for before, after in zip(trained, evaluated, strict=True):
        assert before.shape == after.shape == (2, 8)
        assert not np.allclose(before[0], before[1])
        np.testing.assert_allclose(after, np.broadcast_to(before.mean(axis=0), (2, 8)), rtol=1e-5)


@pytest.mark.parametrize("strategy", WORKERS)
def test_the_same_replicas_give_the_same_numbers_on_one_worker_and_on_two(
    ranks: dict[str, Ranks], strategy: str
) -> None:
    (alone,), (first, second) = ranks["mirrored"], ranks[strategy]
    assert (first["epochs"], first["test"]) == (second["epochs"], second["test"])
    np.testing.assert_allclose(first["epochs"], alone["epochs"], rtol=1e-5)
    np.testing.assert_allclose(first["test"], alone["test"], rtol=1e-5)
    assert first["epochs"][-1][0] < first["epochs"][0][0]
