"""The workflow as a module with a prefix, beside a sweep without one: neither touches the other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import generator
import pytest
import yaml
from project import QUICK, REPOSITORY, SMALL_MODEL, Project
from tfscaling.study import variants
from tfscaling.study.manifest import Manifest

pytestmark = pytest.mark.full

LAPTOP = {"launcher": "local", "devices": "logical", "nodes_max": 2, "cpus_per_node": 2}
POINT = {"platform": "laptop", "model": SMALL_MODEL, "nodes": 1}
OWN: dict[str, Any] = {"grid": [{**POINT, "recipe": "own"}], "recipes": {"own": QUICK}}
#: The same study below a prefix, with published results, plots and a round for a larger batch.
OTHER: dict[str, Any] = {
    "grid": [
        {**POINT, "recipe": "other", "repeats": 1},
    ],
    "recipes": {
        "other": {
            **QUICK, "learning_rate": 0.005,
            "per_replica_batch_size": {"from": 32, "to": 64},
        },
    },
    "platforms": {"laptop": LAPTOP},
    "published": {"path": "resources/published_results.csv"},
    "plots": {"execution_time": {}},
    "export": ["markdown", "svg"],
}  # fmt: skip
TABLES = (
    *("runs.csv", "comparison.csv", "details/comparison.md"),
    *("details/conclusions/decision.csv", "details/conclusions/headline.csv"),
)
MODULE = """
import yaml

shell.prefix("export OUTER=outer; ")


module tfs:
    snakefile:
        "tool/Snakefile"
    config:
        yaml.safe_load(open("other.yaml"))
    prefix:
        "other"


use rule * from tfs as tfs_*


rule outer:
    output:
        "outer.txt",
    shell:
        "echo $OUTER >{output}"
"""
BESIDE = f'include: "tool/Snakefile"\n{MODULE}'
EVENTS = ("onstart", "onsuccess", "onerror")
OUTER_FILE = "samples: {1: a.fq, 2: b.fq}\nsamples: {1: c.fq}\n"
HANDLERS = "".join(f"\n\n{event}:\n    tfs.{event}()\n" for event in EVENTS)
ALONE = f'configfile: "outer.yaml"\n{MODULE}{HANDLERS}'


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Path below `folder` → time of change and content, of all files."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in paths
    }


class Both(Project):
    """A project whose Snakefile has the sweep and the module."""

    def make(self, *arguments: str, check: bool = True) -> str:
        """The output of snakemake."""
        snakefile = str(self.folder / "Snakefile")
        return self.snakemake(*arguments, snakefile=snakefile, check=check).stdout

    @property
    def own(self) -> Path:
        return self.folder / "results"

    @property
    def other(self) -> Path:
        return self.folder / "other/results"


@pytest.fixture(scope="module")
def both(new_project: Callable[[str], Project]) -> Both:
    """After the sweep without a prefix; the workflow lies inside the project, as a copy of it."""
    made = Both(new_project("module").folder)
    made.overlay(OWN)
    (made.folder / "other.yaml").write_text(yaml.safe_dump(OTHER))
    (made.folder / "Snakefile").write_text(BESIDE)
    (made.folder / "Alone").write_text(ALONE)
    (made.folder / "outer.yaml").write_text(OUTER_FILE)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "workflow", made.folder / "tool/workflow", ignore=ignored)
    shutil.copy(REPOSITORY / "Snakefile", made.folder / "tool/Snakefile")
    made.make("all")
    return made


@pytest.fixture(scope="module")
def swept(both: Both) -> Both:
    """After the module's sweep: the run of the small batch is made up, the other is trained."""
    shutil.copytree(both.own / "datasets", both.other / "datasets")
    both.make(str((both.other / "main/details/manifest.json").relative_to(both.folder)))
    planned = Manifest.read(both.other / "main/details/manifest.json")
    first = [run for run in planned.runs if not run.is_conditional]
    generator.write_records(first, both.other / "runs", lambda spec: 10.0 + spec.repeat, noise=0.0)
    before = files(both.own)
    old = os.umask(0o022)
    try:
        both.make("tfs_all", "outer.txt")
    finally:
        os.umask(old)
    assert (both.folder / "outer.txt").read_text() == "outer\n"
    made = [*(both.other / "runs").rglob("launch.log"), both.other / "main/runs.csv"]
    assert {path.stat().st_mode & 0o077 for path in made} == {0}
    assert files(both.own) == before
    return both


@pytest.mark.parametrize("target", ["tfs_all", "tfs_plan", "tfs_partial"])
def test_a_dry_run_of_the_module_writes_nothing(target: str, both: Both) -> None:
    before = files(both.own), files(both.other)
    both.make(target, "--dry-run")
    assert (files(both.own), files(both.other)) == before


@pytest.mark.parametrize("snakefile", ["Snakefile", "Alone"])
def test_a_module_beyond_its_budget_leaves_nothing_behind(
    snakefile: str, both: Both, tmp_path: Path
) -> None:
    """Whether its handlers are forwarded or not."""
    copied = Both(both.copy(tmp_path / "project").folder)
    content = {**OTHER, "budget": {"node_hours": 1e-9}}
    (copied.folder / "other.yaml").write_text(yaml.safe_dump(content))
    before = files(copied.own), files(copied.other)
    for words in ((), ("--dry-run",)):
        done = copied.snakemake(
            "tfs_all", *words, snakefile=str(copied.folder / snakefile), check=False
        )
        assert done.returncode == 1 and "budget" in done.stdout
        assert (files(copied.own), files(copied.other)) == before
    # datasets cost no budget
    copied.snakemake("tfs_prepare_datasets", "-n", snakefile=str(copied.folder / snakefile))


def test_each_sweep_has_its_own_runs_in_its_tables(swept: Both) -> None:
    (own,) = swept.table("results/main/comparison.csv")
    others = swept.table("other/results/main/comparison.csv")
    assert (own["recipe"], own["status"], own["runs"]) == ("own", "ok", "1")
    assert [(other["status"], other["runs"]) for other in others] == [("ok", "1")] * 2
    assert {variants.base_recipe(other["recipe"]) for other in others} == {"other"}
    records = {row["record"] for row in swept.table("other/results/main/runs.csv")}
    assert all(record.startswith("other/results/runs/") for record in records)
    assert len(records) == 2


def test_everything_of_the_module_is_below_its_prefix(swept: Both) -> None:
    assert "recipe=other" not in "".join(files(swept.own))
    assert "recipe=own" not in "".join(files(swept.other))
    made = {path for path in files(swept.other) if path.startswith("main/")}
    assert {
        "main/details/manifest.json",
        "main/report.html",
        "main/details/repeats/round=1.json",
        "main/details/repeats/round=2.json",
        "main/details/conclusions/decision.csv",
        "main/details/conclusions/decision.md",
        "main/details/plots/execution_time.svg",
    } <= made
    assert {path.name for path in (swept.folder / "other").iterdir()} == {"results"}


def test_the_repository_itself_makes_the_same_tables(
    swept: Both, new_project: Callable[[str], Project]
) -> None:
    itself = new_project("itself")
    platforms = {"platforms": OTHER["platforms"]}
    (itself.folder / "config/platforms.yaml").write_text(yaml.safe_dump(platforms))
    shutil.copy(swept.folder / "other.yaml", itself.folder / "config/config.yaml")
    for name in ("runs", "datasets"):
        folder = itself.folder / "results" / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(swept.other / name, folder)
    tables = [f"main/{name}" for name in TABLES]
    itself.snakemake("results/main/report.html", config=["config/config.yaml"])
    assert (
        len(list(itself.folder.glob("results/runs/**/repeat=*/*/launch.log"))) == 1
    )  # none is trained here
    for table in tables:
        of_module = (swept.other / table).read_text().replace("other/results/", "results/")
        assert (itself.folder / "results" / table).read_text() == of_module


@pytest.mark.parametrize("target", ["all", "tfs_all"])
def test_both_are_finished(target: str, swept: Both) -> None:
    assert "Nothing to be done" in swept.make(target, "--dry-run")


def test_plan_and_partial_tables_of_the_module_are_below_its_prefix(swept: Both) -> None:
    before = files(swept.own)
    swept.make("tfs_plan")
    swept.make("tfs_partial")
    assert files(swept.own) == before
    assert (swept.other / "main/details/plan.md").exists()
    rows = swept.table("other/results/main/partial/comparison.csv")
    assert [row["runs"] for row in rows] == ["1", "1"]


def test_after_a_failure_the_module_removes_its_own_tables_only(
    swept: Both, tmp_path: Path
) -> None:
    """What is made from an empty table fails here."""
    copied = Both(swept.copy(tmp_path / "project").folder)
    (copied.other / "main/comparison.csv").write_text("")
    (copied.other / "main/partial").mkdir(exist_ok=True)
    before = files(copied.own)
    alone = str(copied.folder / "Alone")
    done = copied.snakemake("tfs_all", snakefile=alone, check=False)
    assert done.returncode != 0
    assert files(copied.own) == before
    assert not (copied.other / "main/report.html").exists(), done.stdout
    assert (copied.other / "main/partial/report.html").exists()
    assert "page: other/results/main/partial/report.html" in done.stdout
    (copied.other / "main/comparison.csv").unlink(missing_ok=True)
    done = copied.snakemake("tfs_all", snakefile=alone)
    assert "page: other/results/main/report.html" in done.stdout
