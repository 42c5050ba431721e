"""The boot of a node that Slurm powered down is told apart from the time in the queue.

A cluster of its own with power saving, as on a cloud.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from project import REPOSITORY
from virtual_cluster import Cluster, start, wait_for

BEGIN_S, BOOT_S = 4, 8
#: What a job learns about itself, as train.py does.
DESCRIBE = """
import os
import msgspec
from tfscaling.launch import slurm_job
print(msgspec.json.encode(slurm_job.describe(os.environ)).decode())
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes that Slurm has powered down."""
    saving = ("--power-saving", "--boot-delay", str(BOOT_S), "--idle-time", "3600")
    cluster = start(tmp_path_factory.mktemp("vc"), "--partition", "cpu:2:cpus=2", *saving)
    try:
        yield cluster
    finally:
        cluster.tool("down")


def described(cluster: Cluster, folder: Path) -> dict[str, Any]:
    """What a job on both nodes, which may start after BEGIN_S, learns about itself.

    By srun: a batch job starts up to 10 s after its nodes are up.
    """
    (folder / "describe.py").write_text(DESCRIBE)
    shown = cluster.run(
        *("srun", "--nodes=2", "--ntasks-per-node=1", f"--begin=now+{BEGIN_S}"),
        f"--export=ALL,PYTHONPATH={REPOSITORY}/workflow/scripts",
        *(sys.executable, str(folder / "describe.py")),
    )
    found: dict[str, Any] = json.loads(shown.splitlines()[0])
    return found


def states(cluster: Cluster) -> str:
    return cluster.run("sinfo", "--noheader", "--format=%N %T").strip()


def test_the_boot_of_nodes_is_no_time_in_the_queue(cluster: Cluster, tmp_path: Path) -> None:
    assert states(cluster) == "cpu[1-2] idle~"
    cluster.tool("status")
    job = described(cluster, tmp_path)
    assert job["nodes"] == "cpu[1-2]"
    assert job["queue_time_s"] >= BEGIN_S - 1
    assert job["boot_time_s"] >= BOOT_S - 1


def test_nodes_that_are_up_need_no_boot(cluster: Cluster, tmp_path: Path) -> None:
    wait_for(lambda: states(cluster) == "cpu[1-2] idle", "the nodes to be free")
    job = described(cluster, tmp_path)
    assert job["queue_time_s"] >= BEGIN_S - 1
    assert job["boot_time_s"] == 0.0


def test_idle_nodes_lose_their_power(cluster: Cluster) -> None:
    wait_for(lambda: states(cluster) == "cpu[1-2] idle", "the nodes to be free")
    cluster.run("scontrol", "update", "NodeName=cpu2", "State=POWER_DOWN")
    wait_for(lambda: "cpu2 idle~" in states(cluster), "cpu2 to be powered down")
    with pytest.raises(subprocess.CalledProcessError):  # nothing runs there
        cluster.tool("exec", "cpu2", "true")
    cluster.tool("status")
