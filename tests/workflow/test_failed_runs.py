"""A point that fails is shown as failed; the others finish, and only it runs again."""

from __future__ import annotations

import copy
import shutil

import pytest
from project import NO_PLOTS, QUICK, SMALL_MODEL, Project
from sweep import SWEEP

#: A model that fails on two nodes.
BROKEN = """
import json
import os


def model():
    import small

    if len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]) > 1:
        raise ValueError("two workers are too many")
    return small.model()
"""
POINT = {"platform": "laptop", "model": "broken:model", "recipe": "bad"}
BAD = {**QUICK, "train_examples_max": 640}
TEXT = "ValueError: two workers are too many"
#: A point whose ranks end before they start.
ENDING_POINT = {"platform": "ending", "model": SMALL_MODEL, "recipe": "bad", "nodes": 2}
ENDING = {"launcher": "local", "nodes_max": 2, "cpus_per_node": 1, "setup": ["exit 3"]}


def names(project: Project) -> list[str]:
    """What lies in the study's folder."""
    return sorted(path.name for path in (project.folder / "results/main").iterdir())


def test_a_failed_point_is_a_row_with_its_reason_and_runs_again_alone(copied: Project) -> None:
    (copied.folder / "broken.py").write_text(BROKEN)
    before = names(copied), copied.table()
    content = {**copy.deepcopy(SWEEP), "plots": NO_PLOTS}
    content["recipes"]["bad"] = BAD
    content["grid"].append({**POINT, "nodes": [1, 2]})
    copied.overlay(content)
    done = copied.snakemake(check=False)
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert said.count(" FAILED laptop ") == 1 and " recipe=bad nodes=2 " in said
    assert f"broken.py:10 in model: {TEXT}" in said
    assert "page: results/main/partial/report.html" in done.stdout
    assert "Traceback" not in done.stdout and "CalledProcessError" not in done.stdout

    (failure,) = copied.failures()
    assert failure["axes"]["nodes"] == 2
    assert failure["cause"]["kind"] == "rank_failed"
    assert failure["cause"]["message"] == TEXT
    assert failure["cause"]["error"] == "ValueError"
    assert failure["cause"]["place"] == {"file": "broken.py", "line": 10, "function": "model"}
    assert "ValueError" in (copied.folder / failure["cause"]["log"]).read_text()
    assert any(TEXT in line for line in failure["cause"]["last_lines"])

    # the tables of what has finished are there, and none of the sweep before
    rows = copied.table("results/main/partial/comparison.csv")
    shown = {(r["recipe"], r["nodes"]): r for r in rows if r["recipe"] == "bad"}
    assert shown["bad", "1"]["status"] == "ok"
    assert shown["bad", "2"]["status"] == "failed"
    assert TEXT in shown["bad", "2"]["reason"]
    assert shown["bad", "2"]["speedup"] == ""
    assert sum(r["status"] == "ok" for r in rows) == 6
    markdown = (copied.folder / "results/main/partial/details/comparison.md").read_text()
    assert TEXT in markdown
    results = copied.folder / "results/main"
    assert not (results / "report.html").exists()
    left = [*results.glob("*.csv"), *results.glob("details/conclusions/*")]
    assert [path for path in left if path.is_file()] == []

    # only the failed point is to do; without it, the sweep before is there again without a run
    assert len(copied.planned()) == 1
    copied.overlay(copy.deepcopy(SWEEP))
    assert copied.planned() == set()
    made = copied.made()
    copied.snakemake()
    assert copied.made() == made
    assert (names(copied), copied.table()) == before


def test_before_a_round_of_larger_batches_too(copied: Project) -> None:
    """The tables' inputs are not known yet when the sweep fails."""
    content = {**copy.deepcopy(SWEEP), "plots": NO_PLOTS}
    content["recipes"]["bad"] = {**BAD, "per_replica_batch_size": {"from": 32, "to": 64}}
    content["platforms"]["ending"] = ENDING
    content["grid"].append(dict(ENDING_POINT))
    copied.overlay(content)
    assert copied.snakemake(check=False).returncode != 0
    assert names(copied) == ["details", "partial"]
    assert not (copied.folder / "results/main/runs.csv").exists()


def test_the_cause_of_a_failed_dataset_is_told_at_once_and_at_the_end(project: Project) -> None:
    missing = "no such file: /data/images"
    code = f"def data():\n    raise FileNotFoundError({missing!r})\n"
    (project.folder / "nodata.py").write_text(code)
    recipe = {**BAD, "dataset": "nodata:data"}
    grid = [{"platform": "laptop", "model": SMALL_MODEL, "recipe": "bad", "nodes": [1, 2]}]
    project.overlay({"grid": grid, "recipes": {"bad": recipe}})
    done = project.snakemake(check=False)
    assert done.returncode != 0
    _, *told = " ".join(done.stdout.split()).split("FAILED dataset nodata:data")
    assert len(told) == 2
    for text in told:
        assert f"nodata.py:2 in data: FileNotFoundError: {missing}" in text
        assert "results/logs/prepare_dataset/nodata:data.log" in text


def test_a_model_that_cannot_be_built_starts_nothing(project: Project) -> None:
    (project.folder / "broken.py").write_text(BROKEN.replace("> 1", "> 0"))
    grid = [{"platform": "laptop", "model": "broken:model", "recipe": "bad", "nodes": [1, 2]}]
    project.overlay({"grid": grid, "recipes": {"bad": BAD}, "check_models": True})
    done = project.snakemake(check=False)
    assert done.returncode != 0
    (line,) = [line for line in done.stdout.splitlines() if TEXT in line]
    assert "broken:model " in line and " broken.py:10 in model" in line
    assert not (project.folder / "results/runs").exists()


@pytest.fixture
def failing(project: Project) -> Project:
    """A project whose only run fails."""
    content = {"grid": [dict(ENDING_POINT)], "recipes": {"bad": BAD}}
    project.overlay({**content, "platforms": {"ending": ENDING}})
    return project


def test_the_shim_makes_the_partial_tables_too(failing: Project) -> None:
    done = failing.snakemake(snakefile="workflow/Snakefile", check=False)
    assert done.returncode != 0
    (row,) = failing.table("results/main/partial/comparison.csv")
    assert row["status"] == "failed"


def test_the_snakemake_of_a_job_leaves_the_tables_alone(failing: Project) -> None:
    """On a node many of them fail side by side, each for its own run, after a start has begun."""
    assert failing.snakemake(check=False).returncode != 0
    partial = failing.folder / "results/main/partial"
    shutil.rmtree(partial)
    axes = {**ENDING_POINT, "strategy": "multi_worker_mirrored", "gpus_per_node": 0}
    (run,) = failing.folder.glob("results/runs/**/parameters=*")
    axes |= {"tasks_per_node": 1, "repeat": 1, "parameters": run.name.partition("=")[2]}
    job = ",".join(f"{axis}={value}" for axis, value in axes.items())
    options = ["--mode", "subprocess", "--cores", "1", "--allowed-rules", "train"]
    done = failing.snakemake(*options, "--target-jobs", f"train:{job}", check=False)
    assert done.returncode != 0
    (failure,) = failing.failures()
    message = "exit code 3; its last line: setup: ended with exit code 3"
    assert (failure["cause"]["message"], failure["attempt"]) == (message, 2)
    assert not partial.exists()


def test_a_plan_that_fails_touches_no_table(copied: Project) -> None:
    (copied.folder / "results/main/details/plan.md").mkdir()  # it cannot be written
    before = copied.table()
    assert copied.snakemake("plan", check=False).returncode != 0
    assert copied.table() == before
    assert (copied.folder / "results/main/report.html").exists()
    assert not (copied.folder / "results/main/partial").exists()
