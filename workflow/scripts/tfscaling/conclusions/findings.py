"""Findings with their support: up to how many nodes speed rises, what it costs, slow ranks.

A finding claims no more than the intervals of the runs allow; `support` says how far it can be
trusted. What is supported is right with CONFIDENCE for all comparisons that findings of its kind
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

from tfscaling.conclusions import bottlenecks, clouds
from tfscaling.conclusions.answers.efficiency import TRAINING_EFFICIENCY
from tfscaling.conclusions.clouds import CloudRow
from tfscaling.conclusions.evidence import ComparisonExclusion, Study, failure_remark
from tfscaling.conclusions.rendering import render, render_sentence
from tfscaling.estimation.estimates import Estimates
from tfscaling.estimation.intervals import CONFIDENCE
from tfscaling.estimation.samples import (
    INCONCLUSIVE,
    NOT_COMPARED,
    SUPPORTED,
    TOO_FEW,
    Difference,
    Samples,
    weakest_support,
)
from tfscaling.record import metrics
from tfscaling.record.metrics import METRICS, NAN, QUALITY
from tfscaling.study.config_types import LINE_AXES
from tfscaling.study.run_spec import Point
from tfscaling.tables import row_values
from tfscaling.tables.comparison import DIFFERENT_WORK, replica_ratio
from tfscaling.tables.display import axis_text, format_ratio, join_names, point_name, varying_axes
from tfscaling.tables.row_types import PointRow, columns
from tfscaling.tables.row_values import is_known, metric_of, point_of
from tfscaling.tables.table_files import to_frame, to_rows

TIME = "execution_time_s"
TOPICS = (QUALITY, "scaling", "stragglers", "clouds")


class Finding(msgspec.Struct):
    """A row of findings.csv: one statement with its support.

    Attributes:
        topic: One of TOPICS.
        subject: Name of the `NodeLine`, the configuration or the two clouds that it is about.
        text: The statement in words.
        support: Level of support, one of `samples.WEAKEST_FIRST`.
        comparisons: Number of comparisons, made for findings of this kind, whose error rate is
            controlled together.
        kind: What was found, such as `slower`; "" for a slow rank.
        nodes: The numbers of nodes that it concerns, separated by "; ".
        ratio: For `slower`, the time on the first of `nodes`, divided by the time on the fewest
            nodes of the line. For `quality lost`, how many times worse the quality is than on the
            fewest nodes (see `samples.Difference`). For `weak scaling`, the throughput per replica,
            divided by the baseline's. For other findings on scaling, the speed-up over the fewest
            nodes, if above 1. Otherwise NaN.
        low: Lower end of the ratio's confidence interval; NaN without an interval. If `quality
            lost` has no ratio, because a value is zero, it is the interval of the difference.
        high: Upper end of this interval.
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
class NodeLine:
    """Configurations that differ only in their number of nodes.

    Attributes:
        subject: Name of the line: the axes that distinguish it from other lines, in words.
        points: Rows of the compared configurations, fewest nodes first.
        ineligible: Rows of the excluded configurations, each with the reason.
        study: The evidence.
    """

    subject: str
    points: tuple[PointRow, ...]
    ineligible: tuple[tuple[PointRow, ComparisonExclusion], ...]
    study: Study

    def rows_with(self, metric: str) -> list[PointRow]:
        """Return the rows of the compared configurations that have a value of the metric."""
        return [row for row in self.points if is_known(row[metric])]

    @property
    def planned_nodes(self) -> list[int]:
        """The numbers of nodes of all its configurations, whether they are compared or not."""
        return [row.nodes for row in (*self.points, *(row for row, _ in self.ineligible))]

    def make_finding(
        self,
        kind: str,
        support: str,
        comparisons: int = 0,
        topic: str = "scaling",
        rows: Sequence[PointRow] = (),
        difference: Difference | None = None,
        **values: Any,
    ) -> Finding:
        """Return a finding about this line.

        Args:
            kind: What was found; selects the sentence of the template.
            support: Level of support, one of `samples.WEAKEST_FIRST`.
            comparisons: Number of comparisons whose error rate is controlled together.
            topic: One of TOPICS.
            rows: The configurations that it concerns; the sentence names the first.
            difference: The comparison with the fewest nodes, for ratio and interval.
            **values: Further values of the template.
        """
        low, high = (difference and difference.interval) or (NAN, NAN)
        text = render_sentence(
            "finding",
            self.study.points,
            self.study.samples,
            kind=kind,
            is_supported=support == SUPPORTED,
            comparisons=comparisons,
            row=rows[0] if rows else None,
            **{"gain": None, "few": (), "not_counting": (), "has_larger": False} | values,
        )
        return Finding(
            topic,
            self.subject,
            text,
            TOO_FEW if values.get("few") else support,
            comparisons,
            kind,
            "; ".join(str(row["nodes"]) for row in rows),
            NAN if difference is None or difference.ratio is None else difference.ratio,
            low,
            high,
        )


#: For each line: its configurations after the first, with how much worse they are than the first.
ComparisonsWithFirst = list[list[tuple[PointRow, Difference]]]


def table(study: Study) -> pd.DataFrame:
    """Return the table of all findings, one `Finding` for each row."""
    lines = list(_node_lines(study))
    points = {point_of(row) for line in lines for row in line.points}
    found = [*_scaling_findings(lines, study), *_quality_findings(lines, study.samples)]
    found += _weak_scaling_findings(lines, study)
    found += _straggler_findings(study, points)
    found += _cloud_findings(clouds.compare_clouds(study), study)
    return to_frame(Finding, found)


def page(table: pd.DataFrame, _: Study) -> str:
    """Return the page findings.md, with a list for each topic."""
    rows = to_rows(Finding, table)
    topics = {topic: [row for row in rows if row.topic == topic] for topic in TOPICS}
    return f"{render('findings_page', topics=topics, supported=SUPPORTED)}\n"


def _node_lines(study: Study) -> Iterator[NodeLine]:
    """Yield the lines: configurations that differ only in their number of nodes."""
    vary = [axis for axis in LINE_AXES if len({str(row[axis]) for row in study.points}) > 1]
    for rows in row_values.group_by(study.points, row_values.axes_without_nodes).values():
        subject = ", ".join(axis_text(axis, rows[0]) for axis in vary or ("platform",))
        out = study.excluded
        ineligible = [(row, out[point_of(row)]) for row in rows if point_of(row) in out]
        fit = [row for row in rows if row.runs > 0 and point_of(row) not in out]
        points = sorted(fit, key=lambda row: row.nodes)
        yield NodeLine(subject, tuple(points), tuple(ineligible), study)


def _straggler_findings(study: Study, points: Collection[Point]) -> Iterator[Finding]:
    """Yield a finding about each of these configurations with a rank that was slow in every run."""
    rows = {point_of(row): row for row in study.points}
    vary = varying_axes(study.points)
    for point, text, support, comparisons in bottlenecks.find_slow_ranks(study.run_rows, points):
        yield Finding("stragglers", point_name(rows[point], vary), text, support, comparisons)


def _scaling_findings(lines: Sequence[NodeLine], study: Study) -> Iterator[Finding]:
    """Yield findings about the number of nodes up to which each line becomes faster."""
    samples = study.samples
    against, comparisons = _compare_with_first(lines, samples, TIME)
    enough = [
        [row for row in line.points if samples.has_enough_runs(TIME, point_of(row))]
        for line in lines
    ]
    together = sum(len(rows) for rows in enough if len(rows) > 1)
    for line, own, rows in zip(lines, against, enough, strict=True):
        yield from _slower_findings(line, own, comparisons)
        # what a search decides by few runs, medians alone must not seem to leave open
        is_searched = len(rows) < 2 and any(
            point_of(row) in study.searched_points for row in line.points
        )
        if len(line.rows_with(TIME)) > 1 and not is_searched:
            yield _useful_nodes_finding(line, own, rows, together)
        if line.ineligible:
            names = [f"{point_name(row)}, {why.reason}" for row, why in line.ineligible]
            text = f"Not compared: {join_names(names)}."
            yield Finding("scaling", line.subject, text, NOT_COMPARED, kind=NOT_COMPARED)


def _compare_with_first(
    lines: Sequence[NodeLine], samples: Samples, metric: str
) -> tuple[ComparisonsWithFirst, int]:
    """Compare the configurations of each line with the line's fewest nodes.

    Args:
        lines: The lines.
        samples: The values of runs.
        metric: The metric to compare.

    Returns:
        For each line its other configurations that have the metric, with their comparison; and the
        number of comparisons that have enough runs.
    """
    known = [line.rows_with(metric) for line in lines]
    pairs = [[(point_of(rows[0]), point_of(row)) for row in rows[1:]] for rows in known]
    every = [pair for own in pairs for pair in own]
    made = sum(all(samples.has_enough_runs(metric, point) for point in pair) for pair in every)
    found: ComparisonsWithFirst = []
    for rows, own in zip(known, pairs, strict=True):
        differences = samples.compare_pairs(metric, own, max(1, made))
        found.append([(r, found) for r, found in zip(rows[1:], differences, strict=True) if found])
    return found, made


def _slower_findings(
    line: NodeLine, against: Sequence[tuple[PointRow, Difference]], comparisons: int
) -> Iterator[Finding]:
    """Yield findings about node counts that take longer than the fewest nodes.

    Significant differences and differences of medians are separate findings.

    Args:
        line: The line.
        against: The comparisons with its fewest nodes.
        comparisons: Number of comparisons whose error rate is controlled together.
    """
    worse = [(row, found) for row, found in against if found.is_worse]
    for support, own in row_values.group_by(worse, lambda pair: pair[1].support).items():
        yield line.make_finding(
            "slower",
            support,
            comparisons,
            rows=[row for row, _ in own],
            difference=own[0][1],
            first=line.rows_with(TIME)[0],
            slower=own,
            metric=METRICS[TIME],
        )


def _useful_nodes_finding(
    line: NodeLine,
    against: Sequence[tuple[PointRow, Difference]],
    rows: Sequence[PointRow],
    comparisons: int,
) -> Finding:
    """Return the finding about the number of nodes beyond which more nodes are not faster.

    Args:
        line: The line.
        against: The comparisons with its fewest nodes.
        rows: Its configurations with enough runs. With fewer than two, only medians are compared.
        comparisons: Number of comparisons whose error rate is controlled together.
    """
    kind, support, bound = "medians", TOO_FEW, None
    compared = rows if len(rows) > 1 else line.rows_with(TIME)
    knee = min(compared, key=lambda row: (row[TIME], row["nodes"]))
    if len(rows) > 1:
        kind, support, knee, bound = _judge_more_nodes(line, rows, comparisons)
    gain = next((_as_speedup(found) for row, found in against if row is knee), None)
    return line.make_finding(
        kind,
        support,
        comparisons if len(rows) > 1 else 0,
        rows=[knee],
        difference=gain,
        gain=gain,
        first=line.rows_with(TIME)[0],
        is_last=knee is compared[-1],
        has_larger=any(nodes > compared[-1].nodes for nodes in line.planned_nodes),
        bound=bound,
        few=[r for r in line.points if not any(r is e for e in rows)] if len(rows) > 1 else [],
        not_counting=[row for row in line.points if failure_remark(row, line.study.samples)],
    )


def _judge_more_nodes(
    line: NodeLine, rows: Sequence[PointRow], comparisons: int
) -> tuple[str, str, PointRow, float | None]:
    """Find the number of nodes up to which more nodes make a line's configurations faster.

    Args:
        line: The line.
        rows: Its configurations with enough runs, two or more.
        comparisons: Number of comparisons whose error rate is controlled together.

    Returns:
        Kind of the finding, its support, the configuration with this number of nodes, and the
        fraction by which a configuration with more nodes may be faster (None: not known).
    """
    estimates = line.study.samples.estimate_configurations(TIME, [point_of(row) for row in rows])
    tail_probability = (1 - CONFIDENCE) / comparisons
    last = len(rows) - 1
    bounds = estimates.disadvantage_bounds(tail_probability, range(len(rows)))
    near = [n for n in range(last) if bounds[n] <= line.study.question.indifference]
    if near:
        return "stops paying", SUPPORTED, rows[near[0]], bounds[near[0]]
    if np.delete(estimates.shown_worse_than(last, tail_probability), last).all():
        return "pays", SUPPORTED, rows[last], None
    # the fewest nodes than which no more are shown to be faster
    knee = next(
        n for n in range(last + 1) if not _is_slower_than_more_nodes(estimates, n, tail_probability)
    )
    if knee == last:
        return "may pay", INCONCLUSIVE, rows[last], None
    bound = bounds[knee] if np.isfinite(bounds[knee]) else None
    return "not shown to pay", INCONCLUSIVE, rows[knee], bound


def _is_slower_than_more_nodes(estimates: Estimates, index: int, tail_probability: float) -> bool:
    """Return whether a configuration with more nodes is shown to be faster than number `index`.

    Args:
        estimates: Estimates of configurations that differ only in their number of nodes, fewest
            nodes first.
        index: Index of the configuration in `estimates`.
        tail_probability: Error probability of each comparison.
    """
    later = np.arange(index + 1, len(estimates.location))
    ahead = estimates.location[index] - estimates.location[later]
    return bool((ahead > estimates.half_width(later, index, tail_probability)).any())


def _weak_scaling_findings(lines: Sequence[NodeLine], study: Study) -> Iterator[Finding]:
    """Yield a finding about the throughput per replica on the most nodes of a line.

    Only lines whose work grows with the number of nodes have such a finding, or all lines if the
    question limits `weak_scaling_efficiency`.
    """
    rows_of = {point_of(row).path: row for row in study.points}
    pairs: list[tuple[NodeLine, PointRow, PointRow]] = []
    for line in lines:
        grown = [row for row, why in line.ineligible if why.reason.startswith(DIFFERENT_WORK)]
        rows = [
            row
            for row in (*line.points, *grown)
            if is_known(row.weak_scaling_efficiency) and row.baseline_point != point_of(row).path
        ]
        if rows and (grown or TRAINING_EFFICIENCY in study.question.limits):
            row = max(rows, key=lambda row: row.nodes)
            pairs.append((line, row, rows_of[str(row.baseline_point)]))
    points = [(point_of(base), point_of(row)) for _, row, base in pairs]
    metric = "throughput_examples_per_s"
    made = sum(all(study.samples.has_enough_runs(metric, p) for p in pair) for pair in points)
    differences = study.samples.compare_pairs(metric, points, max(1, made))
    for (line, row, base), found in zip(pairs, differences, strict=True):
        if found is not None and found.ratio is not None:
            own = _as_throughput_per_replica(found, replica_ratio(row, base))
            yield line.make_finding(
                "weak scaling",
                own.support,
                made,
                rows=[row],
                difference=own,
                first=base,
                own_name=_name_by_difference(row, base),
                base_name=_name_by_difference(base, row),
                share=format_ratio(own),
            )


def _name_by_difference(row: PointRow, other: PointRow) -> str:
    """Return a name for a configuration that distinguishes it from a second configuration.

    If only the numbers of nodes differ, the name is this number. Otherwise it has the axes that
    differ, and nodes and devices.

    Args:
        row: The configuration to name.
        other: The second configuration.
    """
    differing = varying_axes([row, other])
    if not differing and row.nodes != other.nodes:
        return axis_text("nodes", row)
    return point_name(row, differing)


def _as_throughput_per_replica(difference: Difference, share: float) -> Difference:
    """Convert a difference of throughputs to a ratio of throughputs per replica.

    The ratio is the configuration's value divided by the baseline's value.

    Args:
        difference: Throughput of the baseline divided by throughput of the configuration.
        share: Replicas of the baseline divided by replicas of the configuration.
    """
    assert difference.ratio, "throughputs have a ratio"
    if difference.interval is None:
        return Difference(share / difference.ratio, None, difference.support)
    low, high = (share / end if end > 0 else math.inf for end in reversed(difference.interval))
    return Difference(
        share / difference.ratio, (low, high), INCONCLUSIVE if low <= 1 <= high else SUPPORTED
    )


def _as_speedup(difference: Difference) -> Difference | None:
    """Convert a ratio of times to the speed-up over the fewest nodes; None if it is not faster."""
    if difference.ratio is None or difference.ratio >= 1:
        return None
    low, high = difference.interval or (0.0, 0.0)
    ends = (1 / high, 1 / low if low > 0 else math.inf) if difference.interval else None
    return Difference(1 / difference.ratio, ends, difference.support)


def _quality_findings(lines: Sequence[NodeLine], samples: Samples) -> Iterator[Finding]:
    """Yield a finding for each line whose fastest configuration has a worse quality than its first.

    The first one has the fewest nodes.
    """
    against, comparisons = _compare_with_first(lines, samples, QUALITY)
    for line, own in zip(lines, against, strict=True):
        fastest = min(line.rows_with(TIME), key=lambda row: row[TIME], default=None)
        for row, lost in own:
            if row is fastest and lost.is_worse:
                yield line.make_finding(
                    "quality lost",
                    lost.support,
                    comparisons,
                    QUALITY,
                    [row],
                    lost,
                    lost=lost,
                    metric=metric_of(QUALITY, row),
                    first=line.rows_with(QUALITY)[0],
                )


def _cloud_findings(rows: Sequence[CloudRow], study: Study) -> Iterator[Finding]:
    """Yield a finding for each metric and pair of platforms of different clouds.

    The finding has the number of configurations for which each cloud is better.

    Args:
        rows: The comparisons of clouds.
        study: The evidence.
    """
    comparisons = sum(row.verdict != TOO_FEW for row in rows)
    pairs = row_values.group_by(rows, lambda row: (row.platform_a, row.platform_b, row.metric))
    for (first, second, metric), group in pairs.items():
        margins: dict[str, list[float]] = {}
        for row in group:
            margins.setdefault(row.winner, []).append(row.margin)
        yield NodeLine(f"{first} against {second}", (), (), study).make_finding(
            "better cloud",
            weakest_support([row.verdict for row in group]),
            comparisons,
            "clouds",
            metric=metrics.metric_by_name(metric),
            wins=[
                (cloud, len(own), f"{min(own):.2f}", f"{max(own):.2f}")
                for cloud, own in sorted(margins.items(), key=lambda item: -len(item[1]))
            ],
            total=len(group),
            supported=sum(row.verdict == SUPPORTED for row in group),
        )
