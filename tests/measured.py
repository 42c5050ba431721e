"""Made-up measurements of two platforms of two clouds, without records on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from builders import manifest_of, raw_config
from tfscaling.study import config_validation
from tfscaling.study.manifest import Manifest
from tfscaling.study.platforms import device_kind, run_cost_usd
from tfscaling.tables import run_measurements, runs_table
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.row_values import QUALITY_COLUMNS

PRICE = {"price_date": "2026", "price_source": "a price list"}
PLATFORMS = {
    "east": {"cloud": "gcp", "usd_per_node_hour": 1.0, **PRICE},
    "west": {"cloud": "aws", "usd_per_node_hour": 2.0, **PRICE},
}
#: What is planned where it does not matter.
NOTHING_PLANNED = Manifest(
    order_seed=1, targets={}, platforms={}, synchronous_strategies=(), runs=(), excluded=()
)
#: What a run without times has not, beside its times.
OF_TIME = ("cost_usd", "time_to_target_s", "cost_to_target_usd", "examples_trained")
#: Point (platform, nodes) → execution times of its runs in seconds, with accuracies if they matter.
Times = Mapping[tuple[str, int], Sequence[float]]


def measured(
    times: Times, accuracies: Times | None = None, **platforms: Any
) -> tuple[pd.DataFrame, pd.DataFrame, Manifest]:
    """(comparison, runs, planned) of these runs; of each point as many as the longest list has.

    Runs that are planned but not given failed.
    """
    repeats = max(map(len, times.values()))
    names = list(dict.fromkeys(platform for platform, _ in times))
    shape = {"launcher": "srun", "nodes_max": 64, "cpus_per_node": 2}
    raw = raw_config(
        (("platforms",), {name: {**shape, **PLATFORMS[name], **platforms} for name in names}),
        (("grid",), [{"platform": name, "model": "mnist_cnn", "recipe": "weak", "repeats": repeats,
                      "nodes": sorted(nodes for platform, nodes in times if platform == name)}
                     for name in names]),
    )  # fmt: skip
    planned = manifest_of(config_validation.convert_to_types(raw))
    rows = []
    for run in planned.runs:
        spec = run.spec
        point, number = (spec.point.platform, spec.point.nodes), spec.repeat - 1
        row: dict[str, Any] = {**spec.axes, "tasks_per_node": "1"}
        row |= {size: getattr(spec, size) for size in runs_table.SIZES[:-1]}
        row["batch_scaling"] = spec.recipe.batch_scaling
        q = spec.recipe.quality
        row |= dict(zip(QUALITY_COLUMNS, (q.metric, q.better, q.unit, q.best_value), strict=True))
        row["devices"] = device_kind(spec.point.gpus_per_node, spec.measured.devices)
        row["parameters_hash"] = spec.parameters_hash
        if number < len(times.get(point, ())):
            time = times[point][number]
            accuracy = (accuracies or {}).get(point, [0.9] * repeats)[number]
            row |= {"status": "ok", "reason": "", "execution_time_s": time, "loss": 1 - accuracy}
            row |= {
                "examples_trained": 60_000,
                "accuracy": accuracy,
                "test_accuracy": accuracy,
                "quality": accuracy,
            }
            row["cost_usd"] = run_cost_usd(run.usd_per_node_hour, spec.point.nodes, time)
            row["node_hours"] = spec.point.nodes * time / 3600
        else:
            row |= {"status": "failed", "reason": "rank 1 died"}
        rows.append(row)
    runs = pd.DataFrame(rows, columns=list(runs_table.RUN_COLUMNS))
    return comparison_table(runs, planned), runs, planned


def resumed_from(
    made: tuple[pd.DataFrame, pd.DataFrame, Manifest], *nodes: int, runs: int = 99
) -> tuple[pd.DataFrame, pd.DataFrame, Manifest]:
    """The same, where the first `runs` on so many nodes went on from a checkpoint: without times.

    As by a program, which tells of its last attempt, without the number of examples.
    """
    _, table, planned = made
    gone = table["nodes"].isin(nodes) & (table["repeat"] <= runs) & (table["status"] == "ok")
    of_time = [name for name in table if name in (*run_measurements.TIME_METRICS, *OF_TIME)]
    table = table.assign(**{name: table[name].mask(gone) for name in of_time})
    table["untimed_reason"] = table["untimed_reason"].astype(object).mask(gone, "resumed")
    return comparison_table(table, planned), table, planned


def around(value: float, spread: float = 0.01, runs: int = 6) -> list[float]:
    """So many values about `value`, evenly from below to above it by `spread`, a fraction."""
    step = 2 * spread / max(1, runs - 1)
    return [value * (1 - spread + step * number) for number in range(runs)]


def nothing_measured() -> tuple[pd.DataFrame, pd.DataFrame]:
    comparison, runs, _ = measured({("east", 1): [1.0], ("east", 2): [1.0]})
    runs["status"] = comparison["status"] = "missing"
    comparison[["runs", "execution_time_s", "cost_usd", "quality"]] = 0, None, None, None
    return comparison, runs
