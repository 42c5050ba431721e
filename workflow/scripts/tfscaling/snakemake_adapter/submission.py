"""How Snakemake submits the jobs of runs: the sbatch line of a job, without submitting it.

The Slurm executor plugin makes the line; Slurm is not called.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from tfscaling.study import platforms
from tfscaling.study.config_types import Platform
from tfscaling.study.geometry import Geometry
from tfscaling.study.platforms import Resource

#: Names of executors: the project's own plugins, which follow jobs, and all that submit to Slurm.
FOLLOWING = ("slurm-sweep", "slurm-allocation")
SLURM = ("slurm", *FOLLOWING)
#: Text in place of a sbatch line.
HERE = "runs on this machine"
NO_PLUGIN = "submitted by Snakemake's Slurm executor, which is not in this environment"
NO_SLURM = "runs on this machine and calls srun: take --profile profiles/slurm"
#: Placeholders for what only exists at submission; RUN is the name of the run.
UUID, COMMAND, RUN = "<uuid>", "<command>", "<run>"
_UUID, _RUN = "RUN-UUID", "RUN-NAME"  # the same as words that no shell quotes


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """How Snakemake is configured to submit jobs.

    Attributes:
        executor: Name of the executor.
        settings: The executor's settings.
        default_resources: Resources of all rules by `--default-resources`.
        workdir: The folder in which jobs run.
        rule: The name of rule train, which a module may change.
        deploys_software: Whether jobs run in an environment that Snakemake deploys, by Conda,
            Apptainer or environment modules.
    """

    executor: str
    settings: dict[str, bool | int | float | str | list[str] | None]
    default_resources: dict[str, bool | int | float | str | None]
    workdir: str
    rule: str
    deploys_software: bool


def read_submission(workflow: Any, rule: str = "train") -> Submission:
    """Return how Snakemake submits jobs.

    Args:
        workflow: Snakemake's object `workflow`.
        rule: The name of rule train, which a module may change.
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


def describe_submission(platform: Platform, geometry: Geometry, submission: Submission) -> str:
    """Return how a run is submitted: its sbatch line, or a text that it has none.

    Args:
        platform: The run's platform.
        geometry: Nodes, tasks and GPUs of the run.
        submission: How Snakemake is configured to submit jobs.
    """
    if submission.executor in SLURM:
        return sbatch_line(platforms.slurm_resources(platform, geometry), RUN, submission)
    if submission.executor == "local":
        return HERE if platform.launcher == "local" else NO_SLURM
    return f"by Snakemake's executor {submission.executor}"


class _AttributeResources(dict[str, Resource | float | None]):
    """Resources of a job that can be read as attributes, as from Snakemake's jobs."""

    def __getattr__(self, name: str) -> Resource | float | None:
        """Return the resource with this name.

        Raises:
            AttributeError: There is none.
        """
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def sbatch_line(resources: Mapping[str, Resource], run: str, submission: Submission) -> str:
    """Return the sbatch line that the Slurm executor plugin makes for a job of rule train.

    The placeholders UUID and COMMAND are in place of values that are only known at submission.
    Account and partition are written only if the platform names them; else Slurm chooses.

    Args:
        resources: The job's resources.
        run: Folder of the run.
        submission: How Snakemake is configured to submit jobs.

    Returns:
        The line; else the reason why the plugin refuses the job, or NO_PLUGIN.
    """
    try:
        from snakemake_executor_plugin_slurm import submit_string, utils
        from snakemake_interface_common.exceptions import WorkflowError
    except ImportError:  # an environment that Snakemake has made for the rule
        return NO_PLUGIN

    settings = SimpleNamespace(**submission.settings)
    asked = _AttributeResources({**submission.default_resources, **resources})
    job = SimpleNamespace(name=submission.rule, threads=1, resources=asked)
    name = _RUN if run == RUN else run
    logs = Path(submission.workdir, settings.logdir or ".snakemake/slurm_logs")
    accounts = str(asked.get("slurm_account", "")).replace(",", " ").split()
    partition = asked.get("slurm_partition")
    rule = f"rule_{submission.rule}"
    follows = submission.executor in FOLLOWING
    # these find their text even if a site adds to comments
    comment = "{{" + f"{rule}/{name}" + "}}" if follows else f"{rule}_wildcards_{name}"
    params = {
        "run_uuid": "_".join(filter(None, [settings.jobname_prefix, _UUID])),
        "slurm_logfile": logs / rule / name / "%j.log",
        "comment_str": comment,
        "account": f" -A {shlex.quote(accounts[0])}" if accounts else "",
        "partition": f" -p {shlex.quote(str(partition))}" if partition else "",
        "workdir": submission.workdir,
    }
    failed = {node for node in (settings.exclude_failed_nodes or "").split(",") if node.strip()}
    try:
        call = submit_string.get_submit_command(job, params, settings=settings, failed_nodes=failed)
        if follows:
            call += f" --gres={shlex.quote(str(asked['gres']))}" if asked.get("gres") else ""
        else:  # refuses types of GPUs with a hyphen
            call += utils.set_gres_string(job)
    except WorkflowError as error:
        reason = " ".join(str(error).split())
        return f"refused by the Slurm executor plugin: {reason}"
    script = " /dev/stdin" if settings.pass_command_as_script else f' --wrap="{COMMAND}"'
    return str(call).replace(_UUID, UUID).replace(_RUN, RUN) + script
