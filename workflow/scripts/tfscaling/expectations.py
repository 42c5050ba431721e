"""What the tables expect: every run of the grid with its parameters, every point left out.

Layer 4 (view): the tables compare it with the records that are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfscaling import grid, models, parameters, platforms
from tfscaling.geometry import batch_scaling
from tfscaling.models import MODELS
from tfscaling.strategies import STRATEGIES

SCHEMA_VERSION = 1


def dataset_of(config: Mapping[str, Any], run: grid.Run) -> str:
    """The recipe's dataset, or else the model's own."""
    dataset: str | None = config["recipes"][run.recipe]["dataset"] or models.get(run.model).dataset
    assert dataset is not None, "grid.expand refuses a model without a dataset"
    return dataset


def expected_runs(config: Mapping[str, Any]) -> dict[str, Any]:
    """The content of grid.json for a validated configuration.

    `runs`: path, axes, sizes, price and the parameters with which the record must have been made;
    `excluded`: axes and reason; `platforms`: name → title.
    """
    expanded = grid.expand(config, MODELS, STRATEGIES)
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
                "usd_per_node_hour": config["platforms"][run.platform]["usd_per_node_hour"],
                "parameters": values,
                "parameters_hash": parameters.parameters_hash(run.axes, values),
            }
        )
    return {
        "schema_version": SCHEMA_VERSION,
        "platforms": {n: platforms.title(config["platforms"], n) for n in config["platforms"]},
        "runs": entries,
        "excluded": [{"axes": e.axes, "reason": e.reason} for e in expanded.excluded],
    }
