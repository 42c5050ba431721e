#!/usr/bin/env python3
"""Draw plots of the comparison, all in one process.

INPUTS   comparison.csv (--comparison), epochs.csv (--epochs), warnings.json (--warnings),
         published.csv (--published)
OUTPUTS  one SVG per plot (--outputs), with the warnings at its foot; a file's stem is the plot's
         name
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

from tfscaling.files import program_errors
from tfscaling.plots import plot_figure
from tfscaling.plots.plot_registry import PLOTS
from tfscaling.plots.plot_series import Tables
from tfscaling.study.config import POINT_AXES
from tfscaling.tables import data_warnings, runs_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comparison", type=Path, required=True)
    parser.add_argument("--epochs", type=Path, required=True)
    parser.add_argument("--warnings", type=Path, required=True, help="warnings.json")
    parser.add_argument("--published", type=Path, required=True, help="published.csv")
    parser.add_argument("--titles", nargs="*", required=True, help="one for each of --outputs")
    parser.add_argument("--outputs", type=Path, nargs="*", required=True, help="<plot>.svg")
    args = parser.parse_args()
    unknown = sorted({path.stem for path in args.outputs} - PLOTS.keys())
    if unknown:
        parser.error(f"unknown plots: {', '.join(unknown)}; known: {', '.join(PLOTS)}")
    if len(args.titles) != len(args.outputs):
        parser.error(f"{len(args.titles)} titles for {len(args.outputs)} outputs")
    tables = read_tables(args.comparison, args.epochs, args.warnings, args.published)
    draw(tables, dict(zip(args.outputs, args.titles, strict=True)))


def read_tables(comparison: Path, epochs: Path, warnings: Path, published: Path) -> Tables:
    """What the plots show; `published` may be a file without any column."""
    found = data_warnings.read(warnings)
    return Tables(
        runs_table.read_table(comparison, POINT_AXES),
        runs_table.read_table(epochs, POINT_AXES),
        runs_table.read_table(published),
        data_warnings.footnotes(found),
    )


def draw(tables: Tables, titles: Mapping[Path, str]) -> None:
    """Draw each plot into its file, below its title."""
    for path, title in titles.items():
        plot_figure.save(PLOTS[path.stem].draw(tables, title), path)


if __name__ == "__main__":
    program_errors.told(main)
