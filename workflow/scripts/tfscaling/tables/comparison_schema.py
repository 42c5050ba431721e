"""JSON Schema of a row of comparison.csv, made from the metrics and from the columns beside them.

`make schemas` writes it as `workflow/schemas/comparison.schema.yaml`.
"""

from __future__ import annotations

from typing import NamedTuple

from tfscaling.records.metrics import METRICS, Metric
from tfscaling.study.configuration import Schema
from tfscaling.tables import comparison

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}


class Column(NamedTuple):
    """What a column says, its unit ("" of a pure number or a text), and the rules of its values."""

    description: str
    unit: str
    rules: Schema


def or_null(rules: Schema) -> Schema:
    """An empty cell is allowed as well."""
    return {**rules, "type": [rules["type"], "null"]}


NUMBER: Schema = or_null({"type": "number"})
COUNT: Schema = or_null({**WHOLE, "minimum": 1})

#: The columns that are no metrics.
OTHERS: dict[str, Column] = {
    "platform": Column(
        "The platform's name in the configuration.",
        "",
        TEXT,
    ),
    "model": Column(
        "The model, a name or package.module:function.",
        "",
        TEXT,
    ),
    "strategy": Column(
        "The distribution strategy.",
        "",
        TEXT,
    ),
    "recipe": Column(
        "The recipe's name in the configuration.",
        "",
        TEXT,
    ),
    "nodes": Column(
        "Number of nodes.",
        "nodes",
        {**WHOLE, "minimum": 1},
    ),
    "gpus_per_node": Column(
        "GPUs (or logical devices) on each node; 0 is the CPU.",
        "GPUs",
        {**WHOLE, "minimum": 0},
    ),
    "tasks_per_node": Column(
        'Ranks on each node; "2+1" is two on the first and one on the second of two nodes.',
        "tasks",
        {**TEXT, "pattern": r"^[1-9]\d*(\+[1-9]\d*)*$"},
    ),
    "devices": Column(
        "What each node trains on - its CPU, its GPUs, or logical devices, which are "
        "parts of its CPU and stand for GPUs.",
        "",
        {"enum": ["CPU", "GPU", "logical"]},
    ),
    "platform_title": Column(
        "How tables and plots call the platform.",
        "",
        TEXT,
    ),
    "cloud": Column(
        "The cloud on which the platform runs; null if it is none.",
        "",
        or_null(TEXT),
    ),
    "status": Column(
        "ok - all runs are valid; incomplete - some are; diverged, failed, unfinished, "
        "stale or missing - none is, mostly for this; excluded - the point is not run.",
        "",
        {
            "enum": [
                "ok",
                "incomplete",
                "diverged",
                "failed",
                "unfinished",
                "stale",
                "missing",
                "excluded",
            ]
        },
    ),
    "runs": Column(
        "Valid runs; medians, ranges and intervals are over these.",
        "runs",
        {**WHOLE, "minimum": 0},
    ),
    "runs_timed": Column(
        "Those of them whose times count; medians, ranges and intervals of times, rates and costs "
        "are over these. Fewer than runs where some went on from a checkpoint (compare_resumed).",
        "runs",
        {**WHOLE, "minimum": 0},
    ),
    "runs_asked": Column(
        "Runs that the configuration asks for; null for an excluded point.",
        "runs",
        COUNT,
    ),
    "runs_diverged": Column(
        "Runs whose loss became NaN or infinite - results that are in no median; null for "
        "an excluded point.",
        "runs",
        {**or_null(WHOLE), "minimum": 0},
    ),
    "replicas": Column(
        "Copies of the model that train at the same time; null for an excluded point.",
        "replicas",
        COUNT,
    ),
    "per_replica_batch_size": Column(
        "Examples per step and replica; null for an excluded point.",
        "examples",
        COUNT,
    ),
    "global_batch_size": Column(
        "Examples per step over all replicas; null for an excluded point.",
        "examples",
        COUNT,
    ),
    "batch_scaling": Column(
        "weak - the global batch grows with the replicas; strong - it stays; null for an "
        "excluded point.",
        "",
        {"enum": ["weak", "strong", None]},
    ),
    "examples_trained": Column(
        "Median of the examples trained over all epochs; null without a valid run.",
        "examples",
        COUNT,
    ),
    "examples_trained_min": Column(
        "Fewest examples that a valid run trained; null without a valid run.",
        "examples",
        COUNT,
    ),
    "examples_trained_max": Column(
        "Most examples that a valid run trained; null without a valid run.",
        "examples",
        COUNT,
    ),
    "same_work": Column(
        "Whether examples_trained is that of the baseline to 0.2 % (without a measured "
        "baseline, that of the point of its series that trained the most); only then "
        "there is a speed-up. Null without a valid run.",
        "",
        or_null({"type": "boolean"}),
    ),
    "projected_from_steps": Column(
        "Steps that short runs trained, from which times and costs of the whole training are "
        "projected; null where they are measured.",
        "steps",
        COUNT,
    ),
    "projected_to_steps": Column(
        "Steps of the whole training of short runs; null of others.", "steps", COUNT
    ),
    "quality_metric": Column(
        "The metric by which the recipe's runs are compared; values of different ones are "
        "not. Null for an excluded point.",
        "",
        or_null(TEXT),
    ),
    "quality_direction": Column(
        "Whether its higher or lower value is better.",
        "",
        {"enum": ["higher", "lower", None]},
    ),
    "quality_unit": Column(
        "Its unit; null where it has none.",
        "",
        or_null(TEXT),
    ),
    "quality_best": Column(
        "Its best possible value, from which values are compared by their distance; null where it "
        "has none.",
        "",
        NUMBER,
    ),
    "undefined_ratios": Column(
        'The ratios that the point cannot have, separated by "; "; the reason says why. '
        "Null if there are none.",
        "",
        or_null(TEXT),
    ),
    "baseline": Column(
        "The point that speed-up is relative to, by its axes; null for an excluded point.",
        "",
        or_null(TEXT),
    ),
    "baseline_point": Column(
        "The same point by its path, as that of its folder below results/runs; null "
        "without a baseline.",
        "",
        or_null(TEXT),
    ),
    "baseline_execution_time_s": Column(
        "Median execution time of the baseline; null if it has no valid run with times.",
        "s",
        {**NUMBER, "exclusiveMinimum": 0},
    ),
    "target": Column(
        "The target of the point's quality in comparison.targets, in quality_unit; null "
        "without one, and for an excluded point.",
        "",
        NUMBER,
    ),
    "runs_at_target": Column(
        "Valid runs that reached target; null without a target, and for an excluded point.",
        "runs",
        {**or_null(WHOLE), "minimum": 0},
    ),
    "reason": Column(
        "Why runs do not count, or why the point is not run; empty if nothing is wrong.",
        "",
        TEXT,
    ),
}
#: Ends of the names of columns → what they say of the metric; all are null without what they need.
ENDS = {
    "min": "Least {} of the valid runs; null without any.",
    "max": "Greatest {} of the valid runs; null without any.",
    "low": "Lower end of the 95 % interval of {}; null below 6 valid runs.",
    "high": "Upper end of the 95 % interval of {}; null below 6 valid runs.",
}
#: Metrics whose definition on the page refers to formulae that stand there.
RATIOS = {
    "speedup": "Median execution_time_s of the baseline over that of the point; null without "
    "either, or if they do not do the same work.",
    "scaling_efficiency": "Speed-up over the number of replicas relative to the baseline's; null "
    "without a speed-up.",
}
#: Metrics that may be below zero: losses of a user's model, and what is made of them.
ANY_SIGN = ("loss", "test_loss", "loss_ratio", "quality")
DESCRIPTION = (
    "One row of results/<study>/tables/comparison.csv - a point of the grid over all its runs. "
    'An empty cell is null; unit "" is a pure number or a text. Metrics are medians over the valid '
    "runs of the point."
)


def schema() -> Schema:
    """The schema, with a property for each column of comparison.csv in its order."""
    properties = {name: property_of(column(name)) for name in names()}
    return {
        "title": "comparison",
        "description": DESCRIPTION,
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def names() -> tuple[str, ...]:
    """The columns of comparison.csv, in their order."""
    return tuple(comparison.COLUMNS)


def column(name: str) -> Column:
    """What a column of comparison.csv says."""
    if name in OTHERS:
        return OTHERS[name]
    if name in METRICS:
        metric = METRICS[name]
        return Column(RATIOS.get(name, metric.meaning), metric.unit, _rules(name, metric))
    of, _, end = name.rpartition("_")
    return Column(ENDS[end].format(of), METRICS[of].unit, _rules(of, METRICS[of]))


def _rules(name: str, metric: Metric) -> Schema:
    if metric.best is not None or name == "published_accuracy":
        return {**NUMBER, "minimum": 0, "maximum": 1}
    if name in ANY_SIGN:
        return NUMBER
    if name == "execution_time_s":
        return {**NUMBER, "exclusiveMinimum": 0}
    return {**NUMBER, "minimum": 0}


def property_of(described: Column) -> Schema:
    """The rules of a column's values, with what it says."""
    return {"description": described.description, "unit": described.unit, **described.rules}
