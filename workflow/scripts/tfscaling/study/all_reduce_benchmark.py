"""The all-reduce benchmark of a point: whether it has one, where it lies, its parameters.

Only what can change the time of an all-reduce is a parameter of it: another
learning rate reruns the training, not the benchmark.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tfscaling.study import costs, parameters
from tfscaling.study.configuration import properties
from tfscaling.study.grid import POINT_AXES, Run

#: Raised when a change of the benchmark makes earlier ones incomparable: every one is made again.
BENCHMARK_VERSION = 1
#: Of a recipe what can change how gradients are reduced; their shapes are the model's, an axis.
RECIPE_KEYS = ("precision", "communication")
SINGLE, NO_ALL_REDUCE = "single replica", "no all-reduce"


class Coordination(Protocol):
    """What is asked of a distribution strategy; `strategies.STRATEGIES` holds them."""

    @property
    def coordinated(self) -> bool:
        """Whether a coordinator and parameter servers take the place of all-reduce."""


@functools.cache
def definitions() -> dict[str, dict[str, Any]]:
    """Parameter → its schema."""
    own = properties("config")["all_reduce_benchmark"]["properties"]
    version = {"type": "integer", "description": "Version of the benchmark's meaning."}
    return {
        **{key: properties("recipe")[key] for key in RECIPE_KEYS},
        **{key: schema for key, schema in properties("platform").items() if schema.get("measured")},
        "sizes_bytes": own["sizes_bytes"],
        "repetitions": own["repetitions"],
        "benchmark_version": version,
    }


def parameters_of(config: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """All parameters of the benchmark of the run's point, in the order of `definitions`."""
    values = {
        **config["recipes"][run.recipe],
        **config["platforms"][run.platform],
        **config["all_reduce_benchmark"],
        "benchmark_version": BENCHMARK_VERSION,
    }
    return parameters.typed(values, definitions())


def axes_of(run: Run) -> dict[str, Any]:
    """The point of a run."""
    return {axis: getattr(run, axis) for axis in POINT_AXES}


def point_path(axes: Mapping[str, Any]) -> str:
    """The benchmark's folder below results/all_reduce: the runs' without the repeat."""
    return "/".join(f"{axis}={axes[axis]}" for axis in POINT_AXES)


def folder_beside(runs_dir: Path) -> Path:
    """Where the benchmarks lie, given where the runs do."""
    return runs_dir.with_name("all_reduce")


def refusal(run: Run, strategy: Coordination) -> str | None:
    """Why there is nothing to time at the run's point, or None."""
    if strategy.coordinated:
        return NO_ALL_REDUCE
    return SINGLE if run.replicas < 2 else None


def entries(
    config: Mapping[str, Any], runs: Iterable[Run], strategies: Mapping[str, Coordination]
) -> list[dict[str, Any]]:
    """One entry per point: path, axes, replicas, price, refusal, parameters and their hash.

    Parameters are None where there is nothing to time. No entries if benchmarks are not enabled.
    """
    found: dict[str, dict[str, Any]] = {}
    for run in runs if config["all_reduce_benchmark"]["enabled"] else ():
        axes = axes_of(run)
        path = point_path(axes)
        if path in found:
            continue
        refused = refusal(run, strategies[run.strategy])
        values = None if refused else parameters_of(config, run)
        price = costs.node_price_usd(config["platforms"][run.platform], run.gpus_per_node)
        found[path] = {
            "path": path,
            "axes": axes,
            "replicas": run.replicas,
            "usd_per_node_hour": price,
            "refusal": refused,
            "parameters": values,
            "parameters_hash": values and parameters.parameters_hash(axes, values),
        }
    return list(found.values())
