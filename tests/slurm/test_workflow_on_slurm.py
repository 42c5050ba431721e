"""The real Slurm executor plugin on a real Slurm: geometry, tables, faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from project import QUICK, SMALL_MODEL, Project
from tfscaling.plan.sweep_start import MISSING
from tfscaling.spec import grid
from tfscaling.spec.manifest import Manifest
from virtual_cluster import Cluster

Submit = Callable[..., tuple[int, str]]

#: Platform → numbers of nodes; on each two runs fit beside each other, both have two nodes.
NODES = {"cpu": [1, 2], "gpu": [2, 3]}
POINTS = [(platform, nodes) for platform in NODES for nodes in NODES[platform]]
GEOMETRY = {
    "grid": [
        {"platform": platform, "model": SMALL_MODEL, "recipe": "quick", "nodes": nodes}
        for platform, nodes in NODES.items()
    ],
    "recipes": {"quick": QUICK},
}


@pytest.fixture(scope="module")
def swept(new_project: Callable[[str], Project], submit: Submit) -> Project:
    """One to three nodes on two partitions, with the configuration's own platforms."""
    project = new_project("swept")
    project.overlay(GEOMETRY)
    code, output = submit(project)
    assert code == 0, output[-5000:] + project.logs()
    (project.folder / "console.log").write_text(output)
    return project


def test_the_console_has_few_short_lines_and_no_guesses(swept: Project) -> None:
    lines = (swept.folder / "console.log").read_text().splitlines()
    assert len(lines) <= 50 and max(map(len, lines)) <= 100
    words = " ".join(lines).split()
    done = [line for line in " ".join(words).split(" [")[1:] if ": done, " in line]
    for platform, nodes in POINTS:
        name = f"] {platform} nodes={nodes}:"
        assert len([line for line in done if name in line and "loss" in line]) == 1
    assert "page: results/main/report.html" in lines
    for guess in ("account", "memory", "might or might not"):
        assert not any(guess in line for line in lines)


def test_each_job_had_exactly_the_geometry_asked_for(swept: Project) -> None:
    """What every rank saw from inside the job against what the grid asked."""
    records = swept.records()
    points = {(r["axes"]["platform"], r["axes"]["nodes"]) for r in records}
    assert points == set(POINTS)
    for record in records:
        nodes, platform = record["axes"]["nodes"], record["axes"]["platform"]
        hosts = [rank["host"] for rank in record["ranks"]]
        assert len(hosts) == len(set(hosts)) == nodes
        assert all(host.startswith(platform) for host in hosts)
        job = record["environment"]["slurm_job"]
        assert (job["partition"], int(job["nodes_allocated"])) == (platform, nodes)
        # 2 CPUs per task, one task per node, and nothing more
        assert int(job["cpus_allocated"]) == 2 * nodes
        assert {rank["replicas"] for rank in record["ranks"]} == {nodes}
        assert {rank["cluster_source"] for rank in record["ranks"]} == {"slurm"}


def test_runs_enter_the_queue_in_the_random_order_that_the_seed_gives(swept: Project) -> None:
    planned = Manifest.read(swept.folder / "results/main/details/manifest.json")
    ordered = grid.randomised(planned.runs, planned.order_seed)
    entered = sorted(swept.records(), key=lambda r: int(r["environment"]["slurm_job"]["id"]))
    assert [run_path(record) for record in entered] == [run.spec.path for run in ordered]


def test_jobs_ran_at_once_where_they_fitted(swept: Project, cluster: Cluster) -> None:
    """Six nodes a partition: 1 + 2 and 2 + 3 fit, and partitions do not wait for each other."""
    spans = {}
    for record in swept.records():
        folder = swept.folder / "results/runs" / run_path(record)
        times = [json.loads(line)["time_s"] for line in (folder / "events.jsonl").open()]
        spans[record["axes"]["platform"], record["axes"]["nodes"]] = (min(times), max(times))
    overlapping = [
        (a, b)
        for a in spans
        for b in spans
        if a < b and spans[a][0] < spans[b][1] and spans[b][0] < spans[a][1]
    ]
    assert any(a[0] != b[0] for a, b in overlapping)
    assert any(a[0] == b[0] for a, b in overlapping)


def run_path(record: dict[str, Any]) -> str:
    return "/".join(f"{axis}={value}" for axis, value in record["axes"].items())


def test_every_run_learned_and_its_ranks_agree(swept: Project) -> None:
    for record in swept.records():
        assert record["metrics"]["accuracy"] > 0.3  # chance is 0.1
        assert len({rank["test_accuracy"] for rank in record["ranks"]}) == 1
        assert len({rank["cluster_hash"] for rank in record["ranks"]}) == 1


def test_platforms_give_the_same_model(swept: Project) -> None:
    """Loss depends on the global batch and the seed, not on where the run was."""
    losses = [r["metrics"]["loss"] for r in swept.records() if r["axes"]["nodes"] == 2]
    assert len(losses) == 2
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_the_tables_have_every_point(swept: Project) -> None:
    rows = swept.table()
    assert [(r["platform"], int(r["nodes"]), r["status"]) for r in rows] == [
        (platform, nodes, "ok") for platform, nodes in POINTS
    ]


def test_queue_time_comes_from_slurm(swept: Project) -> None:
    for row in swept.table("results/main/runs.csv"):
        assert float(row["queue_time_s"]) >= 0
        assert row["slurm_job_id"].isdigit()


def test_nothing_is_left_on_any_node(swept: Project, cluster: Cluster) -> None:
    assert cluster.run("squeue", "--noheader") == ""
    for number in range(1, 7):
        for partition in ("cpu", "gpu"):
            assert cluster.processes(f"{partition}{number}") == []


def test_the_finished_sweep_has_nothing_to_do(swept: Project, submit: Submit) -> None:
    code, output = submit(swept)
    assert code == 0
    assert "Nothing to be done" in output


def test_a_changed_partition_reruns_no_training(swept: Project, tmp_path: Path) -> None:
    copy = swept.copy(tmp_path / "project")
    copy.overlay({**GEOMETRY, "platforms": {"cpu": {"partition": "gpu"}}})
    assert copy.planned() == set()


@pytest.fixture(scope="module")
def shaped(new_project: Callable[[str], Project], submit: Submit) -> tuple[Project, int]:
    """GPUs by --gres as logical devices, and GPUs that are not there."""
    project = new_project("shaped")
    small = {"model": SMALL_MODEL, "recipe": "quick"}
    project.overlay(
        {
            "grid": [
                {**small, "platform": "logical", "nodes": 2, "gpus_per_node": 2},
                {**small, "platform": "gpu", "nodes": 1, "gpus_per_node": 0},
                {**small, "platform": "gpu", "nodes": [1, 3], "gpus_per_node": 4},
            ],
            "recipes": {"quick": QUICK},
            "platforms": {
                "gpu": {"setup": ["true"]},  # it might load CUDA's libraries
                "logical": {"launcher": "srun", "partition": "gpu", "devices": "logical",
                            "nodes_max": 6, "cpus_per_node": 2, "gpus_per_node_max": 4},
            },
        }
    )  # fmt: skip
    return project, submit(project)[0]  # retries: 1


def test_gres_is_as_asked(shaped: tuple[Project, int]) -> None:
    records = {
        (r["axes"]["platform"], r["axes"]["nodes"], r["axes"]["gpus_per_node"]): r
        for r in shaped[0].records()
    }
    assert set(records) == {("logical", 2, 2), ("gpu", 1, 0)}
    record = records["logical", 2, 2]
    assert record["environment"]["slurm_job"]["tres_per_node"].endswith("gpu:2")
    assert {tuple(rank["devices"]) for rank in record["ranks"]} == {("CPU:0", "CPU:1")}
    assert {rank["gpus_given"] for rank in record["ranks"]} == {2}
    assert record["derived"]["replicas"] == 4
    assert "tres_per_node" not in records["gpu", 1, 0]["environment"]["slurm_job"]


def test_missing_gpus_are_a_clear_error_before_training_and_not_tried_again(
    shaped: tuple[Project, int],
) -> None:
    project, code = shaped
    assert code != 0
    (failure,) = project.failures()
    assert (failure["attempt"], failure["axes"]["gpus_per_node"]) == (1, 4)
    cause = failure["cause"]
    assert cause["kind"] == "rank_failed"
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3" in cause["message"]
    assert cause["reached"] == "failed"
    assert cause["host"].startswith("gpu")
    runs = project.table("results/main/partial/runs.csv")
    assert [row["status"] for row in runs].count("failed") == 1


def test_points_beyond_the_quota_are_excluded_not_submitted(shaped: tuple[Project, int]) -> None:
    rows = shaped[0].table("results/main/partial/comparison.csv")
    (row,) = [row for row in rows if row["status"] == "excluded"]
    assert (row["platform"], row["nodes"], row["gpus_per_node"]) == ("gpu", "3", "4")
    assert "12 GPUs" in row["reason"] and "gpus_max 8" in row["reason"]


def test_the_plain_executor_runs_a_sweep_and_retries_every_failure(
    project: Project, submit: Submit
) -> None:
    usual = {"observe": "nothing", "per_replica_batch_size": 1, "epochs": 1}
    project.overlay(
        {
            "grid": [{"platform": "cpu", "strategy": "own", "recipe": ["good", "bad"], "nodes": 2}],
            "recipes": {
                "good": {"program": ["true"], **usual},
                "bad": {"program": ["false"], **usual},
            },
        }
    )
    plain = ("--executor", "slurm", "--slurm-init-seconds-before-status-checks", "3")
    code, output = submit(project, *plain, "--slurm-status-command", "squeue")
    assert code != 0
    assert MISSING in " ".join(output.split())
    (record,) = project.records()
    assert record["axes"]["recipe"] == "good"
    (failure,) = project.failures()
    assert (failure["axes"]["recipe"], failure["attempt"]) == ("bad", 2)
