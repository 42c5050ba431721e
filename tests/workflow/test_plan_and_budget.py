"""`snakemake plan` on the real workflow, the line of a real submission, and the budget."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from project import BIN, TINY, Project, axis
from tfscaling.plan import preflight
from tfscaling.study.config_types import POINT_AXES

PRICE = {"usd_per_node_hour": 3.6, "price_date": "2026", "price_source": "list"}
CONTENT: dict[str, Any] = {
    "grid": [
        {"platform": "cpu", "model": "mnist_cnn", "recipe": "tiny", "nodes": [1, 2, 8]},
        {"platform": "gpu", "model": "mnist_cnn", "recipe": "tiny", "nodes": 2,
         "gpus_per_node": 4, "repeats": 2},
    ],
    "recipes": {"tiny": TINY},
    "platforms": {"cpu": PRICE, "gpu": {"runtime_min": 30, "qos": "low", "setup": ["true"]}},
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project folder without results; its dataset is a file that no test trains with."""
    made = Project(tmp_path / "project with space")
    datasets = made.folder / "results/datasets"
    datasets.mkdir(parents=True)
    for ending in ("npz", "json"):
        (datasets / f"mnist.{ending}").touch()
    made.overlay(CONTENT)
    return made


def asked(slurm: dict[str, str]) -> list[str]:
    """The calls of sbatch."""
    log = Path(slurm["PATH"].split(":")[0]) / "called"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in lines if line.startswith("sbatch")]


def submitted(slurm: dict[str, str]) -> list[str]:
    """Those that were no questions."""
    return [line for line in asked(slurm) if "--test-only" not in line]


#: The plugin's thread sleeps this long before Snakemake can end.
FAST = ("--slurm-sweep-init-seconds-before-status-checks", "1")


def test_the_plan_under_slurm(project: Project, slurm: dict[str, str]) -> None:
    out = project.snakemake("plan", *FAST, profile="slurm", environ=slurm).stdout
    rows = project.table("results/main/details/plan.csv")
    assert [(r["platform"], r["nodes"], r["runs"], r["feasibility"]) for r in rows] == [
        ("cpu", "1", "1", "runs"), ("cpu", "2", "1", "runs"),
        ("gpu", "2", "2", "runs"), ("cpu", "8", "", "excluded"),
    ]  # fmt: skip
    # not by time: all is planned with the time limit
    assert rows[1]["cost_usd"] == "7.2" and rows[2]["cost_usd"] == ""
    # not by time: likewise
    assert rows[2]["node_hours"] == "2.0" and rows[2]["duration_from"] == "time limit"
    assert "-p gpu -t 30 --qos=low --nodes=2 --cpus-per-task=2" in rows[2]["submission"]
    assert "--gres=gpu:4 --wrap=" in rows[2]["submission"]
    page = (project.folder / "results/main/details/plan.md").read_text()
    assert page in out
    assert "10.80 + unknown" in page
    assert not list(project.folder.glob("results/runs"))
    # one question for each geometry, not for each run
    assert len(asked(slurm)) == 3 and not submitted(slurm)


def test_the_plans_line_is_that_of_the_submission(project: Project, slurm: dict[str, str]) -> None:
    project.snakemake("plan", *FAST, profile="slurm", environ=slurm)
    rows = [
        row
        for row in project.table("results/main/details/plan.csv")
        if row["feasibility"] == "runs"
    ]
    paths = project.planned()
    assert len(paths) == sum(float(row["runs"]) for row in rows)
    records = [f"results/runs/{path}/run.json" for path in paths]
    done = project.snakemake(
        *records, *FAST, "--retries", "0", "--verbose",
        profile="slurm", environ=slurm, check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    calls = [lines[n + 1].strip() for n, line in enumerate(lines) if line.strip() == "sbatch call:"]
    assert len(set(calls)) == len(paths) == 4, done.stdout
    for path in paths:
        (row,) = (row for row in rows if all(row[a] == axis(path, a) for a in POINT_AXES))
        name = "/".join(part.partition("=")[2] for part in path.split("/"))
        before, after = row["submission"].replace("<run>", name).split("<uuid>")
        after = after.removesuffix('"<command>"')
        assert any(call.startswith(before) and after in call for call in calls), calls
    tables = project.table("results/main/partial/runs.csv")
    assert {row["status"] for row in tables} == {"failed"}
    assert all(row["reason"].endswith("QOSMaxWallDurationPerJobLimit") for row in tables)


@pytest.mark.parametrize(
    "variable",
    [
        *("SBATCH_WAIT", "SBATCH_GPUS"),
        # all are refused alike: test_preflight.py
        *(
            pytest.param(f"SBATCH_{each}", marks=pytest.mark.full)
            for each in ("ARRAY_INX", "MEM_PER_CPU")
        ),
    ],
)
def test_options_of_the_environment_that_change_jobs_are_named_and_refused(
    variable: str, project: Project, slurm: dict[str, str]
) -> None:
    value = str(random.randint(1, 9))
    environ = {**slurm, variable: value}
    planned = project.snakemake("plan", *FAST, profile="slurm", environ=environ).stdout
    done = project.snakemake(*FAST, profile="slurm", environ=environ, check=False)
    for printed in (planned, done.stdout):
        assert f"{variable}={value}: " in " ".join(printed.split()), printed
    assert done.returncode == 1 and "Nothing is submitted" in done.stdout
    assert not submitted(slurm)


def test_without_sbatch_the_slurm_profile_says_where_it_belongs(
    project: Project, tmp_path: Path
) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("bash", "sh", "env", "which", "tee", "cat", "id", "uname", "mkdir", "rm"):
        (bare / name).symlink_to(shutil.which(name) or name)
    environ = {"PATH": f"{BIN}:{bare}"}
    done = project.snakemake(profile="slurm", environ=environ, check=False)
    assert done.returncode == 1
    assert "no sbatch" in done.stdout and "login node" in done.stdout
    assert "Traceback" not in done.stdout
    out = project.snakemake("plan", profile="slurm", environ=environ).stdout
    assert preflight.NO_SBATCH in out


def test_a_sweep_beyond_the_budget_is_refused_before_any_submission(
    project: Project, slurm: dict[str, str]
) -> None:
    project.overlay({**CONTENT, "budget": {"node_hours": 3.5}})
    done = project.snakemake(profile="slurm", environ=slurm, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout and "Exception" not in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if " is not allowed; " in line]
    assert re.match(r"overlay\.yaml: line \d+: budget\.node_hours: 3\.5 ", line)
    assert "5.00 or more" in line
    assert not submitted(slurm)
    assert [path.name for path in (project.folder / "results").iterdir()] == ["datasets"]


@pytest.mark.parametrize(("wait_s", "is_warned"), [(3, True), (600, False)])
def test_a_shorter_wait_for_files_than_the_platforms_is_reported(
    wait_s: int, is_warned: bool, project: Project, slurm: dict[str, str]
) -> None:
    """Whatever the profile has: runs whose files come later would count as failed."""
    words = ("--latency-wait", str(wait_s), *FAST)
    done = project.snakemake(*words, profile="slurm", environ=slurm, check=False)
    assert submitted(slurm)
    assert (f"--latency-wait {wait_s}: a platform's latency_wait_s is" in done.stdout) is is_warned
