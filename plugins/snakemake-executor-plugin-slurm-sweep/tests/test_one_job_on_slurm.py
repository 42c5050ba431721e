"""One job by each executor on the Slurm that SLURM_CONF names, by this package alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SNAKEFILE = """
rule one:
    output: "one.txt"
    resources: runtime=5, mem_mb=100
    shell: "echo $SLURM_JOB_ID $(hostname) >{output}"
"""


@pytest.mark.parametrize("executor", ["slurm-sweep", "slurm-allocation"])
def test_a_rule_runs_on_a_node(executor: str, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    words = [sys.executable, "-m", "snakemake", "--executor", executor, "--jobs", "1"]
    words += [f"--{executor}-status-command=squeue"]
    words += [f"--{executor}-init-seconds-before-status-checks=2", "--latency-wait=30"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    number, host = (tmp_path / "one.txt").read_text().split()
    assert number.isdigit()
    assert host != os.uname().nodename
