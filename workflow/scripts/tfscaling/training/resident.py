"""Arrays that lie on a device as a whole, from which each step gathers its examples there.

TensorFlow has no GPU kernel that gathers bytes, and holds int32 of a GPU in the host's memory.
There such arrays lie as rows of 64-bit integers, which a GPU does gather, and the rows of a batch
are read as what they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

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
