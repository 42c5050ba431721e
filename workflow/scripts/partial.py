#!/usr/bin/env python3
"""Tables and plots of whatever has finished; starts no training and waits for none.

INPUTS   the configuration as JSON (--config), the run records below --runs-dir
OUTPUTS  tables/ and plots/ below --output-dir
"""

import argparse
import json
from pathlib import Path

from collect import collect
from compare import compare
from plot import plot
from tfscaling import expectations, tables
from tfscaling.plots import PLOTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", required=True, type=json.loads, help="validated, as JSON")
    parser.add_argument("--runs-dir", type=Path, required=True)
    parser.add_argument("--output-dir", type=Path, required=True)
    args = parser.parse_args()
    folders = {name: args.output_dir / name for name in ("tables", "plots")}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    expected = expectations.expected_runs(args.config)
    csv, comparison = folders["tables"] / "runs.csv", folders["tables"] / "comparison.csv"
    collect(expected, args.runs_dir, csv, csv.with_suffix(".parquet"))
    names = dict.fromkeys(run["axes"]["platform"] for run in expected["runs"])
    shown = args.config["comparison"]
    compare(
        tables.read_table(csv),
        expected,
        shown["title"],
        shown["columns"],
        comparison,
        comparison.with_suffix(".md"),
        [folders["tables"] / f"{name}.md" for name in names],
    )
    for name, settings in args.config["plots"].items():
        plot(
            name,
            settings["title"] or PLOTS[name].title,
            comparison,
            folders["plots"] / f"{name}.svg",
        )
    print(f"tables and plots of what has finished: {args.output_dir}")


if __name__ == "__main__":
    main()
