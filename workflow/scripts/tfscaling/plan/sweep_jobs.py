"""The jobs of a study as Snakemake has planned them: which are to be done, and what they make."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tfscaling.record import run_record
from tfscaling.spec.manifest import PlannedRun
from tfscaling.spec.run_spec import BenchmarkSpec, JobSpec

#: Names of executors: the project's own plugin, and all that submit to Slurm.
SLURM_SWEEP = "slurm-sweep"
SLURM = ("slurm", SLURM_SWEEP)


class Job(Protocol):
    """A job of Snakemake."""

    @property
    def input(self) -> Iterable[str]: ...

    @property
    def output(self) -> Iterable[str]: ...

    @property
    def is_checkpoint(self) -> bool: ...


@dataclass(frozen=True)
class SweepJobs:
    """The jobs of a study's runs and benchmarks, which are given by their folders.

    `workflow` is Snakemake's, `results` the folder of results as its jobs name it. What jobs there
    are is known when all rules are read; the snakemake of a job knows that job alone.
    """

    workflow: Any
    runs: Mapping[str, PlannedRun]
    benchmarks: Mapping[str, BenchmarkSpec]
    results: str

    @functools.cached_property
    def specs(self) -> dict[str, JobSpec]:
        """Specifications of all runs and benchmarks by the files of their records."""
        from tfscaling.record import benchmark_record  # not for each dry-run and each job

        found: dict[str, JobSpec] = {self.record(path): r.spec for path, r in self.runs.items()}
        for path, spec in self.benchmarks.items():
            found[f"{self.results}/all_reduce/{path}/{benchmark_record.RECORD}"] = spec
        return found

    def record(self, path: str) -> str:
        """The file of the record of the run with this folder."""
        return f"{self.results}/runs/{path}/{run_record.RECORD}"

    def to_do(self) -> list[Job]:
        """The jobs that have not finished; of a plan and of partial tables none."""
        return list(self.workflow.dag.needrun_jobs())

    def outputs_to_do(self) -> list[str]:
        """The files that are to be made, or made anew."""
        return [str(path) for job in self.to_do() for path in job.output]

    def records_to_do(self) -> dict[str, JobSpec]:
        """Runs and benchmarks to do, and extra repeats that may follow, by their records' files."""
        found = {path: self.specs[path] for path in self.outputs_to_do() if path in self.specs}
        if self.may_repeat():
            for path, run in self.runs.items():
                if run.extra_repeat and not Path(self.record(path)).exists():
                    found[self.record(path)] = run.spec
        return found

    def specs_to_do(self) -> list[JobSpec]:
        """Runs and benchmarks to do, and extra repeats that may follow."""
        return list(self.records_to_do().values())

    def may_repeat(self) -> bool:
        """Whether rounds to do may ask for extra repeats."""
        return any(job.is_checkpoint for job in self.to_do())

    def starts_runs(self) -> bool:
        """Whether jobs to do are, or may lead to, runs or benchmarks; never so in a job itself."""
        if not self.workflow.is_main_process:
            return False
        return any(
            job.is_checkpoint or not self.specs.keys().isdisjoint(map(str, job.output))
            for job in self.to_do()
        )

    @property
    def leave_this_machine(self) -> bool:
        """Whether jobs are submitted."""
        return not self.workflow.local_exec
