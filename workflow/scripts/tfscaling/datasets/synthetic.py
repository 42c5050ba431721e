"""Generated data of the shape of a real dataset: for measuring speed.

Images and labels are noise, so accuracy stays at chance. The generator is NumPy's RandomState,
whose stream never changes: the same bytes on every machine.
"""

from __future__ import annotations

import numpy as np

#: Batches of 32 and 64 divide it for 1, 2, 3, 4, 6, 8, 12 and 24 replicas, 128 for up to 12.
IMAGENET_EXAMPLES = {"train": 1536, "test": 128}
_IMAGENET_SHAPE, _IMAGENET_CLASSES = (224, 224, 3), 1000


def imagenet() -> dict[str, np.ndarray]:
    """Images uint8 (1536, 224, 224, 3) and (128, 224, 224, 3), labels int32 below 1000."""
    random, arrays = np.random.RandomState(0), {}
    for part, examples in IMAGENET_EXAMPLES.items():
        size = examples * int(np.prod(_IMAGENET_SHAPE))
        pixels = np.frombuffer(random.bytes(size), np.uint8)
        arrays[f"x_{part}"] = pixels.reshape(examples, *_IMAGENET_SHAPE)
        arrays[f"y_{part}"] = random.randint(0, _IMAGENET_CLASSES, examples).astype("<i4")
    return arrays
