"""The boot of a node that Slurm powered down is told apart from the time in the queue.

A cluster of its own with power saving, as on a cloud; a node boots as slowly as the test lets it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from project import REPOSITORY
from virtual_cluster import Cluster, start

BEGIN_S, BOOT_S = 8, 15
#: What a job learns about itself, as train.py does.
DESCRIBE = """
import os
import msgspec
from tfscaling.jobs import slurm_job
print(msgspec.json.encode(slurm_job.describe(os.environ)).decode())
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes, cpu1 and cpu2, that Slurm may power down and up."""
    cluster = start(tmp_path_factory.mktemp("vc"), "--partition", "cpu:2:cpus=2")
    try:
        for name in ("suspend", "resume"):
            program = cluster.root / "etc" / name
            program.write_text(f'#!/bin/sh\necho "$1" >>{cluster.root}/run/{name}d\n')
            program.chmod(0o755)
        with (cluster.root / "etc/slurm.conf").open("a") as file:
            file.write(
                f"SuspendProgram={cluster.root}/etc/suspend\n"
                f"ResumeProgram={cluster.root}/etc/resume\n"
                "SuspendTime=3600\nSuspendTimeout=5\nResumeTimeout=120\n"
            )
        cluster.tool("kill-slurmd", "controller")
        cluster.tool("start-node", "controller")
        yield cluster
    finally:
        cluster.tool("down")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def submit(cluster: Cluster, folder: Path) -> Path:
    """Submit a job on both nodes that may start after BEGIN_S; returns its output file."""
    (folder / "describe.py").write_text(DESCRIBE)
    cluster.run(
        *("sbatch", "--nodes=2", f"--begin=now+{BEGIN_S}", f"--output={folder}/job"),
        f"--export=ALL,PYTHONPATH={REPOSITORY}/workflow/scripts",
        f"--wrap={sys.executable} {folder}/describe.py",
    )
    return folder / "job"


def described(output: Path) -> dict[str, Any]:
    wait_for(lambda: output.exists() and output.read_text().endswith("\n"), "the job to run")
    found: dict[str, Any] = json.loads(output.read_text())
    return found


def state(cluster: Cluster) -> str:
    return cluster.run("sinfo", "--noheader", "--nodes=cpu2", "--format=%t").strip()


def test_the_boot_of_a_node_is_no_time_in_the_queue(cluster: Cluster, tmp_path: Path) -> None:
    wait_for(lambda: state(cluster) == "idle", "the controller to be back")
    cluster.run("scontrol", "update", "NodeName=cpu2", "State=POWER_DOWN")
    wait_for(lambda: state(cluster) == "idle~", "cpu2 to be down")
    cluster.tool("kill-node", "cpu2")
    submitted_s = time.monotonic()
    output = submit(cluster, tmp_path)
    wait_for((cluster.root / "run/resumed").exists, "Slurm to power cpu2 up")
    resumed_s = time.monotonic()
    time.sleep(BOOT_S)
    cluster.tool("start-node", "cpu2")
    job = described(output)
    assert job["nodes"] == "cpu[1-2]"
    assert BEGIN_S - 1 <= job["queue_time_s"] <= resumed_s - submitted_s + 1
    assert job["boot_time_s"] >= BOOT_S - 1


def test_nodes_that_are_up_need_no_boot(cluster: Cluster, tmp_path: Path) -> None:
    wait_for(lambda: state(cluster) == "idle", "cpu2 to be up")
    job = described(submit(cluster, tmp_path))
    assert job["queue_time_s"] >= BEGIN_S - 1
    assert job["boot_time_s"] == 0.0
