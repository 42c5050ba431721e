"""The jobs of a study in Snakemake's graph: which are to do, and which files they write."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfscaling.record import run_record
from tfscaling.study.manifest import PlannedRun
from tfscaling.study.run_spec import RunSpec


@dataclass(frozen=True)
class SweepJobs:
    """The Snakemake jobs that make the runs of a study.

    The jobs are known when all rules are read. The snakemake process of a single job knows only
    that job.

    Attributes:
        workflow: Snakemake's object.
        runs: Folder of a run → the planned run.
        results: The folder of results, as in the paths of the jobs' output files.
    """

    workflow: Any
    runs: Mapping[str, PlannedRun]
    results: str

    @functools.cached_property
    def specs(self) -> dict[str, RunSpec]:
        """File of a run's record → the run's specification."""
        return {self.record_file(path): run.spec for path, run in self.runs.items()}

    def record_file(self, path: str) -> str:
        """Return the path of a run's record, as the job that writes it names its output.

        Args:
            path: Folder of the run, a key of `runs`.
        """
        return f"{self.results}/runs/{path}/{run_record.RECORD}"

    def register_sweep(self, sweep: Any, log: Callable[[str], None]) -> None:
        """Register the sweep with the executor and adopt jobs of an earlier, killed driver.

        Args:
            sweep: The callbacks that the executor plugin calls.
            log: Logs a line.
        """
        workdir = str(self.workflow.workdir_init)
        self.workflow.executor_plugin.executor.follow(sweep, workdir, log)

    def stop_submissions(self) -> None:
        """Make the executor submit no further jobs."""
        self.workflow.executor_plugin.executor.stop_submissions()

    def describe_remaining(self) -> str:
        """Return which jobs Slurm may still run, with the command that cancels them; "" if none."""
        return str(self.workflow.executor_plugin.executor.describe_remaining())

    def jobs_to_do(self) -> list[Any]:
        """Return Snakemake's jobs that this command still has to run.

        The commands `plan` and `partial` run no jobs of trainings.
        """
        return list(self.workflow.dag.needrun_jobs())

    def force(self, files: Iterable[str]) -> None:
        """Force the jobs that make these files to run, as --forcerun does.

        Call this in Snakemake's main process while it builds its graph of jobs.
        """
        self.workflow.dag.forcefiles.update(files)

    def forced_runs(self, rule: str) -> frozenset[str]:
        """Return the folders of the runs that the user forces to be repeated.

        These are all runs with --forceall, or if --forcerun names rule train. Otherwise they are
        the runs whose record is named by --forcerun, or is a target with --force. Call this when
        Snakemake builds its graph of jobs.

        Args:
            rule: Name of rule train, which a module may change.
        """
        settings = self.workflow.dag_settings
        targets = settings.targets if settings.forcetargets else ()
        names = {os.path.normpath(name) for name in (*settings.forcerun, *targets)}
        if settings.forceall or rule in names:
            return frozenset(self.runs)
        return frozenset(path for path in self.runs if self.record_file(path) in names)

    def outputs_to_do(self) -> list[str]:
        """Return the output files of jobs that have not finished."""
        return [str(path) for job in self.jobs_to_do() for path in job.output]

    def records_to_do(self) -> dict[str, RunSpec]:
        """Return file of a record → specification, for the runs to do.

        If the jobs to do decide about conditional runs, all conditional runs without a record are
        included.
        """
        found = {path: self.specs[path] for path in self.outputs_to_do() if path in self.specs}
        if self.decides_conditional_runs():
            for path, run in self.runs.items():
                if run.is_conditional and not Path(self.record_file(path)).exists():
                    found[self.record_file(path)] = run.spec
        return found

    def touch_message(self) -> str:
        """Return a message about --touch: how many files it touched, and which are missing."""
        files = self.outputs_to_do()
        number = sum(map(os.path.exists, files))
        missing = [file for file in files if file in self.specs and not os.path.exists(file)]
        runs = "1 run has" if len(missing) == 1 else f"{len(missing)} runs have"
        missed = f"; {runs} no record: a start without --touch makes what is missing"
        return f"touched {number} files" + (missed if missing else "")

    def decides_conditional_runs(self) -> bool:
        """Return whether the jobs to do decide about conditional runs, such as extra repeats."""
        return any(job.is_checkpoint for job in self.jobs_to_do())

    def starts_runs(self) -> bool:
        """Return whether the jobs to do are runs, or may lead to runs.

        It is False in the snakemake process of a single job.
        """
        if not self.workflow.is_main_process:
            return False
        return any(
            job.is_checkpoint or not self.specs.keys().isdisjoint(map(str, job.output))
            for job in self.jobs_to_do()
        )
