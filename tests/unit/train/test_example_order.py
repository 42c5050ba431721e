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


def test_a_gpu_holds_and_gathers_the_types_that_data_get() -> None:
    """By TensorFlow's own list of its kernels."""
    gathered, _ = gpu_kernels("GatherV2", "Tparams")
    held, on_host = gpu_kernels("Identity", "T")
    assert {*all_reduce.GPU_TYPES.values()} <= gathered & held - on_host
    assert "uint8" not in gathered and "int32" in on_host  # why there is anything to change
    casts, _ = gpu_kernels("Cast", "SrcT")
    assert {*all_reduce.GPU_TYPES.values()} <= casts


@pytest.mark.parametrize("dtype", all_reduce.GPU_TYPES)
def test_values_that_a_gpu_holds_are_the_same(dtype: str) -> None:
    limits = np.iinfo(dtype)
    array = np.array([limits.min, 0, 1, limits.max - 1, limits.max], dtype)
    held = all_reduce.convert_for_gpu(array)
    assert held.dtype.name == all_reduce.GPU_TYPES[dtype]
    found = tf.cast(tf.constant(held), dtype)
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("dtype", ["bool", "float16", "bfloat16", "float32", "float64", "int64"])
def test_other_arrays_stay_as_they_are(dtype: str) -> None:
    array = np.ones((5, 3), getattr(ml_dtypes, dtype, dtype))
    assert all_reduce.convert_for_gpu(array) is array


def test_data_lies_on_a_gpu_where_it_fits_and_else_on_the_host() -> None:
    gpu, cpu = "/job:worker/task:1/device:GPU:3", "/job:worker/task:1/device:CPU:2"
    assert all_reduce.storage_device(gpu, all_reduce.GPU_BYTES_MAX) == gpu
    host = all_reduce.storage_device(gpu, all_reduce.GPU_BYTES_MAX + 1)
    assert tf.DeviceSpec.from_string(host) == tf.DeviceSpec.from_string(
        "/job:worker/task:1/device:CPU:0"
    )
    assert all_reduce.storage_device(cpu, all_reduce.GPU_BYTES_MAX + 1) == cpu
