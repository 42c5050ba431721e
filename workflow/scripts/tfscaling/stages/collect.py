"""Collect every planned run into one row: valid, failed, stale and missing ones too.

INPUTS   manifest.json, the run records
OUTPUTS  tables/runs.{csv,parquet}, tables/epochs.csv
"""

from __future__ import annotations

import pandas as pd

from tfscaling.console import text_lines
from tfscaling.record.run_states import RESULTS, RunState
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.tables import runs_table, table_rows
from tfscaling.tables.table_rows import rows_of


def run(study: StudyFolder) -> None:
    """Write the tables of runs and epochs, and print which runs are not valid."""
    manifest = study.manifest
    runs, epochs = runs_table.run_tables(manifest.runs, study.runs_dir, manifest.targets)
    table_rows.write_csv(runs, study.table("runs"))
    table_rows.write_parquet(runs, study.tables / "runs.parquet")
    table_rows.write_csv(epochs, study.table("epochs"))
    print("\n".join(told(runs)))


def told(runs: pd.DataFrame) -> list[str]:
    """How many runs there are of each status, and why those that do not count do not.

    One line for each run that failed, diverged or ran out of memory, with the axes that distinguish
    it; one for all others with the same reason.
    """
    counts = runs["status"].value_counts()
    lines = ["runs: " + ", ".join(f"{number} {status}" for status, number in counts.items())]
    shown = text_lines.shown_axes(rows_of(runs))
    alike: dict[str, int] = {}
    for row in rows_of(runs[runs["status"] != RunState.OK]):
        was_stopped = str(row["reason"]).startswith("cancelled: ")
        if row["status"] in (RunState.FAILED, *RESULTS) and not was_stopped:
            lines.append(f"{row['status']}: {text_lines.name(row, shown)}: {row['reason']}")
        else:
            text = row["reason"] if was_stopped else f"{row['status']}: {row['reason']}"
            alike[text] = alike.get(text, 0) + 1
    lines += [f"{text_lines.count(number, 'run')} {text}" for text, number in alike.items()]
    return text_lines.wrapped("\n".join(lines))
