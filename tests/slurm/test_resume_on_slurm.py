"""A training on a real Slurm that is warned, requeued in the middle, and goes on where it was."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from project import QUICK, REPOSITORY, SMALL_MODEL, Project
from tfscaling.study import configuration, grid, run_spec
from tfscaling.study.registries import Registries
from tfscaling.training.models import MODELS
from tfscaling.training.strategies import STRATEGIES
from virtual_cluster import Cluster

NODES = 2
#: Long enough to be interrupted; no checkpoint is written that nobody asks for.
RECIPE = {**QUICK, "epochs": 40, "checkpoint_every_epochs": 1000}


def specified(path: Path) -> None:
    block = {"platform": "cluster", "model": SMALL_MODEL, "recipe": "long", "nodes": NODES}
    raw = {
        "grid": [{**block, "repeats": 1}],
        "recipes": {"long": RECIPE},
        "platforms": {"cluster": {"launcher": "srun", "nodes_max": NODES, "cpus_per_node": 2}},
    }
    config = configuration.validate(raw)
    (run,) = grid.expand(config, Registries(MODELS, STRATEGIES)).runs
    path.write_text(run_spec.encode(run.spec))


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 600.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.2)


def test_a_requeued_job_goes_on_from_its_checkpoint(
    project: Project, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGUSR1 to the job's step is what sbatch's `--signal` sends before a time limit."""
    folder, spec = project.folder / "run", project.folder / "spec.json"
    monkeypatch.chdir(project.folder)  # of the model
    specified(spec)
    words = [
        *(sys.executable, str(REPOSITORY / "workflow/scripts/train.py"), "--spec", str(spec)),
        *("--dataset-file", str(project.folder / "results/datasets/mnist.npz")),
        *("--record", str(folder / "run.json")),
    ]
    shape = (f"--nodes={NODES}", f"--ntasks={NODES}", "--ntasks-per-node=1", "--cpus-per-task=2")
    places = (f"--output={project.folder}/job.log", f"--chdir={project.folder}", "--partition=cpu")
    options = (*shape, *places, "--requeue", "--open-mode=append", "--parsable")
    job = cluster.run("sbatch", *options, "--wrap", shlex.join(words)).strip()
    try:
        events = folder / "attempt=1/rank-1.events.jsonl"
        wait_for(lambda: events.exists() and '"epoch"' in events.read_text(), "training")
        cluster.run("scancel", "--signal=USR1", job)
        wait_for(lambda: bool([*folder.glob("checkpoints/steps=*")]), "a checkpoint")
        cluster.run("scontrol", "requeue", job)
        wait_for((folder / "run.json").exists, "the record")
    finally:
        cluster.run("scancel", job)
    record: dict[str, Any] = json.loads((folder / "run.json").read_text())
    resumed = record["resumed"]
    (first,) = resumed["attempts"]
    assert (record["attempt"], first["attempt"]) == (2, 1)
    assert 0 <= resumed["steps_repeated"] < first["steps"]
    assert [epoch["epoch"] for epoch in record["metrics"]["epochs"]] == [*range(1, 41)]
    assert record["metrics"]["examples_trained"] == 40 * QUICK["train_examples_max"]
    assert record["phases"]["checkpoint_time_s"] > 0
    assert not (folder / "checkpoints").exists()
