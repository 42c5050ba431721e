"""What the tables expect: every run of the grid with its parameters, every point left out.

the tables compare it with the records that are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfscaling.datasets.catalogue import TRAIN_EXAMPLES
from tfscaling.study import all_reduce_benchmark, costs, grid, parameters, platforms
from tfscaling.study.geometry import batch_scaling
from tfscaling.training import models
from tfscaling.training.models import MODELS
from tfscaling.training.strategies import STRATEGIES

SCHEMA_VERSION = 1


def dataset_of(config: Mapping[str, Any], run: grid.Run) -> str:
    """The recipe's dataset, or else the model's own."""
    dataset: str | None = config["recipes"][run.recipe]["dataset"] or models.get(run.model).dataset
    assert dataset is not None, "grid.expand refuses a model without a dataset"
    return dataset


def expected_runs(config: Mapping[str, Any]) -> dict[str, Any]:
    """The content of manifest.json for a validated configuration.

    `runs`: path, axes, sizes, price and the parameters with which the record must have been made,
    `relative_interval` that is asked of its point and whether it is a `further` repeat;
    `order_seed`: of the order in which runs start; `benchmarks`: what `benchmark.entries` says;
    `excluded`: axes and reason; `platforms`: name → what the tables say of it; `target_accuracy`:
    the accuracy to which time and cost are compared, or None.
    """
    expanded = grid.expand(config, MODELS, STRATEGIES, examples=TRAIN_EXAMPLES)
    entries = []
    for run in expanded.runs:
        values = parameters.run_parameters(config, run, dataset_of(config, run))
        entries.append(
            {
                "path": run.path,
                "axes": run.axes,
                "replicas": run.replicas,
                "per_replica_batch_size": run.per_replica_batch_size,
                "global_batch_size": run.global_batch_size,
                "batch_scaling": batch_scaling(config["recipes"][run.recipe]),
                "relative_interval": run.relative_interval,
                "further": run.further,
                "usd_per_node_hour": costs.node_price_usd(
                    config["platforms"][run.platform], run.gpus_per_node
                ),
                "parameters": values,
                "parameters_hash": parameters.parameters_hash(run.axes, values),
            }
        )
    points = [run.platform for run in expanded.runs]
    points += [point.axes["platform"] for point in expanded.excluded]
    named = dict.fromkeys(points)
    return {
        "schema_version": SCHEMA_VERSION,
        "order_seed": config["seed"],
        "target_accuracy": config["comparison"]["target_accuracy"],
        "platforms": {name: platforms.shown(config["platforms"], name) for name in named},
        "runs": entries,
        "all_reduce_benchmarks": all_reduce_benchmark.entries(config, expanded.runs, STRATEGIES),
        "excluded": [{"axes": e.axes, "reason": e.reason} for e in expanded.excluded],
    }
