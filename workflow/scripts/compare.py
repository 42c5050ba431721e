#!/usr/bin/env python3
"""Compare the points of the grid: one row per point, one table per platform, and the warnings.

INPUTS   runs.csv (--runs), manifest.json (--manifest), published results (--published, may be
         left out)
OUTPUTS  comparison.csv (--csv), comparison.{md,tex,html} (--md, --tex, --html), <platform>.md for
         each of --platforms, and what must be known before any of it is read: warnings.json
         (--warnings)
"""

import argparse
import gc
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from tfscaling.files import atomic, program_errors
from tfscaling.records.metrics import METRICS
from tfscaling.study.config import POINT_AXES, Platform
from tfscaling.study.manifest import Manifest
from tfscaling.tables import (
    csv_files,
    data_warnings,
    display,
    formats,
    published_results,
    runs_table,
)
from tfscaling.tables.comparison import comparison_table

#: Ending of a file → how the comparison is written into it.
FORMATS = {".md": formats.markdown_page, ".tex": formats.latex, ".html": formats.html_page}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--published", type=Path, nargs="?")
    parser.add_argument("--title", required=True)
    parser.add_argument("--columns", nargs="+", required=True, choices=list(METRICS))
    parser.add_argument("--baseline", type=axis_value, nargs="*", default=[], metavar="AXIS=VALUE")
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--md", type=Path, required=True)
    parser.add_argument("--tex", type=Path, required=True)
    parser.add_argument("--html", type=Path, required=True)
    parser.add_argument("--warnings", type=Path, required=True, help="warnings.json")
    parser.add_argument("--platforms", type=Path, nargs="+", required=True, help="<platform>.md")
    removed = "remove other *.md in the folder of --platforms: of platforms that are no more"
    parser.add_argument("--remove-earlier", action="store_true", help=removed)
    args = parser.parse_args()
    manifest = Manifest.read(args.manifest)
    runs = runs_table.read_table(args.runs, POINT_AXES)
    table = comparison_table(
        runs, manifest, dict(args.baseline), published_results.read(args.published)
    )
    csv_files.write(table, args.csv)
    warnings = data_warnings.find(table, runs)
    data_warnings.write(args.warnings, warnings)
    write(
        display.comparison(table, args.title, args.columns),
        warnings,
        [args.md, args.tex, args.html],
    )
    write_platforms(table, runs, manifest.platforms, args.platforms)
    if args.remove_earlier:
        remove_earlier(args.platforms)


def axis_value(text: str) -> tuple[str, str | int]:
    """An axis of the baseline and its value, from `nodes=1`."""
    axis, _, value = text.partition("=")
    is_number = axis in ("nodes", "gpus_per_node", "tasks_per_node") and value.isdecimal()
    return axis, int(value) if is_number else value


def remove_earlier(platform_files: Sequence[Path]) -> None:
    """Remove the tables of platforms that the grid had before, from the folder of all of them."""
    for path in platform_files[0].parent.glob("*.md"):
        if path not in platform_files:
            path.unlink()


def write(
    comparison: display.TextTable,
    warnings: Sequence[data_warnings.DataWarning],
    files: Sequence[Path],
) -> None:
    """Write the comparison as people read it, the warnings before anything else."""
    for path in files:
        atomic.write_text(path, FORMATS[path.suffix](comparison, warnings))


def write_platforms(
    table: pd.DataFrame,
    runs: pd.DataFrame,
    platforms: Mapping[str, Platform],
    files: Sequence[Path],
) -> None:
    """Write the tables of the platforms, each with the warnings about its points."""
    for path in files:
        parts = [formats.markdown(part, 2) for part in display.platform(table, path.stem)]
        page = "\n".join([f"# {platforms[path.stem].title}\n", *parts])
        own = (frame[frame["platform"] == path.stem] for frame in (table, runs))
        atomic.write_text(path, formats.with_warnings(page, data_warnings.find(*own)))


if __name__ == "__main__":
    gc.disable()  # tables live to the end: to look for garbage among them takes a tenth of the time
    program_errors.told(main)
