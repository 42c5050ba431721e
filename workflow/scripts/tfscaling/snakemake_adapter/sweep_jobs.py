"""The jobs of a study in Snakemake: which are to do, and what they write."""

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
    """The jobs of a study's runs, which are given by their folders.

    `workflow` is Snakemake's, `results` the folder of results as its jobs name it. What jobs there
    are is known when all rules are read; the snakemake of a job knows that job alone.
    """

    workflow: Any
    runs: Mapping[str, PlannedRun]
    results: str

    @functools.cached_property
    def specs(self) -> dict[str, RunSpec]:
        """Specifications of all runs by the files of their records."""
        return {self.record(path): run.spec for path, run in self.runs.items()}

    def record(self, path: str) -> str:
        """Return the file of the record of the run with this folder."""
        return f"{self.results}/runs/{path}/{run_record.RECORD}"

    def follow(self, sweep: Any, log: Callable[[str], None]) -> None:
        """Let the executor know the sweep, and adopt the jobs of a start that was killed."""
        workdir = str(self.workflow.workdir_init)
        self.workflow.executor_plugin.executor.follow(sweep, workdir, log)

    def stop_submissions(self) -> None:
        """Have the executor submit nothing more."""
        self.workflow.executor_plugin.executor.stop_submissions()

    def to_do(self) -> list[Any]:
        """Return the jobs that have not finished; a plan and partial tables have none."""
        return list(self.workflow.dag.needrun_jobs())

    def force(self, files: Iterable[str]) -> None:
        """Force the jobs that make these files, as --forcerun does.

        To be called while Snakemake builds its graph of jobs, by its main process.
        """
        self.workflow.dag.forcefiles.update(files)

    def forced(self, rule: str) -> frozenset[str]:
        """Return the folders of the runs that the user forces by name.

        The user names a record after --forcerun, or as target with --force.

        `rule` is what the rule train is called. To be called when Snakemake builds its graph.
        """
        settings = self.workflow.dag_settings
        targets = settings.targets if settings.forcetargets else ()
        names = {os.path.normpath(name) for name in (*settings.forcerun, *targets)}
        if settings.forceall or rule in names:
            return frozenset(self.runs)
        return frozenset(path for path in self.runs if self.record(path) in names)

    def outputs_to_do(self) -> list[str]:
        return [str(path) for job in self.to_do() for path in job.output]

    def records_to_do(self) -> dict[str, RunSpec]:
        """Return runs to do, and extra repeats that may follow, by their records' files."""
        found = {path: self.specs[path] for path in self.outputs_to_do() if path in self.specs}
        if self.may_repeat():
            for path, run in self.runs.items():
                if run.is_conditional and not Path(self.record(path)).exists():
                    found[self.record(path)] = run.spec
        return found

    def touched(self) -> str:
        """Return what --touch does: it makes no run, and needs no finished one."""
        files = self.outputs_to_do()
        number = sum(map(os.path.exists, files))
        missing = [file for file in files if file in self.specs and not os.path.exists(file)]
        runs = "1 run has" if len(missing) == 1 else f"{len(missing)} runs have"
        missed = f"; {runs} no record: a start without --touch makes what is missing"
        return f"touched {number} files" + (missed if missing else "")

    def may_repeat(self) -> bool:
        """Whether rounds to do may ask for extra repeats."""
        return any(job.is_checkpoint for job in self.to_do())

    def starts_runs(self) -> bool:
        """Whether jobs to do are, or may lead to, runs; never so in a job itself."""
        if not self.workflow.is_main_process:
            return False
        return any(
            job.is_checkpoint or not self.specs.keys().isdisjoint(map(str, job.output))
            for job in self.to_do()
        )
