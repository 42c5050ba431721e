"""Devices of a rank, and the distribution strategies by name.

TensorFlow is imported inside functions only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tfscaling.cluster import resolver
from tfscaling.cluster.gpu_allocation import VISIBLE_GPUS, gpu_variables
from tfscaling.launch.failures import WAYS_OUT
from tfscaling.study.config_types import MPI_STRATEGY, PROGRAM_STRATEGY
from tfscaling.study.registries import Strategy
from tfscaling.train import keras_internals
from tfscaling.train.mpi import library as mpi
from tfscaling.train.mpi import strategy as mpi_strategy


class DeviceError(RuntimeError):
    """The rank did not get the devices that the run requests."""


def configure_devices(gpus: int, devices: str, threads: int) -> list[str]:
    """Make exactly the requested devices visible to TensorFlow; call it before TensorFlow uses any.

    Args:
        gpus: Number of GPUs of this rank; 0 for a CPU.
        devices: `physical`, or `logical` for logical CPU devices in place of GPUs.
        threads: Number of threads of one operation.

    Returns:
        The replicas' devices, such as ["GPU:0", "GPU:1"], ["CPU:0", "CPU:1"] or ["CPU:0"].

    Raises:
        DeviceError: TensorFlow sees a different number of GPUs than requested.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    physical = tf.config.list_physical_devices("GPU")
    if gpus == 0 or devices == "logical":
        tf.config.set_visible_devices([], "GPU")
        cpu = tf.config.list_physical_devices("CPU")[0]
        count = max(1, gpus)
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
        )
        return [f"CPU:{index}" for index in range(count)]
    if len(physical) != gpus:
        raise DeviceError(describe_wrong_gpus(gpus, len(physical), gpu_variables(os.environ)))
    for device in physical:
        tf.config.experimental.set_memory_growth(device, True)
    return [f"GPU:{index}" for index in range(gpus)]


def hide_gpus(environ: MutableMapping[str, str]) -> None:
    """Hide all GPUs from this process; call it before TensorFlow is imported.

    For coordinators and parameter servers. TensorFlow's `set_visible_devices` does not affect its
    servers: a parameter server would take the memory of every GPU that it sees.

    Args:
        environ: The environment to change.
    """
    environ[VISIBLE_GPUS] = ""


def gpu_names() -> list[str | None]:
    """Return the model name of each GPU that TensorFlow sees; None for a GPU without a name."""
    import tensorflow as tf

    details = tf.config.experimental.get_device_details
    return [details(gpu).get("device_name") for gpu in tf.config.list_physical_devices("GPU")]


def devices_in_use(strategy: Any) -> list[str]:
    """Return the devices of this rank's replicas, such as ["GPU:0", "GPU:1"]."""
    import tensorflow as tf

    present = {_short_device_name(device.name) for device in tf.config.list_logical_devices()}
    used = [_short_device_name(name) for name in strategy.extended.worker_devices]
    return [name for name in used if name in present]


def worker_devices() -> tuple[tuple[str, ...], ...]:
    """Return the devices of each worker of this coordinator: its GPUs, or else its CPU."""
    import tensorflow as tf

    found: dict[int, list[str]] = {}
    for device in tf.config.list_logical_devices():
        spec = tf.DeviceSpec.from_string(device.name)
        if spec.job == "worker":
            found.setdefault(spec.task, []).append(_short_device_name(device.name))
    names = [found[task] for task in sorted(found)]
    return tuple(
        tuple([name for name in of_task if name.startswith("GPU")] or of_task) for of_task in names
    )


def _short_device_name(name: str) -> str:
    """Return a device's type and number, such as `GPU:0`, from TensorFlow's full name."""
    import tensorflow as tf

    spec = tf.DeviceSpec.from_string(name)
    return f"{spec.device_type}:{spec.device_index}"


def describe_wrong_gpus(requested: int, seen: int, exported: Mapping[str, str | None]) -> str:
    """Return an error message for a rank that sees a wrong number of GPUs.

    Args:
        requested: Number of requested GPUs.
        seen: Number of GPUs that TensorFlow sees.
        exported: Variables that select GPUs, with their values; None means not set.
    """
    variables = ", ".join(f"{name}={value or '(not set)'}" for name, value in exported.items())
    return (
        f"GPUs requested for this task: {requested}; GPUs that TensorFlow sees: {seen}; "
        f"{variables}.{WAYS_OUT if seen == 0 else ''}"
    )


#: Whether code of this thread is inside `single_replica`.
_IS_ALONE = ContextVar("is_alone", default=False)


@contextmanager
def single_replica() -> Iterator[None]:
    """Make a strategy report a single replica to code of this thread in the `with` block.

    Keras divides a loss by the strategy's number of replicas, which would be wrong in a custom
    step.
    """
    before = _IS_ALONE.set(True)
    try:
        yield
    finally:
        _IS_ALONE.reset(before)


def make_replica_hiding_class(base: Any) -> Any:
    """Return a subclass of a strategy class that reports one replica within `single_replica`."""

    class Hiding(base):  # type: ignore[misc]
        """The strategy, which says within `single_replica` that it has one replica."""

        @property
        def num_replicas_in_sync(self) -> int:
            """Number of replicas; 1 within `single_replica`."""
            return 1 if _IS_ALONE.get() else int(super().num_replicas_in_sync)

    Hiding.__name__ = base.__name__
    return Hiding


def _make_single(devices: Sequence[str], communication: str) -> Any:
    """Return a OneDeviceStrategy on the only device; `communication` is unused."""
    import tensorflow as tf

    return tf.distribute.OneDeviceStrategy(devices[0])


def _make_mirrored(devices: Sequence[str], communication: str) -> Any:
    """Return a MirroredStrategy over the devices of this rank; `communication` is unused."""
    import tensorflow as tf

    return make_replica_hiding_class(tf.distribute.MirroredStrategy)(list(devices))


def _make_multi_worker_mirrored(devices: Sequence[str], communication: str) -> Any:
    """Return a MultiWorkerMirroredStrategy from TF_CONFIG.

    Args:
        devices: Devices of this rank.
        communication: `ring`, `nccl` or `auto`.
    """
    import tensorflow as tf

    implementation = tf.distribute.experimental.CommunicationImplementation[communication.upper()]
    options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
    if len(devices) > 1 and all(name.startswith("CPU") for name in devices):
        made = keras_internals.make_cpu_strategy_class(devices)
    else:
        made = tf.distribute.MultiWorkerMirroredStrategy
    return make_replica_hiding_class(made)(communication_options=options)


def _make_mpi_all_reduce(devices: Sequence[str], communication: str) -> Any:
    """Return the strategy by MPI, with one replica on the first device.

    `communication` is unused.
    """
    own = resolver.resolve(os.environ, gpus=None)
    world = mpi.world_communicator(own.rank, own.num_tasks)
    return make_replica_hiding_class(mpi_strategy.make_strategy_class(devices[0], world))()


def _refuse_custom(devices: Sequence[str], communication: str) -> Any:
    """Raise ValueError: with the strategy `own`, a program distributes the training by itself."""
    raise ValueError("a program makes its own strategy")


def _make_parameter_server(devices: Sequence[str], communication: str) -> Any:
    """Return a ParameterServerStrategy from TF_CONFIG.

    Both arguments are unused: all functions that make a strategy have the same arguments.
    """
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(resolver)


#: Name → distribution strategy, for every strategy of the grid.
STRATEGIES: dict[str, Strategy] = {
    "single": Strategy(
        "One replica on one device, no distribution: the baseline.",
        _make_single,
        one_task_only=True,
        one_device_only=True,
    ),
    "mirrored": Strategy(
        "Synchronous data parallelism over the devices of one task.",
        _make_mirrored,
        one_task_only=True,
    ),
    "multi_worker_mirrored": Strategy(
        "Synchronous data parallelism over all devices of all tasks, by all-reduce.",
        _make_multi_worker_mirrored,
    ),
    MPI_STRATEGY: Strategy(
        "Synchronous data parallelism over all tasks, a device each, by MPI's all-reduce.",
        _make_mpi_all_reduce,
        one_device_only=True,
        end=mpi.finalize,
    ),
    "parameter_server": Strategy(
        "Variables on parameter servers, each worker's gradients are a separate update.",
        _make_parameter_server,
        one_device_only=True,
        coordinated=True,
        synchronous=False,
    ),
    "synchronous_parameter_server": Strategy(
        "Variables on parameter servers, one update from the gradients of all workers.",
        _make_parameter_server,
        one_device_only=True,
        coordinated=True,
    ),
    PROGRAM_STRATEGY: Strategy(
        "The program's own: every rank is a worker in TF_CONFIG.", _refuse_custom, synchronous=False
    ),
}
