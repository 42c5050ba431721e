"""Effects of single nodes: the factor by which runs take longer with each node."""

from __future__ import annotations

import pandas as pd

from tfscaling.conclusions import rendering
from tfscaling.conclusions.evidence import Study
from tfscaling.tables.display import FormattedNumber, TextTable
from tfscaling.tables.node_effects import estimate_effects_by_platform
from tfscaling.tables.row_types import TableRow, columns
from tfscaling.tables.table_files import to_frame, to_rows


class NodeRow(TableRow):
    """The factor by which runs take longer with a node, a row of nodes.csv.

    Attributes:
        platform: Name of the platform.
        node: Name of the node.
        runs: Number of runs that used it.
        factor: Estimated time of a run that uses this node, divided by the time of the same run on
            other nodes.
        factor_low: Lower end of the factor's interval.
        factor_high: Upper end of this interval.
        is_slow: Whether the complete interval is above 1.
    """

    platform: str
    node: str
    runs: int
    factor: float
    factor_low: float
    factor_high: float
    is_slow: bool


COLUMNS = tuple(columns(NodeRow))


def table(study: Study) -> pd.DataFrame:
    """Return one `NodeRow` for each node whose effect on the time can be estimated."""
    effects = estimate_effects_by_platform(study.run_rows)
    rows = [NodeRow(platform, *each) for platform, found in effects.items() for each in found]
    return to_frame(NodeRow, rows)


def as_text(table: pd.DataFrame) -> TextTable:
    """Return the table for the page, the slowest node first."""
    if table.empty:
        none = "No node can be compared: runs of a configuration need different nodes."
        return TextTable("Nodes", pd.DataFrame(), (none,))
    rows = [_cells(row) for row in sorted(to_rows(NodeRow, table), key=lambda row: -row.factor)]
    return TextTable("Nodes", pd.DataFrame(rows, dtype=object), rendering.render_notes("nodes"))


def _cells(row: NodeRow) -> dict[str, str]:
    """Return heading → text of each cell in a row of the page's table."""
    return {
        "platform": row.platform,
        "node": row.node,
        "runs": FormattedNumber(str(row.runs), row.runs),
        "times as long": FormattedNumber(
            rendering.format_with_interval(row, "factor", 2), row.factor
        ),
        "verdict": "slow" if row.is_slow else "not significantly different",
    }
