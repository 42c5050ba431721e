"""A cluster as clouds have it: with accounting, its limits, and nodes that boot when wanted."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from project import Project
from tfscaling.plan import queue_waits
from tfscaling.study.run_spec import run_path
from virtual_cluster import Cluster, start, wait_for

pytestmark = pytest.mark.full

BOOT_S, RUNTIME_MIN = 5, 10
#: So much longer is the controller away than a look at the jobs takes; `make outage`: ten minutes.
AWAY_S = float(os.environ.get("CONTROLLER_AWAY_S", "0"))
PLATFORM = {"launcher": "srun", "partition": "cpu", "nodes_max": 2, "cpus_per_node": 2}
#: A job that cancels itself, and one that stops Slurm's controller. It does so once: Slurm may
#: restart its job, and nobody starts the controller a third time.
_PROGRAMS = {
    "short": "true",
    "cancelled": 'scancel "$SLURM_JOB_ID"; sleep 600',
    "silences_slurm": "mkdir silenced && scontrol shutdown slurmctld; true",
}
_RECIPES = {
    name: {"program": ["sh", "-c", text], "per_replica_batch_size": 1, "epochs": 1}
    for name, text in _PROGRAMS.items()
}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes without power."""
    saving = ("--power-saving", "--boot-delay", str(BOOT_S), "--idle-time", "3600")
    shape = ("--partition", "cpu:2:cpus=2")
    cluster = start(tmp_path_factory.mktemp("vc"), *shape, "--accounting", *saving)
    try:
        yield cluster
    finally:
        cluster.tool("down")


def configuration(*recipes: str, **platform: Any) -> dict[str, Any]:
    """A run of each recipe on one node."""
    return {
        "grid": [{"platform": "cloud", "strategy": "own", "recipe": [*recipes], "nodes": 1}],
        "recipes": {name: _RECIPES[name] for name in recipes},
        "platforms": {"cloud": {**PLATFORM, "runtime_min": RUNTIME_MIN, **platform}},
    }


def test_a_sweep_whose_jobs_are_looked_at_by_sacct(project: Project, cloud: Cluster) -> None:
    project.overlay(configuration("short", "cancelled"))
    done = project.snakemake(
        "--until", "train", "--retries", "0", "--slurm-sweep-status-command", "sacct",
        profile="slurm", environ=cloud.environ, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "SLURM status is: 'CANCELLED'" in log_of(project)
    (record,) = project.records()
    assert record["axes"]["recipe"] == "short"
    # Slurm's start is that of the nodes: the boot is neither in the queue nor in the execution
    phases, job = record["phases"], record["environment"]["slurm_job"]
    assert phases["boot_time_s"] > 0
    submitted, started = (datetime.fromisoformat(job[name]) for name in ("submit", "start"))
    waited = started - submitted
    assert phases["queue_time_s"] + phases["boot_time_s"] == waited.total_seconds()
    folder = project.folder / "results/runs" / run_path(record["axes"], record["parameters_hash"])
    lines = (folder / "events.jsonl").read_text().splitlines()
    times = {event["event"]: event["time_s"] for event in map(json.loads, lines)}
    assert phases["execution_time_s"] == pytest.approx(
        times["program_end"] - times["program_start"], abs=0.01
    )


def test_accounting_shows_no_secret_of_a_run(project: Project, cloud: Cluster) -> None:
    """Not its lines of sbatch and srun, and neither scripts nor environments of jobs."""
    marks = {name: secrets.token_hex(12) for name in ("env", "setup", "program")}
    content = configuration(
        "short", env={"TOKEN": marks["env"]}, setup=[f"export API_KEY={marks['setup']}"]
    )
    content["recipes"]["short"]["program"] = ["sh", "-c", "true", marks["program"]]
    project.overlay(content)
    project.snakemake("--until", "train", profile="slurm", environ=cloud.environ)
    (record,) = project.records()
    job = record["environment"]["slurm_job"]["id"]
    fields = ",".join(cloud.run("sacct", "--helpformat").split())
    rows = cloud.run("sacct", f"--jobs={job}", "--parsable2", f"--format={fields}")
    assert "sbatch --parsable" in rows and "srun --nodes=1" in rows, rows
    script = cloud.run("sacct", f"--jobs={job}", "--batch-script")
    assert "snakemake" in script, script
    environment = cloud.run("sacct", f"--jobs={job}", "--env-vars")
    assert "PATH=" in environment, environment
    for text in (rows, script, environment):
        assert not [name for name, mark in marks.items() if mark in text]


def log_of(project: Project) -> str:
    """Snakemake's own log of its last call."""
    logs = sorted(project.folder.glob(".snakemake/log/*.log"))
    return logs[-1].read_text() if logs else ""


#: Runs before Slurm's sbatch: at the first submission the controller goes.
_SBATCH = """#!/bin/sh
case "$*" in *--test-only*) ;; *)
    if mkdir {folder}/gone 2>/dev/null; then
        scontrol shutdown slurmctld
        while scontrol ping >/dev/null; do sleep 0.1; done
    fi;;
esac
exec {sbatch} "$@"
"""


def test_a_sweep_outlives_a_controller_that_is_away(
    project: Project, cloud: Cluster, tmp_path: Path
) -> None:
    """Silent when a job is submitted, and again from its program to a look at it in vain."""
    program = tmp_path / "sbatch"
    program.write_text(_SBATCH.format(folder=tmp_path, sbatch=shutil.which("sbatch")))
    program.chmod(0o755)
    project.overlay(configuration("silences_slurm"))

    def restart_controller() -> None:
        wait_for(lambda: "Slurm does not take jobs now" in log_of(project), "a waiting submission")
        cloud.start_controller()
        wait_for(lambda: "Slurm does not answer" in log_of(project), "a look without an answer")
        time.sleep(AWAY_S)
        cloud.start_controller()

    with ThreadPoolExecutor(1) as pool:
        back = pool.submit(restart_controller)
        back.add_done_callback(project.end_if_failed)
        project.snakemake(
            "--until", "train", "--retries", "0", profile="slurm",
            environ={**cloud.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        )  # fmt: skip
        back.result()
    assert len(project.records()) == 1
    assert "Slurm answers again" in log_of(project)


def past_jobs(cloud: Cluster) -> list[list[str]]:
    """The partition's jobs as Slurm accounts them, with times in UTC."""
    fields = "--format=Eligible,Start,NNodes,TimelimitRaw,State,End"
    options = ("-aXnP", "--partition=cpu", "--starttime=now-1days")
    lines = cloud.run("env", "TZ=UTC0", "sacct", *options, fields).splitlines()
    return [line.split("|") for line in lines]


def test_the_plan_bounds_the_wait_by_past_jobs(project: Project, cloud: Cluster) -> None:
    """Jobs that wait for both nodes; a held job is no wait."""
    jobs = ("--partition=cpu", "--nodes=2", "--time=10", "--output=/dev/null")
    cloud.run("sbatch", *jobs, "--hold", "--wrap=true")
    cloud.run("sbatch", *jobs, "--array=1-60", "--wait", "--wrap=true")
    content = configuration("short")
    content["question"] = {"limits": {"time_with_queue_s": {"at_most": "1000 h"}}}
    project.overlay(content)
    project.snakemake("plan", profile="slurm", environ=cloud.environ)
    (row,) = project.table("results/main/details/plan.csv")
    past = queue_waits.select_similar_jobs(queue_waits.parse_jobs(past_jobs(cloud)), 1, RUNTIME_MIN)
    bound_s = queue_waits.wait_bound_s(past, time.time())  # no job waits that may start
    assert float(row["wait_bound_s"]) == pytest.approx(bound_s, rel=1e-3)
    page = (project.folder / "results/main/details/plan.md").read_text()
    assert "cloud, nodes 1: kept" in page


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"account": "nosuch"}, "Invalid account or account/partition combination specified"),
        ({"qos": "nosuch"}, "Invalid qos specification"),
    ],
)
def test_what_accounting_refuses_is_not_submitted(
    project: Project, cloud: Cluster, asked: dict[str, Any], said: str
) -> None:
    project.overlay(configuration("short", **asked))
    done = project.snakemake(
        "--until", "train", profile="slurm", environ=cloud.environ, check=False
    )
    assert done.returncode == 1
    assert said in " ".join(done.stdout.split())
    assert not project.failures()
