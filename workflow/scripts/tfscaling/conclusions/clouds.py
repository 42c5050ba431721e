"""Clouds against each other, point by point."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from tfscaling.conclusions import evidence
from tfscaling.conclusions.evidence import Study
from tfscaling.record import metrics
from tfscaling.record.metrics import METRICS, QUALITY
from tfscaling.spec import platforms
from tfscaling.spec.config import POINT_AXES, Platform
from tfscaling.spec.platforms import device_kind
from tfscaling.tables import display
from tfscaling.tables.display import (
    MISSING,
    NAMING,
    Number,
    TextTable,
    cell,
    naming,
    rounded,
    varying,
)
from tfscaling.tables.estimates import CONFIDENCE
from tfscaling.tables.published_results import PublishedResult
from tfscaling.tables.significance import SUPPORTED, Difference, Samples, as_costs, difference
from tfscaling.tables.table_rows import Row, is_known, metric_of, point_of, rows_of

METRICS_COMPARED = ("execution_time_s", "loss", QUALITY, "cost_usd")
#: Published results have no other quality.
METRICS_PUBLISHED = ("execution_time_s", "loss", "accuracy", "cost_usd")
AXES = POINT_AXES[1:]
COLUMNS = (
    *("source", "platform_a", "cloud_a", "platform_b", "cloud_b"),
    *AXES,
    *("devices", "metric", "value_a", "value_b", "winner", "margin_kind", "margin", "low", "high"),
    *("verdict", "comparisons"),
)
#: What `margin` is: how many times worse the other is, or where one value is zero by how much.
RATIO, GAP = "ratio", "difference"


def table(study: Study) -> pd.DataFrame:
    """One row per metric of every point that two platforms of different clouds have both.

    `metric` is a name of METRICS, or that of the recipe's quality.
    `winner` is the cloud with the better median, `margin` how many times worse the other one is
    (its error, for accuracy) with the interval `low` to `high`; where one of the two is zero it is
    their difference (`margin_kind`). `verdict` says whether the runs support that, with CONFIDENCE
    for all `comparisons` of the table together. `source` is measured or published; published points
    are single runs. Points that do other work, or of which half the runs diverged, take no part.
    """
    out = {point_of(row) for row, _ in study.ineligible}
    measured = [row for row in study.points if row["runs"] > 0 and point_of(row) not in out]
    rows = _measured(measured, study.samples)
    platforms = study.manifest.platforms
    by_name = {platform.published_as or name: platform for name, platform in platforms.items()}
    published = [_as_point(row, by_name.get(row.platform)) for row in study.published_results]
    for a, b in _pairs(published):
        for metric in METRICS_PUBLISHED:
            if ordered := _ordered(a, b, metric):
                values = np.array([[row[metric]] for row in ordered])
                better, other = as_costs(values, METRICS[metric]).tolist()
                rows.append(_row(a, b, metric, "published", difference(better, other), 0))
    return pd.DataFrame([row for row in rows if row], columns=list(COLUMNS))


def _measured(points: Sequence[Row], samples: Samples) -> list[Row | None]:
    """The rows of what was measured: the metrics of a pair of points one below the other."""
    pairs = _pairs(points)
    ordered_pairs = {
        metric: [
            (a, b, ordered)
            for a, b in pairs
            if metric != QUALITY or a["quality_metric"] not in METRICS_COMPARED
            if (ordered := _ordered(a, b, metric))
        ]
        for metric in METRICS_COMPARED
    }
    comparisons = sum(
        all(samples.has_enough(metric, point_of(row)) for row in ordered)
        for metric, pairs_of in ordered_pairs.items()
        for _, _, ordered in pairs_of
    )
    found: dict[tuple[int, int, str], Row | None] = {}
    for metric, pairs_of in ordered_pairs.items():
        # estimated together: points of the same two platforms, and of one quality
        together: dict[tuple[str, ...], list[tuple[Row, Row, tuple[Row, Row]]]] = {}
        for a, b, ordered in pairs_of:
            quality = a["quality_metric"] if metric == QUALITY else ""
            together.setdefault((a["platform"], b["platform"], quality), []).append((a, b, ordered))
        for own in together.values():
            differences = samples.differences(
                metric,
                [(point_of(better), point_of(other)) for _, _, (better, other) in own],
                max(1, comparisons),
            )
            for (a, b, _), one in zip(own, differences, strict=True):
                found[id(a), id(b), metric] = _row(a, b, metric, "measured", one, comparisons)
    return [found.get((id(a), id(b), metric)) for a, b in pairs for metric in METRICS_COMPARED]


def _pairs(points: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Points of different clouds with the same axes otherwise, in the order of the platforms."""
    alike: dict[tuple[str, ...], list[Row]] = {}
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


def _as_point(result: PublishedResult, platform: Platform | None) -> Row:
    """A published result as the row of a point, its cost at the platform's price."""
    price = platform.price_usd(result.gpus_per_node) if platform else None
    cost = platforms.run_cost_usd(price, result.nodes, result.execution_time_s)
    kind = device_kind(result.gpus_per_node, "physical")
    return {**asdict(result), "recipe": "published", "devices": kind, "cost_usd": cost}


def _ordered(a: Row, b: Row, metric: str) -> tuple[Row, Row] | None:
    """(the point with the better median, the other); None where one has no value."""
    value_a, value_b = a[metric], b[metric]
    if not is_known(value_a) or not is_known(value_b):
        return None
    higher = metric_of(metric, a).is_higher_better
    return (a, b) if (value_a > value_b) == higher else (b, a)


def _row(
    a: Row, b: Row, metric: str, source: str, found: Difference | None, comparisons: int
) -> Row | None:
    ordered = _ordered(a, b, metric)
    if ordered is None or found is None:
        return None
    low, high = found.interval or (None, None)
    return {
        "source": source,
        **{"platform_a": a["platform"], "cloud_a": a["cloud"]},
        **{"platform_b": b["platform"], "cloud_b": b["cloud"]},
        **{name: a[name] for name in (*AXES, "devices")},
        "metric": a["quality_metric"] if metric == QUALITY else metric,
        **{"value_a": a[metric], "value_b": b[metric]},
        "winner": "equal" if a[metric] == b[metric] else ordered[0]["cloud"],
        "margin_kind": GAP if found.ratio is None else RATIO,
        "margin": found.gap if found.ratio is None else found.ratio,
        **{"low": low, "high": high, "verdict": found.support, "comparisons": comparisons},
    }


def pair_table(table: pd.DataFrame, source: str, first: str, second: str) -> TextTable:
    """The winners of one pair of platforms: one row per point, one column per metric."""
    own = table[
        (table["source"] == source)
        & (table["platform_a"] == first)
        & (table["platform_b"] == second)
    ]
    varying = naming(own, NAMING[1:])[0]
    points: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows_of(own):
        axes = tuple(str(row[axis]) for axis in AXES)
        points.setdefault(axes, {})[row["metric"]] = row
    *first_metrics, cost = [name for name in METRICS_COMPARED if name != QUALITY]
    others = [name for name in own["metric"].unique() if name not in METRICS_COMPARED]
    compared = [*first_metrics, *others, cost]
    rows = [
        [
            *(cell(axis, first) for axis in varying),
            *(_winner(by_metric.get(name)) for name in compared),
        ]
        for by_metric in points.values()
        for first in [next(iter(by_metric.values()))]
    ]
    clouds = f"{own['cloud_a'].iloc[0]} against {own['cloud_b'].iloc[0]}"
    title = f"{clouds}: {first}, {second} ({source})"
    return TextTable.of(title, [*varying, *compared], rows)


def text_tables(table: pd.DataFrame) -> list[TextTable]:
    """One table for each pair of platforms, measured ones first."""
    pairs = table[["source", "platform_a", "platform_b"]].drop_duplicates()
    return [pair_table(table, *pair) for pair in pairs.itertuples(index=False)]


def page(table: pd.DataFrame, study: Study) -> str:
    """The page clouds.md: a table for each pair of platforms, and how to read them."""
    shown = [display.markdown(pair, 2) for pair in text_tables(table)]
    below = ["No two clouds to compare."]
    if shown:
        below = [f"- {note}" for note in notes(table, study)]
    return "\n".join(["# Clouds against each other\n", *shown, *below])


def as_text(table: pd.DataFrame) -> TextTable:
    """One row per metric of every point that platforms of two clouds have both."""
    sides = ["platform_a", "platform_b", "cloud_a", "cloud_b"]
    varying, fixed = naming(table, [*sides, *NAMING[1:], "source"])
    names = [*varying, "metric", "value_a", "value_b", "winner", "margin", "verdict"]
    rows = []
    for row in rows_of(table):
        digits = metrics.named(row["metric"]).digits
        written = {
            **{end: rounded(row[end], digits) for end in ("value_a", "value_b")},
            "margin": _margin(row),
        }
        rows.append([written.get(name) or cell(name, row) for name in names])
    notes = (
        "value_a is of platform_a, value_b of platform_b.",
        "margin: how many times worse the other cloud is than the winner (of accuracies, how many "
        "times larger its error 1 - accuracy), with the interval in brackets where there is one; "
        "where one of the two is zero, by how much they differ.",
        "A winner is a finding only where the verdict is “supported”.",
    )
    title = "Clouds: the same point on two clouds"
    above = f"All rows: {fixed}." if fixed else ""
    return TextTable.of(title, names, rows, notes, above)


def _margin(row: Row) -> str:
    if not is_known(row["margin"]):
        return MISSING
    is_gap = row["margin_kind"] == GAP
    digits = metrics.named(row["metric"]).digits if is_gap else 2
    interval = ""
    if is_known(row["low"]):
        interval = f" ({row['low']:.{digits}f}–{row['high']:.{digits}f})"
    return Number(f"{'by ' * is_gap}{row['margin']:.{digits}f}{interval}", row["margin"])


def _winner(row: Row | None) -> str:
    if row is None:
        return MISSING
    is_gap = row["margin_kind"] == GAP
    digits = metrics.named(row["metric"]).digits if is_gap else 2
    margin = f"{'by ' * is_gap}{row['margin']:.{digits}f}"
    if is_known(row["low"]):
        margin += f", {row['low']:.{digits}f}–{row['high']:.{digits}f}"
    doubt = "" if row["verdict"] == SUPPORTED else f": {row['verdict']}"
    return f"{row['winner']} ({margin}){doubt}"


def notes(table: pd.DataFrame, study: Study) -> list[str]:
    """How to read the tables, for how many comparisons they hold, which points take no part."""
    lines = list(NOTES)
    comparisons = table.loc[table["source"] == "measured", "comparisons"].max()
    if is_known(comparisons) and comparisons > 0:
        lines.append(
            f"Intervals, and winners without a remark, hold with {CONFIDENCE:.0%} for all "
            f"{comparisons:.0f} comparisons of measured points together."
        )
    ineligible = [
        (row, reason) for row, reason in study.ineligible if isinstance(row["cloud"], str)
    ]
    text = evidence.ineligible_text(ineligible, varying(study.points))
    return [*lines, text] if ineligible else lines


#: How to read the tables.
NOTES = (
    "The cloud with the better median, and in brackets how many times worse the other one is, "
    "with the interval where there is one; for accuracy, how many times larger its error "
    "1 - accuracy is. Where one of the two is zero: “by” how much they differ.",
    "A winner without a remark is supported. Published points are "
    "single runs; their costs are at the prices in config/platforms.yaml.",
)
