"""The grid of the finished sweep that workflow tests look at."""

from __future__ import annotations

from typing import Any

from project import QUICK, SMALL_MODEL
from tfscaling.page.plot_registry import PLOTS

#: Its plots, and the plots that one test adds; tests draw a page often. No platform has a price,
#: so `cost_time` has nothing to show.
DRAWN = {"speedup", "cost_time"}
ADDED = {"epochs", "execution_time", "time_split"}
SWEEP: dict[str, Any] = {
    "grid": [
        # 16 nodes are beyond nodes_max: excluded, with the reason
        {"platform": "laptop", "model": SMALL_MODEL, "recipe": "tiny", "nodes": [1, 2, 16],
         "gpus_per_node": [0, 2]},
        {"platform": "laptop", "model": SMALL_MODEL, "recipe": "other", "nodes": 1, "repeats": 2},
    ],
    "recipes": {"tiny": QUICK, "other": {**QUICK, "learning_rate": 0.005}},
    "platforms": {"laptop": {"nodes_max": 8}},
    "plots": dict.fromkeys(sorted(PLOTS.keys() - DRAWN)),
}  # fmt: skip
#: What the sweep printed, in the project's folder.
CONSOLE = "console.log"
#: The folder for its temporary files, in the project's folder.
TEMPORARY = "temporary"
#: In the environment of the sweep: nothing that it writes may have it.
SECRET = "not-to-be-written-down"
