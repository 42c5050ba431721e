"""The order of the examples of arrays, and arrays that are complete on a device.

The order depends on the seed and the global batch only, not on how replicas are spread over workers
and devices: the same replicas give the same model wherever they run.

Each step gathers its examples on the device. TensorFlow has no GPU kernel that gathers bytes, and
keeps int32 of a GPU in the host's memory: there rows of such arrays are stored as 64-bit integers,
which a GPU gathers, and a batch is read as its own type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


#: Types that GPUs gather, and hold in their own memory.
GATHERED = ("bool", "float16", "bfloat16", "float32", "float64", "int64")
#: More bytes than these stay in the host's memory: the rest of a GPU's is for the training.
GPU_BYTES_MAX = 1 << 30
_WORD_BYTES = 8


@dataclass(frozen=True)
class Layout:
    """How the examples of an array lie on a device: as they are, or packed into words of a row.

    `shape` and `dtype` are those of an example.
    """

    shape: tuple[int, ...]
    dtype: str
    is_packed: bool

    @classmethod
    def of(cls, array: np.ndarray, on_gpu: bool) -> Layout:
        """Of this array's examples on a GPU, or on a CPU."""
        dtype = array.dtype.name
        return cls(array.shape[1:], dtype, on_gpu and dtype not in GATHERED)

    def stored(self, array: np.ndarray) -> np.ndarray:
        """The array as it lies on the device: (examples, ...), or int64 (examples, words)."""
        if not self.is_packed:
            return array
        rows = np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8)
        padding = -rows.shape[1] % _WORD_BYTES
        return np.pad(rows, ((0, 0), (0, padding))).view(np.int64)

    def taken(self, data: Any, indices: Any) -> Any:
        """The examples at `indices`, an int32 tensor (batch,), of what is stored: (batch, ...)."""
        import tensorflow as tf

        rows = tf.gather(data, indices)
        if not self.is_packed:
            return rows
        batch = rows.shape[0]
        dtype = np.dtype(self.dtype)
        count = int(np.prod(self.shape))
        found = tf.reshape(tf.bitcast(rows, tf.uint8), [batch, -1])[:, : count * dtype.itemsize]
        if dtype.itemsize > 1:
            found = tf.reshape(found, [batch, count, dtype.itemsize])
        if dtype != np.uint8:
            found = tf.bitcast(found, self.dtype)
        return tf.reshape(found, [batch, *self.shape])


def device_of(device: str, size: int) -> str:
    """Where `size` bytes of data for a device lie: there, or in the host's memory for a GPU."""
    import tensorflow as tf

    spec = tf.DeviceSpec.from_string(device)
    if spec.device_type == "CPU" or size <= GPU_BYTES_MAX:
        return device
    host: str = spec.replace(device_type="CPU", device_index=0).to_string()
    return host


def is_gpu(device: str) -> bool:
    """Whether the device is a GPU."""
    import tensorflow as tf

    return bool(tf.DeviceSpec.from_string(device).device_type == "GPU")
