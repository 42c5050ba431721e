"""The facts that Slurm's environment variables give; no other module reads these variables.

Source of the variables: the manual pages of ``srun`` ("output environment variables") and
``sbatch``. An empty variable counts as missing. Used by `resolver` and the launcher.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from tfscaling.cluster.gpu_allocation import ClusterError
from tfscaling.cluster.nodelist import NodeListError, expand_node_list, expand_task_counts

# Between the ports of Slurm's own daemons (6817-6830) and the ephemeral ports that the kernel
# hands out (from 32768).  A node runs at most 64 tasks before two slots touch.
_FIRST_PORT = 20000
_PORTS_PER_SLOT = 64
_SLOTS = 156
# Far from 1 and without a common divisor with _SLOTS: step 1 of a job does not take the slot of
# step 0 of the next job, and all steps of a job get different slots.
_STEP_STRIDE = 79

_T = TypeVar("_T")

_SRUN_HINT = "start the program with srun, or set TF_CONFIG"


def is_slurm(environ: Mapping[str, str]) -> bool:
    """Return whether this process runs in a Slurm job: in a step or in its batch script."""
    names = ("SLURM_PROCID", "SLURM_STEP_NODELIST", "SLURM_JOB_ID")
    return any(environ.get(name) for name in names)


def job_id(environ: Mapping[str, str]) -> str | None:
    """Return SLURM_JOB_ID, or None outside a job."""
    return environ.get("SLURM_JOB_ID") or None


def run_node_list(environ: Mapping[str, str]) -> str | None:
    """Return the node list of a run that uses only a part of its job's nodes; None if it uses all.

    The executor `slurm-allocation` sets it as TFSCALING_NODES.
    """
    return environ.get("TFSCALING_NODES") or None


def run_gres(environ: Mapping[str, str]) -> str | None:
    """Return the GPUs on each node of a run that uses only a part of its job, such as `gpu:2`.

    The executor `slurm-allocation` sets it as TFSCALING_GRES, because the job may have more GPUs.
    None if the variable is not set.
    """
    return environ.get("TFSCALING_GRES") or None


def step_id(environ: Mapping[str, str]) -> str | None:
    """Return the id of the step that runs this task, such as 12.0; None outside a step."""
    job, step = job_id(environ), environ.get("SLURM_STEP_ID")
    return f"{job}.{step}" if job and step else None


def accounting_id(environ: Mapping[str, str]) -> str | None:
    """Return the id by which sacct lists this run; None outside a job.

    It is the job's number, or JOB.STEP if the run is a step of an allocation. The executor
    `slurm-allocation` sets it as TFSCALING_STEP.
    """
    return environ.get("TFSCALING_STEP") or job_id(environ)


def restarts(environ: Mapping[str, str]) -> int:
    """Return how often Slurm has restarted this job; 0 outside a job.

    It is read from TFSCALING_RESTARTS or, if that is not set, from SLURM_RESTART_COUNT. The first
    is a copy of the second, which Snakemake removes from the environment.
    """
    names = ("TFSCALING_RESTARTS", "SLURM_RESTART_COUNT")
    return next((_whole_number(environ, name) for name in names if environ.get(name)), 0)


def own_rank(environ: Mapping[str, str]) -> int:
    """Return SLURM_PROCID, the rank of this task in its step."""
    return _whole_number(environ, "SLURM_PROCID")


def _heterogeneous_hint(environ: Mapping[str, str]) -> str:
    """Return text to append to an error message if the job is heterogeneous; else ""."""
    size = environ.get("SLURM_HET_SIZE")
    return (
        f"; this job is heterogeneous ({size} components): start in one component" if size else ""
    )


def tasks_on_hosts(environ: Mapping[str, str]) -> dict[str, int]:
    """Return the number of tasks of each node of the step, in Slurm's order of nodes.

    From SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE.

    Raises:
        ClusterError: a variable is missing or broken, their lengths differ, a node is listed twice,
            or the sum is not SLURM_STEP_NUM_TASKS where that is set.
    """
    hosts = _expand_value(environ, "SLURM_STEP_NODELIST", expand_node_list)
    name, total = "SLURM_STEP_TASKS_PER_NODE", environ.get("SLURM_STEP_NUM_TASKS")
    counts = _expand_value(environ, name, expand_task_counts)
    text = environ[name]
    if len(counts) != len(hosts):
        raise ClusterError(
            f"{name} is {text!r}, for {len(counts)} nodes, but there are {len(hosts)} nodes"
            f" ({', '.join(hosts)}); expected one number per node{_heterogeneous_hint(environ)}"
        )
    if total and _whole_number(environ, "SLURM_STEP_NUM_TASKS") != sum(counts):
        raise ClusterError(
            f"{name} is {text!r}, {sum(counts)} tasks in all, but SLURM_STEP_NUM_TASKS is"
            f" {total!r}; expected equal numbers{_heterogeneous_hint(environ)}"
        )
    found = dict(zip(hosts, counts, strict=True))
    if len(found) < len(hosts):
        raise ClusterError(
            f"SLURM_STEP_NODELIST is {environ['SLURM_STEP_NODELIST']!r};"
            " expected each node of the step once"
        )
    return found


def task_ports(environ: Mapping[str, str], tasks_on_a_node: int) -> list[int]:
    """Return one port for each task of a node, the same on all nodes.

    They are the ports of SLURM_STEP_RESV_PORTS (``srun --resv-ports``), ranges such as
    ``12000-12003,12007``. Without this variable they are computed from the numbers of job and step:
    156 jobs with consecutive numbers can share a node without sharing a port, as long as each runs
    at most 64 tasks on it.

    Args:
        environ: the environment of the task.
        tasks_on_a_node: number of tasks on the fullest node.

    Raises:
        ClusterError: the reserved ports cannot be read, or are fewer than the tasks.
    """
    name = "SLURM_STEP_RESV_PORTS"
    text = environ.get(name, "").strip()
    if not text:
        job, step = (
            _whole_number(environ, name) if environ.get(name) else 0
            for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")
        )
        base = _FIRST_PORT + _PORTS_PER_SLOT * ((job + _STEP_STRIDE * step) % _SLOTS)
        return list(range(base, base + tasks_on_a_node))
    try:
        found = [int(port) for port in expand_node_list(f"[{text.strip('[]')}]")]
    except NodeListError as error:
        raise ClusterError(
            f"{name} is {text!r}; expected ranges of ports such as 12000-12003"
        ) from error
    if len(found) < tasks_on_a_node:
        raise ClusterError(
            f"{name} is {text!r}, {len(found)} ports, but a node runs {tasks_on_a_node} tasks;"
            f" expected one port per task: srun --resv-ports={tasks_on_a_node}"
        )
    return found


def check_task_placement(environ: Mapping[str, str], node_index: int, local_index: int) -> None:
    """Check that this task runs at its computed place: node and number on the node.

    Otherwise the address of its rank would name a different node, and ranks would wait for each
    other forever.

    Args:
        environ: the environment of the task.
        node_index: computed number of the node in the step, from 0.
        local_index: computed number of the task on its node, from 0.

    Raises:
        ClusterError: SLURM_NODEID or SLURM_LOCALID is set and differs.
    """
    for name, worked_out in (("SLURM_NODEID", node_index), ("SLURM_LOCALID", local_index)):
        if environ.get(name) and _whole_number(environ, name) != worked_out:
            raise ClusterError(
                f"{name} is {environ[name]!r}, but {worked_out} was expected for SLURM_PROCID="
                f"{environ.get('SLURM_PROCID', '')} with SLURM_STEP_TASKS_PER_NODE="
                f"{environ.get('SLURM_STEP_TASKS_PER_NODE', '')!r} and SLURM_DISTRIBUTION="
                f"{environ.get('SLURM_DISTRIBUTION', '')!r};"
                " start the step with srun --distribution=block"
            )


def _required_value(environ: Mapping[str, str], name: str) -> str:
    """Return the stripped value of a variable.

    Raises:
        ClusterError: the variable is missing or empty.
    """
    value = environ.get(name, "").strip()
    if not value:
        raise ClusterError(f"{name} is not set; expected inside a Slurm step: {_SRUN_HINT}")
    return value


def _whole_number(environ: Mapping[str, str], name: str) -> int:
    """Return the value of a variable as an integer.

    Raises:
        ClusterError: the variable is missing or no whole number of at most 18 digits.
    """
    value = _required_value(environ, name)
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise ClusterError(f"{name} is {value!r}; expected a whole number, 0 or more")
    return int(value)


def _expand_value(
    environ: Mapping[str, str], name: str, read: Callable[[str], list[_T]]
) -> list[_T]:
    """Return the list that a variable contains in a compact notation.

    Args:
        environ: the environment of the task.
        name: the variable.
        read: function that expands the notation; it may raise NodeListError.

    Raises:
        ClusterError: the variable is missing, or its value is broken.
    """
    try:
        return read(_required_value(environ, name))
    except NodeListError as error:
        raise ClusterError(f"{name}: {error}") from error
