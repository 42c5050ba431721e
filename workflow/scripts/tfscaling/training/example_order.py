"""The order of the examples of arrays.

It depends on the seed and the global batch only, never on how replicas are spread over workers and
devices, so that the same replicas give the same model wherever they run.
"""

from __future__ import annotations

import numpy as np

from tfscaling.datasets.catalogue import Arrays

#: Held-out examples per replica and call, at most.
EVALUATION_BATCH = 500


def order_of_epoch(seed: int, epoch: int, examples: int, batch: int) -> np.ndarray:
    """Indices of the examples in random order, shape (steps, batch), int32: each of them once.

    An incomplete last batch is padded with the first examples of the epoch. So all steps have the
    same shape, and the statistics of a batch are those of real images; `real_examples` says how
    many of a step count.
    """
    steps = -(-examples // batch)
    order = np.random.default_rng([seed, epoch]).permutation(examples)
    return np.resize(order, (steps, batch)).astype(np.int32)


class ExampleOrder:
    """Which examples of arrays are in each step and in each call of an evaluation.

    `evaluation_batch` is the number of held-out examples of a replica in a call. Raises ValueError
    if there are fewer training examples than a global batch has.
    """

    def __init__(self, arrays: Arrays, global_batch: int, replicas: int) -> None:
        self.global_batch, self.replicas = global_batch, replicas
        self.train_examples, self.test_examples = arrays.train_examples, arrays.test_examples
        if self.train_examples < global_batch:
            raise ValueError(
                f"{self.train_examples} training examples are fewer than the global batch of "
                f"{global_batch}"
            )
        # padding is computed as well: no more than a small test set needs
        self.evaluation_batch = min(EVALUATION_BATCH, -(-self.test_examples // replicas))

    def of_epoch(self, seed: int, epoch: int) -> np.ndarray:
        """Indices of shape (steps, global batch); the last step may end with padding."""
        return order_of_epoch(seed, epoch, self.train_examples, self.global_batch)

    def of_evaluation(self) -> np.ndarray:
        """Indices of shape (calls, replicas x evaluation_batch), each once; -1 is padding."""
        width = self.evaluation_batch * self.replicas
        indices = np.full(-(-self.test_examples // width) * width, -1, np.int32)
        indices[: self.test_examples] = np.arange(self.test_examples)
        return indices.reshape(-1, width)
