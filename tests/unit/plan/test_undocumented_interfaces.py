"""What is used of Snakemake and its Slurm plugin without a documented interface.

Two files have all uses: the executor plugin, and `plan/sweep_jobs.py`. A test that fails names the
part that another version needs.
"""

from __future__ import annotations

import inspect
from importlib.metadata import version
from typing import Any

import pytest
import snakemake_executor_plugin_slurm as upstream
from snakemake.api import SnakemakeApi  # noqa: F401  # first: modules import each other
from snakemake.dag import DAG
from snakemake.jobs import Job, Reason
from snakemake.persistence.file import FilePersistence
from snakemake_executor_plugin_slurm import (
    job_cancellation,
    job_status_query,
    submit_string,
    utils,
)

SNAKEMAKE, SLURM = "snakemake", "snakemake-executor-plugin-slurm"
#: Versions with which the uses were checked, by tests/workflow and tests/slurm.
CHECKED = {SNAKEMAKE: "9.27.1", SLURM: "2.8.0"}
#: Package, object, attribute → part that uses it.
USES: dict[tuple[str, Any, str], str] = {
    (SNAKEMAKE, DAG, "forcefiles"): "sweep_jobs: reruns of outdated outputs",
    (SNAKEMAKE, DAG, "needrun_jobs"): "sweep_jobs: jobs to do",
    (SNAKEMAKE, DAG, "reason"): "sweep_start: missing data; plugin: adoption of an ended job",
    (SNAKEMAKE, FilePersistence, "_filter_incomplete_keys"): "sweep_jobs: jobs that were cut off",
    (SNAKEMAKE, FilePersistence, "cleanup_metadata"): "sweep_jobs: jobs that were cut off",
    (SNAKEMAKE, Job, "attempt"): "plugin: no retry of a run that would fail again",
    (SNAKEMAKE, Reason, "missing_output"): "plugin: adoption of a job that has just ended",
    (SLURM, submit_string, "get_submit_command"): "plugin, sweep_jobs: submission",
    (SLURM, utils, "set_gres_string"): "plugin, sweep_jobs: submission",
    (SLURM, upstream.Executor, "get_partition_arg"): "plugin: submission",
    (SLURM, job_status_query, "query_job_status"): "plugin: queries",
    (SLURM, job_cancellation, "cancel_slurm_jobs"): "plugin: cancellation",
}


@pytest.mark.parametrize(
    ("use", "part"), USES.items(), ids=[f"{package}-{name}" for package, _, name in USES]
)
def test_the_attribute_exists(use: tuple[str, Any, str], part: str) -> None:
    package, owner, name = use
    exists = name in dir(owner) or f"self.{name} =" in inspect.getsource(owner)
    assert exists, (
        f"{part}: {owner.__name__}.{name} of {package} {CHECKED[package]} is missing in "
        f"{version(package)}"
    )
