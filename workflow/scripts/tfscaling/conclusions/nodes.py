"""How many times as long runs take with each node, where runs had different sets of nodes."""

from __future__ import annotations

import pandas as pd

from tfscaling.conclusions import shown
from tfscaling.conclusions.evidence import Study
from tfscaling.tables.display import Number, TextTable
from tfscaling.tables.node_effects import of_platforms
from tfscaling.tables.row_types import TableRow, columns
from tfscaling.tables.table_files import frame, typed


class NodeRow(TableRow):
    """How many times as long runs take with a node, with the interval of the factor."""

    platform: str
    node: str
    runs: int
    factor: float
    factor_low: float
    factor_high: float
    is_slow: bool


COLUMNS = tuple(columns(NodeRow))


def table(study: Study) -> pd.DataFrame:
    """Return one `NodeRow` per node of a platform whose effect the runs show."""
    effects = of_platforms(study.run_rows)
    rows = [NodeRow(platform, *each) for platform, found in effects.items() for each in found]
    return frame(NodeRow, rows)


def as_text(found: pd.DataFrame) -> TextTable:
    """Return the table of the page, the slowest node first."""
    if found.empty:
        none = "No node can be compared: runs of a configuration need different nodes."
        return TextTable("Nodes", pd.DataFrame(), (none,))
    rows = [_cells(row) for row in sorted(typed(NodeRow, found), key=lambda row: -row.factor)]
    return TextTable("Nodes", pd.DataFrame(rows, dtype=object), shown.notes("nodes"))


def _cells(row: NodeRow) -> dict[str, str]:
    return {
        "platform": row.platform,
        "node": row.node,
        "runs": Number(str(row.runs), row.runs),
        "times as long": Number(shown.with_spread(row, "factor", 2), row.factor),
        "verdict": "slow" if row.is_slow else "not significantly different",
    }
