"""This rank's devices: GPUs, logical CPUs or the CPU."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import Any

from tfscaling.cluster.gpu_allocation import VISIBLE_GPUS
from tfscaling.cluster.slurm_environment import gpu_variables
from tfscaling.jobs.missing_gpus import WAYS_OUT


class DeviceError(RuntimeError):
    """The rank did not get the devices that the run asks for."""


def configure(gpus: int, devices: str, threads: int) -> list[str]:
    """Make exactly the asked devices visible to TensorFlow, before anything else uses them.

    `gpus` devices of this rank, `devices` physical or logical, `threads` those of one operation.
    Returns the replica devices, such as ["GPU:0", "GPU:1"], ["CPU:0", "CPU:1"] or ["CPU:0"].
    Raises DeviceError if GPUs are missing.
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
        raise DeviceError(missing_gpus(gpus, len(physical), gpu_variables(os.environ)))
    for device in physical:
        tf.config.experimental.set_memory_growth(device, True)
    return [f"GPU:{index}" for index in range(gpus)]


def hide_gpus(environ: MutableMapping[str, str]) -> None:
    """Let this process, which computes on no GPU, take none. Before TensorFlow is loaded.

    TensorFlow's own switch, `set_visible_devices`, is not for its servers: a parameter server would
    take the memory of every GPU that it sees.
    """
    environ[VISIBLE_GPUS] = ""


def gpu_names() -> list[str | None]:
    """The models of the GPUs that TensorFlow sees, as the driver has them; None: not told."""
    import tensorflow as tf

    details = tf.config.experimental.get_device_details
    return [details(gpu).get("device_name") for gpu in tf.config.list_physical_devices("GPU")]


def in_use(strategy: Any) -> list[str]:
    """The devices of this rank's replicas, of those that TensorFlow has: ["GPU:0", "GPU:1"]."""
    present = {_short(device.name) for device in _all()}
    used = [_short(name) for name in strategy.extended.worker_devices]
    return [name for name in used if name in present]


def of_workers() -> tuple[tuple[str, ...], ...]:
    """The devices of each worker that this coordinator is connected to: its GPUs, or its CPU."""
    import tensorflow as tf

    found: dict[int, list[str]] = {}
    for device in _all():
        spec = tf.DeviceSpec.from_string(device.name)
        if spec.job == "worker":
            found.setdefault(spec.task, []).append(_short(device.name))
    names = [found[task] for task in sorted(found)]
    return tuple(
        tuple([name for name in of_task if name.startswith("GPU")] or of_task) for of_task in names
    )


def _all() -> list[Any]:
    import tensorflow as tf

    return list(tf.config.list_logical_devices())


def _short(name: str) -> str:
    import tensorflow as tf

    spec = tf.DeviceSpec.from_string(name)
    return f"{spec.device_type}:{spec.device_index}"


def set_precision(precision: str) -> None:
    """Compute in this Keras dtype policy; the variables stay float32."""
    import keras

    keras.mixed_precision.set_dtype_policy(precision)


def missing_gpus(requested: int, seen: int, exported: Mapping[str, str | None]) -> str:
    """The message for a wrong number of GPUs, with the variables that say which there are."""
    variables = ", ".join(f"{name}={value or '(not set)'}" for name, value in exported.items())
    return (
        f"GPUs requested for this task: {requested}; GPUs that TensorFlow sees: {seen}; "
        f"{variables}.{WAYS_OUT if seen == 0 else ''}"
    )
