"""From the environment of a process to its cluster, its task, its GPUs and TF_CONFIG.

`resolve` asks, in this order: TF_CONFIG; the variables of the Slurm step; nobody, which makes
one worker on this machine.  It never changes the environment, the caller does, before the first
use of TensorFlow's devices:

    os.environ.update(resolve().environment())
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tfscaling.cluster import slurm_environment as slurm
from tfscaling.cluster import task_layout
from tfscaling.cluster.gpu_allocation import VISIBLE_GPUS, allocate, visible_gpus
from tfscaling.cluster.task_layout import ClusterError, Slot
from tfscaling.cluster.tf_config import read_tf_config

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
        the nodes: they are added to the hosts that `environ` names as reached without a proxy.
        """
        without_proxy = [environ.get(_NO_GRPC_PROXY, environ.get(_NO_PROXY, ""))]
        without_proxy += [host.strip("[]") for host in self.hosts]
        variables = {
            "TF_CONFIG": self.tf_config(),
            _NO_GRPC_PROXY: ",".join(dict.fromkeys(filter(None, without_proxy))),
        }
        if self.gpus is not None:
            variables[VISIBLE_GPUS] = ",".join(self.gpus)
        return variables


def resolve(
    environ: Mapping[str, str] = os.environ,
    *,
    jobs: Mapping[str, int] | None = None,
    gpus: bool | None = True,
) -> Cluster:
    """Find out which cluster this process belongs to, and which task of it it is.

    Args:
        environ: the environment to read.
        jobs: number of tasks of each job, ranks going to the jobs in the order of their names;
            default: all tasks are ``worker``. TF_CONFIG must agree with it.
        gpus: in a Slurm step, whether tasks share out the GPUs of their node or get none; None
            leaves CUDA_VISIBLE_DEVICES as it is, as TF_CONFIG does.

    Raises:
        ClusterError: the variables are missing, broken, or contradict each other or the arguments.
    """
    if environ.get("TF_CONFIG", "").strip():
        config = read_tf_config(environ["TF_CONFIG"], jobs)
        return Cluster(config.jobs, config.job, config.index, config.rank, None, "TF_CONFIG")
    if not slurm.is_slurm(environ):
        return _single(jobs)
    tasks_on_host, rank = slurm.tasks_on_hosts(environ), slurm.own_rank(environ)
    slots = task_layout.place_tasks(tasks_on_host, *slurm.distribution(environ))
    if not 0 <= rank < len(slots):
        raise ClusterError(
            f"SLURM_PROCID is {rank}; expected 0 to {len(slots) - 1} for {len(slots)} tasks"
        )
    slurm.check_place(environ, slots[rank])
    tasks = task_layout.tasks_of_jobs(jobs or {"worker": len(slots)}, len(slots))
    ports = slurm.ports(environ, max(tasks_on_host.values()))
    addresses: dict[str, list[str]] = {}
    for (job, _), address in zip(tasks, task_layout.addresses(slots, ports), strict=True):
        addresses.setdefault(job, []).append(address)
    own = _gpus(environ, slots, rank) if gpus else None if gpus is None else ()
    job_addresses = {job: tuple(found) for job, found in addresses.items()}
    return Cluster(job_addresses, *tasks[rank], rank, own, "slurm")


def _gpus(environ: Mapping[str, str], slots: list[Slot], rank: int) -> tuple[str, ...] | None:
    """The GPUs of a rank that shares the GPUs of its node with the other tasks there."""
    tasks_on_host = Counter(slot.host for slot in slots)
    slot, visible = slots[rank], len(visible_gpus(environ) or ())
    slurm.check_gpu_sharing(environ, visible, tasks_on_host[slot.host])
    return allocate(
        environ,
        local_index=slot.local_index,
        tasks_on_node=tasks_on_host[slot.host],
        tasks_on_fullest_node=max(tasks_on_host.values()),
        bound=slurm.gpus_are_bound(environ, visible),
    )


def _single(jobs: Mapping[str, int] | None) -> Cluster:
    if jobs is not None and list(filter(None, jobs.values())) != [1]:
        raise ClusterError(
            f"jobs is {dict(jobs)!r}, but neither TF_CONFIG nor a Slurm step exists (SLURM_PROCID"
            " is not set), so this is the only task; expected one task, or a start with srun"
        )
    ((job, _),) = task_layout.tasks_of_jobs({"worker": 1} if jobs is None else jobs, 1)
    # Nobody else has to know this port; by process, as several such runs may share a machine.
    port = 20000 + os.getpid() % 10000
    return Cluster({job: (f"localhost:{port}",)}, job, 0, 0, None, "single")
