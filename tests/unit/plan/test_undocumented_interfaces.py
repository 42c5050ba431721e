"""What the executor plugin uses of Snakemake and its Slurm plugin without a documented interface.

All uses are in `plugins/snakemake-executor-plugin-slurm-sweep`. A test that fails names the part of
the plugin that another version needs.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest
import snakemake_executor_plugin_slurm as upstream
from snakemake.api import SnakemakeApi  # noqa: F401  # first: modules import each other
from snakemake.dag import DAG
from snakemake.jobs import Job, Reason
from snakemake_executor_plugin_slurm import (
    job_cancellation,
    job_status_query,
    submit_string,
    utils,
    validation,
)

#: Versions with which the uses were checked, by tests/slurm.
CHECKED = {"snakemake": "9.27.1", "snakemake-executor-plugin-slurm": "2.8.0"}
#: Package, object, attribute → part of the plugin that uses it.
USES: dict[tuple[str, Any, str], str] = {
    ("snakemake", Job, "priority"): "order of submission",
    ("snakemake", Job, "attempt"): "no retry of a run that would fail again",
    ("snakemake", Job, "restart_times"): "no retry of a run that would fail again",
    ("snakemake", DAG, "reason"): "adoption of a job that has just ended",
    ("snakemake", Reason, "missing_output"): "adoption of a job that has just ended",
    ("snakemake-executor-plugin-slurm", submit_string, "get_submit_command"): "submission",
    ("snakemake-executor-plugin-slurm", utils, "set_gres_string"): "submission",
    ("snakemake-executor-plugin-slurm", utils, "get_job_wildcards"): "submission",
    ("snakemake-executor-plugin-slurm", validation, "validate_slurm_extra"): "submission",
    ("snakemake-executor-plugin-slurm", validation, "validate_or_get_slurm_job_id"): "submission",
    ("snakemake-executor-plugin-slurm", upstream.Executor, "get_account_arg"): "submission",
    ("snakemake-executor-plugin-slurm", upstream.Executor, "get_partition_arg"): "submission",
    ("snakemake-executor-plugin-slurm", job_status_query, "query_job_status"): "queries",
    ("snakemake-executor-plugin-slurm", job_status_query, "query_job_status_sacct"): "queries",
    ("snakemake-executor-plugin-slurm", job_cancellation, "cancel_slurm_jobs"): "cancellation",
}


@pytest.mark.parametrize(
    ("use", "part"), USES.items(), ids=[f"{package}-{name}" for package, _, name in USES]
)
def test_the_attribute_exists(use: tuple[str, Any, str], part: str) -> None:
    package, owner, name = use
    assert name in dir(owner), (
        f"{part}: {owner.__name__}.{name} of {package} {CHECKED[package]} is missing in "
        f"{version(package)}"
    )
