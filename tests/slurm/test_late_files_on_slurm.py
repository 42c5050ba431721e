"""A shared file system that shows a node late what other nodes have written, on a real Slurm."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from project import Project
from virtual_cluster import Cluster

Submit = Callable[..., tuple[int, str]]

#: Platform → the nodes of its run. `hasty` does not wait for files.
NODES = {"patient": ["cpu3", "cpu4"], "hasty": ["cpu5", "cpu6"]}
#: For how long a node goes on seeing what it knew of a file: its size, or that it was not there.
LATE_S = 15
TIMEOUTS = ",".join(f"{kind}_timeout={LATE_S}" for kind in ("attr", "entry", "negative"))
LOOK = "test -e $(dirname {folder})/rank-1.json; sleep 3"
PARTIAL = "results/main/partial/comparison.csv"

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="the kernel has no FUSE"),
]


@contextlib.contextmanager
def late_files(cluster: Cluster, folder: str) -> Iterator[None]:
    """Each node sees the folder through a cache of its own, as clients of a file server do."""
    with contextlib.ExitStack() as stack:
        for node in [node for nodes in NODES.values() for node in nodes]:
            options = ("--no-allow-other", "-o", f"{TIMEOUTS},nonempty")
            cluster.tool("exec", node, "bindfs", *options, folder, folder)
            stack.callback(cluster.tool, "exec", node, "umount", "--lazy", folder)
        yield


def sees(cluster: Cluster, node: str, file: str) -> bool:
    try:
        cluster.tool("exec", node, "test", "-e", file)
    except subprocess.CalledProcessError:
        return False
    return True


def test_the_launcher_waits_for_files_or_names_those_that_are_missing(
    project: Project, submit: Submit, cluster: Cluster
) -> None:
    wait_s = {"patient": 60, "hasty": 0}
    project.overlay(
        {
            "grid": [
                {"platform": name, "strategy": "own", "recipe": "quick", "nodes": len(nodes)}
                for name, nodes in NODES.items()
            ],
            # the nodes look for a report before it exists, and know for LATE_S that there is none
            "recipes": {
                "quick": {"program": ["bash", "-c", LOOK], "per_replica_batch_size": 1, "epochs": 1}
            },
            "platforms": {
                name: {
                    "launcher": "srun",
                    "partition": "cpu",
                    "nodes_max": len(nodes),
                    "cpus_per_node": 2,
                    "latency_wait_s": wait_s[name],
                    # without a connection to the launcher ranks write files
                    "setup": ["unset TFSCALING_LAUNCHER"],
                    "extra": f"--nodelist={','.join(nodes)}",
                }
                for name, nodes in NODES.items()
            },
        }
    )
    folder = str(project.folder)
    one, other = NODES["patient"]
    with late_files(cluster, folder):
        assert not sees(cluster, one, f"{folder}/file")
        cluster.tool("exec", other, "touch", f"{folder}/file")
        assert sees(cluster, other, f"{folder}/file") and not sees(cluster, one, f"{folder}/file")
        code, output = submit(project, "--retries", "0")
    assert code == 1, output[-5000:]
    status = {row["platform"]: row["status"] for row in project.table(PARTIAL)}
    assert status == {"patient": "ok", "hasty": "failed"}, output[-5000:] + project.logs()
    (record,) = project.records()
    assert [rank["host"] for rank in record["ranks"]] == NODES["patient"]
    (failure,) = project.failures()
    cause = failure["cause"]
    assert (cause["kind"], cause["rank"], cause["host"]) == ("incomplete", 1, NODES["hasty"][1])
    assert "latency_wait_s" in cause["message"]
