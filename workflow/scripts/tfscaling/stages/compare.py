"""Compare the configurations: one row each, one table per platform, and the warnings.

INPUTS   config.json, manifest.json, tables/runs.csv, published results if configured
OUTPUTS  tables/comparison.{csv,md}, tables/platforms/<platform>.md, and
         tables/warnings.json: what must be known before any number is read
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

import pandas as pd

from tfscaling.files import atomic
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.tables import comparison, data_warnings, display, published_results, table_rows
from tfscaling.tables.comparison import comparison_table


def run(study: StudyFolder) -> None:
    """Write the comparison, the tables of the platforms and the warnings."""
    shown, runs = study.config.comparison, study.read("runs")
    published = published_results.read(study.config.published.path)
    table = comparison_table(runs, study.manifest, shown.baseline.axes, published)
    table_rows.write_csv(table, study.table("comparison"))
    warnings = data_warnings.find(table, runs)
    data_warnings.write(study.tables / "warnings.json", warnings)
    points = comparison.as_text(table, shown.title, shown.columns)
    page = display.with_warnings(display.markdown(points), [warning.text for warning in warnings])
    atomic.write_text(study.tables / "comparison.md", page)
    write_platforms(study, table, runs)


def write_platforms(study: StudyFolder, table: pd.DataFrame, runs: pd.DataFrame) -> None:
    """Write each platform's table with its warnings; remove the tables of earlier platforms."""
    folder = study.tables / "platforms"
    folder.mkdir(exist_ok=True)
    for name, platform in study.manifest.platforms.items():
        parts = [display.markdown(part, 2) for part in comparison.platform_texts(table, name)]
        page = "\n".join([f"# {platform.title}\n", *parts])
        own = (frame[frame["platform"] == name] for frame in (table, runs))
        warnings = data_warnings.find(*own)
        atomic.write_text(
            folder / f"{name}.md", display.with_warnings(page, [w.text for w in warnings])
        )
    remove_others(folder, study.manifest.platforms)


def remove_others(folder: Path, platforms: Container[str]) -> None:
    """Remove the tables of platforms that the grid had before."""
    for path in folder.glob("*.md"):
        if path.stem not in platforms:
            path.unlink()
