"""provision/clouds/install-environment on a login node: a node can use the environment."""

from __future__ import annotations

import os
import subprocess

import pytest
from project import BIN, REPOSITORY
from virtual_cluster import Cluster

pytestmark = pytest.mark.full


def test_a_node_uses_the_environment_of_the_login_node(cluster: Cluster) -> None:
    done = subprocess.run(
        [str(REPOSITORY / "provision/clouds/install-environment"), "cpu"],
        env={**os.environ, **cluster.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    python = subprocess.run([BIN / "python", "--version"], capture_output=True, text=True).stdout
    (seen,) = [line for line in done.stdout.splitlines() if "TensorFlow" in line]
    assert seen.startswith("cpu")
    assert python.split()[1] in seen
    assert seen.endswith(" 0 GPUs")
