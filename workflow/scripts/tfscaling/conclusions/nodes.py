"""How many times as long runs take with each node, where runs had different sets of nodes."""

from __future__ import annotations

import pandas as pd

from tfscaling.conclusions import shown
from tfscaling.conclusions.evidence import Study
from tfscaling.tables.display import Number, TextTable
from tfscaling.tables.node_effects import of_platforms
from tfscaling.tables.rows import Cells
from tfscaling.tables.table_rows import rows_of

COLUMNS = ("platform", "node", "runs", "factor", "factor_low", "factor_high", "is_slow")


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: one row per node of a platform whose effect the runs show."""
    effects = of_platforms(study.run_rows)
    rows = [(platform, *each) for platform, found in effects.items() for each in found]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def as_text(found: pd.DataFrame) -> TextTable:
    """`table` for people, the slowest node first."""
    if found.empty:
        none = "No node can be told: runs of a configuration need different nodes."
        return TextTable("Nodes", pd.DataFrame(), (none,))
    rows = [_cells(row) for row in rows_of(found.sort_values("factor", ascending=False))]
    return TextTable("Nodes", pd.DataFrame(rows, dtype=object), shown.notes("nodes"))


def _cells(row: Cells) -> dict[str, str]:
    return {
        "platform": row["platform"],
        "node": row["node"],
        "runs": Number(str(row["runs"]), row["runs"]),
        "times as long": Number(shown.with_spread(row, "factor", 2), row["factor"]),
        "verdict": "slow" if row["is_slow"] else "not significantly different",
    }
