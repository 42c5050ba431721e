"""Platforms on a real Slurm: GPUs, quotas, the same model everywhere, the plain executor.

test_essentials_on_slurm.py has geometry, order, tables and failures.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from project import QUICK, SMALL_MODEL, Project
from sweep_drivers import Submit
from tfscaling.plan.sweep_start import PLUGIN_ADVICE

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def shaped(new_project: Callable[[str], Project], submit: Submit) -> tuple[Project, int]:
    """GPUs by --gres as logical devices, GPUs that are not there, and a model on two platforms."""
    project = new_project("shaped")
    small = {"model": SMALL_MODEL, "recipe": "quick"}
    project.overlay(
        {
            "grid": [
                {**small, "platform": "logical", "nodes": 2, "gpus_per_node": 2},
                {**small, "platform": ["cpu", "gpu"], "nodes": 2, "gpus_per_node": 0},
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
    assert set(records) == {("logical", 2, 2), ("cpu", 2, 0), ("gpu", 2, 0)}
    record = records["logical", 2, 2]
    assert record["environment"]["slurm_job"]["tres_per_node"].endswith("gpu:2")
    assert {tuple(rank["devices"]) for rank in record["ranks"]} == {("CPU:0", "CPU:1")}
    assert {rank["gpus_given"] for rank in record["ranks"]} == {2}
    assert record["derived"]["replicas"] == 4
    assert "tres_per_node" not in records["gpu", 2, 0]["environment"]["slurm_job"]


def test_platforms_give_the_same_model(shaped: tuple[Project, int]) -> None:
    """Loss depends on the global batch and the seed, not on where the run was."""
    losses = {
        record["axes"]["platform"]: record["metrics"]["loss"]
        for record in shaped[0].records()
        if record["axes"]["gpus_per_node"] == 0
    }
    assert losses["cpu"] == pytest.approx(losses["gpu"], rel=1e-3)


def test_a_changed_partition_reruns_no_training(
    shaped: tuple[Project, int], tmp_path: Path
) -> None:
    copy = shaped[0].copy(tmp_path / "project")
    block = {"platform": "cpu", "model": SMALL_MODEL, "recipe": "quick", "nodes": 2}
    content = {"grid": [block], "recipes": {"quick": QUICK}}
    copy.overlay({**content, "platforms": {"cpu": {"partition": "gpu"}}})
    assert copy.planned() == set()


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
    assert cause["last_event"] == "failed"
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
    assert PLUGIN_ADVICE in " ".join(output.split())
    (record,) = project.records()
    assert record["axes"]["recipe"] == "good"
    (failure,) = project.failures()
    assert (failure["axes"]["recipe"], failure["attempt"]) == ("bad", 2)
