"""Clouds against each other, point by point. Layer 4 (view)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from tfscaling import costs
from tfscaling.display import MISSING, Shown
from tfscaling.grid import POINT_AXES
from tfscaling.metrics import METRICS
from tfscaling.samples import Samples, difference, point_of

METRICS_COMPARED = ("execution_time_s", "loss", "accuracy", "cost_usd")
AXES = POINT_AXES[1:]
COLUMNS = (
    *("source", "platform_a", "cloud_a", "platform_b", "cloud_b"),
    *AXES,
    *("metric", "value_a", "value_b", "winner", "margin", "low", "high", "verdict"),
)

Row = Mapping[Any, Any]


def table(
    comparison: pd.DataFrame,
    runs: pd.DataFrame,
    expected: Mapping[str, Any],
    published_rows: Sequence[Mapping[str, Any]] = (),
) -> pd.DataFrame:
    """One row per metric of every point that two platforms of different clouds have both.

    `winner` is the cloud with the better median, `margin` how many times worse the other one is
    (its error, for accuracy) with the interval `low` to `high`; `verdict` says whether the runs
    support that. `source` is measured or published; published points are single runs.
    """
    samples = Samples(runs)
    measured = [row for row in comparison.to_dict("records") if row["runs"] > 0]
    rows = [
        _compare(a, b, metric, "measured", samples)
        for a, b in _pairs(measured)
        for metric in METRICS_COMPARED
    ]
    rows += [
        _compare(a, b, metric, "published", None)
        for a, b in _pairs([_as_point(row, expected) for row in published_rows])
        for metric in METRICS_COMPARED
    ]
    return pd.DataFrame([row for row in rows if row], columns=list(COLUMNS))


def _pairs(points: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Points of different clouds with the same axes otherwise, in the order of the platforms."""
    alike: dict[tuple[Any, ...], list[Row]] = {}
    for row in points:
        if isinstance(row["cloud"], str):
            alike.setdefault(tuple(str(row[axis]) for axis in AXES), []).append(row)
    pairs = [
        (a, b)
        for group in alike.values()
        for a, b in itertools.combinations(group, 2)
        if a["cloud"] != b["cloud"]
    ]
    order = {(a["platform"], b["platform"]): None for a, b in pairs}
    rank = {names: number for number, names in enumerate(order)}
    return sorted(pairs, key=lambda pair: rank[pair[0]["platform"], pair[1]["platform"]])


def _as_point(row: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """A published row with the axes of a point, its cost at the configured price."""
    prices = {p["published_as"] or name: p for name, p in expected["platforms"].items()}
    platform = prices.get(row["platform"])
    price = costs.node_price_usd(platform, row["gpus_per_node"]) if platform else None
    cost = costs.run_cost_usd(price, row["nodes"], row["execution_time_s"])
    return {**row, "recipe": "published", "cost_usd": cost}


def _compare(
    a: Row, b: Row, metric: str, source: str, samples: Samples | None
) -> dict[str, Any] | None:
    value_a, value_b = a[metric], b[metric]
    if pd.isna(value_a) or pd.isna(value_b):
        return None
    higher = METRICS[metric].direction == "higher"
    better, other = (a, b) if (value_a > value_b) == higher else (b, a)
    if samples is None:
        values = [[1 - row[metric] if higher else row[metric]] for row in (better, other)]
        found = difference(values[0], values[1])
    else:
        found = samples.difference(metric, point_of(better), point_of(other))
    if found is None:
        return None
    low, high = found.interval or (None, None)
    return {
        "source": source,
        **{"platform_a": a["platform"], "cloud_a": a["cloud"]},
        **{"platform_b": b["platform"], "cloud_b": b["cloud"]},
        **{axis: a[axis] for axis in AXES},
        **{"metric": metric, "value_a": value_a, "value_b": value_b},
        "winner": "equal" if value_a == value_b else better["cloud"],
        **{"margin": found.ratio, "low": low, "high": high, "verdict": found.support},
    }


def shown(table: pd.DataFrame, source: str, first: str, second: str) -> Shown:
    """The winners of one pair of platforms: one row per point, one column per metric."""
    own = table[
        (table["source"] == source)
        & (table["platform_a"] == first)
        & (table["platform_b"] == second)
    ]
    varying = [a for a in AXES if a in ("nodes", "gpus_per_node") or own[a].nunique() > 1]
    points: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in own.to_dict("records"):
        axes = tuple(str(row[axis]) for axis in AXES)
        points.setdefault(axes, {})[row["metric"]] = row
    rows = [
        [
            *(text for axis, text in zip(AXES, axes, strict=True) if axis in varying),
            *(_winner(by_metric.get(name)) for name in METRICS_COMPARED),
        ]
        for axes, by_metric in points.items()
    ]
    clouds = f"{own['cloud_a'].iloc[0]} against {own['cloud_b'].iloc[0]}"
    return Shown(
        f"{clouds}: {first}, {second} ({source})",
        pd.DataFrame(rows, columns=[*varying, *METRICS_COMPARED], dtype=object),
        texts=frozenset(METRICS_COMPARED),
    )


def all_shown(table: pd.DataFrame) -> list[Shown]:
    """One table for each pair of platforms, measured ones first."""
    pairs = table[["source", "platform_a", "platform_b"]].drop_duplicates()
    return [shown(table, *pair) for pair in pairs.itertuples(index=False)]


def _winner(row: Row | None) -> str:
    if row is None:
        return MISSING
    margin = f"{row['margin']:.2f}"
    if pd.notna(row["low"]):
        margin += f", {row['low']:.2f}–{row['high']:.2f}"
    doubt = "" if row["verdict"] == "supported" else f": {row['verdict']}"
    return f"{row['winner']} ({margin}){doubt}"


#: How to read the tables.
NOTES = (
    "The cloud with the better median, and in brackets how many times worse the other one is, "
    "with the 95 % bootstrap interval where there is one; for accuracy, how many times larger its "
    "error 1 - accuracy is.",
    "A winner is a finding only where no word of doubt stands beside it. Published points are "
    "single runs; their costs are at the prices in config/platforms.yaml.",
)
