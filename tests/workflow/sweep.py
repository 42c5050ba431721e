"""The grid of the finished sweep that workflow tests look at."""

from __future__ import annotations

from typing import Any

from project import TINY

SWEEP: dict[str, Any] = {
    "grid": [
        # 16 nodes are beyond nodes_max: excluded, with the reason
        {"platform": "laptop", "model": "mnist_cnn", "recipe": "tiny", "nodes": [1, 2, 16],
         "gpus_per_node": [0, 2]},
        {"platform": "laptop", "model": "mnist_cnn", "recipe": "other", "nodes": 1, "repeats": 2},
    ],
    "recipes": {"tiny": TINY, "other": {**TINY, "learning_rate": 0.002}},
    "platforms": {"laptop": {"nodes_max": 8}},
}  # fmt: skip
