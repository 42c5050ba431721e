"""What `make own`, the examples, the peers and `.test` have is a valid grid.

`make examples` and `make peers` run them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from peers import study
from project import REPOSITORY, Project, axis

EXAMPLES = sorted(path.parent.name for path in REPOSITORY.glob("examples/*/config.yaml"))
#: What environments of their own the examples name.
ENVIRONMENTS = (".venv-jax", ".venv-tf_keras", ".venv-torch", ".venv-trainers", ".venv-keras_hub")


def with_environments(project: Project) -> Project:
    """The project with the examples and what `make examples` makes for them."""
    shutil.copytree(REPOSITORY / "examples", project.folder / "examples")
    for environment in ENVIRONMENTS:
        (project.folder / environment).symlink_to(sys.prefix)
    return project


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_planned(new_project: Callable[[str], Project], name: str) -> None:
    project = with_environments(new_project(name))
    runs = project.planned(config=[f"examples/{name}/config.yaml"])
    assert any("/nodes=2/" in run for run in runs)


@pytest.mark.parametrize("name", ["cnn", "transformer"])  # one with bounds, one without
def test_the_peers_are_planned_on_the_same_numbers_of_workers(
    new_project: Callable[[str], Project], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(REPOSITORY)
    project = with_environments(new_project(f"peers-{name}"))
    (project.folder / "benchmarks").symlink_to(REPOSITORY / "benchmarks")
    path = f"benchmarks/peers/networks/{name}.py"
    (project.folder / "peers.yaml").write_text(study.render(path, ("float32", "bfloat16")))
    runs = project.planned(config=["peers.yaml"])
    workers: dict[str, set[int]] = {}
    for run in runs:
        recipe, _, suffix = axis(run, "recipe").rpartition("-")
        assert axis(run, "nodes") == suffix
        workers.setdefault(recipe, set()).add(int(suffix))
    alone = {each for each, seen in workers.items() if seen == {1}}
    bounds = study.PRODUCTS if name == "cnn" else ()
    assert alone == {  # fit of Keras 3 trains on one worker
        f"{program}-{precision}"
        for program in ("keras", *bounds)
        for precision in ("float32", "bfloat16")
    }
    assert len(workers) - len(alone) == 7  # pytorch, keras_jax and the trainer, which has XLA, too
    assert {int(axis(run, "repeat")) for run in runs} == set(range(1, 7))


def test_the_question_of_a_gpu_is_planned(new_project: Callable[[str], Project]) -> None:
    project = new_project("gpu")
    (project.folder / "benchmarks").symlink_to(REPOSITORY / "benchmarks")
    runs = project.planned(config=[str(REPOSITORY / "studies/gpu/config.yaml")])
    assert Counter(axis(run, "recipe") for run in runs) == {
        f"batch-{batch}+precision={precision}": 3
        for batch in (256, 1024)
        for precision in ("float32", "tf32", "bfloat16")
    }
    assert {axis(run, "gpus_per_node") for run in runs} == {"1"}


def test_a_machine_without_a_gpu_is_told_to_the_reader_of_the_check(tmp_path: Path) -> None:
    command = [sys.executable, str(REPOSITORY / "benchmarks/gpu/check"), "--out", "check.json"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and not [*tmp_path.iterdir()]
    assert len(done.stderr.splitlines()) == 1 and "nvidia-smi" in done.stderr


@pytest.mark.full
def test_the_check_trains_on_a_device_and_on_its_halves(mnist: Path) -> None:
    command = [sys.executable, str(REPOSITORY / "benchmarks/gpu/trainer.py"), "CPU"]
    command += [str(mnist / "mnist.npz"), "2048", "2"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    whole, halves = json.loads(done.stdout).values()
    assert halves["devices"] == halves["data_on"] == ["CPU:0", "CPU:1"]
    assert whole["devices"] == whole["data_on"] == ["CPU:0"]
    assert halves["losses"] == pytest.approx(whole["losses"], rel=0.01)


def test_the_grid_for_the_catalogue_is_planned(tmp_path: Path) -> None:
    """As `--directory .test` reads it: no file of the repository's own configuration."""
    project = Project(shutil.copytree(REPOSITORY / ".test", tmp_path / "test"))
    runs = project.planned(config=["config/config.yaml"])
    assert sorted(axis(run, "nodes") for run in runs) == ["1", "2"]
    assert {axis(run, "platform") for run in runs} == {"processes"}


def test_every_example_is_in_the_table_of_examples() -> None:
    text = (REPOSITORY / "examples/README.md").read_text()
    assert EXAMPLES
    assert all(f"[{name}](#" in text for name in EXAMPLES)


def make_own(project: Project) -> int:
    """Exit status of `make own` in the project's folder."""
    words = ["make", "--file", str(REPOSITORY / "Makefile")]
    words += ["--old-file=.venv/.installed-trainer", "own"]
    return subprocess.run(words, cwd=project.folder, capture_output=True, check=False).returncode


def test_the_scaffold_trains_and_writes_over_nothing(new_project: Callable[[str], Project]) -> None:
    project = new_project("scaffold")
    assert make_own(project) == 0
    config = project.folder / "own/config.yaml"
    config.write_text(config.read_text().replace("repeats: 2", "repeats: 1"))
    project.snakemake(config=["own/config.yaml"])
    rows = project.table("results/own/comparison.csv")
    assert [(row["nodes"], row["status"]) for row in rows] == [("1", "ok"), ("2", "ok")]
    assert all(float(row["test_accuracy"]) > 0.9 for row in rows)
    assert make_own(project) != 0
    assert "repeats: 1" in config.read_text()
