"""Findings in words, each with what supports it: where nodes stop paying, what they cost.

A sentence claims no more than the intervals of the runs allow; `support` says how
far it can be trusted. What is supported is right with CONFIDENCE for all comparisons that sentences
of its kind make in this sweep together (Bonferroni); `comparisons` is their number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd

from tfscaling.conclusions import noise_scale, what_holds_back
from tfscaling.conclusions.evidence import Study, ineligible_text, remark, split
from tfscaling.record import metrics
from tfscaling.record.metrics import METRICS, QUALITY
from tfscaling.spec.config import LINE_AXES
from tfscaling.tables import display
from tfscaling.tables.display import (
    TextTable,
    axis_text,
    percent,
    point_name,
    times,
    value,
    varying,
    worse,
)
from tfscaling.tables.estimates import CONFIDENCE, Estimates
from tfscaling.tables.significance import (
    INCONCLUSIVE,
    NOT_COMPARED,
    SUPPORTED,
    TOO_FEW,
    Difference,
    Samples,
    weakest,
)
from tfscaling.tables.table_rows import Row, is_known, metric_of, point_of

TIME = "execution_time_s"
TOPICS = (QUALITY, "scaling", "batch", "stragglers", "clouds")
COLUMNS = ("topic", "subject", "text", "support", "comparisons")


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


#: Number of a line → each point after its first, and how much longer that takes than the first.
Against = dict[int, list[tuple[Row, Difference]]]


@dataclass(frozen=True)
class Line:
    """Points that differ in the number of nodes only, fewest first; `ineligible` take no part.

    `number` identifies the line: platforms may have the same title.
    """

    number: int
    subject: str
    points: tuple[Row, ...]
    ineligible: tuple[tuple[Row, str], ...]

    def having(self, metric: str) -> list[Row]:
        """Those of its points that have the metric."""
        return [row for row in self.points if is_known(row[metric])]


def table(study: Study, clouds: pd.DataFrame | None = None) -> pd.DataFrame:
    """All findings: columns COLUMNS. Which point to take: `decision`."""
    samples, rows = study.samples, study.points
    lines = []
    for number, (subject, line) in enumerate(_lines(rows)):
        fit, ineligible = split(line, samples)
        points = sorted(fit, key=lambda row: row["nodes"])
        lines.append(Line(number, subject, tuple(points), tuple(ineligible)))
    found = [*_scaling(lines, samples, study.indifference), *_quality(lines, samples)]
    by_point = {point_of(row): row for row in rows}
    fit_points = {point_of(row) for line in lines for row in line.points}
    for point, text, support, comparisons in what_holds_back.find(study.runs, fit_points):
        subject = point_name(by_point[point], varying(rows))
        found.append(Finding("stragglers", subject, text, support, comparisons))
    for point, text, support, comparisons in noise_scale.find(study):
        subject = point_name(by_point[point], varying(rows))
        found.append(Finding("batch", subject, text, support, comparisons))
    if clouds is not None:
        found += _clouds(clouds)
    return pd.DataFrame([asdict(finding) for finding in found], columns=list(COLUMNS))


def page(table: pd.DataFrame, _: Study) -> str:
    """The page findings.md: one table for each topic."""
    topics = [topic for topic in TOPICS if topic in set(table["topic"])]
    shown = [display.markdown(topic_table(table, topic), 2) for topic in topics]
    return "\n".join(["# Findings\n", *shown])


def topic_table(findings: pd.DataFrame, topic: str) -> TextTable:
    """The findings of one topic as a table of subject, finding, support."""
    own = findings.loc[findings["topic"] == topic]
    cells = own[["subject", "text", "support"]].rename(columns={"text": "finding"}).astype(object)
    notes: tuple[str, ...] = ()
    if (own["support"] == SUPPORTED).any():
        notes = (
            f"What is supported is right with {CONFIDENCE:.0%} for all comparisons together that "
            "sentences of its kind make here; so do intervals in brackets hold.",
        )
    return TextTable(topic.capitalize(), cells, notes)


def _lines(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """(name, points) of the points that differ in the number of nodes only."""
    lines: dict[tuple[str | int, ...], list[Row]] = {}
    for row in rows:
        lines.setdefault(tuple(row[axis] for axis in LINE_AXES), []).append(row)
    vary = [axis for axis in LINE_AXES if len({str(row[axis]) for row in rows}) > 1]
    for line in lines.values():
        yield ", ".join(axis_text(axis, line[0]) for axis in vary or ("platform",)), line


def _scaling(lines: Sequence[Line], samples: Samples, indifference: float) -> Iterator[Finding]:
    """Where more nodes help, and where they stop to; what takes no part."""
    against, comparisons = _against_first(lines, samples, TIME)
    slower = _slower(lines, samples, against, comparisons)
    pays = _last_that_pays(lines, samples, against, indifference)
    for line in lines:
        yield from slower.get(line.number, ())
        yield from pays.get(line.number, ())
        if line.ineligible:
            yield Finding("scaling", line.subject, ineligible_text(line.ineligible), NOT_COMPARED)


def _against_first(lines: Sequence[Line], samples: Samples, metric: str) -> tuple[Against, int]:
    """(number of a line → how much worse each point is than that of the fewest nodes, comparisons).

    Of the points that have the metric.
    """
    known = {line.number: line.having(metric) for line in lines}
    pairs = {
        number: [(point_of(rows[0]), point_of(row)) for row in rows[1:]]
        for number, rows in known.items()
    }
    every = [pair for own in pairs.values() for pair in own]
    made = sum(all(samples.has_enough(metric, point) for point in pair) for pair in every)
    found: Against = {}
    for number, own in pairs.items():
        differences = samples.differences(metric, own, max(1, made))
        found[number] = [
            (row, difference)
            for row, difference in zip(known[number][1:], differences, strict=True)
            if difference is not None
        ]
    return found, made


def _slower(
    lines: Sequence[Line], samples: Samples, against: Against, comparisons: int
) -> dict[int, list[Finding]]:
    """The numbers of nodes that take longer than the fewest: shown, and by their medians only."""
    found: dict[int, list[Finding]] = {}
    for line in lines:
        by_support: dict[str, list[str]] = {}
        for row, difference in against[line.number]:
            if difference.is_worse:
                text = f"{row['nodes']}: {worse(difference, METRICS[TIME])}"
                by_support.setdefault(difference.support, []).append(text + remark(row, samples))
        for support, named in by_support.items():
            first = line.having(TIME)[0]["nodes"]
            text = f"More nodes are slower than {first} at {', '.join(named)}."
            if support != SUPPORTED:
                text = f"More nodes than {first} are slower by their medians at {', '.join(named)}."
            text = _together(text, support, comparisons)
            finding = Finding("scaling", line.subject, text, support, comparisons)
            found.setdefault(line.number, []).append(finding)
    return found


def _last_that_pays(
    lines: Sequence[Line], samples: Samples, against: Against, indifference: float
) -> dict[int, list[Finding]]:
    """The fewest nodes beyond which no measured number of nodes is faster."""
    enough = {
        line.number: [row for row in line.points if samples.has_enough(TIME, point_of(row))]
        for line in lines
        if len(line.points) > 1
    }
    comparisons = sum(len(rows) for rows in enough.values() if len(rows) > 1)
    found = {}
    for line in lines:
        if len(line.having(TIME)) < 2:
            continue
        rows = enough[line.number]
        few = [row for row in line.points if not any(row is other for other in rows)]
        if len(rows) < 2:
            finding = _by_medians(line, against)
        else:
            finding = _by_estimates(line, rows, samples, against, indifference, comparisons)
            if few:
                names = ", ".join(str(row["nodes"]) for row in few)
                text = f"{finding.text} Too few runs to be compared: {names} nodes."
                finding = replace(finding, text=text, support=TOO_FEW)
        found[line.number] = [replace(finding, text=finding.text + _not_counting(line, samples))]
    return found


def _not_counting(line: Line, samples: Samples) -> str:
    """Names the points of the line of which not all runs count; nothing if there are none."""
    named = [
        f"{row['nodes']} node{'s' * (row['nodes'] > 1)}{remark(row, samples)}"
        for row in line.points
        if remark(row, samples)
    ]
    return f" Not all runs count of {', '.join(named)}." if named else ""


def _by_medians(line: Line, against: Against) -> Finding:
    """What the medians say where there are too few runs to compare."""
    last = line.points[-1]
    knee = min(line.having(TIME), key=lambda row: (row[TIME], row["nodes"]))
    named = f"{knee['nodes']} ({value(TIME, knee)}{_gain(line, knee, against)})"
    text = f"By the medians alone the time is least at {named}; too few runs show no more."
    if knee is last:
        text = (
            f"By the medians alone more nodes pay up to the largest number measured, {named}; too "
            "few runs show no more, and where they stop paying lies beyond."
        )
    return Finding("scaling", line.subject, text, TOO_FEW)


def _by_estimates(
    line: Line,
    rows: Sequence[Row],
    samples: Samples,
    against: Against,
    indifference: float,
    comparisons: int,
) -> Finding:
    together = samples.estimates(TIME, [point_of(row) for row in rows])
    tail = (1 - CONFIDENCE) / comparisons
    last = len(rows) - 1
    may_be_worse = together.may_be_worse(tail, range(len(rows)))

    def described(index: int) -> str:
        row = rows[index]
        return f"{value(TIME, row)}{_gain(line, row, against)}"

    def finding(text: str, support: str) -> Finding:
        text = _together(text, support, comparisons)
        return Finding("scaling", line.subject, text, support, comparisons)

    near = [n for n in range(last) if may_be_worse[n] <= indifference]
    if near:
        knee = near[0]
        bound = may_be_worse[knee]
        faster = f"more than {percent(bound)} faster" if bound > 0 else "faster"
        return finding(
            f"More nodes than {rows[knee]['nodes']} do not pay: {described(knee)}, and no larger "
            f"number measured is {faster}.",
            SUPPORTED,
        )
    if np.delete(together.is_worse(last, tail), last).all():
        return finding(
            f"More nodes pay up to the largest number measured, {rows[last]['nodes']} "
            f"({described(last)}); where they stop paying lies beyond.",
            SUPPORTED,
        )
    # the fewest nodes than which no more are shown to be faster
    knee = next(n for n in range(last + 1) if not _is_beaten(together, n, tail))
    if knee == last:
        return finding(
            f"More nodes look faster up to the largest number measured, {rows[last]['nodes']} "
            f"({described(last)}); that it is the fastest is not shown.",
            INCONCLUSIVE,
        )
    at_most = ""
    if np.isfinite(may_be_worse[knee]):
        at_most = f"; a larger number may be up to {percent(may_be_worse[knee])} faster"
    return finding(
        f"More nodes than {rows[knee]['nodes']} are not shown to pay: {described(knee)}{at_most}.",
        INCONCLUSIVE,
    )


def _is_beaten(together: Estimates, index: int, tail: float) -> bool:
    """Whether a point of the line with more nodes is shown to be faster."""
    later = np.arange(index + 1, len(together.location))
    ahead = together.location[index] - together.location[later]
    return bool((ahead > together.half_width(later, index, tail)).any())


def _gain(line: Line, row: Row, against: Against) -> str:
    """How much faster a point is than that of the fewest nodes; nothing where it is not."""
    for other, found in against[line.number]:
        if other is row and found.ratio is not None and found.ratio < 1:
            low, high = found.interval or (0.0, 0.0)
            ends = (1 / high, 1 / low if low > 0 else math.inf) if found.interval else None
            gain = Difference(1 / found.ratio, ends, found.support)
            return f", {times(gain)} as fast as {line.having(TIME)[0]['nodes']}"
    return ""


def _together(text: str, support: str, comparisons: int) -> str:
    """A sentence, with the number of comparisons for which it holds if it is supported."""
    if support != SUPPORTED:
        return text
    several = "comparisons together" if comparisons > 1 else "comparison"
    return f"{text.removesuffix('.')} ({CONFIDENCE:.0%}, {comparisons} {several})."


def _quality(lines: Sequence[Line], samples: Samples) -> Iterator[Finding]:
    """What the fastest point of a line costs in quality."""
    against, comparisons = _against_first(lines, samples, QUALITY)
    for line in lines:
        timed = line.having(TIME)
        if not against[line.number] or not timed:
            continue
        first, fastest = line.having(QUALITY)[0], min(timed, key=lambda row: row[TIME])
        for row, lost in against[line.number]:
            if row is fastest and lost.is_worse:
                metric = metric_of(QUALITY, row)
                text = (
                    f"The fastest, {fastest['nodes']} nodes, ends with {metric.title} "
                    f"{value(QUALITY, fastest)} against {value(QUALITY, first)} on "
                    f"{first['nodes']}: {worse(lost, metric)}, with a global batch of "
                    f"{fastest['global_batch_size']:.0f} against {first['global_batch_size']:.0f}"
                    f"{remark(fastest, samples)}."
                )
                text = _together(text, lost.support, comparisons)
                yield Finding(QUALITY, line.subject, text, lost.support, comparisons)


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
        title = metrics.named(str(metric)).title
        support = weakest(list(group["verdict"]))
        comparisons = int((measured["verdict"] != TOO_FEW).sum())
        text = f"Better {title}: {wins_text}; {len(sure)} of them supported."
        text = _together(text, support, comparisons)
        found.append(Finding("clouds", f"{first} against {second}", text, support, comparisons))
    return found


def _range(values: pd.Series) -> str:
    low, high = f"{values.min():.2f}", f"{values.max():.2f}"
    return low if low == high else f"{low} to {high}"
