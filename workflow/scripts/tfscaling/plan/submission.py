"""How the runs of a plan are submitted: the sbatch line of the Slurm executor plugin.

The line is made by the plugin itself; nothing is submitted, Slurm is not asked.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec.structs import replace

from tfscaling.plan.plan_rows import PointRow
from tfscaling.plan.sweep_jobs import SLURM
from tfscaling.spec import platforms
from tfscaling.spec.config import Config
from tfscaling.spec.platforms import Resource
from tfscaling.tables.display import one_line

HERE = "runs on this machine"
NO_PLUGIN = "submitted by Snakemake's Slurm executor, which is not in this environment"
NO_SLURM = "runs on this machine and calls srun: take --profile profiles/slurm"
#: They stand for what only exists at submission, RUN for the name of the run.
UUID, COMMAND, PARTITION, RUN = "<uuid>", "<command>", "<default partition>", "<run>"
_UUID, _RUN = "RUN-UUID", "RUN-NAME"  # the same as words that no shell quotes


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """How jobs leave this machine, as Snakemake knows it."""

    executor: str
    settings: dict[str, bool | int | float | str | list[str] | None]
    default_resources: dict[str, bool | int | float | str | None]
    workdir: str
    rule: str
    #: Whether Snakemake gives the jobs an environment of their own.
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


def added(rows: Iterable[PointRow], config: Config, how: Submission) -> list[PointRow]:
    """The rows with the `submission` of their runs: the sbatch line, or that there is none."""
    return [row if row.runs is None else _submitted(row, config, how) for row in rows]


def _submitted(row: PointRow, config: Config, how: Submission) -> PointRow:
    platform = config.platforms[row.platform]
    if how.executor in SLURM:
        resources = platforms.slurm_resources(platform, row.geometry)
        line = sbatch_line(resources, RUN, how)
    elif how.executor == "local":
        line = HERE if platform.launcher == "local" else NO_SLURM
    else:
        line = f"by Snakemake's executor {how.executor}"
    return replace(row, submission=line)


class _Resources(dict[str, Resource | float | None]):
    """Resources as a job of Snakemake has them."""

    def __getattr__(self, name: str) -> Resource | float | None:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def sbatch_line(resources: Mapping[str, Resource], run: str, how: Submission) -> str:
    """The line of the Slurm executor plugin for a job of rule train, made by the plugin itself.

    UUID, COMMAND and PARTITION (if the platform names none) replace what is known at submission.
    Account and partition are written here, as the plugin does after asking Slurm for them.
    """
    try:
        from snakemake_executor_plugin_slurm import submit_string, utils, validation
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
        "partition": f" -p {shlex.quote(str(partition)) if partition else PARTITION}",
        "workdir": how.workdir,
    }
    failed = {node for node in (settings.exclude_failed_nodes or "").split(",") if node.strip()}
    try:
        validation.validate_slurm_extra(job)
        call = submit_string.get_submit_command(job, params, settings=settings, failed_nodes=failed)
        call += utils.set_gres_string(job)
    except WorkflowError as error:
        return f"refused by the Slurm executor plugin: {one_line(str(error))}"
    script = " /dev/stdin" if settings.pass_command_as_script else f' --wrap="{COMMAND}"'
    return str(call).replace(_UUID, UUID).replace(_RUN, RUN) + script
