#!/usr/bin/env python3
"""Compare the points of the grid: one row per point, and one table per platform.

INPUTS   runs.csv (--runs), grid.json (--grid)
OUTPUTS  comparison.csv (--csv), comparison.md (--md), <platform>.md for each of --platforms
"""

import argparse
from pathlib import Path

import pandas as pd
from tfscaling import markdown, records, tables
from tfscaling.metrics import METRICS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--grid", type=Path, required=True)
    parser.add_argument("--title", required=True)
    parser.add_argument("--columns", nargs="+", required=True, choices=list(METRICS))
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--md", type=Path, required=True)
    parser.add_argument("--platforms", type=Path, nargs="+", required=True, help="<platform>.md")
    args = parser.parse_args()
    runs = tables.read_table(args.runs)
    compare(
        runs,
        records.read_json(args.grid),
        args.title,
        args.columns,
        args.csv,
        args.md,
        args.platforms,
    )


def compare(
    runs: pd.DataFrame,
    expected: dict,
    title: str,
    columns: list[str],
    csv: Path,
    md: Path,
    platforms: list[Path],
) -> None:
    """Write the comparison and the tables of the platforms."""
    table = tables.comparison_table(runs, expected["excluded"])
    table.to_csv(csv, index=False)
    md.write_text(markdown.comparison(table, title, columns))
    for path in platforms:
        path.write_text(markdown.platform(table, path.stem, expected["platforms"][path.stem]))


if __name__ == "__main__":
    main()
