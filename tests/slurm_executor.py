"""The executor plugin slurm-sweep without Snakemake: jobs by hand, and what it reports of them.

Jobs, workflow, graph and scheduler implement Snakemake's interface of executors, with its types of
resources, reasons and settings: a changed interface fails here.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import snakemake.jobs
import snakemake_executor_plugin_slurm_allocation as allocation
import snakemake_executor_plugin_slurm_sweep as plugin
from fake_programs import program
from snakemake.api import SnakemakeApi  # noqa: F401  # first: modules import each other
from snakemake.dag import DAG
from snakemake.iocontainers import ResourceList
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake.settings.types import (
    ExecutionSettings,
    RemoteExecutionSettings,
    StorageSettings,
)
from snakemake.workflow import Workflow
from snakemake_executor_plugin_slurm_allocation.grants import NAME
from snakemake_executor_plugin_slurm_sweep import Executor, ExecutorSettings, queue
from snakemake_executor_plugin_slurm_sweep import Sweep as PluginSweep
from snakemake_executor_plugin_slurm_sweep.slurm_client import SEPARATOR, QueuedJob
from snakemake_interface_executor_plugins.dag import DAGExecutorInterface
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.jobs import (
    JobExecutorInterface,
    SingleJobExecutorInterface,
)
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry
from snakemake_interface_executor_plugins.scheduler import JobSchedulerExecutorInterface
from snakemake_interface_executor_plugins.workflow import WorkflowExecutorInterface

T = TypeVar("T", bound=type)


def replaces(original: type) -> Callable[[T], T]:
    """Decorate a class that has public names of `original` alone: a renamed one raises."""

    def check(cls: T) -> T:
        unknown = {name for name in vars(cls) if not name.startswith("_")} - {*dir(original)}
        if unknown:
            raise TypeError(f"{original.__name__} has no {sorted(unknown)}")
        return cls

    return check


def _not_needed(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError


@replaces(snakemake.jobs.Job)
class Job(JobExecutorInterface, SingleJobExecutorInterface):
    """A job of Snakemake with one output."""

    name, jobid, threads, priority, attempt, restart_times = "train", 1, 1, 0, 1, 2
    output: Iterable[str] = ()
    wildcards: Iterable[str] = ("cpu", "x", "1")
    resources: Mapping[str, Any] = ResourceList()
    input = log = ()
    is_local = is_updated = is_containerized = False
    rule = benchmark = message = None
    logfile_suggestion = properties = get_target_spec = rules = _not_needed
    get_wait_for_files = format_wildcards = _not_needed

    def __init__(
        self,
        output: list[str],
        wildcards: list[str] | None = None,
        resources: Mapping[str, Any] | None = None,
    ) -> None:
        self.output = output
        self.wildcards = wildcards or self.wildcards
        usual = {"slurm_partition": "cpu", "slurm_extra": "", "mem_mb": 0, "nodes": 1, "tasks": 1}
        self.resources = ResourceList(fromdict={**usual, **(resources or {})})

    def is_group(self) -> bool:
        return False

    def register(self, external_jobid: str | None = None) -> None:
        pass

    def log_info(self, skip_dynamic: bool = False) -> None:
        pass

    def log_error(self, msg: str | None = None, **_: Any) -> None:
        pass


@replaces(DAG)
class Graph(DAGExecutorInterface):
    """The jobs of a workflow, all for the same reason."""

    incomplete_external_jobid = get_sources = get_unneeded_temp_files = _not_needed

    def __init__(self) -> None:
        self._reason = snakemake.jobs.Reason()

    def reason(self, job: Job) -> snakemake.jobs.Reason:
        return self._reason


@replaces(JobScheduler)
class Scheduler(JobSchedulerExecutorInterface):
    """Keeps what an executor reports."""

    def __init__(self) -> None:
        self._ended: list[tuple[str, bool]] = []
        self._errors: list[Exception] = []
        # set by Snakemake, too, because they depend on the executor
        self.submit_callback = lambda job: None
        self.finish_callback = lambda job: self._ended.append((next(iter(job.output)), True))

    def error_callback(self, job: Job) -> None:
        self._ended.append((next(iter(job.output)), False))

    def executor_error_callback(self, exception: Exception) -> None:
        self._errors.append(exception)


@replaces(Workflow)
class SlurmWorkflow(WorkflowExecutorInterface):
    """A workflow with the settings of the executor."""

    dag: Any = None
    scheduler: Any = None
    workdir_init: Any = None
    executor_settings: Any = None
    main_snakefile = "Snakefile"
    remote_execution_settings = RemoteExecutionSettings(
        max_status_checks_per_second=1000, jobname="{jobid}", immediate_submit=True
    )
    storage_settings = StorageSettings(shared_fs_usage=frozenset())
    executor_plugin = ExecutorPluginRegistry().load_plugin("slurm-sweep", plugin)
    execution_settings = ExecutionSettings(latency_wait=0)
    spawned_job_args_factory = deployment_settings = group_settings = None
    resource_scopes = persistence = None

    def __init__(self, folder: Path, settings: ExecutorSettings) -> None:
        self.dag, self.scheduler = Graph(), Scheduler()
        self.workdir_init, self.executor_settings = str(folder), settings


@dataclass
class Sweep(PluginSweep):
    """A sweep that knows what its fields have, by number or output."""

    finished: set[str] = field(default_factory=set)
    lasting: set[Path] = field(default_factory=set)
    unfit: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    refusals: dict[Path, str] = field(default_factory=dict)

    def is_finished(self, output: Path, number: str) -> bool:
        return number in self.finished

    def report_failure(self, output: Path, number: str, state: str, log: Path) -> None:
        self.failures[number] = state

    def has_permanent_failure(self, output: Path) -> bool:
        return output in self.lasting

    def nodes_to_avoid(self, output: Path) -> list[str]:
        return self.unfit

    def report_refusal(self, output: Path, words: str) -> None:
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

    settings: type[ExecutorSettings] = ExecutorSettings
    #: What a job runs; by default it prints its number.
    command = ""

    def __init__(
        self, folder: Path, sweep: PluginSweep, earlier: Iterable[QueuedJob] = (), **settings: Any
    ) -> None:
        self._sweep = sweep
        self._earlier = queue.map_by_comment(earlier)
        self._names = tuple(job.name for job in self._earlier.values())
        self.log = Log()
        usual = {"status_command": "squeue", "logdir": folder / "logs"}
        workflow = SlurmWorkflow(folder, self.settings(**{**usual, **settings}))
        #: Outputs that were missing when Snakemake planned its jobs.
        self.missing: set[str] = workflow.dag.reason(Job([])).missing_output
        #: Outputs of jobs that have ended, and whether they succeeded.
        self.ended: list[tuple[str, bool]] = workflow.scheduler._ended
        #: Errors that end the sweep.
        self.errors: list[Exception] = workflow.scheduler._errors
        super().__init__(workflow, self.log)

    def format_job_exec(self, job: Any) -> str:
        return self.command or f'echo "{job.jobid}"'

    async def sleep(self) -> None:
        await asyncio.sleep(0.01)  # nobody waits for its end

    def query(self, *jobs: SubmittedJobInfo) -> list[str]:
        """Query Slurm about jobs; the numbers of those that go on."""

        async def going_on() -> list[str]:
            return [str(info.external_jobid) async for info in self.check_active_jobs(jobs)]

        return asyncio.run(going_on())


class StartedAllocation(Started, allocation.Executor):
    """The executor of a sweep inside an allocation."""

    settings = allocation.ExecutorSettings

    def __init__(self, *given: Any, **settings: Any) -> None:
        self._querying = threading.Lock()
        super().__init__(*given, **settings)

    async def check_active_jobs(
        self, active_jobs: Sequence[SubmittedJobInfo]
    ) -> AsyncIterator[SubmittedJobInfo]:
        with self._querying:  # Snakemake has one thread that queries, here a test does, too
            left = [info async for info in super().check_active_jobs(active_jobs)]
        for info in left:
            yield info


def submitted(job: Job, number: str, folder: Path) -> SubmittedJobInfo:
    """A job as Slurm has it."""
    return SubmittedJobInfo(job, number, {"slurm_logfile": folder / f"{number}.log"})


Start = Callable[..., Started]
#: The comment of a Job with its usual wildcards.
COMMENT = "rule_train/cpu/x/1"


def decorated(comment: str) -> str:
    """A comment to which a site's plugin has added its own words, or none."""
    before, after = (
        random.choice(["", "proj=a1b2 ", "[lua] {x} "]),
        random.choice(["", ";u=9", " "]),
    )
    print(f"comment: {before}{comment}{after}")
    return f"{before}{comment}{after}"


class Slurm:
    """Commands of Slurm in a folder; each call of sbatch leaves its words."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._calls = folder, folder / "calls"
        self.answer("sbatch", f'echo "$@" >>{self._calls}; wc -l <{self._calls}')
        self.answer("scontrol", "exit 0")
        self.answer("scancel", f'echo "$@" >>{folder}/cancelled')

    def answer(self, command: str, script: str) -> None:
        program(self.folder, command, script)

    def states(self, *lines: str, command: str = "squeue") -> None:
        """What squeue or sacct answers, as `NUMBER|STATE REASON`; "silent": an error alone."""
        if command == "squeue":
            lines = tuple(line if line == "silent" else listed(line) for line in lines)
        text = "\n".join(lines)
        self.answer(command, "exit 1" if lines == ("silent",) else f"cat <<'END'\n{text}\nEND")

    @property
    def calls(self) -> list[list[str]]:
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        return [line.split() for line in lines]

    @property
    def cancelled(self) -> list[str]:
        path = self.folder / "cancelled"
        return path.read_text().split() if path.exists() else []


def listed(line: str, name: str = "", folder: str = "", comment: str = "") -> str:
    """The line of squeue of a job, from `NUMBER|STATE REASON`."""
    number, _, words = line.partition("|")
    state, _, reason = words.partition(" ")
    fields = (number, state, reason, name, "cpu", "", "", "N/A", folder, comment)
    return SEPARATOR.join(fields)


def done(executor: Started, *jobs: Job) -> None:
    """Run jobs until all are submitted."""
    executor.run_jobs(jobs)
    executor._submitter.shutdown(wait=True)


def site(
    slurm: Slurm,
    nodes: int,
    *steps: str,
    states: str = "",
    srun: str = "",
    state: str = "RUNNING",
    reason: str = "None",
) -> None:
    """Let Slurm have an allocation of nodes n1, n2, …, and steps as `NUMBER NAME NODES`.

    Calls of sbatch are in `slurm.calls`.
    """
    everything = f"n[1-{nodes}]"
    job = f"7|{state}|{reason}|{NAME}|cpu|{everything}|N/A|N/A|/f|".replace("|", SEPARATOR)
    lines = "\n".join(step.replace(" ", SEPARATOR) for step in steps)
    slurm.answer(
        "squeue",
        f"case \"$*\" in *--steps*) cat <<'END'\n{lines}\nEND\n;; *) echo '{job}';; esac",
    )
    hosts = {f"n[1-{n}]": " ".join(f"n{k + 1}" for k in range(n)) for n in range(1, nodes + 1)}
    hosts |= {f"n{n}": f"n{n}" for n in range(1, nodes + 1)}
    cases = "\n".join(f"'{text}') printf '%s\\n' {names};;" for text, names in hosts.items())
    slurm.answer("scontrol", f'case "$3" in {cases} esac')
    slurm.answer("sbatch", f'echo "$@" >>{slurm.folder}/calls; echo 7')
    slurm.answer("sinfo", f"echo '{states}'")
    slurm.answer("srun", srun or f"exec timeout 600 cat {slurm.folder}/running")
