"""A resolver with the interface of ``tf.distribute.cluster_resolver.SlurmClusterResolver``.

    strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=SlurmClusterResolver())

It gives what TensorFlow's class gives wherever that is right, and is right where that fails:
order of nodes, GPUs bound per task, nodes without GPUs or nvidia-smi, ranks dealt out in turn.
TensorFlow is imported when a resolver is made, not with this module.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tfscaling.cluster import slurm_environment as slurm
from tfscaling.cluster.gpu_allocation import GpuRequest
from tfscaling.cluster.resolver import Cluster, assemble
from tfscaling.cluster.task_layout import ClusterError, place_tasks, repeat_tasks

_EXTENSION_POINTS = (
    "_resolve_own_rank",
    "_resolve_num_tasks",
    "_resolve_hostlist",
    "_resolve_task_configuration",
)


class SlurmClusterResolver:
    """Resolves the cluster of a Slurm step for a TensorFlow distribution strategy.

    A deriving class can take the cluster from elsewhere (MPI, a file, other variables) by
    overriding `_resolve_own_rank`, `_resolve_num_tasks`, `_resolve_hostlist` and
    `_resolve_task_configuration`.

    Args:
        jobs: number of tasks of each job; ranks go to the jobs in the order of their names.
            Default: all tasks are ``worker``.
        port_base: port of the first task of each node, with one more per further task.  None takes
            the step's reserved ports, or else a base that follows from the job's number.
        gpus_per_node: GPUs of each node; default: those that CUDA_VISIBLE_DEVICES or nvidia-smi
            list.
        gpus_per_task: GPUs of each task; default: those of a node, divided among its tasks.
        tasks_per_node: one number, or ``{node: number}``; default: Slurm's.
        auto_set_gpu: whether `cluster_spec` sets CUDA_VISIBLE_DEVICES of this process.
        rpc_layer: protocol between the tasks.

    Attributes:
        task_type: job of this task.
        task_id: its index in its job.
        rpc_layer: protocol between the tasks.
        environment: always empty, as outside Google's own environments.

    Raises:
        ClusterError: the variables are missing, broken, or contradict each other or the arguments.
    """

    def __init__(
        self,
        jobs: Mapping[str, int] | None = None,
        port_base: int | None = 8888,
        gpus_per_node: int | None = None,
        gpus_per_task: int | None = None,
        tasks_per_node: int | Mapping[str, int] | None = None,
        auto_set_gpu: bool = True,
        rpc_layer: str | None = "grpc",
    ) -> None:
        self._register()
        slurm_only = all(
            getattr(type(self), name) is getattr(SlurmClusterResolver, name)
            for name in _EXTENSION_POINTS
        )
        rank = self._resolve_own_rank()
        if jobs is None:
            jobs = {"worker": self._resolve_num_tasks()}
        tasks_on_host = self._tasks_on_host(tasks_per_node)
        # ranks that are not Slurm's fill node after node
        dealt = slurm.distribution(os.environ) if slurm_only else ("block", 1)
        slots = place_tasks(tasks_on_host, *dealt)
        if slurm_only and tasks_per_node is None:
            slurm.check_place(os.environ, slots, rank)
        cluster, allocation = assemble(
            os.environ,
            rank=rank,
            jobs=jobs,
            slots=slots,
            port_base=port_base,
            gpus=GpuRequest(gpus_per_node, gpus_per_task, auto_set_gpu),
        )
        self._cluster = cluster
        self._gpus_per_task = allocation.gpus_per_task
        self.task_type: str | None = cluster.job
        self.task_id: int | None = cluster.index
        self.rpc_layer = rpc_layer
        self.environment = ""

    @classmethod
    def _register(cls) -> None:
        """Make isinstance(resolver, ClusterResolver) true, which the strategies demand.

        Deriving from ClusterResolver would import TensorFlow along with this module.
        """
        import tensorflow as tf  # type: ignore[import-untyped, unused-ignore]

        tf.distribute.cluster_resolver.ClusterResolver.register(cls)

    def _resolve_own_rank(self) -> int:
        """Return the rank of this task, from 0 to the number of tasks - 1."""
        return slurm.own_rank(os.environ)

    def _resolve_num_tasks(self) -> int:
        """Return the number of tasks of all nodes."""
        return slurm.num_tasks(os.environ)

    def _resolve_hostlist(self) -> list[str]:
        """Return the names of the nodes, shape [nodes], in the order of the ranks."""
        return slurm.step_hosts(os.environ)

    def _resolve_task_configuration(self) -> dict[str, int]:
        """Return the number of tasks of each node, in the order of the ranks."""
        return slurm.step_tasks_on_host(os.environ, self._resolve_hostlist())

    def _tasks_on_host(self, tasks_per_node: int | Mapping[str, int] | None) -> dict[str, int]:
        if tasks_per_node is None:
            return self._resolve_task_configuration()
        return repeat_tasks(tasks_per_node, self._resolve_hostlist())

    @property
    def cluster(self) -> Cluster:
        """The resolved cluster; its `tf_config` gives the text for TF_CONFIG."""
        return self._cluster

    def cluster_spec(self) -> Any:
        """Return the ``tf.train.ClusterSpec``; with auto_set_gpu, set CUDA_VISIBLE_DEVICES."""
        import tensorflow as tf  # type: ignore[import-untyped, unused-ignore]

        gpus = self._cluster.gpus
        if gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        return tf.train.ClusterSpec({job: list(ts) for job, ts in self._cluster.jobs.items()})

    def get_task_info(self) -> tuple[str | None, int | None]:
        """Return job and index of this task."""
        return self.task_type, self.task_id

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Return the address of a task, by default this one, such as ``grpc://n1:8888``.

        Raises:
            ClusterError: there is no such task.
        """
        job = self.task_type if task_type is None else task_type
        index = self.task_id if task_id is None else task_id
        if job is None or index is None:
            return ""
        tasks = self._cluster.jobs.get(job, ())
        if not 0 <= index < len(tasks):
            sizes = {name: len(addresses) for name, addresses in self._cluster.jobs.items()}
            raise ClusterError(f"no task {index!r} of job {job!r}; expected a task of {sizes!r}")
        protocol = rpc_layer or self.rpc_layer
        return f"{protocol}://{tasks[index]}" if protocol else tasks[index]

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: Any = None,
    ) -> dict[str, int]:
        """Return ``{"GPU": number}`` for this task; the arguments have no effect."""
        return {"GPU": self._gpus_per_task}
