#!/usr/bin/env python3
"""Write one self-contained page: the answer, the tables, the plots, and what they rest on.

INPUTS   manifest.json (--manifest), runs.csv (--runs), comparison.csv (--comparison), warnings.json
         (--warnings), the tables of conclusions (--conclusions) and the plots (--plots): a file's
         stem is the name of the conclusion or plot
OUTPUTS  an HTML page that asks nothing of the network (--output)
"""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from tfscaling.analysis.conclusions import CONCLUSIONS
from tfscaling.files import atomic, program_errors
from tfscaling.plots.plot_registry import PLOTS
from tfscaling.records.metrics import METRICS
from tfscaling.report.page import Plot, Results, render
from tfscaling.study.config import POINT_AXES
from tfscaling.study.manifest import Manifest
from tfscaling.tables import data_warnings, runs_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--comparison", type=Path, required=True)
    parser.add_argument("--warnings", type=Path, required=True, help="warnings.json")
    parser.add_argument("--conclusions", type=Path, nargs="+", required=True, help="<name>.csv")
    parser.add_argument("--plots", type=Path, nargs="*", default=[], help="<name>.svg")
    parser.add_argument("--plot-titles", nargs="*", default=[], help="one for each of --plots")
    parser.add_argument("--title", required=True)
    parser.add_argument("--columns", nargs="+", required=True, choices=list(METRICS))
    removed = "remove from its folder what the page supersedes: partial/, plots not in --plots"
    parser.add_argument("--remove-earlier", action="store_true", help=removed)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    if absent := CONCLUSIONS.keys() - {path.stem for path in args.conclusions}:
        parser.error(f"--conclusions: missing: {', '.join(sorted(absent))}")
    if len(args.plot_titles) != len(args.plots):
        parser.error(f"{len(args.plot_titles)} titles for {len(args.plots)} plots")
    comparison = runs_table.read_table(args.comparison, POINT_AXES)
    results = Results(
        Manifest.read(args.manifest),
        runs_table.read_table(args.runs, POINT_AXES),
        comparison,
        data_warnings.read(args.warnings),
        {path.stem: runs_table.read_table(path) for path in args.conclusions},
        read_plots(args.plots, args.plot_titles, comparison),
    )
    write(results, args.title, args.columns, args.output)
    if args.remove_earlier:
        remove_earlier(args.output.parent, args.plots)


def read_plots(
    paths: Sequence[Path], titles: Sequence[str], comparison: pd.DataFrame
) -> list[Plot]:
    """The plots of which anything was measured, with their titles, in the order of the page."""
    return [
        Plot(path.stem, title, path.read_bytes())
        for path, title in zip(paths, titles, strict=True)
        if PLOTS[path.stem].is_measured(comparison)
    ]


def write(results: Results, title: str, columns: Sequence[str], output: Path) -> None:
    """Write the page; records are linked relative to its folder."""
    atomic.write_text(output, render(results, title, columns, output.parent))


def remove_earlier(folder: Path, plots: Sequence[Path]) -> None:
    """Remove from the study's folder the partial results and the plots that are not shown."""
    shutil.rmtree(folder / "partial", ignore_errors=True)
    for path in (folder / "plots").glob("*.svg"):
        if path not in plots:
            path.unlink()


if __name__ == "__main__":
    program_errors.told(main)
