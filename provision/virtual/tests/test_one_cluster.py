"""A small cluster comes up, runs a command on a node, and is gone. It needs root and Slurm."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

COMMAND = Path(sys.executable).with_name("virtual-slurm-cluster")


def test_a_command_runs_on_a_node_of_a_cluster(tmp_path: Path) -> None:
    root, name, nodes = tmp_path / "c", f"p{random.randrange(10**4)}x", random.randint(1, 3)

    def cluster(*words: str) -> str:
        command = [str(COMMAND), words[0], "--root", str(root), *words[1:]]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout

    cluster("up", "--partition", f"{name}:{nodes}")
    try:
        line = cluster("env").strip()
        environ = {**os.environ, "SLURM_CONF": line.split("=")[1]}
        words = ["srun", f"--nodes={nodes}", "hostname"]
        hosts = subprocess.run(words, env=environ, stdout=subprocess.PIPE, text=True, check=True)
        assert sorted(hosts.stdout.split()) == [f"{name}{n + 1}" for n in range(nodes)]
    finally:
        cluster("down")
    assert not root.exists()
