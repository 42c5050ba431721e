"""The start of a sweep: what ends it before anything is submitted, and what watches it then."""

from __future__ import annotations

import functools
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tfscaling.snakemake_adapter import submission
from tfscaling.snakemake_adapter.submission import FOLLOWING, SLURM, Submission
from tfscaling.snakemake_adapter.sweep_jobs import SweepJobs
from tfscaling.study.config_types import Config
from tfscaling.study.config_validation import Sources
from tfscaling.study.manifest import Manifest

#: What a sweep on Slurm lacks without the project's executor plugin.
MISSING = (
    "--executor slurm submits jobs of a killed snakemake again, retries every failed run, excludes "
    "no broken nodes and gives no reason why jobs wait; --executor slurm-sweep, which make setup "
    "installs, does better"
)


def handle_sigterm_in_thread(then: Callable[[], object] = lambda: None) -> None:
    """Run the present handler of SIGTERM, and `then`, in a separate thread.

    Snakemake's takes a lock. If the interrupted thread holds it, the handler in the same thread
    would wait for ever.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if not callable(handler):
        return

    def handle(number: int, frame: FrameType | None) -> None:
        handler(number, frame)
        then()

    signal.signal(
        signal.SIGTERM,
        lambda *given: threading.Thread(target=handle, args=given, daemon=True).start(),
    )


@dataclass(frozen=True)
class SweepStart:
    """What a study's sweep is checked by; `rule` is what the rule train is called.

    Modules that load pandas, or that know Slurm, are loaded when they are asked: each dry-run and
    each job makes one of these.
    """

    config: Config
    manifest: Manifest
    sources: Sources
    jobs: SweepJobs
    rule: str

    @functools.cached_property
    def how(self) -> Submission:
        return submission.describe(self.jobs.workflow, self.rule)

    @property
    def follows_jobs(self) -> bool:
        """Whether the executor asks the sweep about its jobs, as `slurm-sweep` does."""
        return self.how.executor in FOLLOWING

    def begin(self, logger: logging.Logger) -> None:
        """Watch the sweep by Snakemake's log, or raise SystemExit with why it may not begin."""
        refusals = [self.beyond_budget(), *self._local_problems(), *self._slurm_problems()]
        if any(refusals):
            raise SystemExit("\n".join([*filter(None, refusals), "Nothing is submitted."]))
        if self.follows_jobs:
            from snakemake_interface_common.exceptions import WorkflowError

            from tfscaling.plan.retries import SlurmSweep

            try:
                self.jobs.follow(SlurmSweep(self.jobs.specs, logger.warning), logger.warning)
            except WorkflowError as error:
                raise SystemExit(str(error)) from error
        elif self.how.executor in SLURM:
            logger.warning(MISSING)

    def stop_submissions(self) -> None:
        """Leave jobs that the executor has not submitted yet for the next start."""
        if self.follows_jobs:
            self.jobs.stop_submissions()

    def beyond_budget(self) -> str:
        """Why the runs still to do exceed the budget or a deadline, or ""."""
        from tfscaling.plan import budget  # loads pandas

        runs_dir = Path(self.jobs.results, "runs")
        forced = self.jobs.forced(self.rule)
        planned = self.manifest
        return budget.refusal(self.config, planned, runs_dir, self.sources, forced) or ""

    def _local_problems(self) -> Iterator[str]:
        """Why GPUs would not be used, ranks could not use MPI, or models cannot be built."""
        from tfscaling.plan import local_checks

        if self.how.deploys_software:
            return
        runs = self.jobs.records_to_do().values()
        yield local_checks.cuda_problem(runs, self.config)
        yield local_checks.mpi_problem(runs, self.config)
        if self.config.check_models:
            yield local_checks.model_problem(runs, Path(self.jobs.results))

    def _slurm_problems(self) -> Iterator[str]:
        """Why Slurm can never start a job, or nobody would see its end."""
        if self.how.executor not in SLURM:
            return
        from tfscaling.plan import preflight

        if self.how.settings["status_command"] != "squeue" and not preflight.has_accounting():
            yield (
                "this cluster has no accounting, so sacct reports no job's end; use "
                f"--profile profiles/slurm, or --{self.how.executor}-status-command squeue"
            )
        if rules := self.how.settings["array_jobs"]:
            yield (
                f"array-jobs {rules}: not allowed, because all jobs of an array have the nodes "
                "of the first one; leave it out"
            )
        points = dict.fromkeys(spec.point for spec in self.jobs.records_to_do().values())
        yield preflight.refusal(points, self.config, self.how)
