#!/usr/bin/env python3
"""Draw plots of the comparison, all in one process.

INPUTS   comparison.csv (--comparison), epochs.csv (--epochs), warnings.json (--warnings),
         published.csv (--published, may be left out)
OUTPUTS  one SVG per plot (--outputs), with the warnings at its foot; a file's stem is the plot's
         name
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from tfscaling.plots import plot_style
from tfscaling.plots.plot_registry import PLOTS
from tfscaling.records import run_record
from tfscaling.tables import data_warnings, runs_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plots", type=json.loads, required=True, help="titles by plot, as JSON")
    parser.add_argument("--comparison", type=Path, required=True)
    parser.add_argument("--epochs", type=Path, required=True)
    parser.add_argument("--warnings", type=Path, required=True, help="warnings.json")
    parser.add_argument("--published", type=Path)
    parser.add_argument("--outputs", type=Path, nargs="*", required=True, help="<plot>.svg")
    args = parser.parse_args()
    unknown = sorted({*args.plots, *(path.stem for path in args.outputs)} - PLOTS.keys())
    if unknown:
        parser.error(f"unknown plots: {', '.join(unknown)}; known: {', '.join(PLOTS)}")
    plot(args.plots, args.comparison, args.epochs, args.warnings, args.published, args.outputs)


def plot(
    titles: Mapping[str, str | None],
    comparison: Path,
    epochs: Path,
    warnings: Path,
    published: Path | None,
    outputs: Sequence[Path],
) -> None:
    """Draw each of the outputs; a plot without a title in `titles` has its own."""
    drawn_from = plot_style.Tables(
        runs_table.read_table(comparison),
        runs_table.read_table(epochs),
        read_published(published),
        data_warnings.footnotes(data_warnings.from_json(run_record.read_json(warnings))),
    )
    for path in outputs:
        entry = PLOTS[path.stem]
        title = titles.get(path.stem) or entry.title
        plot_style.save(entry.draw(drawn_from, title), path)


def read_published(path: Path | None) -> pd.DataFrame:
    """The published results beside the measured ones; empty without any."""
    try:
        return runs_table.read_table(path) if path else pd.DataFrame()
    except pd.errors.EmptyDataError:
        return pd.DataFrame()


if __name__ == "__main__":
    main()
