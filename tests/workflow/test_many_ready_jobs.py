"""SIGTERM while a thousand runs are ready and one may start: the sweep ends, and resumes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from project import REPOSITORY, Project

pytestmark = pytest.mark.full

#: A driver that hangs would wait for ever.
LIMIT_S = 300.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sigterm_ends_a_sweep_of_a_thousand_ready_jobs(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    project = Project(tmp_path)
    recipe = {"program": ["true"], "per_replica_batch_size": 1, "epochs": 1}
    block = {"platform": "laptop", "strategy": "own", "recipe": "user", "nodes": 1}
    project.overlay(
        {"grid": [{**block, "repeats": 1000}], "recipes": {"user": recipe}, "plots": {}}
    )
    words = [sys.executable, "-m", "snakemake", "--snakefile", str(REPOSITORY / "Snakefile")]
    words += ["--configfile", "overlay.yaml", "--profile", str(REPOSITORY / "profiles/local")]
    with (tmp_path / "console.log").open("wb") as log:
        driver = subprocess.Popen(words, cwd=tmp_path, stdout=log, stderr=log)
    while not (done := len([*tmp_path.glob("results/runs/**/run.json")])):
        assert driver.poll() is None, (tmp_path / "console.log").read_text()
        time.sleep(0.2)
    time.sleep(dice.uniform(0, 3))
    os.kill(driver.pid, signal.SIGTERM)
    try:
        status = driver.wait(LIMIT_S)
    finally:
        driver.kill()
    assert status == 1
    records = project.records()
    assert done <= len(records) < 1000
    assert {record["validity"]["status"] for record in records} == {"ok"}
    # the lock is released
    assert not (tmp_path / ".snakemake/locks").exists()
