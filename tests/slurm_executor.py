"""The executor plugin slurm-sweep without Snakemake: jobs by hand, and what it reports of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import snakemake_executor_plugin_slurm as upstream
from snakemake_executor_plugin_slurm_sweep import Executor, ExecutorSettings, queue
from snakemake_executor_plugin_slurm_sweep import Sweep as PluginSweep
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo


class Resources(dict[str, Any]):
    """Resources of a job, by name and as attributes."""

    __getattr__ = dict.__getitem__


@dataclass(eq=False)
class Job:
    """A job of Snakemake with one output."""

    output: list[str]
    wildcards: list[str] = field(default_factory=lambda: ["cpu", "x", "1"])
    priority: int = 0
    attempt: int = 1
    restart_times: int = 2
    resources: Resources = field(default_factory=Resources)
    name: str = "train"
    jobid: int = 1
    threads: int = 1
    #: What Snakemake logs if the job fails.
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        usual = {"slurm_partition": "cpu", "slurm_extra": "", "mem_mb": 0, "nodes": 1, "tasks": 1}
        self.resources = Resources({**usual, **self.resources})

    def is_group(self) -> bool:
        return False

    def register(self, external_jobid: str) -> None:
        pass

    def log_info(self) -> None:
        pass

    def log_error(self, msg: str, **_: Any) -> None:
        self.errors.append(msg)


@dataclass
class Sweep(PluginSweep):
    """A sweep that knows what its fields have, by number or output."""

    finished: set[str] = field(default_factory=set)
    lasting: set[Path] = field(default_factory=set)
    unfit: list[str] = field(default_factory=list)
    #: Whether the last attempt used other settings, by `since_s`.
    has_others: Callable[[float | None], bool] = lambda _: False
    failures: dict[str, str] = field(default_factory=dict)
    accepted: list[Path] = field(default_factory=list)
    refusals: dict[Path, str] = field(default_factory=dict)

    def is_finished(self, output: Path, number: str) -> bool:
        return number in self.finished

    def failed(self, output: Path, number: str, state: str) -> None:
        self.failures[number] = state

    def fails_again(self, output: Path) -> bool:
        return output in self.lasting

    def unfit_nodes(self, output: Path) -> list[str]:
        return self.unfit

    def has_other_settings(self, output: Path, since_s: float | None = None) -> bool:
        return self.has_others(since_s)

    def accept(self, output: Path) -> None:
        self.accepted.append(output)

    def refused(self, output: Path, words: str) -> None:
        self.refusals[output] = words


class Log(logging.Logger):
    """Keeps warnings."""

    def __init__(self) -> None:
        super().__init__("of the executor")
        self.warnings: list[str] = []

    def warning(self, msg: object, *_: Any, **__: Any) -> None:
        self.warnings.append(str(msg))


class Started(Executor):
    """The executor of a sweep, with the jobs that Snakemake would know from its reports."""

    def __init__(
        self, folder: Path, sweep: Sweep, earlier: Iterable[queue.QueuedJob] = (), **settings: Any
    ) -> None:
        self._sweep = sweep
        self._earlier = queue.by_comment(earlier)
        self._names = tuple(job.name for job in self._earlier.values())
        self.log = Log()
        #: Outputs that were missing when Snakemake planned its jobs.
        self.missing: list[str] = []
        self.ended: list[tuple[str, bool]] = []
        #: Errors that end the sweep.
        self.errors: list[Exception] = []
        reason = SimpleNamespace(missing_output=self.missing)
        usual = {"status_command": "squeue", "logdir": folder / "logs"}
        callbacks = SimpleNamespace(
            submit_callback=lambda job: None,
            finish_callback=lambda job: self.ended.append((job.output[0], True)),
            error_callback=lambda job: self.ended.append((job.output[0], False)),
            executor_error_callback=self.errors.append,
        )
        remote = {
            "max_status_checks_per_second": 1000, "seconds_between_status_checks": 10,
            "jobname": "{jobid}", "jobscript": None, "immediate_submit": True,
        }  # fmt: skip
        workflow = SimpleNamespace(
            dag=SimpleNamespace(reason=lambda job: reason),
            scheduler=callbacks,
            main_snakefile="Snakefile",
            workdir_init=str(folder),
            executor_settings=ExecutorSettings(**{**usual, **settings}),
            remote_execution_settings=SimpleNamespace(**remote),
            storage_settings=SimpleNamespace(shared_fs_usage=set()),
            executor_plugin=SimpleNamespace(common_settings=upstream.common_settings),
        )
        super().__init__(workflow, self.log)

    def format_job_exec(self, job: Any) -> str:
        return f'echo "{job.jobid}"'

    async def sleep(self) -> None:
        await asyncio.sleep(0.01)  # nobody waits for its end

    def query(self, *jobs: SubmittedJobInfo) -> list[str]:
        """Query Slurm about jobs; the numbers of those that go on."""

        async def going_on() -> list[str]:
            return [str(info.external_jobid) async for info in self.check_active_jobs(jobs)]

        return asyncio.run(going_on())


def submitted(job: Job, number: str, folder: Path) -> SubmittedJobInfo:
    """A job as Slurm has it."""
    return SubmittedJobInfo(job, number, {"slurm_logfile": folder / f"{number}.log"})
