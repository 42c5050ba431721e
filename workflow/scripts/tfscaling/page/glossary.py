"""The words of the page, for readers who see them for the first time.

docs/glossary.md has them, too: `make schemas` writes them there.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfscaling.tables.estimates import CONFIDENCE, RUNS_FOR_INTERVAL

GLOSSARY: Mapping[str, str] = {
    "point": "one combination of platform, model, strategy, recipe, nodes, GPUs and tasks per "
    "node. It is run several times.",
    "run": "one training of a point, in a job of its own.",
    "platform": "where to run: one kind of node, with its limits, its price and how its jobs are "
    "started.",
    "recipe": "how to train: dataset, batch size, optimizer, learning rate, epochs, precision.",
    "strategy": "how the replicas share the work and exchange their gradients.",
    "rank": "the number of a task, a process of a run, from 0; rank 0 is the chief.",
    "replica": "one copy of the model: one for each GPU, or for each task on CPUs. All replicas "
    "together train one model.",
    "logical device": "a part of a CPU that stands for a GPU, to try a geometry without GPUs. Its "
    "times say nothing about any GPU.",
    "baseline": "the point that speed-up and efficiency are relative to: of the same platform, "
    "model, strategy, recipe and kind of device the one with the fewest replicas, unless "
    "configured.",
    "speed-up": "time of the baseline over time of the point: 2 is twice as fast.",
    "scaling efficiency": "speed-up over what the replicas would give if all of them helped fully: "
    "1 is ideal.",
    "interval": f"the range that holds the true median, or ratio of medians, in {CONFIDENCE:.0%} "
    f"of such samples. It needs {RUNS_FOR_INTERVAL} runs.",
    "supported": "the runs show it. If many such sweeps were made, in at least "
    f"{CONFIDENCE:.0%} of them all supported sentences of a kind would be true together. That is "
    f"not certain: in up to {1 - CONFIDENCE:.0%} one of them would be wrong. It holds for these "
    "machines and this training.",
    "inconclusive": "there are runs enough for an interval, but the interval leaves both answers "
    "open.",
    "too few runs": f"fewer than {RUNS_FOR_INTERVAL} runs: no interval, only medians.",
    "Pareto set": "the points of which no other is better in all metrics that are looked at.",
    "sigma, kappa": "in the scaling laws: sigma is the share of the work that does not get faster "
    "with more replicas, kappa the cost of their talking to each other.",
}
