"""The order of examples, and arrays that are complete on a device."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels
from tfscaling.train import all_reduce
from tfscaling.train.all_reduce import order_of_epoch


def test_order_of_an_epoch_has_each_example_and_pads_the_last_batch() -> None:
    order = order_of_epoch(1, 1, examples=103, batch=10)
    assert order.shape == (11, 10)
    assert order.dtype == np.int32
    np.testing.assert_array_equal(np.sort(order.ravel()[:103]), np.arange(103))
    # padding is the beginning of the epoch
    np.testing.assert_array_equal(order.ravel()[103:], order.ravel()[:7])


@pytest.mark.parametrize(("seed", "epoch"), [(5, 3), (6, 2), (2, 5)])
def test_other_epochs_and_seeds_have_other_orders(seed: int, epoch: int) -> None:
    first, second = order_of_epoch(5, 2, 100, 10), order_of_epoch(seed, epoch, 100, 10)
    assert (first != second).mean() > 0.9


INDICES = [4, 0, 0, 2]


def gpu_kernels(operation: str, attribute: str) -> tuple[set[str], set[str]]:
    """Types for which TensorFlow has a GPU kernel, and those that such a kernel has on the host."""
    known, on_host = set(), set()
    for kernel in kernels.get_registered_kernels_for_op(operation).kernel:
        if kernel.device_type != "GPU":
            continue
        types = [
            tf.dtypes.as_dtype(number).name
            for constraint in kernel.constraint
            if constraint.name == attribute
            for number in constraint.allowed_values.list.type
        ]
        known |= set(types)
        if {"input", "params", "output"} & set(kernel.host_memory_arg):
            on_host |= set(types)
    return known, on_host


def test_what_is_not_packed_lies_and_is_gathered_on_a_gpu() -> None:
    """By TensorFlow's own list of its kernels."""
    gathered, _ = gpu_kernels("GatherV2", "Tparams")
    held, on_host = gpu_kernels("Identity", "T")
    assert set(all_reduce.GATHERED) <= gathered & held - on_host
    assert "uint8" not in gathered and "int32" in on_host  # why there is anything to pack
    casts, _ = gpu_kernels("Cast", "SrcT")
    assert "uint8" in casts and any(
        kernel.device_type == "GPU"
        for kernel in kernels.get_registered_kernels_for_op("Bitcast").kernel
    )


@pytest.mark.parametrize("shape", [(5, 4, 4), (5, 3), (5,), (5, 3, 1, 7)])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "uint32"])
def test_packed_examples_are_read_as_they_were(dtype: str, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    array = random.integers(0, 120, shape).astype(dtype)
    layout = all_reduce.Layout.of(array, on_gpu=True)
    assert layout.is_packed
    stored = layout.stored(array)
    assert stored.dtype == np.int64 and stored.ndim == 2
    found = layout.taken(tf.constant(stored), tf.constant(INDICES))
    assert found.dtype.name == dtype
    np.testing.assert_array_equal(found, array[INDICES])


@pytest.mark.parametrize("dtype", [*all_reduce.GATHERED, "uint8"])
def test_other_arrays_lie_as_they_are(dtype: str) -> None:
    array = np.ones((5, 3), getattr(ml_dtypes, dtype, dtype))
    layout = all_reduce.Layout.of(array, on_gpu=dtype != "uint8")
    assert layout.stored(array) is array
    assert layout.taken(tf.constant(array), tf.constant(INDICES)).shape == (4, 3)


def test_data_lies_on_a_gpu_where_it_fits_and_else_on_the_host() -> None:
    gpu, cpu = "/job:worker/task:1/device:GPU:3", "/job:worker/task:1/device:CPU:2"
    assert all_reduce.device_of(gpu, all_reduce.GPU_BYTES_MAX) == gpu
    host = all_reduce.device_of(gpu, all_reduce.GPU_BYTES_MAX + 1)
    assert tf.DeviceSpec.from_string(host) == tf.DeviceSpec.from_string(
        "/job:worker/task:1/device:CPU:0"
    )
    assert all_reduce.device_of(cpu, all_reduce.GPU_BYTES_MAX + 1) == cpu
