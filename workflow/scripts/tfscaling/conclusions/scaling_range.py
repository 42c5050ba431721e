"""Up to how many nodes a training is shown to scale: the claim of the badge for model authors.

A training scales to n nodes if n and every smaller planned number of nodes keep a scaling
efficiency of EFFICIENCY_MIN, by the rule of limits in `answers.efficiency`. All claims of a study
hold together with CONFIDENCE.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from tfscaling.conclusions.answers.efficiency import RUN_EFFICIENCY, Verdict
from tfscaling.conclusions.evidence import Study
from tfscaling.study.config_types import Limit
from tfscaling.study.run_spec import Point
from tfscaling.tables.data_warnings import SERIOUS, DataWarning
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import axes_without_nodes, group_by, point_of

#: The lowest scaling efficiency with which a training scales. All studies have the same, so that
#: badges can be compared.
EFFICIENCY_MIN = 0.7
#: Axes that a configuration shares with its baseline. Compared with a slower platform, any training
#: would seem to scale.
SAME_AXES = ("platform", "model", "recipe", "devices")


@dataclass(frozen=True)
class JudgedConfiguration:
    """A configuration with what its runs show about its scaling efficiency.

    Attributes:
        row: Its row of the comparison.
        baseline: The row of its baseline; None without one.
        is_efficient: Whether its runs show an efficiency of at least EFFICIENCY_MIN.
        reason: Why the runs do not show it; "" if they do.
    """

    row: PointRow
    baseline: PointRow | None
    is_efficient: bool
    reason: str = ""


@dataclass(frozen=True)
class ScalingRange:
    """Configurations that differ only in their number of nodes, fewest nodes first."""

    configurations: tuple[JudgedConfiguration, ...]

    @property
    def efficient_configurations(self) -> list[JudgedConfiguration]:
        """The configurations from the fewest nodes on, before the first that is not efficient."""
        return [*takewhile(lambda each: each.is_efficient, self.configurations)]

    @property
    def nodes_max(self) -> int | None:
        """The number of nodes to which the training is shown to scale.

        None if it is not shown for more nodes than the baseline has.
        """
        configurations = self.efficient_configurations
        if not configurations or (base := configurations[-1].baseline) is None:
            return None
        nodes = configurations[-1].row.nodes
        return nodes if nodes > base.nodes else None


def find_scaling_ranges(study: Study, warnings: Iterable[DataWarning]) -> list[ScalingRange]:
    """Return a `ScalingRange` for each group of configurations that differ only in nodes.

    Configurations that the grid excludes, and short runs of a search, are left out.

    Args:
        study: The evidence.
        warnings: Warnings about its data. A configuration does not count as efficient if it or its
            baseline has a serious warning.
    """
    rows = [row for task in study.tasks for row in task.rows if row.status != "excluded"]
    compared = [row for row in rows if point_of(row) not in study.excluded]
    serious = {
        point: warning.short
        for warning in warnings
        if warning.severity == SERIOUS
        for point in warning.points
    }
    lines = group_by(rows, axes_without_nodes).values()
    return [
        ScalingRange(
            tuple(
                _judge(study, row, len(compared), serious)
                for row in sorted(line, key=lambda row: row.nodes)
            )
        )
        for line in lines
    ]


def _judge(
    study: Study, row: PointRow, compared: int, serious: dict[Point, str]
) -> JudgedConfiguration:
    """Judge the scaling efficiency of a configuration.

    Args:
        study: The evidence.
        row: The configuration.
        compared: Number of configurations whose verdicts are all true with CONFIDENCE.
        serious: Configuration → a serious warning about it, in words.
    """
    base = next((each for each in study.points if point_of(each).path == row.baseline_point), None)
    if base and (other := [axis for axis in SAME_AXES if base[axis] != row[axis]]):
        reason = f"its baseline, {row.baseline}, has another {' and '.join(other)}"
        return JudgedConfiguration(row, base, False, reason)
    if base and not row.gpus_per_node and (base.replicas or 0) > (row.replicas or 0):
        # replicas that share the CPUs of a node are slower, so any training would seem to scale
        reason = f"its baseline, {row.baseline}, has more replicas"
        return JudgedConfiguration(row, base, False, reason)
    if excluded := study.excluded.get(point_of(row)):
        return JudgedConfiguration(row, base, False, excluded.reason)
    concerned = [row, *([base] if base else [])]
    if warned := next(filter(None, (serious.get(point_of(each)) for each in concerned)), ""):
        return JudgedConfiguration(row, base, False, warned)
    limit = Limit(at_least=EFFICIENCY_MIN)
    found = study.judge_efficiency(row, RUN_EFFICIENCY, limit, compared)
    return JudgedConfiguration(row, base, found.is_kept, _inefficiency_reason(found))


def _inefficiency_reason(verdict: Verdict) -> str:
    """Return why a verdict does not show an efficiency of EFFICIENCY_MIN; "" if it does."""
    if verdict.is_kept:
        return ""
    if verdict.unknown:
        return verdict.unknown
    short = f"shown to be below {EFFICIENCY_MIN:g}" if verdict.is_missed else "not shown"
    return f"{short} ({verdict.note})" if verdict.note else short
