"""A new user's copy of the project after `make setup`: scripts run in it, without TensorFlow.

Also in the other supported releases of Python, and with the oldest supported Snakemake.
"""

from __future__ import annotations

import contextlib
import csv
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from project import REPOSITORY

pytestmark = pytest.mark.full

#: What only the built-in trainer, the export to Parquet, or development needs.
OTHER_PARTS = ("tensorflow", "keras", "mpi4py", "pyarrow", "pytest", "mypy")
PROGRAM = {
    "program": ["python3", "train.py", "{epochs}"], "observe": "events",
    "per_replica_batch_size": 1, "train_examples": 12,
}  # fmt: skip
#: A training whose ranks share 12 examples of an epoch, which needs nothing but Python.
TRAIN = """
import os, sys, time
import observe
steps, world_size = 3, int(os.environ["WORLD_SIZE"])
for epoch in range(int(sys.argv[1])):
    for step in range(steps):
        time.sleep(0.01)
        observe.step(12 // world_size // steps)
    observe.epoch(loss=1 / (epoch + 1))
"""


def copy_project(folder: Path, *words: str) -> Path:
    """Copy the project, as git lists it, and make its environment.

    Args:
        folder: The folder of the copy.
        *words: More words of `make setup`.

    Returns:
        The folder.
    """
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for name in listed:
        if (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, folder / name, follow_symlinks=False)
    (folder / "train.py").write_text(TRAIN)
    done = make(folder, "setup", *words)
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the environment of `make setup`."""
    return copy_project(tmp_path_factory.mktemp("light") / "project")


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run make without this environment; stdout has its complete output."""
    own = str(REPOSITORY / ".venv/bin")
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if p != own)
    return subprocess.run(
        ["make", *words], cwd=folder, env={**os.environ, "PATH": path}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip


def write_config(folder: Path, recipe: dict[str, Any], **block: Any) -> str:
    """Write the configuration of one grid block for this machine; return its name."""
    content = {
        "study": "light",
        "grid": [{"platform": "laptop", "recipe": "standard", "repeats": 1, **block}],
        "recipes": {"standard": recipe},
    }
    (folder / "sweep.yaml").write_text(yaml.safe_dump(content))
    return "CONFIG=sweep.yaml"


def check_sweep(project: Path) -> None:
    """Assert that a sweep of a script on several nodes ends with valid runs and a page."""
    nodes, epochs = random.sample([1, 2, 4], 2), random.randint(1, 3)
    config = write_config(project, {**PROGRAM, "epochs": epochs}, strategy="own", nodes=nodes)
    done = make(project, "run", config)
    assert done.returncode == 0, done.stdout
    with (project / "results/light/runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["nodes"], row["status"]) for row in rows} == {(str(n), "ok") for n in nodes}
    assert (project / "results/light/report.html").exists()


def test_a_sweep_of_a_script_needs_no_other_part(project: Path) -> None:
    import_all = f"import importlib.util as u; print([n for n in {OTHER_PARTS} if u.find_spec(n)])"
    shown = subprocess.run(
        [project / ".venv/bin/python", "-c", import_all], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "[]"
    check_sweep(project)


def find_python(version: str) -> str:
    """Return a Python of this release on this machine; skip the test if none is installed."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    others = sorted(map(str, installed.glob(f"{version}.*/bin/python3")))
    for name in (f"python{version}", *others):
        with contextlib.suppress(OSError):
            if subprocess.run([name, "-c", ""], capture_output=True, check=False).returncode == 0:
                return name
    pytest.skip(f"no Python {version} on this machine")


def run_in(project: Path, *words: str) -> str:
    """Run a program of the project's environment; return its output."""
    done = subprocess.run(
        [project / ".venv/bin" / words[0], *words[1:]], cwd=project, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


#: `make test` runs all else in one Python, with the Snakemake of the lock, which is the newest one.
@pytest.mark.parametrize(("version", "snakemake"), [("3.12", "9.27.0"), ("3.13", None)])
def test_each_supported_python_and_snakemake_plans_and_sweeps(
    tmp_path: Path, version: str, snakemake: str | None
) -> None:
    project = copy_project(tmp_path / "project", f"PYTHON={find_python(version)}")
    assert run_in(project, "python", "--version").startswith(f"Python {version}.")
    if snakemake:
        python = ("--python", str(project / ".venv/bin/python"))
        run_in(project, "uv", "pip", "install", "--no-deps", *python, f"snakemake=={snakemake}")
        assert run_in(project, "snakemake", "--version").strip() == snakemake
    config = write_config(project, {**PROGRAM, "epochs": 1}, strategy="own", nodes=[1, 2])
    words = ("--profile", "profiles/local", "--configfile", config.partition("=")[2], "--dry-run")
    assert "study light: 2 runs to do" in run_in(project, "snakemake", *words)
    check_sweep(project)


@pytest.mark.parametrize(
    ("recipe", "block", "command"),
    [
        (
            {"per_replica_batch_size": 64, "learning_rate": 0.1, "epochs": 1},
            {"model": "mnist_cnn", "nodes": 1},
            "make setup TRAINER=1",
        ),
        ({**PROGRAM, "epochs": 4}, {"strategy": "own", "nodes": 1}, "make setup PARQUET=1"),
    ],
    ids=["trainer", "parquet"],
)
def test_what_a_sweep_lacks_is_an_error_before_any_job(
    project: Path, recipe: dict[str, Any], block: dict[str, Any], command: str
) -> None:
    before = set((project / "results").rglob("run.json")) | set(project.rglob("launch.log"))
    config = write_config(project, recipe, **block)
    with (project / "sweep.yaml").open("a") as file:
        file.write("export: [parquet]\n" if "PARQUET" in command else "")
    done = make(project, "run", config)
    assert done.returncode != 0
    (line,) = [line for line in done.stdout.splitlines() if "make setup" in line]
    assert line.endswith(command)
    assert set((project / "results").rglob("run.json")) | set(project.rglob("launch.log")) == before
