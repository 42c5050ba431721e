"""In which order runs enter Slurm's queue: that of their priorities, one after the other.

Snakemake hands the executor plugin all jobs that may start, in an order of its own, and the plugin
(2.8.0) submits by two threads. Slurm starts jobs of the same priority in the order in which they
came, so the order of submission is that of the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class _OneByOne(ThreadPoolExecutor):
    """The thread that submits."""

    def __init__(self) -> None:
        super().__init__(max_workers=1, thread_name_prefix="slurm_job_submit")


def install(executor: type[Any]) -> None:
    """Let the plugin's class of executors submit by priority, the highest first."""
    run_jobs = executor.run_jobs

    def run_jobs_in_order(self: Any, jobs: Sequence[Any]) -> None:
        if not isinstance(self._job_submission_executor, _OneByOne):
            self._job_submission_executor.shutdown()
            self._job_submission_executor = _OneByOne()
        run_jobs(self, sorted(jobs, key=lambda job: -job.priority))

    executor.run_jobs = run_jobs_in_order
