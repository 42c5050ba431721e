#!/usr/bin/env python3
"""Say what the comparison supports: every conclusion of `conclusions.CONCLUSIONS`.

INPUTS   comparison.csv (--comparison), runs.csv (--runs), manifest.json (--manifest), warnings.json
         (--warnings), published results (--published, may be left out), the all-reduce benchmarks
         below --benchmarks-dir, another study to compare with (--reference, may be left out)
OUTPUTS  in --output-dir, <conclusion>.csv and <conclusion>.md of each
"""

import argparse
import gc
from collections.abc import Sequence
from pathlib import Path

from tfscaling.analysis.conclusions import CONCLUSIONS, tables
from tfscaling.analysis.evidence import Reference, Study
from tfscaling.files import atomic, program_errors
from tfscaling.study.config import POINT_AXES, Comparison, Published
from tfscaling.study.manifest import Manifest
from tfscaling.tables import csv_files, data_warnings, published_results, runs_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comparison", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--warnings", type=Path, required=True, help="warnings.json")
    parser.add_argument("--published", type=Path, nargs="?", help="published results")
    parser.add_argument(
        "--tolerance", type=float, default=Published().tolerance, help="published.tolerance"
    )
    parser.add_argument(
        "--indifference",
        type=float,
        default=Comparison().indifference,
        help="comparison.indifference",
    )
    parser.add_argument("--benchmarks-dir", type=Path, required=True)
    parser.add_argument("--reference", type=Path, nargs="?", help="compare_with")
    parser.add_argument("--forecast-nodes", type=int, nargs="*", default=(), help="forecast.nodes")
    parser.add_argument("--decision-time", default=Comparison().time, help="comparison.time")
    parser.add_argument("--output-dir", type=Path, required=True)
    args = parser.parse_args()
    study = Study(
        runs_table.read_table(args.comparison, POINT_AXES),
        runs_table.read_table(args.runs, POINT_AXES),
        Manifest.read(args.manifest),
        published_results.read(args.published),
        args.tolerance,
        args.indifference,
        args.benchmarks_dir,
        Reference.read(args.reference) if args.reference else None,
        args.forecast_nodes,
        args.decision_time,
    )
    analyse(study, data_warnings.read(args.warnings), args.output_dir)


def analyse(study: Study, warnings: Sequence[data_warnings.DataWarning], folder: Path) -> None:
    """Write every conclusion into `folder`: its table, and its page, which begins with warnings."""
    for name, table in tables(study):
        csv_files.write(table, folder / f"{name}.csv")
        conclusion = CONCLUSIONS[name]
        page = conclusion.with_warnings(conclusion.text(table, study), warnings)
        atomic.write_text(folder / f"{name}.md", page)


if __name__ == "__main__":
    gc.disable()  # tables live to the end: to look for garbage among them takes a tenth of the time
    program_errors.told(main)
