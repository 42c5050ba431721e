"""Ctrl-C while jobs are submitted: what is not submitted stays so, what is is cancelled."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from tfscaling.sweep import cancelled_submissions


class Executor:
    """The plugin's executor: `submitting` is set while a submission waits for `may_go_on`."""

    def __init__(self) -> None:
        self._job_submission_executor = ThreadPoolExecutor(max_workers=1)
        self.submitting, self.may_go_on = threading.Event(), threading.Event()
        self.run: list[int] = []
        self.cancelled: list[str] = []
        self.is_shut_down = False

    def submit(self, number: int) -> None:
        self._job_submission_executor.submit(self.run_job, number)

    def run_job(self, job: int) -> None:
        self.submitting.set()
        assert self.may_go_on.wait(60)
        self.run.append(job)
        self._report_job_submission_threadsafe(SimpleNamespace(external_jobid=str(job)))

    def _report_job_submission_threadsafe(self, info: Any) -> None:
        """The plugin's own list of jobs is empty while it asks Slurm for them."""

    def report_job_success(self, info: Any) -> None:
        pass

    def report_job_error(self, info: Any, *args: Any, **settings: Any) -> None:
        pass

    def cancel_jobs(self, infos: list[Any]) -> None:
        self.cancelled += [info.external_jobid for info in infos]

    def shutdown(self) -> None:
        self._job_submission_executor.shutdown(wait=True)
        self.is_shut_down = True


def test_nothing_is_submitted_after_a_sweep_was_cancelled() -> None:
    kind = type("Own", (Executor,), {})
    cancelled_submissions.install(kind)
    executor = kind()
    executor.may_go_on.set()
    for number in (1, 2):
        executor.submit(number)
    executor._job_submission_executor.shutdown(wait=True)
    executor.report_job_success(SimpleNamespace(external_jobid="1"))
    executor._job_submission_executor = ThreadPoolExecutor(max_workers=1)
    executor.submitting.clear()
    executor.may_go_on.clear()
    for number in (3, 4, 5):
        executor.submit(number)
    assert executor.submitting.wait(60)
    pool = executor._job_submission_executor
    shut_down = pool.shutdown

    def shutdown(wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            shut_down(wait=False, cancel_futures=True)
            executor.may_go_on.set()
        shut_down(wait=wait)

    pool.shutdown = shutdown
    executor.cancel()
    assert executor.run == [1, 2, 3]  # the third was under way
    assert executor.cancelled == ["2", "3"] and executor.is_shut_down
    executor.run_job(6)  # of a thread that was about to submit it
    assert executor.run == [1, 2, 3]
