"""Generated data of the shape of a real dataset: for measuring speed.

Images and labels are noise, so accuracy stays at chance. The generator is NumPy's RandomState,
whose stream never changes: the same bytes on every machine, and checksums that prove it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

#: Of the arrays' bytes.
IMAGENET_MD5 = {
    "x_train": "d1a3f74801291029aa066bc03973cb67",
    "y_train": "ac2394a71dbbb70c52aabf629ca7cc83",
    "x_test": "8d984578a74ee5cfac8ee431d907df36",
    "y_test": "2286ded9e7369a58380dea2a0ebbd915",
}
#: Batches of 32 and 64 divide it for 1, 2, 3, 4, 6, 8, 12 and 24 replicas, 128 for up to 12.
IMAGENET_EXAMPLES = {"train": 1536, "test": 128}
_IMAGENET_SHAPE, _IMAGENET_CLASSES = (224, 224, 3), 1000


def imagenet(_: Path | None) -> dict[str, np.ndarray]:
    """Images uint8 (1536, 224, 224, 3) and (128, 224, 224, 3), labels int32 below 1000."""
    random, arrays = np.random.RandomState(0), {}
    for part, examples in IMAGENET_EXAMPLES.items():
        size = examples * int(np.prod(_IMAGENET_SHAPE))
        pixels = np.frombuffer(random.bytes(size), np.uint8)
        arrays[f"x_{part}"] = pixels.reshape(examples, *_IMAGENET_SHAPE)
        arrays[f"y_{part}"] = random.randint(0, _IMAGENET_CLASSES, examples).astype("<i4")
    return arrays


def from_path(path: Path | None) -> dict[str, np.ndarray]:
    """From an .npz made earlier."""
    if path is None:
        raise FileNotFoundError("no path is configured")
    with np.load(path) as stored:
        return {name: stored[name] for name in IMAGENET_MD5}


#: In the order in which they are tried; `path` is the user's own copy.
IMAGENET_SOURCES: dict[str, Callable[[Path | None], dict[str, np.ndarray]]] = {
    "path": from_path,
    "synthetic": imagenet,
}
