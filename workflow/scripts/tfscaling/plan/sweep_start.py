"""The start of a sweep: checks before anything is submitted, and the monitoring of its jobs.

The rules call it before the first job.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfscaling.cluster.slurm_client import process_tree
from tfscaling.snakemake_adapter import submission
from tfscaling.snakemake_adapter.submission import FOLLOWING, SLURM, Submission
from tfscaling.snakemake_adapter.sweep_jobs import SweepJobs
from tfscaling.study.config_types import Config
from tfscaling.study.config_validation import Sources
from tfscaling.study.manifest import Manifest

#: Warning that a sweep on Slurm should use the project's executor plugin, with the reasons.
PLUGIN_ADVICE = (
    "--executor slurm submits jobs of a killed snakemake again, retries every failed run, excludes "
    "no broken nodes and gives no reason why jobs wait; --executor slurm-sweep, which make setup "
    "installs, does better"
)


@dataclass(frozen=True)
class SweepStart:
    """The checks of a study's sweep, and the start of its monitoring.

    Modules that load pandas or call Slurm are imported only when needed: each dry-run and each job
    creates an object of this class.

    Attributes:
        config: The configuration.
        manifest: Its manifest.
        sources: Where the configuration's keys were set.
        jobs: The jobs of the runs.
        rule: Name of rule train, which a module may change.
    """

    config: Config
    manifest: Manifest
    sources: Sources
    jobs: SweepJobs
    rule: str

    @functools.cached_property
    def submission(self) -> Submission:
        """How Snakemake submits the jobs of runs."""
        return submission.read_submission(self.jobs.workflow, self.rule)

    @property
    def has_job_callbacks(self) -> bool:
        """Whether the executor plugin is one of this project's, which report each job's end."""
        return self.submission.executor in FOLLOWING

    def begin(self, logger: logging.Logger) -> None:
        """Check the sweep and start its monitoring.

        Args:
            logger: Snakemake's logger, whose messages the monitoring reads.

        Raises:
            SystemExit: With the reason if the sweep may not begin.
        """
        refusals = [self.budget_problem(), *self._local_problems(), *self._slurm_problems()]
        if any(refusals):
            raise SystemExit("\n".join([*filter(None, refusals), "Nothing is submitted."]))
        if self.has_job_callbacks:
            from snakemake_interface_common.exceptions import WorkflowError

            from tfscaling.plan.retries import SlurmSweep

            try:
                self.jobs.register_sweep(
                    SlurmSweep(self.jobs.specs, logger.warning), logger.warning
                )
            except WorkflowError as error:
                raise SystemExit(str(error)) from error
        elif self.submission.executor in SLURM:
            logger.warning(PLUGIN_ADVICE)

    def stop_submissions(self) -> None:
        """Make this project's executors submit no further jobs; the next start submits them."""
        if self.has_job_callbacks:
            self.jobs.stop_submissions()

    def abandon_jobs(self) -> str:
        """End local runs and leave the jobs of other executors; return what may still run.

        Local runs get SIGTERM. The text also has a command that ends what may still run, if one is
        known. Jobs in Slurm's queue continue.
        """
        if self.has_job_callbacks:
            return self.jobs.describe_remaining() or "no job of this sweep is left in Slurm's queue"
        if self.submission.executor != "local":
            return f"jobs of the executor {self.submission.executor} may still run"
        _, *pids = process_tree(os.getpid())
        for pid in pids:
            with contextlib.suppress(OSError):  # it has just ended
                os.kill(pid, signal.SIGTERM)
        if not pids:
            return "no process of this sweep is left"
        return (
            f"{len(pids)} processes of this sweep got SIGTERM and may take 30 s to end; at once: "
            f"kill -9 {' '.join(map(str, pids))}"
        )

    def budget_problem(self) -> str:
        """Return why the runs to do exceed the budget or a deadline; "" if they do not."""
        from tfscaling.plan import budget  # loads pandas

        runs_dir = Path(self.jobs.results, "runs")
        forced = self.jobs.forced_runs(self.rule)
        planned = self.manifest
        return budget.find_excess(self.config, planned, runs_dir, self.sources, forced) or ""

    def _local_problems(self) -> Iterator[str]:
        """Yield why Pythons, packages, GPUs or MPI could not be used, or models cannot be built.

        The text is empty for a check without a problem.
        """
        from tfscaling.plan import local_checks, rank_pythons

        if self.submission.deploys_software:
            return
        runs = self.jobs.records_to_do().values()
        for problem in (
            rank_pythons.python_problem(runs),
            local_checks.package_problem(runs, self.config),
        ):
            yield problem
            if problem:
                return  # without their packages, the checks below would fail in these Pythons
        yield local_checks.cuda_problem(runs, self.config)
        yield local_checks.mpi_problem(runs, self.config)
        if self.config.check_models:
            yield local_checks.model_problem(runs, Path(self.jobs.results))

    def _slurm_problems(self) -> Iterator[str]:
        """Yield why Slurm can never start a job, or why Snakemake would not notice a job's end.

        The text is empty for a check without a problem.
        """
        if self.submission.executor not in SLURM:
            return
        from tfscaling.plan import preflight

        if (
            self.submission.settings["status_command"] != "squeue"
            and not preflight.has_accounting()
        ):
            yield (
                "this cluster has no accounting, so sacct reports no job's end; use "
                f"--profile profiles/slurm, or --{self.submission.executor}-status-command squeue"
            )
        if rules := self.submission.settings["array_jobs"]:
            yield (
                f"array-jobs {rules}: not allowed, because all jobs of an array have the nodes "
                "of the first one; leave it out"
            )
        yield preflight.variables_problem(os.environ)
        points = dict.fromkeys(spec.point for spec in self.jobs.records_to_do().values())
        yield preflight.find_slurm_refusal(points, self.config, self.submission)
