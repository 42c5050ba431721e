"""Every private attribute of Keras and TensorFlow that the trainer uses, behind plain functions.

`PRIVATE` lists them; nothing documented gives the same. `tests/unit/train/test_keras_internals.py`
checks each of them with the installed versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: Versions of TensorFlow and Keras that were found to have every attribute in PRIVATE. Models were
#: also trained with 3.6 and with all three rows of Keras 3.15.
CHECKED_VERSIONS = (
    *(("2.16.2", "3.3.3"), ("2.16.2", "3.6.0"), ("2.16.2", "3.10.0"), ("2.16.2", "3.15.1")),
    *(("2.18.1", "3.15.1"), ("2.21.0", "3.15.1")),
)

#: Private attribute → what the trainer uses it for.
PRIVATE = {
    "keras.Model._symbolic_build": "metrics and optimizers have variables before the first step",
    "keras.src.backend.compute_output_spec": "metrics and losses have variables without a call",
    "keras.Model._compile_config": "arguments of compile(), as they were given",
    "keras.optimizers.Optimizer._learning_rate": "the schedule of a compiled optimizer",
    "keras.optimizers.Optimizer._get_variable_index": "the slots of a variable",
    "keras.optimizers.Adam._momentums": "slots of TensorFlow's fused update",
    "keras.optimizers.Adam._velocities": "slots of TensorFlow's fused update",
    "tensorflow.python.distribute.collective_all_reduce_strategy."
    "CollectiveAllReduceExtended._initialize_local_devices": "several CPU devices of a worker",
    "tensorflow.python.distribute.one_device_strategy.OneDeviceExtended": "sums by MPI",
    "tensorflow.Operation._add_control_input": "the order of sums by MPI",
}


def build_metrics_and_optimizer(
    model: Any, sample: tuple[Any, ...], output: Any | None = None
) -> None:
    """Create the variables of a compiled model's metrics and optimizer.

    Args:
        model: The compiled model.
        sample: A batch as in the training, or its TensorSpecs.
        output: Keras's symbolic output of a model with a single one. With it, the model is not
            called; a call takes as long as tracing a forward pass.
    """
    import keras
    from keras.src.backend import compute_output_spec

    if output is not None:
        symbols = keras.tree.map_structure(
            lambda part: keras.KerasTensor(part.shape, keras.backend.standardize_dtype(part.dtype)),
            sample,
        )
        x, y, weights = keras.utils.unpack_x_y_sample_weight(symbols)
        for function in (model.compute_metrics, model.compute_loss):
            compute_output_spec(function, x, y, output, sample_weight=weights)
    model._symbolic_build(data_batch=sample)


def compile_settings(model: Any) -> Mapping[str, Any]:
    """Return the arguments of the model's `compile`, by name; {} if it is not compiled."""
    settings: Mapping[str, Any] = getattr(getattr(model, "_compile_config", None), "config", {})
    return settings


def learning_rate(optimizer: Any) -> Any:
    """Return the learning rate as the optimizer stores it: a schedule or a variable."""
    return optimizer._learning_rate


def slot_index(optimizer: Any, variable: Any) -> int:
    """Return the index of a variable in the optimizer's lists of slot variables."""
    return int(optimizer._get_variable_index(variable))


def moments(adam: Any, index: int) -> tuple[Any, Any]:
    """Return Adam's variables with the first and second moment of one variable.

    Args:
        adam: The optimizer.
        index: Index of the variable, from `slot_index`.
    """
    return adam._momentums[index].value, adam._velocities[index].value


def one_device_extended() -> Any:
    """Return TensorFlow's class OneDeviceExtended, from which `mpi.strategy` derives a class."""
    from tensorflow.python.distribute.one_device_strategy import OneDeviceExtended

    return OneDeviceExtended


def run_after(operation: Any, other: Any) -> None:
    """Add a control dependency to a graph: `operation` runs after `other`.

    It is only needed if `other` was added to the graph after `operation`.
    """
    operation._add_control_input(other)


def make_cpu_strategy_class(devices: Sequence[str]) -> Any:
    """Return a subclass of `MultiWorkerMirroredStrategy`, with a replica on each given CPU device.

    TensorFlow's own constructor uses all GPUs of a worker, or exactly one CPU device.

    Args:
        devices: This worker's logical CPU devices, such as ["CPU:0", "CPU:1"].
    """
    import tensorflow as tf
    from tensorflow.python.distribute import collective_all_reduce_strategy

    class Extended(collective_all_reduce_strategy.CollectiveAllReduceExtended):  # type: ignore[misc]
        """TensorFlow's implementation of the strategy, with other local devices."""

        def _initialize_local_devices(
            self, cluster_resolver: Any, worker_device: str
        ) -> tuple[tuple[str, ...], str]:
            """Return the local devices, and the device type."""
            return tuple(f"{worker_device}/device:{name}" for name in devices), "CPU"

    class OfDevices(tf.distribute.MultiWorkerMirroredStrategy):  # type: ignore[misc]
        """MultiWorkerMirroredStrategy with one replica on each device.

        Args:
            communication_options: TensorFlow's options for all-reduce.
        """

        def __init__(self, communication_options: Any) -> None:
            resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
            extended = Extended(self, resolver, communication_options)
            tf.distribute.Strategy.__init__(self, extended)

    return OfDevices
