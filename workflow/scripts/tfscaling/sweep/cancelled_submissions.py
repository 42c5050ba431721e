"""A sweep that is interrupted while it submits: nothing more is submitted, and all is cancelled.

Snakemake hands over up to a hundred jobs at once. On Ctrl-C the executor plugin (2.8.0) cancels
those that it has submitted and then submits the others, which nobody waits for; and of those that
it is just asking Slurm about it knows nothing.
"""

from __future__ import annotations

import threading
from typing import Any


def install(executor: type[Any]) -> None:
    """Let the plugin's class of executors submit nothing after it was told to cancel."""
    run_job, report_submission = executor.run_job, executor._report_job_submission_threadsafe
    report_success, report_error = executor.report_job_success, executor.report_job_error
    is_cancelled = threading.Event()
    #: Number of Slurm's job → what the plugin calls it, until it has ended.
    submitted: dict[str, Any] = {}

    def run_unless_cancelled(self: Any, job: Any) -> None:
        if not is_cancelled.is_set():
            run_job(self, job)

    def remember(self: Any, info: Any) -> None:
        submitted[str(info.external_jobid)] = info
        report_submission(self, info)

    def succeeded(self: Any, info: Any) -> None:
        submitted.pop(str(info.external_jobid), None)
        report_success(self, info)

    def failed(self: Any, info: Any, *args: Any, **settings: Any) -> None:
        submitted.pop(str(info.external_jobid), None)
        report_error(self, info, *args, **settings)

    def cancel(self: Any) -> None:
        is_cancelled.set()
        known = dict(submitted)
        self.cancel_jobs(list(known.values()))
        self._job_submission_executor.shutdown(wait=True, cancel_futures=True)
        came_since = [info for number, info in submitted.items() if number not in known]
        self.cancel_jobs(came_since)
        self.shutdown()

    executor.run_job, executor.cancel = run_unless_cancelled, cancel
    executor._report_job_submission_threadsafe = remember
    executor.report_job_success, executor.report_job_error = succeeded, failed
