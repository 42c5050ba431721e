"""Findings in words, each with what supports it: where nodes stop paying, what they cost.

Layer 4 (view). A sentence claims no more than the intervals of the runs allow; `support` says how
far it can be trusted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from tfscaling import stragglers
from tfscaling.display import Shown
from tfscaling.metrics import METRICS
from tfscaling.samples import (
    INCONCLUSIVE,
    SUPPORTED,
    TOO_FEW,
    Samples,
    point_of,
    weakest,
)
from tfscaling.sentences import Row, axis_text, place, times, value

TOPICS = ("accuracy", "scaling", "stragglers", "clouds")
COLUMNS = ("topic", "subject", "text", "support")
#: Points that share these are compared by their number of nodes.
LINE_AXES = ("platform", "model", "strategy", "recipe", "gpus_per_node", "tasks_per_node")


@dataclass(frozen=True)
class Finding:
    """`subject` is what the sentence is about: a line of points, a point, or two clouds."""

    topic: str
    subject: str
    text: str
    support: str


def find(
    comparison: pd.DataFrame, runs: pd.DataFrame, clouds: pd.DataFrame | None = None
) -> pd.DataFrame:
    """All findings: columns topic, subject, text, support. Which point to take: `decision`."""
    samples = Samples(runs)
    rows = [dict(row) for row in comparison.to_dict("records")]
    found: list[Finding] = []
    for subject, line in _lines(rows):
        points = sorted((row for row in line if row["runs"] > 0), key=lambda row: row["nodes"])
        found += list(_scaling(subject, points, samples))
    by_point = {point_of(row): row for row in rows}
    for axes, text, support in stragglers.find(runs):
        subject = place(by_point[point_of(axes)])
        found.append(Finding("stragglers", subject, text, support))
    if clouds is not None:
        found += _clouds(clouds)
    return pd.DataFrame([asdict(finding) for finding in found], columns=list(COLUMNS))


def shown(findings: pd.DataFrame, topic: str) -> Shown:
    """The findings of one topic as a table of subject, finding, support."""
    own = findings.loc[findings["topic"] == topic, list(COLUMNS[1:])]
    cells = own.rename(columns={"text": "finding"}).astype(object)
    return Shown(topic.capitalize(), cells, texts=frozenset(cells.columns))


def _lines(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """(name, points) of the points that differ in the number of nodes only."""
    lines: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        lines.setdefault(tuple(row[axis] for axis in LINE_AXES), []).append(row)
    varying = [a for a in LINE_AXES[1:] if len({str(row[a]) for row in rows}) > 1]
    for line in lines.values():
        words = [str(line[0]["platform_title"]), *(axis_text(a, line[0]) for a in varying)]
        yield ", ".join(words), line


def _scaling(subject: str, points: Sequence[Row], samples: Samples) -> Iterator[Finding]:
    """Where more nodes help, where they stop to, and what they cost in accuracy."""
    if len(points) < 2:
        return
    metric = "execution_time_s"
    first = points[0]
    slower = []
    for row in points[1:]:
        found = samples.difference(metric, point_of(first), point_of(row))
        if found is not None and found.ratio > 1:
            slower.append((row, found))
    if slower:
        named = ", ".join(f"{row['nodes']}: {times(found)} the time" for row, found in slower)
        text = f"More nodes are slower than {first['nodes']} at {named}."
        yield Finding("scaling", subject, text, weakest([found.support for _, found in slower]))
    yield _last_that_pays(subject, points, samples)
    fastest = min(points, key=lambda row: row[metric])
    if fastest is first:
        return
    lost = samples.difference("accuracy", point_of(first), point_of(fastest))
    if lost is not None and lost.ratio > 1:
        text = (
            f"The fastest, {fastest['nodes']} nodes, ends with training accuracy "
            f"{value('accuracy', fastest)} against {value('accuracy', first)} on "
            f"{first['nodes']}: {times(lost)} the error, with a global batch of "
            f"{fastest['global_batch_size']:.0f} against {first['global_batch_size']:.0f}."
        )
        yield Finding("accuracy", subject, text, lost.support)


def _last_that_pays(subject: str, points: Sequence[Row], samples: Samples) -> Finding:
    """The fewest nodes beyond which no measured number of nodes is faster."""
    metric = "execution_time_s"
    knee, supports = points[0], []
    for row in points[1:]:
        found = samples.difference(metric, point_of(row), point_of(knee))
        if found is None:
            continue
        # with enough runs a gain counts if the interval shows it, else if the medians do
        if found.ratio > 1 and found.support != INCONCLUSIVE:
            knee = row
        supports.append(found.support)
    # what was not told apart from the knee only says that it did not pay
    support = TOO_FEW if TOO_FEW in supports else SUPPORTED
    base = samples.difference(metric, point_of(knee), point_of(points[0]))
    gain = f", {times(base)} as fast as {points[0]['nodes']}" if base and base.ratio > 1 else ""
    if knee is points[-1]:
        text = (
            f"More nodes pay up to the largest number measured, {knee['nodes']} "
            f"({value(metric, knee)}{gain}); where they stop paying lies beyond."
        )
    else:
        text = (
            f"More nodes than {knee['nodes']} do not pay: "
            f"{value(metric, knee)}{gain}, and no larger number measured is shown to be faster."
        )
    return Finding("scaling", subject, text, support)


def _clouds(clouds: pd.DataFrame) -> list[Finding]:
    """For two platforms of two clouds: who wins how many points by what."""
    found = []
    measured = clouds[clouds["source"] == "measured"]
    pairs = measured.groupby(["platform_a", "platform_b", "metric"], sort=False)
    for (first, second, metric), group in pairs:
        sure = group[group["verdict"] == SUPPORTED]
        wins = group["winner"].value_counts()
        wins_text = "; ".join(
            f"{cloud} at {count} of {len(group)} points (margin "
            f"{_range(group.loc[group['winner'] == cloud, 'margin'])})"
            for cloud, count in wins.items()
        )
        title = METRICS[str(metric)].title
        text = f"Better {title}: {wins_text}; {len(sure)} of them supported by the intervals."
        support = SUPPORTED if len(sure) == len(group) else weakest(list(group["verdict"]))
        found.append(Finding("clouds", f"{first} against {second}", text, support))
    return found


def _range(values: pd.Series) -> str:
    low, high = f"{values.min():.2f}", f"{values.max():.2f}"
    return low if low == high else f"{low} to {high}"
