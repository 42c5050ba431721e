"""What a sceptic asks: is waiting kept apart, is each rank's computation found, is every sabotage
noticed?

One sweep on the virtual cluster: a run of two ranks, a run that had to wait in the queue, and runs
in which rank 1 is not what was asked for.
"""

from __future__ import annotations

import csv
import json
import statistics
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from project import QUICK, REPOSITORY, SMALL_MODEL, Project
from tfscaling.study.run_spec import run_path

pytestmark = pytest.mark.full

Submit = Callable[..., tuple[int, str]]
WAIT_S = 5
#: Times in the raw files are rounded to this.
ROUNDED_S = 1e-6
ONLY_RANK_1 = "if [[ $SLURM_PROCID == 1 ]]; then {}; fi"
#: The same addresses by number and not by name: it works, but is not the cluster of the others.
BY_NUMBER = f"""export TF_CONFIG=$(cd {REPOSITORY}/workflow/scripts && {sys.executable} -c '
import json, os, socket
from tfscaling.cluster import resolver as cluster
spec = json.loads(cluster.resolve(os.environ, jobs={{"worker": 2}}, gpus=None).tf_config())
pairs = [address.split(":") for address in spec["cluster"]["worker"]]
spec["cluster"]["worker"] = [socket.gethostbyname(host) + ":" + port for host, port in pairs]
print(json.dumps(spec))')"""
#: Rank 1 reads another specification than the other ranks.
TESTS_ON_LESS = """
python3 - "$@" <<'END'
import json, pathlib, sys
path = pathlib.Path(sys.argv[sys.argv.index("--spec") + 1])
spec = json.loads(path.read_text())
spec["recipe"]["test_examples_max"] = 400
path.with_name("other.json").write_text(json.dumps(spec))
END
set -- "${@/%spec.json/other.json}"
""".strip()
#: Platform → (what is done to rank 1, which kind of failure the run has, what its message names).
#: A rank without its CPUs ends at its start; the others are refused after the training.
SABOTAGE = {
    "hidden-gpu-and-other-examples": (
        "export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES%,*}\n" + TESTS_ON_LESS,
        "invalid",
        ["requested 2 GPUs per node and 2 per task, Slurm gave the ranks {0: 2, 1: 1}",
         "requested test_examples 500, got {1: 400}"],
    ),
    "few-cpus": (
        "taskset --pid --cpu-list 0 $$ >/dev/null",
        "rank_failed",
        ["requested 2 CPUs per task, this rank may use 1"],
    ),
    "other-cluster": (BY_NUMBER, "invalid", ["ranks disagree on the cluster"]),
    "wrong-node": (
        """exec unshare --uts bash -c 'hostname "$0"; exec "$@"' """
        """"$(scontrol show hostnames "$SLURM_STEP_NODELIST" | head -1)" "$@" """,
        "invalid",
        ["requested 2 nodes, ranks ran on 1"],
    ),
}  # fmt: skip


def content() -> dict[str, Any]:
    """Runs that fit on the cluster at the same time, on the partition gpu up to two on a node."""
    usual = {"launcher": "srun", "nodes_max": 6, "cpus_per_node": 2, "partition": "cpu"}
    half = {**usual, "cpus_per_node": 1}
    shared = {**half, "partition": "gpu", "devices": "logical", "gpus_per_node_max": 2}
    broken = {
        name: {**(usual if "cpus" in name else shared), "setup": [ONLY_RANK_1.format(line)]}
        for name, (line, _, _) in SABOTAGE.items()
    }
    small = {"model": SMALL_MODEL, "recipe": "short"}
    hidden, *rest = broken
    return {
        "grid": [
            {**small, "platform": hidden, "gpus_per_node": 2, "nodes": 2},
            {**small, "platform": rest, "nodes": 2},
            {"platform": "cpu", "model": SMALL_MODEL, "recipe": "usual", "nodes": 2},
            {**small, "platform": "waits", "nodes": 1},
        ],
        "recipes": {
            "short": {**QUICK, "train_examples_max": 256},
            "usual": QUICK,
        },
        "platforms": {
            **broken, "waits": {**half, "extra": f"--begin=now+{WAIT_S}"},
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def measured(new_project: Callable[[str], Project], submit: Submit) -> Project:
    """The sweep, after which every sabotaged run has failed."""
    project = new_project("measured")
    project.overlay(content())
    code, output = submit(project, "--retries", "0")
    assert code != 0
    assert len(project.records()) == 2, output[-3000:] + project.logs()
    return project


@pytest.mark.parametrize("platform", SABOTAGE)
def test_a_run_that_was_not_what_was_asked_for_is_refused(platform: str, measured: Project) -> None:
    (failure,) = [f for f in measured.failures() if f["axes"]["platform"] == platform]
    _, kind, texts = SABOTAGE[platform]
    assert failure["cause"]["kind"] == kind, failure
    assert all(text in failure["cause"]["message"] for text in texts)
    rows = measured.table("results/main/partial/comparison.csv")
    (row,) = [row for row in rows if row["platform"] == platform]
    assert (row["status"], row["execution_time_s"], row["speedup"]) == ("failed", "", "")
    assert all(text in row["reason"] for text in texts)


def record_of(project: Project, platform: str) -> dict[str, Any]:
    (record,) = [r for r in project.records() if r["axes"]["platform"] == platform]
    return record


def folder_of(project: Project, record: dict[str, Any]) -> Path:
    return project.folder / "results/runs" / run_path(record["axes"], record["parameters_hash"])


def test_the_slowest_rank_is_named_with_its_host(measured: Project) -> None:
    """By the ranks' own times of their computation."""
    record = record_of(measured, "cpu")
    with (folder_of(measured, record) / "compute_steps.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert {row["rank"] for row in rows} == {"0", "1"}
    middle_s = [
        statistics.median(float(row["duration_s"]) for row in rows if row["rank"] == rank)
        for rank in ("0", "1")
    ]
    metrics, slowest = record["metrics"], middle_s.index(max(middle_s))
    (host,) = [rank["host"] for rank in record["ranks"] if rank["rank"] == slowest]
    # not by time: whichever rank it is, by the run's own file
    assert (metrics["slowest_rank"], metrics["slowest_host"]) == (slowest, host)
    # two ranks: the faster one is the middle
    expected = max(middle_s) / min(middle_s)
    assert metrics["compute_time_s"] == pytest.approx(min(middle_s), abs=ROUNDED_S)
    assert metrics["straggler_ratio"] == pytest.approx(expected, rel=0.01)


def test_waiting_in_the_queue_is_no_part_of_the_execution(measured: Project) -> None:
    record = record_of(measured, "waits")
    phases, job = record["phases"], record["environment"]["slurm_job"]
    submitted, started = (datetime.fromisoformat(job[name]) for name in ("submit", "start"))
    waited = started - submitted
    assert phases["queue_time_s"] == waited.total_seconds()
    lines = (folder_of(measured, record) / "events.jsonl").read_text().splitlines()
    times = {event["event"]: event["time_s"] for event in map(json.loads, lines)}
    assert phases["execution_time_s"] == pytest.approx(times["trained"] - times["start"], abs=0.01)


def test_nodes_that_are_up_have_no_boot_time(measured: Project) -> None:
    assert {record["phases"]["boot_time_s"] for record in measured.records()} == {0.0}


def test_every_rank_measures_how_far_its_clock_is_off(measured: Project) -> None:
    """How well: tests/unit/record/test_clock.py."""
    for record in measured.records():
        for rank in record["ranks"]:
            assert rank["clock"].keys() == {"offset_s", "uncertainty_s"}


def test_nodes_that_are_one_machine_are_found_out(measured: Project) -> None:
    record = record_of(measured, "cpu")
    assert len({rank["host"] for rank in record["ranks"]}) == 2
    assert len({rank["host_facts"]["machine"] for rank in record["ranks"]}) == 1
    assert record["environment"]["slurm_settings"]["TaskPlugin"].startswith("task/")
