"""The jobs of a study in Snakemake: which are to do, what they write, and how they are submitted.

The Slurm executor plugin makes the sbatch line; nothing is submitted, and Slurm is not asked. No
other module of the library uses Snakemake and the plugin beyond their documented interfaces, which
tests/unit/test_private_uses.py lists.
"""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from tfscaling.record import run_record
from tfscaling.study import platforms
from tfscaling.study.config_types import Config
from tfscaling.study.manifest import PlannedRun
from tfscaling.study.platforms import Resource
from tfscaling.study.run_spec import RunSpec

if TYPE_CHECKING:
    from tfscaling.plan.costed_plan import PlanRow  # loads pandas

#: Names of executors: the project's own plugins, and all that submit to Slurm.
FOLLOWING = ("slurm-sweep", "slurm-allocation")
SLURM = ("slurm", *FOLLOWING)


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
        """The file of the record of the run with this folder."""
        return f"{self.results}/runs/{path}/{run_record.RECORD}"

    def follow(self, sweep: Any, log: Callable[[str], None]) -> None:
        """Let the executor know the sweep, and adopt the jobs of a start that was killed."""
        workdir = str(self.workflow.workdir_init)
        self.workflow.executor_plugin.executor.follow(sweep, workdir, log)

    def to_do(self) -> list[Any]:
        """The jobs that have not finished; of a plan and of partial tables none."""
        return list(self.workflow.dag.needrun_jobs())

    def force(self, files: Iterable[str]) -> None:
        """Force the jobs that make these files, as --forcerun does.

        To be called while Snakemake builds its graph of jobs, by its main process.
        """
        self.workflow.dag.forcefiles.update(files)

    def forced(self, rule: str) -> frozenset[str]:
        """The folders of the runs that the user forces by name: --forcerun RECORD, --force RECORD.

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
        """Runs to do, and extra repeats that may follow, by their records' files."""
        found = {path: self.specs[path] for path in self.outputs_to_do() if path in self.specs}
        if self.may_repeat():
            for path, run in self.runs.items():
                if run.is_conditional and not Path(self.record(path)).exists():
                    found[self.record(path)] = run.spec
        return found

    def touched(self) -> str:
        """What --touch does: it makes no run, and needs no finished one."""
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


HERE = "runs on this machine"
NO_PLUGIN = "submitted by Snakemake's Slurm executor, which is not in this environment"
NO_SLURM = "runs on this machine and calls srun: take --profile profiles/slurm"
#: Placeholders for what only exists at submission; RUN is the name of the run.
UUID, COMMAND, RUN = "<uuid>", "<command>", "<run>"
_UUID, _RUN = "RUN-UUID", "RUN-NAME"  # the same as words that no shell quotes


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """How jobs leave this machine, as Snakemake knows it."""

    executor: str
    settings: dict[str, bool | int | float | str | list[str] | None]
    default_resources: dict[str, bool | int | float | str | None]
    workdir: str
    rule: str
    #: Whether Snakemake gives the jobs a separate environment.
    deploys_software: bool


def describe(workflow: Any, rule: str = "train") -> Submission:
    """What Snakemake's `workflow` knows of submitting.

    `rule` is what the rule train is called, which a module that uses it may change.
    """
    defaults = workflow.resource_settings.default_resources or {}
    settings = vars(workflow.executor_settings or SimpleNamespace())
    described = {
        "executor": workflow.executor_plugin.name,
        "settings": settings,
        "default_resources": {name: defaults[name].raw for name in defaults},
        "workdir": str(workflow.workdir_init),
        "rule": rule,
        "deploys_software": bool(workflow.deployment_settings.deployment_method),
    }
    # settings may be paths
    return msgspec.json.decode(msgspec.json.encode(described, enc_hook=str), type=Submission)


def submitted(rows: Iterable[PlanRow], config: Config, how: Submission) -> list[PlanRow]:
    """The rows with the `submission` of their runs: the sbatch line, or that there is none."""

    def line(row: PlanRow) -> str:
        platform = config.platforms[row.platform]
        if how.executor in SLURM:
            return sbatch_line(platforms.slurm_resources(platform, row.geometry), RUN, how)
        if how.executor == "local":
            return HERE if platform.launcher == "local" else NO_SLURM
        return f"by Snakemake's executor {how.executor}"

    return [row if row.runs is None else replace(row, submission=line(row)) for row in rows]


class _Resources(dict[str, Resource | float | None]):
    """Resources as a job of Snakemake has them."""

    def __getattr__(self, name: str) -> Resource | float | None:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def sbatch_line(resources: Mapping[str, Resource], run: str, how: Submission) -> str:
    """The line of the Slurm executor plugin for a job of rule train, made by the plugin itself.

    UUID and COMMAND replace what is known at submission. Account and partition are written here, as
    the plugin does, which leaves to Slurm what the platform does not name.
    """
    from tfscaling.tables.display import one_line  # loads pandas

    try:
        from snakemake_executor_plugin_slurm import submit_string, utils
        from snakemake_interface_common.exceptions import WorkflowError
    except ImportError:  # an environment that Snakemake has made for the rule
        return NO_PLUGIN

    settings = SimpleNamespace(**how.settings)
    asked = _Resources({**how.default_resources, **resources})
    job = SimpleNamespace(name=how.rule, threads=1, resources=asked)
    name = _RUN if run == RUN else run
    logs = Path(how.workdir, settings.logdir or ".snakemake/slurm_logs")
    accounts = str(asked.get("slurm_account", "")).replace(",", " ").split()
    partition = asked.get("slurm_partition")
    rule = f"rule_{how.rule}"
    params = {
        "run_uuid": "_".join(filter(None, [settings.jobname_prefix, _UUID])),
        "slurm_logfile": logs / rule / name / "%j.log",
        "comment_str": f"{rule}_wildcards_{name}",
        "account": f" -A {shlex.quote(accounts[0])}" if accounts else "",
        "partition": f" -p {shlex.quote(str(partition))}" if partition else "",
        "workdir": how.workdir,
    }
    failed = {node for node in (settings.exclude_failed_nodes or "").split(",") if node.strip()}
    try:
        call = submit_string.get_submit_command(job, params, settings=settings, failed_nodes=failed)
        if how.executor in FOLLOWING:
            call += f" --gres={shlex.quote(str(asked['gres']))}" if asked.get("gres") else ""
        else:  # refuses types of GPUs with a hyphen
            call += utils.set_gres_string(job)
    except WorkflowError as error:
        return f"refused by the Slurm executor plugin: {one_line(str(error))}"
    script = " /dev/stdin" if settings.pass_command_as_script else f' --wrap="{COMMAND}"'
    return str(call).replace(_UUID, UUID).replace(_RUN, RUN) + script
