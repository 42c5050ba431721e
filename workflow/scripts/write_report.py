#!/usr/bin/env python3
"""One self-contained page: the answer, the tables, the plots, and what they rest on.

INPUTS   manifest.json (--grid), runs.csv (--runs), comparison.csv (--comparison), decision.csv
         (--decision), findings.csv (--findings), warnings.json (--warnings), plots (--plots);
         may be left out: clouds.csv (--clouds), published.csv (--published), scaling.csv
         (--scaling), communication.csv (--communication), methodology.csv
         (--methodology)
OUTPUTS  an HTML page that asks nothing of the network (--output)
"""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from tfscaling.records import run_record
from tfscaling.records.metrics import METRICS
from tfscaling.report import page as report
from tfscaling.study import manifest
from tfscaling.study.manifest import Manifest
from tfscaling.tables import data_warnings, runs_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grid", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--comparison", type=Path, required=True)
    parser.add_argument("--columns", nargs="+", required=True, choices=list(METRICS))
    parser.add_argument("--decision", type=Path, required=True)
    parser.add_argument("--findings", type=Path, required=True)
    parser.add_argument("--warnings", type=Path, required=True, help="warnings.json")
    parser.add_argument("--clouds", type=Path)
    parser.add_argument("--published", type=Path)
    parser.add_argument("--scaling", type=Path)
    parser.add_argument("--communication", type=Path)
    parser.add_argument("--methodology", type=Path)
    parser.add_argument("--plots", type=Path, nargs="*", default=[], help="<name>.svg")
    parser.add_argument("--title", required=True)
    removed = "remove what the page supersedes beside it: partial/, plots/*.svg not among --plots"
    parser.add_argument("--remove-earlier", action="store_true", help=removed)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    write(
        args.output,
        args.title,
        manifest.as_dict(Manifest.read(args.grid)),
        runs_table.read_table(args.runs),
        runs_table.read_table(args.comparison),
        args.columns,
        runs_table.read_table(args.decision),
        runs_table.read_table(args.findings),
        args.plots,
        data_warnings.from_json(run_record.read_json(args.warnings)),
        clouds=runs_table.read_table(args.clouds) if args.clouds else None,
        published=runs_table.read_table(args.published) if args.published else None,
        scaling=runs_table.read_table(args.scaling) if args.scaling else None,
        communication=runs_table.read_table(args.communication) if args.communication else None,
        method=runs_table.read_table(args.methodology) if args.methodology else None,
    )
    if args.remove_earlier:
        remove_earlier(args.output.parent, args.plots)


def remove_earlier(folder: Path, plots: Sequence[Path]) -> None:
    """Remove from the study's folder the partial results and the plots that are not shown."""
    shutil.rmtree(folder / "partial", ignore_errors=True)
    for path in (folder / "plots").glob("*.svg"):
        if path not in plots:
            path.unlink()


def write(
    output: Path,
    title: str,
    expected: dict[str, Any],
    runs: pd.DataFrame,
    comparison: pd.DataFrame,
    columns: Sequence[str],
    decision: pd.DataFrame,
    findings: pd.DataFrame,
    plots: Sequence[Path],
    warnings: Sequence[data_warnings.DataWarning],
    *,
    clouds: pd.DataFrame | None = None,
    published: pd.DataFrame | None = None,
    scaling: pd.DataFrame | None = None,
    communication: pd.DataFrame | None = None,
    method: pd.DataFrame | None = None,
) -> None:
    """Write the page; records are linked relative to its folder."""
    drawings = {path.stem: path.read_bytes() for path in plots}
    page = report.render(
        title,
        expected,
        runs,
        comparison,
        columns,
        decision,
        findings,
        drawings,
        warnings,
        clouds=clouds,
        published=published,
        scaling=scaling,
        communication=communication,
        method=method,
        folder=output.parent,
    )
    output.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
