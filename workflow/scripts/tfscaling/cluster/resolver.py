"""From the environment of a process to its cluster, its task, its GPUs and TF_CONFIG.

`resolve` asks, in this order: TF_CONFIG; the variables of the Slurm step; nobody, which makes
one worker on this machine.  It never changes the environment, the caller does:

    os.environ.update(resolve().environment())
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfscaling.cluster import slurm_environment as slurm
from tfscaling.cluster import task_layout
from tfscaling.cluster.gpu_allocation import GpuAllocation, GpuRequest, allocate, visible_gpus
from tfscaling.cluster.task_layout import ClusterError, Slot
from tfscaling.cluster.tf_config import read_tf_config

__all__ = ["Cluster", "ClusterError", "assemble", "resolve"]

_ALL_GPUS = GpuRequest()
#: Hosts that gRPC reaches without a proxy, and where it looks if that is not set.
_NO_GRPC_PROXY, _NO_PROXY = "no_grpc_proxy", "no_proxy"


@dataclass(frozen=True)
class Cluster:
    """All tasks of a cluster, and which of them this process is.

    Attributes:
        jobs: the addresses ``host:port`` of each job, in the order of the tasks.
        job: the job of this task, such as ``worker``.
        index: the index of this task in its job.
        rank: the position of this task among all tasks, SLURM_PROCID in a Slurm step.
        gpus: the entries for this task's CUDA_VISIBLE_DEVICES; None: leave it as it is.
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
        """Number of tasks of all jobs."""
        return sum(len(tasks) for tasks in self.jobs.values())

    @property
    def hosts(self) -> tuple[str, ...]:
        """The nodes, each once, in the order of the ranks."""
        tasks = (address for job in sorted(self.jobs) for address in self.jobs[job])
        return tuple(dict.fromkeys(address.rpartition(":")[0] for address in tasks))

    @property
    def address(self) -> str | None:
        """The ``host:port`` of this task; None for an evaluator outside the cluster."""
        tasks = self.jobs.get(self.job, ())
        return tasks[self.index] if self.index < len(tasks) else None

    @property
    def is_chief(self) -> bool:
        """Whether this is the first task of ``chief``, or of ``worker`` if there is no chief."""
        return self.index == 0 and self.job == ("chief" if "chief" in self.jobs else "worker")

    def tf_config(self) -> str:
        """The JSON text for TF_CONFIG."""
        cluster = {job: list(tasks) for job, tasks in self.jobs.items()}
        return json.dumps({"cluster": cluster, "task": {"type": self.job, "index": self.index}})

    def environment(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """The variables to set before the first use of TensorFlow's devices.

        gRPC sends its connections to the proxy of ``http_proxy`` and the like, which does not know
        the nodes: they are added to those that `environ` names as reached without one.
        """
        without_proxy = [environ.get(_NO_GRPC_PROXY, environ.get(_NO_PROXY, ""))]
        without_proxy += [host.strip("[]") for host in self.hosts]
        variables = {
            "TF_CONFIG": self.tf_config(),
            _NO_GRPC_PROXY: ",".join(dict.fromkeys(filter(None, without_proxy))),
        }
        if self.gpus is not None:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
        return variables


def resolve(
    environ: Mapping[str, str] = os.environ,
    *,
    jobs: Mapping[str, int] | None = None,
    port_base: int | None = None,
    tasks_per_node: int | Mapping[str, int] | None = None,
    gpus: GpuRequest | None = _ALL_GPUS,
) -> Cluster:
    """Find out which cluster this process belongs to, and which task of it it is.

    Args:
        environ: the environment to read.
        jobs: number of tasks of each job, ranks going to the jobs in the order of their names;
            default: all tasks are ``worker``. TF_CONFIG must agree with it.
        port_base: port of the first task of each node, with one more per further task; default:
            the step's reserved ports, or else a base that follows from the job's number.
        tasks_per_node: overrides Slurm's, as one number or ``{node: number}``.
        gpus: numbers of GPUs that override what is found; None leaves the GPUs alone, and those
            of the cluster are None.

    The arguments on nodes and GPUs are for a Slurm step; TF_CONFIG says all that itself.

    Raises:
        ClusterError: the variables are missing, broken, or contradict each other or the arguments.
    """
    if environ.get("TF_CONFIG", "").strip():
        config = read_tf_config(environ["TF_CONFIG"], jobs)
        return Cluster(config.jobs, config.job, config.index, config.rank, None, "TF_CONFIG")
    if not slurm.is_slurm(environ):
        return _single(jobs, port_base)
    hosts, rank = slurm.step_hosts(environ), slurm.own_rank(environ)
    if tasks_per_node is None:
        tasks_on_host = slurm.step_tasks_on_host(environ, hosts)
    else:
        tasks_on_host = task_layout.repeat_tasks(tasks_per_node, hosts)
    slots = task_layout.place_tasks(tasks_on_host, *slurm.distribution(environ))
    if tasks_per_node is None:
        slurm.check_place(environ, slots, rank)
    if jobs is None:
        jobs = {"worker": slurm.num_tasks(environ)}
    cluster, _ = assemble(
        environ, rank=rank, jobs=jobs, slots=slots, port_base=port_base, gpus=gpus
    )
    return cluster


def assemble(
    environ: Mapping[str, str],
    *,
    rank: int,
    jobs: Mapping[str, int],
    slots: Sequence[Slot],
    port_base: int | None,
    gpus: GpuRequest | None,
) -> tuple[Cluster, GpuAllocation]:
    """Put a cluster together from its geometry, wherever that comes from.

    Args:
        environ: the environment, for ports and GPUs.
        rank: rank of this task.
        jobs: number of tasks of each job.
        slots: the place of each rank, shape [tasks].
        port_base: as for `resolve`.
        gpus: numbers of GPUs that override what is found; None: have nothing to do with GPUs.

    Raises:
        ClusterError: the numbers contradict each other.
    """
    jobs = task_layout.check_jobs(jobs, len(slots))
    job, index = task_layout.task_of_rank(rank, jobs)
    tasks_on_host = Counter(slot.host for slot in slots)
    most_tasks, slot = max(tasks_on_host.values()), slots[rank]
    addresses = task_layout.addresses(slots, _ports(environ, port_base, most_tasks))
    allocation = GpuAllocation(0, None)
    if gpus is not None:
        visible = len(visible_gpus(environ) or ())
        if gpus.assign and gpus.gpus_per_node != 0 and gpus.gpus_per_task != 0:
            slurm.check_gpu_sharing(environ, visible, tasks_on_host[slot.host])
        allocation = allocate(
            environ,
            gpus,
            local_index=slot.local_index,
            tasks_on_node=tasks_on_host[slot.host],
            tasks_on_fullest_node=most_tasks,
            bound=slurm.gpus_are_bound(environ, visible),
        )
    job_addresses = task_layout.split_jobs(addresses, jobs)
    return Cluster(job_addresses, job, index, rank, allocation.gpus, "slurm"), allocation


def _ports(environ: Mapping[str, str], port_base: int | None, tasks_on_a_node: int) -> list[int]:
    if port_base is None:
        reserved = slurm.reserved_ports(environ)
        if reserved is not None:
            return reserved
        port_base = slurm.job_port_base(environ)
    return list(task_layout.port_range(port_base, tasks_on_a_node))


def _single(jobs: Mapping[str, int] | None, port_base: int | None) -> Cluster:
    if jobs is not None and list(filter(None, jobs.values())) != [1]:
        raise ClusterError(
            f"jobs is {dict(jobs)!r}, but neither TF_CONFIG nor a Slurm step is there (SLURM_PROCID"
            " is not set), so this is the only task; expected one task, or a start with srun"
        )
    (job,) = task_layout.check_jobs({"worker": 1} if jobs is None else jobs, 1)
    # Nobody else has to know this port; by process, as several such runs may share a machine.
    port = 20000 + os.getpid() % 10000 if port_base is None else port_base
    task_layout.port_range(port, 1)
    return Cluster({job: (f"localhost:{port}",)}, job, 0, 0, None, "single")
