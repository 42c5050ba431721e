"""Ranks train in an environment of the user's, which has neither Snakemake nor pandas.

`make versions` runs these tests in environments with older TensorFlow: TRAINER_PYTHON is the Python
of such an environment. Without it, the environment has the workflow's TensorFlow.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from project import QUICK, Project
from users_environment import NEEDED, iterate_with_dependencies

pytestmark = pytest.mark.full

#: Prints what the record has to name, and that the workflow's packages are missing.
FACTS = """
import importlib.util, json, platform
from importlib.metadata import version
assert not any(map(importlib.util.find_spec, ("snakemake", "pandas", "yaml", "scipy")))
packages = {name: version(name) for name in ("tensorflow", "keras", "numpy")}
print(json.dumps([platform.python_version(), packages]))
"""
#: A model that can be built in this environment only.
MODEL = """
import sys


def model(width=4):
    import keras

    assert sys.prefix == {prefix!r}, sys.prefix
    layers = [keras.layers.Flatten(), keras.layers.Dense(width, "relu"), keras.layers.Dense(10)]
    made = keras.Sequential([keras.Input((28, 28)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile("adam", loss, metrics=["accuracy"])
    return made
"""


def make_environment(folder: Path) -> None:
    """An environment with links to some of this one's packages, and to no others."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = Path(sysconfig.get_path("purelib"))
    own = folder / site.relative_to(sys.prefix)
    for package in iterate_with_dependencies(*NEEDED):
        for file in package.files or ():
            parts = file.parts[: 1 + file.parts.count("..")]
            target = own.joinpath(*parts).resolve()
            if "bin" not in parts and not os.path.lexists(target):
                target.symlink_to(site.joinpath(*parts).resolve())


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment's folder."""
    if python := os.environ.get("TRAINER_PYTHON"):
        return Path(python).absolute().parents[1]
    folder = tmp_path_factory.mktemp("users") / "environment"
    make_environment(folder)
    return folder


@pytest.fixture(scope="module")
def facts(environment: Path) -> tuple[str, dict[str, str]]:
    """Versions of Python and of packages in the environment."""
    done = subprocess.run(
        [environment / "bin/python", "-c", FACTS], capture_output=True, check=True
    )
    python, packages = json.loads(done.stdout)
    return python, packages


@pytest.fixture(scope="module")
def swept(new_project: Callable[[str], Project], environment: Path) -> Project:
    """A project after its sweep: by gRPC and by MPI, on one node and two, as both keys name it."""
    project = new_project("users-tensorflow")
    prefix = str(environment)
    (project.folder / "own.py").write_text(MODEL.format(prefix=prefix))
    block = {"model": "own:model", "nodes": [1, 2], "recipe": "users"}
    strategies = ["multi_worker_mirrored", "mpi_all_reduce"]
    users = {**QUICK, "optimizer": "model", "learning_rate": None}
    project.overlay(
        {
            "check_models": True,
            "grid": [
                {**block, "platform": "laptop", "strategy": strategies},
                {**block, "platform": "module", "strategy": strategies[:1], "recipe": "by_setup"},
            ],
            "recipes": {"users": {**users, "environment": prefix}, "by_setup": users},
            "platforms": {
                "module": {
                    "launcher": "local",
                    "nodes_max": 2,
                    "cpus_per_node": 1,
                    "setup": [f"export PATH={prefix}/bin:$PATH"],
                    "python": "python3",
                }
            },
        }
    )
    project.snakemake()
    return project


def test_ranks_train_there_and_records_have_its_facts(
    swept: Project, facts: tuple[str, dict[str, str]]
) -> None:
    records = swept.records()
    assert len(records) == 6
    python, packages = facts
    for record in records:
        for rank in record["ranks"]:
            assert rank["host_facts"]["python"] == python
            assert rank["host_facts"]["packages"].items() >= packages.items()
            assert rank["tensorflow_version"] == packages["tensorflow"]
    for nodes in (1, 2):  # whatever sums the gradients
        losses = [r["metrics"]["loss"] for r in records if r["axes"]["nodes"] == nodes]
        assert losses == pytest.approx([losses[0]] * 3, rel=1e-3)


def test_keys_of_runs_have_the_python(swept: Project, environment: Path) -> None:
    found = {
        (r["parameters"].get("environment"), r["parameters"].get("python")) for r in swept.records()
    }
    assert found == {(str(environment), None), (None, "python3")}


def test_a_model_that_cannot_be_built_there_is_named_before_any_run(
    swept: Project, tmp_path: Path
) -> None:
    project = swept.copy(tmp_path / "project")
    shutil.rmtree(project.folder / "results/runs")
    file = project.folder / "own.py"
    file.write_text(file.read_text().replace("assert sys.prefix ==", "assert sys.prefix !="))
    done = project.snakemake(check=False)
    assert done.returncode == 1
    assert "own:model with recipe users" in done.stdout
    assert "own:model with recipe by_setup" in done.stdout
    assert not project.records()
