"""Every example, run as its README says, and all of them in one grid on a virtual cluster.

They train for minutes: `make examples` runs these tests, `make test` only checks the grids
(tests/workflow/test_examples_are_planned.py).
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from project import REPOSITORY, Project
from virtual_cluster import Cluster, start

pytestmark = pytest.mark.timeout(3600)

EXAMPLES = sorted(path.parent.name for path in REPOSITORY.glob("examples/*/config.yaml"))


#: Genuine MNIST as the programs read it, and its first examples, which train in seconds.
MNIST, FEW, EXAMPLES_MAX = "results/datasets/mnist.npz", "few.npz", 6400


def new_project(folder: Path) -> Project:
    """A project with the examples and the environments that `make examples` makes."""
    shutil.copytree(REPOSITORY / "examples", folder / "examples")
    for environment in REPOSITORY.glob(".venv-*"):
        (folder / environment.name).symlink_to(environment)
    return Project(folder)


def config_of(name: str) -> dict[str, Any]:
    """The example's configuration, each point run once for an epoch of few examples."""
    text = (REPOSITORY / f"examples/{name}/config.yaml").read_text()
    config: dict[str, Any] = yaml.safe_load(text)
    config.pop("search", None)
    for block in config["grid"]:
        block["repeats"] = 1
    for platform in config.get("platforms", {}).values():
        platform |= {"launcher": "local", "partition": None}
    for recipe in config["recipes"].values():
        recipe["epochs"] = 1
        if "program" in recipe:
            recipe["program"] = [FEW if word == MNIST else word for word in recipe["program"]]
        elif not recipe.get("dataset"):
            recipe["train_examples_max"] = EXAMPLES_MAX
    config.setdefault("comparison", {})["columns"] = ["execution_time_s", "speedup", "quality"]
    return config


def run(project: Project, config: dict[str, Any], profile: str = "local", **options: Any) -> None:
    """Prepare genuine MNIST, which programs read, and run the grid."""
    name = project.overlay(config)
    project.snakemake(MNIST, config=[name])
    with np.load(project.folder / MNIST) as arrays:
        few = {key: array[:EXAMPLES_MAX] for key, array in arrays.items() if array.ndim}
    np.savez(project.folder / FEW, **few)
    project.snakemake(config=[name], profile=profile, **options)


def check_measured(project: Project, study: str) -> int:
    """Assert that there is a page and all points ran and have a quality; return their number."""
    rows = project.table(f"results/{study}/comparison.csv")
    assert rows
    for row in rows:
        assert row["status"] == "ok", row
        assert float(row["execution_time_s"]) > 0
        assert float(row["throughput_examples_per_s"]) > 0, row
        assert math.isfinite(float(row["quality"])), row
    assert (project.folder / f"results/{study}/report.html").stat().st_size > 0
    return len(rows)


#: Environments with PyTorch: their scripts also run by torchrun.
BY_TORCHRUN = (".venv-torch", ".venv-trainers")
#: Sums of several threads are rounded in another order each time.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def run_by_hand(project: Project, recipe: dict[str, Any], ranks: int) -> tuple[float, float]:
    """Loss of the last epoch and held-out result of the recipe's script, started by torchrun."""
    values = {
        "{per_replica_batch_size}": recipe["per_replica_batch_size"],
        "{epochs}": recipe["epochs"],
        "{seed}": 1,
        **{f"{{parameters.{name}}}": value for name, value in recipe["parameters"].items()},
    }
    words = [str(values.get(word, word)) for word in recipe["program"][1:]]
    shell = f'TFSCALING_EVENTS=by-hand-{ranks}-$RANK exec python "$@"'
    folder = project.folder / recipe["environment"] / "bin"
    environ = {
        "PATH": f"{folder}:{os.defpath}",
        "HOME": str(project.folder),
        "PYTHONPATH": str(REPOSITORY / "workflow/observe"),
        **ONE_THREAD,
    }
    command = [folder / "torchrun", "--standalone", f"--nproc-per-node={ranks}", "--no-python"]
    subprocess.run(
        [*command, "sh", "-c", shell, "sh", *words], cwd=project.folder, env=environ, check=True
    )
    lines = (project.folder / f"by-hand-{ranks}-0").read_text().splitlines()
    found = {event["event"]: event.get("metrics", {}) for event in map(json.loads, lines)}
    (result,) = [
        value for name, value in found["evaluation"].items() if name in ("accuracy", "loss")
    ]
    return found["epoch"]["loss"], result


def check_losses(project: Project, config: dict[str, Any]) -> None:
    """Assert that runs have the losses and results of the same scripts by hand."""
    for row in project.table(f"results/{config['study']}/comparison.csv"):
        recipe = config["recipes"][row["recipe"]]
        if recipe.get("environment") in BY_TORCHRUN:
            found = float(row["loss"]), float(row["quality"])
            assert found == pytest.approx(run_by_hand(project, recipe, int(row["nodes"])), rel=1e-4)


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_runs_on_this_machine(tmp_path: Path, name: str) -> None:
    project = new_project(tmp_path)
    config = config_of(name)
    config["platforms"] = {"laptop": {"env": ONE_THREAD}, **config.get("platforms", {})}
    run(project, config)
    assert check_measured(project, config["study"]) >= len(config["grid"])
    check_losses(project, config)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes for CPUs, of a real Slurm cluster on this machine."""
    started = start(tmp_path_factory.mktemp("vc"), "--nodes", "4", "--cpus-per-node", "2")
    try:
        yield started
    finally:
        started.tool("down")


def test_all_of_them_run_in_one_grid_on_slurm(tmp_path: Path, cluster: Cluster) -> None:
    project = new_project(tmp_path)
    configs = [config_of(name) for name in EXAMPLES]
    blocks = [{**block, "platform": "cpu"} for config in configs for block in config["grid"]]
    recipes = {key: value for c in configs for key, value in c["recipes"].items()}
    comparison = {**configs[0]["comparison"], "title": "All examples"}
    config = {"study": "examples", "grid": blocks, "recipes": recipes, "comparison": comparison}
    run(project, config, "slurm", environ=cluster.environ)
    assert check_measured(project, "examples") >= len(blocks)
