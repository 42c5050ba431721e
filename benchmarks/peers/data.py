"""The data of studies/peers/config.yaml: the same few examples of genuine MNIST for all."""

from __future__ import annotations

import numpy as np

#: Prepared before the sweep, by `make peers`.
MNIST = "results/datasets/mnist.npz"
TEST_EXAMPLES = 500

Part = tuple[np.ndarray, np.ndarray]


def first(examples: int) -> tuple[Part, Part]:
    """Return the first training examples and the first 500 held-out ones, as bytes."""
    with np.load(MNIST) as arrays:
        train = arrays["x_train"][:examples], arrays["y_train"][:examples]
        test = arrays["x_test"][:TEST_EXAMPLES], arrays["y_test"][:TEST_EXAMPLES]
    return train, test
