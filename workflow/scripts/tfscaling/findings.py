"""Findings in words, each with what supports it: where nodes stop paying, what they cost.

Layer 4 (view). A sentence claims no more than the intervals of the runs allow; `support` says how
far it can be trusted. What is supported is right with CONFIDENCE for all comparisons that sentences
of its kind make in this sweep together (Bonferroni); `comparisons` is their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from tfscaling import stragglers
from tfscaling.decision import INDIFFERENCE
from tfscaling.display import Shown
from tfscaling.eligibility import barred, remark, split
from tfscaling.estimates import Estimates
from tfscaling.metrics import METRICS
from tfscaling.samples import (
    INCONCLUSIVE,
    NOT_COMPARED,
    SUPPORTED,
    TOO_FEW,
    Difference,
    Samples,
    point_of,
    weakest,
)
from tfscaling.sentences import Row, axis_text, percent, place, value, worse
from tfscaling.statistics import CONFIDENCE

TIME = "execution_time_s"
TOPICS = ("accuracy", "scaling", "stragglers", "clouds")
COLUMNS = ("topic", "subject", "text", "support", "comparisons")
#: Points that share these are compared by their number of nodes.
LINE_AXES = ("platform", "model", "strategy", "recipe", "gpus_per_node", "tasks_per_node")


@dataclass(frozen=True)
class Finding:
    """`subject` is what the sentence is about: a line of points, a point, or two clouds.

    If it is supported, it is so together with all `comparisons` of sentences of its kind.
    """

    topic: str
    subject: str
    text: str
    support: str
    comparisons: int = 0


@dataclass(frozen=True)
class Line:
    """Points that differ in the number of nodes only, fewest first; `unfit` take no part."""

    subject: str
    points: tuple[Row, ...]
    unfit: tuple[tuple[Row, str], ...]


def find(
    comparison: pd.DataFrame,
    runs: pd.DataFrame,
    clouds: pd.DataFrame | None = None,
    indifference: float = INDIFFERENCE,
) -> pd.DataFrame:
    """All findings: columns COLUMNS. Which point to take: `decision`."""
    samples = Samples(runs)
    rows = [dict(row) for row in comparison.to_dict("records")]
    lines = []
    for subject, line in _lines(rows):
        fit, unfit = split(line, samples)
        points = sorted(fit, key=lambda row: row["nodes"])
        lines.append(Line(subject, tuple(points), tuple(unfit)))
    found = [*_scaling(lines, samples, indifference), *_accuracy(lines, samples)]
    by_point = {point_of(row): row for row in rows}
    fit_points = {point_of(row) for line in lines for row in line.points}
    for axes, text, support, comparisons in stragglers.find(runs, fit_points):
        subject = place(by_point[point_of(axes)])
        found.append(Finding("stragglers", subject, text, support, comparisons))
    if clouds is not None:
        found += _clouds(clouds)
    return pd.DataFrame([asdict(finding) for finding in found], columns=list(COLUMNS))


def shown(findings: pd.DataFrame, topic: str) -> Shown:
    """The findings of one topic as a table of subject, finding, support."""
    own = findings.loc[findings["topic"] == topic]
    cells = own[["subject", "text", "support"]].rename(columns={"text": "finding"}).astype(object)
    notes: tuple[str, ...] = ()
    if (own["support"] == SUPPORTED).any():
        notes = (
            f"What is supported is right with {CONFIDENCE:.0%} for all comparisons together that "
            "sentences of its kind make here; so do intervals in brackets hold.",
        )
    return Shown(topic.capitalize(), cells, notes, texts=frozenset(cells.columns))


def _lines(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """(name, points) of the points that differ in the number of nodes only."""
    lines: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        lines.setdefault(tuple(row[axis] for axis in LINE_AXES), []).append(row)
    varying = [a for a in LINE_AXES[1:] if len({str(row[a]) for row in rows}) > 1]
    for line in lines.values():
        words = [str(line[0]["platform_title"]), *(axis_text(a, line[0]) for a in varying)]
        yield ", ".join(words), line


def _scaling(lines: Sequence[Line], samples: Samples, indifference: float) -> Iterator[Finding]:
    """Where more nodes help, and where they stop to; what takes no part."""
    slower = _slower(lines, samples)
    pays = _last_that_pays(lines, samples, indifference)
    for line in lines:
        yield from slower.get(line.subject, ())
        yield from pays.get(line.subject, ())
        if line.unfit:
            yield Finding("scaling", line.subject, barred(line.unfit), NOT_COMPARED)


def _against_first(
    lines: Sequence[Line], samples: Samples, metric: str
) -> tuple[dict[str, list[tuple[Row, Difference]]], int]:
    """(subject → how much worse each point is than that of the fewest nodes, comparisons)."""
    pairs = [(point_of(line.points[0]), point_of(row)) for line in lines for row in line.points[1:]]
    made = sum(all(samples.has_enough(metric, point) for point in pair) for pair in pairs)
    found: dict[str, list[tuple[Row, Difference]]] = {}
    for line in lines:
        own = [(point_of(line.points[0]), point_of(row)) for row in line.points[1:]]
        differences = samples.differences(metric, own, max(1, made))
        found[line.subject] = [
            (row, difference)
            for row, difference in zip(line.points[1:], differences, strict=True)
            if difference is not None
        ]
    return found, made


def _slower(lines: Sequence[Line], samples: Samples) -> dict[str, list[Finding]]:
    """The numbers of nodes that take longer than the fewest: shown, and by their medians only."""
    against, comparisons = _against_first(lines, samples, TIME)
    found: dict[str, list[Finding]] = {}
    for line in lines:
        by_support: dict[str, list[str]] = {}
        for row, difference in against[line.subject]:
            if difference.is_worse:
                text = f"{row['nodes']}: {worse(difference, 'time', TIME)}"
                by_support.setdefault(difference.support, []).append(text + remark(row, samples))
        for support, named in by_support.items():
            first = line.points[0]["nodes"]
            text = f"More nodes are slower than {first} at {', '.join(named)}."
            if support != SUPPORTED:
                text = f"More nodes than {first} are slower by their medians at {', '.join(named)}."
            text += _together(support, comparisons)
            finding = Finding("scaling", line.subject, text, support, comparisons)
            found.setdefault(line.subject, []).append(finding)
    return found


def _last_that_pays(
    lines: Sequence[Line], samples: Samples, indifference: float
) -> dict[str, list[Finding]]:
    """The fewest nodes beyond which no measured number of nodes is faster."""
    enough = {
        line.subject: [row for row in line.points if samples.has_enough(TIME, point_of(row))]
        for line in lines
        if len(line.points) > 1
    }
    comparisons = sum(len(rows) for rows in enough.values() if len(rows) > 1)
    found = {}
    for line in lines:
        if len(line.points) < 2:
            continue
        rows = enough[line.subject]
        few = [row for row in line.points if not any(row is other for other in rows)]
        if len(rows) < 2:
            finding = _by_medians(line)
        else:
            finding = _by_estimates(line.subject, rows, samples, indifference, comparisons)
            if few:
                names = ", ".join(str(row["nodes"]) for row in few)
                text = f"{finding.text} Too few runs to be compared: {names} nodes."
                finding = replace(finding, text=text, support=TOO_FEW)
        found[line.subject] = [finding]
    return found


def _by_medians(line: Line) -> Finding:
    """What the medians say where there are too few runs to compare."""
    first, last = line.points[0], line.points[-1]
    knee = min(line.points, key=lambda row: (row[TIME], row["nodes"]))
    named = f"{knee['nodes']} ({value(TIME, knee)}{_gain(knee, first)})"
    text = f"By the medians alone the time is least at {named}; too few runs show no more."
    if knee is last:
        text = (
            f"By the medians alone more nodes pay up to the largest number measured, {named}; too "
            "few runs show no more, and where they stop paying lies beyond."
        )
    return Finding("scaling", line.subject, text, TOO_FEW)


def _by_estimates(
    subject: str,
    rows: Sequence[Row],
    samples: Samples,
    indifference: float,
    comparisons: int,
) -> Finding:
    together = samples.estimates(TIME, [point_of(row) for row in rows])
    tail = (1 - CONFIDENCE) / comparisons
    last, first = len(rows) - 1, rows[0]
    may_be_worse = together.may_be_worse(tail, range(len(rows)))

    def told(place: int) -> str:
        row = rows[place]
        return f"{value(TIME, row)}{_gain(row, first)}{remark(row, samples)}"

    def finding(text: str, support: str) -> Finding:
        text += _together(support, comparisons)
        return Finding("scaling", subject, text, support, comparisons)

    if np.delete(together.is_worse(last, tail), last).all():
        return finding(
            f"More nodes pay up to the largest number measured, {rows[last]['nodes']} "
            f"({told(last)}); where they stop paying lies beyond.",
            SUPPORTED,
        )
    near = [n for n in range(last) if may_be_worse[n] <= indifference]
    if near:
        knee = near[0]
        return finding(
            f"More nodes than {rows[knee]['nodes']} do not pay: {told(knee)}, and no larger number "
            f"measured is more than {percent(may_be_worse[knee])} faster.",
            SUPPORTED,
        )
    # the fewest nodes than which no more are shown to be faster
    knee = next(n for n in range(last + 1) if not _is_beaten(together, n, tail))
    if knee == last:
        return finding(
            f"More nodes look faster up to the largest number measured, {rows[last]['nodes']} "
            f"({told(last)}); that it is the fastest is not shown.",
            INCONCLUSIVE,
        )
    at_most = ""
    if np.isfinite(may_be_worse[knee]):
        at_most = f"; a larger number may be up to {percent(may_be_worse[knee])} faster"
    return finding(
        f"More nodes than {rows[knee]['nodes']} are not shown to pay: {told(knee)}{at_most}.",
        INCONCLUSIVE,
    )


def _is_beaten(together: Estimates, place: int, tail: float) -> bool:
    """Whether a point further along the line is shown to be faster."""
    later = np.arange(place + 1, len(together.location))
    ahead = together.location[place] - together.location[later]
    return bool((ahead > together.half_width(later, place, tail)).any())


def _gain(row: Row, first: Row) -> str:
    """By the medians, as in the comparison; nothing where there is no gain."""
    if row is first or not row[TIME] or row[TIME] >= first[TIME]:
        return ""
    return f", {first[TIME] / row[TIME]:.2f} times as fast as {first['nodes']}"


def _together(support: str, comparisons: int) -> str:
    """For how many comparisons what is supported holds together."""
    if support != SUPPORTED:
        return ""
    several = "comparisons together" if comparisons > 1 else "comparison"
    return f" ({CONFIDENCE:.0%}, {comparisons} {several})"


def _accuracy(lines: Sequence[Line], samples: Samples) -> Iterator[Finding]:
    """What the fastest point of a line costs in accuracy."""
    against, comparisons = _against_first(lines, samples, "accuracy")
    for line in lines:
        if len(line.points) < 2:
            continue
        first, fastest = line.points[0], min(line.points, key=lambda row: row[TIME])
        for row, lost in against[line.subject]:
            if row is fastest and lost.is_worse:
                text = (
                    f"The fastest, {fastest['nodes']} nodes, ends with training accuracy "
                    f"{value('accuracy', fastest)} against {value('accuracy', first)} on "
                    f"{first['nodes']}: {worse(lost, 'error', 'accuracy')}, with a global batch of "
                    f"{fastest['global_batch_size']:.0f} against {first['global_batch_size']:.0f}"
                    f"{remark(fastest, samples)}.{_together(lost.support, comparisons)}"
                )
                yield Finding("accuracy", line.subject, text, lost.support, comparisons)


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
        support = weakest(list(group["verdict"]))
        comparisons = int((measured["verdict"] != TOO_FEW).sum())
        text = (
            f"Better {title}: {wins_text}; {len(sure)} of them supported"
            f"{_together(support, comparisons)}."
        )
        found.append(Finding("clouds", f"{first} against {second}", text, support, comparisons))
    return found


def _range(values: pd.Series) -> str:
    low, high = f"{values.min():.2f}", f"{values.max():.2f}"
    return low if low == high else f"{low} to {high}"
