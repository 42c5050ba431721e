"""The order of the examples: each once, by seed, epoch and global batch alone."""

from __future__ import annotations

import numpy as np
import pytest
from tfscaling.training.example_order import order_of_epoch


def test_order_of_an_epoch_has_each_example_and_pads_the_last_batch() -> None:
    order = order_of_epoch(1, 1, examples=103, batch=10)
    assert order.shape == (11, 10)
    assert order.dtype == np.int32
    np.testing.assert_array_equal(np.sort(order.ravel()[:103]), np.arange(103))
    # padding is the beginning of the epoch
    np.testing.assert_array_equal(order.ravel()[103:], order.ravel()[:7])


def test_order_of_an_epoch_without_rest_is_a_permutation() -> None:
    order = order_of_epoch(1, 1, examples=60, batch=20)
    np.testing.assert_array_equal(np.sort(order.ravel()), np.arange(60))
    assert order.ravel().tolist() != list(range(60))


def test_order_of_an_epoch_is_always_the_same() -> None:
    np.testing.assert_array_equal(order_of_epoch(5, 2, 100, 10), order_of_epoch(5, 2, 100, 10))


@pytest.mark.parametrize(("seed", "epoch"), [(5, 3), (6, 2), (2, 5)])
def test_other_epochs_and_seeds_have_other_orders(seed: int, epoch: int) -> None:
    first, second = order_of_epoch(5, 2, 100, 10), order_of_epoch(seed, epoch, 100, 10)
    assert (first != second).mean() > 0.9


def test_order_does_not_depend_on_how_a_global_batch_is_split() -> None:
    # the replicas slice the rows; the rows are of the global batch only
    np.testing.assert_array_equal(
        order_of_epoch(5, 1, 96, 16).ravel(), order_of_epoch(5, 1, 96, 8).ravel()
    )
