"""Findings, each with what supports it: where nodes stop paying, what they cost.

A finding claims no more than the intervals of the runs allow; `support` says how far it can be
trusted. Supported findings hold with CONFIDENCE for all comparisons that findings of their kind
make in this sweep together (Bonferroni); `comparisons` is their number.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from tfscaling.conclusions import clouds, what_holds_back
from tfscaling.conclusions.answers.efficiency import OF_TRAINING
from tfscaling.conclusions.clouds import CloudRow
from tfscaling.conclusions.evidence import Exclusion, Study, remark
from tfscaling.conclusions.shown import render, sentence
from tfscaling.estimation.estimates import Estimates
from tfscaling.estimation.intervals import CONFIDENCE
from tfscaling.estimation.samples import (
    INCONCLUSIVE,
    NOT_COMPARED,
    SUPPORTED,
    TOO_FEW,
    Difference,
    Samples,
    weakest,
)
from tfscaling.record import metrics
from tfscaling.record.metrics import METRICS, NAN, QUALITY
from tfscaling.study.config_types import LINE_AXES
from tfscaling.study.run_spec import Point
from tfscaling.tables import row_values
from tfscaling.tables.comparison import OTHER_WORK, ideal_share
from tfscaling.tables.display import axis_text, listed, point_name, times, varying
from tfscaling.tables.row_types import PointRow, columns
from tfscaling.tables.row_values import is_known, metric_of, point_of
from tfscaling.tables.table_files import frame, typed

TIME = "execution_time_s"
TOPICS = (QUALITY, "scaling", "stragglers", "clouds")


class Finding(msgspec.Struct):
    """`subject` is a line of points, a point, or two clouds.

    `kind` says what was found; `nodes` at which numbers of nodes, separated by "; "; `ratio` how
    many times as fast, or as large an error, as at the fewest nodes, with its interval. If the
    finding is supported, it is so together with all `comparisons` of its kind.
    """

    topic: str
    subject: str
    text: str
    support: str
    comparisons: int = 0
    kind: str = ""
    nodes: str = ""
    ratio: float = NAN
    low: float = NAN
    high: float = NAN


COLUMNS = tuple(columns(Finding))


@dataclass(frozen=True)
class Line:
    """Points that differ in the number of nodes only, fewest first; `ineligible` are excluded."""

    subject: str
    points: tuple[PointRow, ...]
    ineligible: tuple[tuple[PointRow, Exclusion], ...]
    study: Study

    def having(self, metric: str) -> list[PointRow]:
        """Its points that have the metric."""
        return [row for row in self.points if is_known(row[metric])]

    def finding(
        self,
        kind: str,
        support: str,
        comparisons: int = 0,
        topic: str = "scaling",
        rows: Sequence[PointRow] = (),
        found: Difference | None = None,
        **values: Any,
    ) -> Finding:
        """Make a finding about `rows`; its sentence names the first row as `row`."""
        low, high = (found and found.interval) or (NAN, NAN)
        text = sentence(
            "finding",
            self.study.points,
            self.study.samples,
            kind=kind,
            is_supported=support == SUPPORTED,
            comparisons=comparisons,
            row=rows[0] if rows else None,
            **{"gain": None, "few": (), "not_counting": ()} | values,
        )
        return Finding(
            topic,
            self.subject,
            text,
            TOO_FEW if values.get("few") else support,
            comparisons,
            kind,
            "; ".join(str(row["nodes"]) for row in rows),
            NAN if found is None or found.ratio is None else found.ratio,
            low,
            high,
        )


#: For each line the points after its first, and how much longer they take than the first.
Against = list[list[tuple[PointRow, Difference]]]


def table(study: Study) -> pd.DataFrame:
    """Return one `Finding` per row. Which configuration to take: `decision`."""
    lines = list(_lines(study))
    points = {point_of(row) for line in lines for row in line.points}
    found = [*_scaling(lines, study), *_quality(lines, study.samples)]
    found += [*_weak_scaling(lines, study), *_stragglers(study, points)]
    found += _clouds(clouds.compare_clouds(study), study)
    return frame(Finding, found)


def page(table: pd.DataFrame, _: Study) -> str:
    """Return the page findings.md, with a list for each topic."""
    rows = typed(Finding, table)
    topics = {topic: [row for row in rows if row.topic == topic] for topic in TOPICS}
    return f"{render('findings_page', topics=topics, supported=SUPPORTED)}\n"


def _lines(study: Study) -> Iterator[Line]:
    """Yield the lines: points that differ in nothing but their number of nodes."""
    vary = [axis for axis in LINE_AXES if len({str(row[axis]) for row in study.points}) > 1]
    for rows in row_values.grouped(study.points, row_values.line_of).values():
        subject = ", ".join(axis_text(axis, rows[0]) for axis in vary or ("platform",))
        out = study.excluded
        ineligible = [(row, out[point_of(row)]) for row in rows if point_of(row) in out]
        fit = [row for row in rows if row.runs > 0 and point_of(row) not in out]
        points = sorted(fit, key=lambda row: row.nodes)
        yield Line(subject, tuple(points), tuple(ineligible), study)


def _stragglers(study: Study, points: Collection[Point]) -> Iterator[Finding]:
    """Yield findings about ranks that were slow in every run of a point."""
    rows = {point_of(row): row for row in study.points}
    vary = varying(study.points)
    for point, text, support, comparisons in what_holds_back.slow_ranks(study.run_rows, points):
        yield Finding("stragglers", point_name(rows[point], vary), text, support, comparisons)


def _scaling(lines: Sequence[Line], study: Study) -> Iterator[Finding]:
    """Where more nodes help, and where they stop to; which points are excluded."""
    samples = study.samples
    against, comparisons = _against_first(lines, samples, TIME)
    enough = [
        [row for row in line.points if samples.has_enough(TIME, point_of(row))] for line in lines
    ]
    together = sum(len(rows) for rows in enough if len(rows) > 1)
    for line, own, rows in zip(lines, against, enough, strict=True):
        yield from _slower(line, own, comparisons)
        # what a search decides by few runs, medians alone must not seem to leave open
        is_searched = len(rows) < 2 and any(point_of(row) in study.searched for row in line.points)
        if len(line.having(TIME)) > 1 and not is_searched:
            yield _last_that_pays(line, own, rows, together)
        if line.ineligible:
            names = [f"{point_name(row)}, {why.reason}" for row, why in line.ineligible]
            text = f"Not compared: {listed(names)}."
            yield Finding("scaling", line.subject, text, NOT_COMPARED, kind=NOT_COMPARED)


def _against_first(lines: Sequence[Line], samples: Samples, metric: str) -> tuple[Against, int]:
    """(how much worse the points of each line are than its first, number of comparisons).

    Only points that have the metric are compared.
    """
    known = [line.having(metric) for line in lines]
    pairs = [[(point_of(rows[0]), point_of(row)) for row in rows[1:]] for rows in known]
    every = [pair for own in pairs for pair in own]
    made = sum(all(samples.has_enough(metric, point) for point in pair) for pair in every)
    found: Against = []
    for rows, own in zip(known, pairs, strict=True):
        differences = samples.differences(metric, own, max(1, made))
        found.append([(r, found) for r, found in zip(rows[1:], differences, strict=True) if found])
    return found, made


def _slower(
    line: Line, against: Sequence[tuple[PointRow, Difference]], comparisons: int
) -> Iterator[Finding]:
    """Yield findings about node counts that take longer than the fewest nodes.

    Significant differences and differences of medians are separate findings.
    """
    worse = [(row, found) for row, found in against if found.is_worse]
    for support, own in row_values.grouped(worse, lambda pair: pair[1].support).items():
        yield line.finding(
            "slower",
            support,
            comparisons,
            rows=[row for row, _ in own],
            found=own[0][1],
            first=line.having(TIME)[0],
            slower=own,
            metric=METRICS[TIME],
        )


def _last_that_pays(
    line: Line,
    against: Sequence[tuple[PointRow, Difference]],
    rows: Sequence[PointRow],
    comparisons: int,
) -> Finding:
    """Return the finding about the fewest nodes beyond which no measured node count is faster.

    `rows` are the points with enough runs. With fewer than two of them, only medians are compared.
    """
    kind, support, bound = "medians", TOO_FEW, None
    knee = min(line.having(TIME), key=lambda row: (row[TIME], row["nodes"]))
    if len(rows) > 1:
        kind, support, knee, bound = _by_estimates(line, rows, comparisons)
    gain = next((_gain(found) for row, found in against if row is knee), None)
    return line.finding(
        kind,
        support,
        comparisons if len(rows) > 1 else 0,
        rows=[knee],
        found=gain,
        gain=gain,
        first=line.having(TIME)[0],
        is_last=knee is line.points[-1],
        bound=bound,
        few=[r for r in line.points if not any(r is e for e in rows)] if len(rows) > 1 else [],
        not_counting=[row for row in line.points if remark(row, line.study.samples)],
    )


def _by_estimates(
    line: Line, rows: Sequence[PointRow], comparisons: int
) -> tuple[str, str, PointRow, float | None]:
    """(kind, support, the point, by what fraction more nodes may be faster)."""
    together = line.study.samples.estimates(TIME, [point_of(row) for row in rows])
    tail = (1 - CONFIDENCE) / comparisons
    last = len(rows) - 1
    bounds = together.may_be_worse(tail, range(len(rows)))
    near = [n for n in range(last) if bounds[n] <= line.study.question.indifference]
    if near:
        return "stops paying", SUPPORTED, rows[near[0]], bounds[near[0]]
    if np.delete(together.is_worse(last, tail), last).all():
        return "pays", SUPPORTED, rows[last], None
    # the fewest nodes than which no more are shown to be faster
    knee = next(n for n in range(last + 1) if not _is_beaten(together, n, tail))
    if knee == last:
        return "may pay", INCONCLUSIVE, rows[last], None
    bound = bounds[knee] if np.isfinite(bounds[knee]) else None
    return "not shown to pay", INCONCLUSIVE, rows[knee], bound


def _is_beaten(together: Estimates, index: int, tail: float) -> bool:
    """Whether a point of the line with more nodes is shown to be faster."""
    later = np.arange(index + 1, len(together.location))
    ahead = together.location[index] - together.location[later]
    return bool((ahead > together.half_width(later, index, tail)).any())


def _weak_scaling(lines: Sequence[Line], study: Study) -> Iterator[Finding]:
    """Yield findings about the throughput per replica on the most nodes of each line.

    Only lines whose work grows with the nodes have one, or all with a limit of the efficiency.
    """
    rows_of = {point_of(row).path: row for row in study.points}
    pairs: list[tuple[Line, PointRow, PointRow]] = []
    for line in lines:
        grown = [row for row, why in line.ineligible if why.reason.startswith(OTHER_WORK)]
        rows = [
            row
            for row in (*line.points, *grown)
            if is_known(row.weak_scaling_efficiency) and row.baseline_point != point_of(row).path
        ]
        if rows and (grown or OF_TRAINING in study.question.limits):
            row = max(rows, key=lambda row: row.nodes)
            pairs.append((line, row, rows_of[str(row.baseline_point)]))
    points = [(point_of(base), point_of(row)) for _, row, base in pairs]
    metric = "throughput_examples_per_s"
    made = sum(all(study.samples.has_enough(metric, p) for p in pair) for pair in points)
    differences = study.samples.differences(metric, points, max(1, made))
    for (line, row, base), found in zip(pairs, differences, strict=True):
        if found is not None and found.ratio is not None:
            own = _per_replica(found, ideal_share(row, base))
            yield line.finding(
                "weak scaling",
                own.support,
                made,
                rows=[row],
                found=own,
                first=base,
                share=times(own),
            )


def _per_replica(found: Difference, share: float) -> Difference:
    """Return how many times the baseline's throughput a replica has.

    Args:
        found: How many times the configuration's throughput the baseline has.
        share: Replicas of the baseline over replicas of the configuration.
    """
    assert found.ratio, "throughputs have a ratio"
    if found.interval is None:
        return Difference(share / found.ratio, None, found.support)
    low, high = (share / end if end > 0 else math.inf for end in reversed(found.interval))
    return Difference(
        share / found.ratio, (low, high), INCONCLUSIVE if low <= 1 <= high else SUPPORTED
    )


def _gain(found: Difference) -> Difference | None:
    """How many times as fast as the first of its line a point is; None where it is not."""
    if found.ratio is None or found.ratio >= 1:
        return None
    low, high = found.interval or (0.0, 0.0)
    ends = (1 / high, 1 / low if low > 0 else math.inf) if found.interval else None
    return Difference(1 / found.ratio, ends, found.support)


def _quality(lines: Sequence[Line], samples: Samples) -> Iterator[Finding]:
    """Yield findings about the quality that the fastest point of a line loses."""
    against, comparisons = _against_first(lines, samples, QUALITY)
    for line, own in zip(lines, against, strict=True):
        fastest = min(line.having(TIME), key=lambda row: row[TIME], default=None)
        for row, lost in own:
            if row is fastest and lost.is_worse:
                yield line.finding(
                    "quality lost",
                    lost.support,
                    comparisons,
                    QUALITY,
                    [row],
                    lost,
                    lost=lost,
                    metric=metric_of(QUALITY, row),
                    first=line.having(QUALITY)[0],
                )


def _clouds(between: Sequence[CloudRow], study: Study) -> Iterator[Finding]:
    """Yield for two platforms of two clouds which one wins how many configurations, by what."""
    comparisons = sum(row.verdict != TOO_FEW for row in between)
    pairs = row_values.grouped(between, lambda row: (row.platform_a, row.platform_b, row.metric))
    for (first, second, metric), group in pairs.items():
        margins: dict[str, list[float]] = {}
        for row in group:
            margins.setdefault(row.winner, []).append(row.margin)
        yield Line(f"{first} against {second}", (), (), study).finding(
            "better cloud",
            weakest([row.verdict for row in group]),
            comparisons,
            "clouds",
            metric=metrics.named(metric),
            wins=[
                (cloud, len(own), f"{min(own):.2f}", f"{max(own):.2f}")
                for cloud, own in sorted(margins.items(), key=lambda item: -len(item[1]))
            ],
            total=len(group),
            supported=sum(row.verdict == SUPPORTED for row in group),
        )
