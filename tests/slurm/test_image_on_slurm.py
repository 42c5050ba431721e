"""Ranks train in the Python and TensorFlow of an image; the nodes have neither.

The image has links to files of this machine: a Python that was moved, its packages and the system's
libraries. TRAINER_PYTHON takes the packages of another environment, as `make versions` does, and
TRAINER_IMAGE another image with a Python in the folder PYTHON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from project import QUICK, REPOSITORY, Project
from users_environment import iterate_files

pytestmark = pytest.mark.full

#: The image's Python. No node has this folder.
PYTHON = "/opt/python-of-the-image"
#: Prints a Python's folders and versions.
FACTS = """
import json, platform, sys, sysconfig
from importlib.metadata import version
packages = {name: version(name) for name in ("tensorflow", "keras", "numpy")}
print(json.dumps([sys.prefix, sys.base_prefix, sysconfig.get_path("purelib"),
                  platform.python_version(), packages]))
"""
#: A model that can be built in the image only.
MODEL = f"""
import sys


def model():
    import keras

    assert sys.prefix == {PYTHON!r}, sys.prefix
    layers = [keras.layers.Flatten(), keras.layers.Dense(10)]
    return keras.Sequential([keras.Input((28, 28)), *layers])
"""
#: Charliecloud reads the user's name here.
VARIABLES = {"USER": "root"}
STRATEGIES = ["multi_worker_mirrored", "mpi_all_reduce"]


def link(source: Path, target: Path) -> None:
    """Make a file of the image: a hard link or, on another file system, a copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source.resolve())
    except OSError:
        shutil.copy2(source, target)


def make_image(folder: Path, python: str, *places: str) -> None:
    """Make an image with the system's libraries and the Python of an environment.

    Args:
        folder: The image's root.
        python: Python of an environment, whose packages the image gets.
        *places: Folders that are bound into the image.
    """
    for name in ("bin", "dev", "etc", "home", "lib", "lib64", "proc", "sys", "tmp", "usr"):
        (folder / name).mkdir()
    for place in places:
        (folder / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for name in ("passwd", "group", "hosts"):
        (folder / "etc" / name).write_text("")
    for file in [*Path("/lib/x86_64-linux-gnu").glob("*.so*"), *Path("/lib64").glob("*.so*")]:
        if file.is_file():
            link(file, folder / str(file).lstrip("/"))
    done = subprocess.run([python, "-c", FACTS], capture_output=True, text=True, check=True)
    prefix, base, packages, _, _ = json.loads(done.stdout)
    own, library = folder / PYTHON.lstrip("/"), Path(packages).relative_to(prefix).parent
    for file in Path(base, library).rglob("*"):
        if file.is_file() and "site-packages" not in file.parts:
            link(file, own / file.relative_to(base))
    for file in Path(base, "lib").glob("libpython*"):  # where a moved Python finds it
        link(file, folder / "lib/x86_64-linux-gnu" / file.name)
    link(Path(base, "bin", library.name), own / "bin/python3")
    for file in iterate_files(Path(prefix)):
        link(Path(prefix, file), own / file)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's folder."""
    if folder := os.environ.get("TRAINER_IMAGE"):
        return Path(folder)
    made = tmp_path_factory.mktemp("image")
    make_image(made, os.environ.get("TRAINER_PYTHON", sys.executable), str(REPOSITORY))
    return made


@pytest.fixture(scope="module")
def swept(
    new_project: Callable[[str], Project], submit: Callable[..., tuple[int, str]], image: Path
) -> Project:
    """A project after its sweep on two nodes, in the image and without it."""
    assert not Path(PYTHON).exists()
    project = new_project("image")
    (project.folder / "own.py").write_text(MODEL)
    (project.folder / "same.py").write_text(MODEL.replace("    assert", "    # assert"))
    block = {"nodes": 2, "strategy": STRATEGIES, "recipe": "quick"}
    platform = {"launcher": "srun", "partition": "cpu", "nodes_max": 2, "cpus_per_node": 2}
    container = {"image": str(image), "engine": "charliecloud"}
    project.overlay(
        {
            "check_models": True,
            "grid": [
                {**block, "platform": "image", "model": "own:model"},
                {**block, "platform": "bare", "model": "same:model"},
            ],
            "platforms": {
                "bare": platform,
                "image": {
                    **platform,
                    "container": container,
                    "python": f"{PYTHON}/bin/python3",
                    "env": VARIABLES,
                },
            },
            "recipes": {"quick": QUICK},
        }
    )
    code, output = submit(project)
    assert code == 0, output[-5000:] + project.logs()
    return project


def records_of(project: Project, platform: str) -> dict[str, dict[str, Any]]:
    """Return strategy → record for the runs of a platform."""
    found = [record for record in project.records() if record["axes"]["platform"] == platform]
    return {record["axes"]["strategy"]: record for record in found}


def test_ranks_train_there_and_records_have_its_facts(swept: Project, image: Path) -> None:
    command = ["ch-run", str(image), "--", f"{PYTHON}/bin/python3", "-c", FACTS]
    done = subprocess.run(
        command, env={**os.environ, **VARIABLES}, capture_output=True, text=True, check=True
    )
    prefix, _, _, python, packages = json.loads(done.stdout)
    assert prefix == PYTHON
    found = records_of(swept, "image")
    assert found.keys() == {*STRATEGIES}
    for record in found.values():
        assert len({rank["host"] for rank in record["ranks"]}) == 2
        assert record["parameters"]["python"] == f"{PYTHON}/bin/python3"
        for rank in record["ranks"]:
            assert rank["host_facts"]["python"] == python
            assert rank["host_facts"]["packages"].items() >= packages.items()
            assert rank["tensorflow_version"] == packages["tensorflow"]


def test_losses_are_those_without_the_image(swept: Project) -> None:
    bare = records_of(swept, "bare")
    for key, record in records_of(swept, "image").items():
        for metric in ("loss", "test_accuracy"):
            # another TensorFlow may round differently
            assert record["metrics"][metric] == pytest.approx(
                bare[key]["metrics"][metric], rel=1e-3
            )
