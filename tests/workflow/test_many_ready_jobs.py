"""SIGTERM while a thousand runs are ready and the scheduler selects one: the sweep ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from project import REPOSITORY, Project
from snakemake_server import LIMIT_S

pytestmark = pytest.mark.full

#: A scheduler of Snakemake's that gets SIGTERM in the middle of its work, when a run has finished.
SCHEDULER = """
import os
import pathlib
import signal
import time

from snakemake_interface_scheduler_plugins.base import SchedulerBase


class Scheduler(SchedulerBase):
    def select_jobs(self, selectable_jobs, remaining_jobs, available_resources, input_sizes):
        has_run = any(pathlib.Path("results/runs").rglob("run.json"))
        if has_run and not pathlib.Path("terminated").exists():
            pathlib.Path("terminated").write_text(str(len(selectable_jobs)))
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        return None  # Snakemake's own greedy scheduler selects
"""


def test_sigterm_ends_a_sweep_of_a_thousand_ready_jobs(tmp_path: Path) -> None:
    project = Project(tmp_path)
    recipe = {"program": ["true"], "per_replica_batch_size": 1, "epochs": 1}
    block = {"platform": "laptop", "strategy": "own", "recipe": "user", "nodes": 1}
    project.overlay({"grid": [{**block, "repeats": 1000}], "recipes": {"user": recipe}})
    plugin = tmp_path / "plugins/snakemake_scheduler_plugin_sigterm"
    plugin.mkdir(parents=True)
    (plugin / "__init__.py").write_text(SCHEDULER)
    words = [sys.executable, "-m", "snakemake", "--snakefile", str(REPOSITORY / "Snakefile")]
    words += ["--configfile", "overlay.yaml", "--profile", str(REPOSITORY / "profiles/local")]
    with (tmp_path / "console.log").open("wb") as log:
        driver = subprocess.Popen(
            [*words, "--scheduler", "sigterm"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "plugins")},
            stdout=log,
            stderr=log,
        )
    try:
        while not (tmp_path / "terminated").exists():
            assert driver.poll() is None, (tmp_path / "console.log").read_text()
            time.sleep(0.2)
        status = driver.wait(LIMIT_S)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert status == 1, (tmp_path / "console.log").read_text()
    assert int((tmp_path / "terminated").read_text()) > 990
    records = project.records()
    assert 1 <= len(records) < 10
    assert {record["validity"]["status"] for record in records} == {"ok"}
    # the lock is released
    assert not (tmp_path / ".snakemake/locks").exists()
