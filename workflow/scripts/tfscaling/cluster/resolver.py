"""The cluster of a process, its own task, its GPUs and its TF_CONFIG, from its environment.

`resolve` uses the first of these sources that exists: TF_CONFIG, or the variables of the Slurm
step. Without both the cluster is one worker on this machine. It does not change the environment;
the caller does, before the first use of TensorFlow's devices:

    os.environ.update(resolve().environment())
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfscaling.cluster import slurm_environment as slurm
from tfscaling.cluster.gpu_allocation import ClusterError, allocate, gpu_variable

_ADDRESS = re.compile(r".+:([0-9]{1,5})")
_INDEX = re.compile(r"[0-9]{1,18}")

#: Variables with the hosts that gRPC reaches without a proxy; it reads the second one if the first
#: one is not set.
_NO_GRPC_PROXY, _NO_PROXY = "no_grpc_proxy", "no_proxy"


@dataclass(frozen=True)
class Cluster:
    """All tasks of a cluster, and which of them this process is.

    Attributes:
        jobs: the addresses ``host:port`` of each job, in the order of the tasks.
        job: the job of this task, such as ``worker``.
        index: the index of this task in its job.
        rank: the position of this task among all tasks, SLURM_PROCID in a Slurm step.
        gpus: this task's GPUs, as entries of the variable that selects them, CUDA_VISIBLE_DEVICES
            or the variable of AMD or Intel. () means no GPUs; with None the variable is left
            unchanged.
        source: ``TF_CONFIG``, ``slurm`` or ``single``.
    """

    jobs: dict[str, tuple[str, ...]]
    job: str
    index: int
    rank: int
    gpus: tuple[str, ...] | None
    source: str

    @property
    def num_tasks(self) -> int:
        """The number of tasks of all jobs."""
        return sum(len(tasks) for tasks in self.jobs.values())

    @property
    def hosts(self) -> tuple[str, ...]:
        """The nodes, each once, in the order of the ranks."""
        tasks = (address for job in sorted(self.jobs) for address in self.jobs[job])
        return tuple(dict.fromkeys(address.rpartition(":")[0] for address in tasks))

    @property
    def is_chief(self) -> bool:
        """Whether this is the first task of ``chief``, or of ``worker`` if there is no chief."""
        return self.index == 0 and self.job == ("chief" if "chief" in self.jobs else "worker")

    def tf_config(self) -> str:
        """Return the value of TF_CONFIG for this task."""
        cluster = {job: list(tasks) for job, tasks in self.jobs.items()}
        return json.dumps({"cluster": cluster, "task": {"type": self.job, "index": self.index}})

    def environment(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the environment variables to set before TensorFlow uses its devices.

        They are TF_CONFIG, ``no_grpc_proxy`` and, unless `gpus` is None, the variable that selects
        GPUs. ``no_grpc_proxy`` lists the nodes and the hosts that it had before, or else the hosts
        of ``no_proxy``: gRPC would otherwise send connections to ``http_proxy``.

        Args:
            environ: the present environment.
        """
        without_proxy = [environ.get(_NO_GRPC_PROXY, environ.get(_NO_PROXY, ""))]
        without_proxy += [host.strip("[]") for host in self.hosts]
        variables = {
            "TF_CONFIG": self.tf_config(),
            _NO_GRPC_PROXY: ",".join(dict.fromkeys(filter(None, without_proxy))),
        }
        if self.gpus is not None:
            variables[gpu_variable(environ)] = ",".join(self.gpus)
        return variables


def resolve(
    environ: Mapping[str, str] = os.environ,
    *,
    jobs: Mapping[str, int] | None = None,
    gpus: bool | None = True,
    host_suffix: str = "",
) -> Cluster:
    """Return the cluster to which this process belongs, and its task, from the environment.

    Args:
        environ: the environment to read.
        jobs: number of tasks of each job; the ranks fill the jobs in alphabetical order. None: all
            tasks are ``worker``. TF_CONFIG must agree with it.
        gpus: in a Slurm step, True divides the GPUs of each node among its tasks, and False gives
            tasks no GPUs; None leaves CUDA_VISIBLE_DEVICES as it is. Outside a Slurm step and with
            TF_CONFIG it is always left as it is.
        host_suffix: in a Slurm step, text that is added to a node's name, before its domain, to
            address another network of the node, such as ``-ib``.

    Raises:
        ClusterError: the variables are missing, broken, or contradict each other or the arguments.
    """
    if environ.get("TF_CONFIG", "").strip():
        return _read_tf_config(environ["TF_CONFIG"], jobs)
    if not slurm.is_slurm(environ):
        ((job, _),) = _assign_ranks_to_jobs({"worker": 1} if jobs is None else jobs, 1)
        # Nobody else has to know this port; by process, as several such runs may share a machine.
        port = 20000 + os.getpid() % 10000
        return Cluster({job: (f"localhost:{port}",)}, job, 0, 0, None, "single")
    return _resolve_slurm_step(environ, jobs, gpus, host_suffix)


def _resolve_slurm_step(
    environ: Mapping[str, str],
    jobs: Mapping[str, int] | None,
    gpus: bool | None,
    host_suffix: str,
) -> Cluster:
    """Return the cluster of a Slurm step and the task of this process.

    Args:
        environ: the environment of the task.
        jobs: number of tasks of each job; None: all tasks are ``worker``.
        gpus: True divides the GPUs of each node among its tasks, and False gives tasks no GPUs;
            None leaves the variable that selects GPUs unchanged.
        host_suffix: text that is added to a node's name, before its domain.

    Raises:
        ClusterError: the variables are missing, broken, or contradict each other or the arguments.
    """
    tasks_on_host, rank = slurm.tasks_on_hosts(environ), slurm.own_rank(environ)
    # block distribution: ranks fill one node after the other
    places = [
        (node, host, local)
        for node, (host, tasks) in enumerate(tasks_on_host.items())
        for local in range(tasks)
    ]
    if rank >= len(places):
        raise ClusterError(
            f"SLURM_PROCID is {rank}; expected 0 to {len(places) - 1} for {len(places)} tasks"
        )
    node_index, own_host, local_index = places[rank]
    slurm.check_task_placement(environ, node_index, local_index)
    tasks = _assign_ranks_to_jobs(jobs or {"worker": len(places)}, len(places))
    fullest = max(tasks_on_host.values())
    ports = slurm.task_ports(environ, fullest)
    addresses: dict[str, list[str]] = {}
    for (job, _), (_, host, local) in zip(tasks, places, strict=True):
        name, dot, domain = host.partition(".")
        address = f"{name}{host_suffix}{dot}{domain}:{ports[local]}"
        addresses.setdefault(job, []).append(address)
    own: tuple[str, ...] | None = None if gpus is None else ()
    if gpus:
        own = allocate(environ, local_index, tasks_on_host[own_host], fullest)
    job_addresses = {job: tuple(found) for job, found in addresses.items()}
    return Cluster(job_addresses, *tasks[rank], rank, own, "slurm")


def _assign_ranks_to_jobs(jobs: Mapping[str, int], num_tasks: int) -> list[tuple[str, int]]:
    """Return (job, index in the job) for each rank, in the order of the ranks.

    Jobs are sorted by name, as in TensorFlow's resolver: chief < ps < worker.

    Args:
        jobs: number of tasks of each job.
        num_tasks: number of tasks of the step.

    Raises:
        ClusterError: the jobs do not have `num_tasks` tasks in all.
    """
    if sum(jobs.values()) != num_tasks:
        raise ClusterError(
            f"jobs is {dict(jobs)!r}, in all {sum(jobs.values())} tasks, but {num_tasks} tasks run"
            " (SLURM_STEP_TASKS_PER_NODE; without TF_CONFIG and a Slurm step, where SLURM_PROCID is"
            " not set, one); expected equal numbers"
        )
    return [(job, index) for job in sorted(jobs) for index in range(jobs[job])]


def _read_tf_config(text: str, jobs: Mapping[str, int] | None) -> Cluster:
    """Return the cluster in the JSON text of TF_CONFIG; for one task, ``task`` may be missing.

    Source: the TensorFlow guide "Distributed training", section on setting up TF_CONFIG.

    Args:
        text: the value of TF_CONFIG.
        jobs: number of tasks that each job must have; None: not checked.

    Raises:
        ClusterError: the text is broken or contradicts `jobs`.
    """
    try:
        config = json.loads(text)
    except ValueError as cause:  # JSONDecodeError, or a number of thousands of digits
        raise _tf_config_error(text, f"JSON ({cause})") from cause
    if not isinstance(config, dict) or not isinstance(config.get("cluster"), dict):
        raise _tf_config_error(text, 'an object with "cluster" and "task"')
    cluster = _read_cluster(text, config["cluster"])
    sizes = {name: len(tasks) for name, tasks in cluster.items()}
    if jobs is not None and sizes != {name: count for name, count in jobs.items() if count}:
        raise _tf_config_error(
            text, f"a cluster of {dict(jobs)!r} tasks, as jobs says, not of {sizes!r}"
        )

    all_tasks = [address for tasks in cluster.values() for address in tasks]
    task = config.get("task")
    if task is None and len(all_tasks) == 1:
        task = {"type": next(iter(cluster)), "index": 0}
    if not isinstance(task, dict):
        raise _tf_config_error(text, 'a "task" with "type" and "index"')
    job, given = task.get("type"), task.get("index")
    # TensorFlow takes an index written as text, too
    index = int(str(given)) if _INDEX.fullmatch(str(given)) else -1
    if not isinstance(job, str) or index not in range(len(cluster.get(job, ()))):
        raise _tf_config_error(
            text, f"a task of its cluster, not type {job!r} with index {given!r}"
        )
    rank = all_tasks.index(cluster[job][index])
    return Cluster(cluster, job, index, rank, None, "TF_CONFIG")


def _read_cluster(text: str, cluster: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Check the entry ``cluster`` of TF_CONFIG; return job → addresses ``host:port``.

    Args:
        text: the complete TF_CONFIG, for messages.
        cluster: the entry.

    Raises:
        ClusterError: the entry is broken.
    """
    result: dict[str, tuple[str, ...]] = {}
    for name, tasks in sorted(cluster.items()):
        if not isinstance(tasks, list) or not all(map(_is_address, tasks)):
            raise _tf_config_error(text, f'a list of "host:port" for job {name!r}, not {tasks!r}')
        if tasks:
            result[name] = tuple(tasks)
    addresses = [address for tasks in result.values() for address in tasks]
    if not addresses:
        raise _tf_config_error(text, "at least one task in its cluster")
    if len(set(addresses)) != len(addresses):
        raise _tf_config_error(text, "each address once")
    return result


def _is_address(value: object) -> bool:
    """Return whether a value is a text ``host:port``."""
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    return match is not None and 1 <= int(match[1]) <= 65535


def _tf_config_error(text: str, expected: str) -> ClusterError:
    """Return an error that quotes TF_CONFIG (`text`) and says what was expected."""
    return ClusterError(f"TF_CONFIG is {text!r}; expected {expected}")
