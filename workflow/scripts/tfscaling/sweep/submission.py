"""How the runs of a plan are submitted: the sbatch line of the Slurm executor plugin.

The line is made by the plugin itself; nothing is submitted, Slurm is not asked.
"""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tfscaling.study import platforms
from tfscaling.study.config import AXES, Config
from tfscaling.study.geometry import Geometry
from tfscaling.tables.display import one_line

Row = dict[str, Any]

HERE = "runs on this machine"
NO_SLURM = "runs on this machine and calls srun: take --profile profiles/slurm"
#: They stand for what only exists at submission, RUN for what differs between repeats too.
UUID, COMMAND, PARTITION, RUN = "<uuid>", "<command>", "<default partition>", "<run>"
_UUID = "RUN-UUID"  # the same as a word that no shell quotes


def describe(workflow: Any, rule: str = "train") -> dict[str, Any]:
    """What Snakemake's `workflow` knows of submitting: executor, settings, defaults, folder.

    `rule` is what the rule train is called, which a module that uses it may change.
    """
    defaults = workflow.resource_settings.default_resources or {}
    return {
        "executor": workflow.executor_plugin.name,
        "settings": dict(vars(workflow.executor_settings or SimpleNamespace())),
        "default_resources": {name: defaults[name].raw for name in defaults},
        "workdir": str(workflow.workdir_init),
        "rule": rule,
    }


def add(runs: Sequence[Row], config: Config, submission: Mapping[str, Any]) -> None:
    """Fill `submission` of the runs: the sbatch line, or that the run is no job of its own."""
    for row in runs:
        platform = config.platforms[row["platform"]]
        if submission["executor"] == "slurm":
            resources = platforms.slurm_resources(platform, Geometry.of(row))
            row["submission"] = sbatch_line(resources, run_name(row), submission)
        elif submission["executor"] == "local":
            row["submission"] = HERE if platform.launcher == "local" else NO_SLURM
        else:
            row["submission"] = f"by Snakemake's executor {submission['executor']}"


def run_name(axes: Mapping[str, Any]) -> str:
    """What the plugin calls a run in the job's comment and in the path of Slurm's log."""
    return "_".join(str(axes[axis]) for axis in AXES).replace("/", "_")


class _Resources(dict[str, Any]):
    """Resources as a job of Snakemake has them."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def sbatch_line(resources: Mapping[str, Any], run: str, submission: Mapping[str, Any]) -> str:
    """The line of the Slurm executor plugin for a job of rule train, made by the plugin itself.

    UUID, COMMAND and PARTITION (if the platform names none) stand for what is known at submission.
    Account and partition are written here, as the plugin does after asking Slurm for them.
    """
    plugin = importlib.import_module("snakemake_executor_plugin_slurm")
    settings = SimpleNamespace(**submission["settings"])
    asked = _Resources({**submission["default_resources"], **resources})
    job = SimpleNamespace(name=submission["rule"], threads=1, resources=asked)
    folder = SimpleNamespace(executor_settings=settings, workdir_init=submission["workdir"])
    accounts = str(asked.get("slurm_account", "")).replace(",", " ").split()
    partition = asked.get("slurm_partition")
    rule = f"rule_{submission['rule']}"
    params = {
        "run_uuid": "_".join(filter(None, [settings.jobname_prefix, _UUID])),
        "slurm_logfile": plugin._select_logdir(folder) / rule / run / "%j.log",
        "comment_str": f"{rule}_wildcards_{run}",
        "account": f" -A {shlex.quote(accounts[0])}" if accounts else "",
        "partition": f" -p {shlex.quote(str(partition)) if partition else PARTITION}",
        "workdir": submission["workdir"],
    }
    failed = {node for node in (settings.exclude_failed_nodes or "").split(",") if node.strip()}
    try:
        plugin.validate_slurm_extra(job)
        call = plugin.get_submit_command(job, params, settings=settings, failed_nodes=failed)
        call += plugin.set_gres_string(job)
    except plugin.WorkflowError as error:
        return f"refused by the Slurm executor plugin: {one_line(str(error))}"
    script = " /dev/stdin" if settings.pass_command_as_script else f' --wrap="{COMMAND}"'
    return str(call).replace(_UUID, UUID) + script
