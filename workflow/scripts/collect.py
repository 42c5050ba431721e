#!/usr/bin/env python3
"""Collect every planned run into one row: valid, failed, stale and missing ones too.

INPUTS   manifest.json (--manifest), the run records below --runs-dir
OUTPUTS  runs.csv (--csv), runs.parquet (--parquet), epochs.csv (--epochs); what the columns of the
         tables mean, for other programs (--data-package)
"""

import argparse
import gc
from pathlib import Path

import pandas as pd
from tfscaling.console import text_lines
from tfscaling.files import program_errors
from tfscaling.records.run_states import RunState
from tfscaling.study.manifest import Manifest
from tfscaling.tables import csv_files, data_dictionary, runs_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--runs-dir", type=Path, required=True)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--parquet", type=Path, required=True)
    parser.add_argument("--epochs", type=Path, required=True)
    parser.add_argument("--data-package", type=Path, required=True, help="datapackage.json")
    args = parser.parse_args()
    manifest = Manifest.read(args.manifest)
    files = (args.csv, args.parquet, args.epochs, args.data_package)
    collect(manifest, args.runs_dir, *files)


def collect(
    manifest: Manifest,
    runs_dir: Path,
    csv: Path,
    parquet: Path,
    epochs_csv: Path,
    data_package: Path,
) -> None:
    """Write the tables of runs and epochs, what they mean, and say what is not valid."""
    runs, epochs = runs_table.run_tables(manifest.runs, runs_dir, manifest.targets)
    csv_files.write(runs, csv)
    data_dictionary.write_parquet(runs, parquet)
    csv_files.write(epochs, epochs_csv)
    data_dictionary.write_data_package(data_package, epochs.columns)
    print("\n".join(told(runs)))


def told(runs: pd.DataFrame) -> list[str]:
    """How many runs there are of each status, and why those that do not count do not.

    One line for each run that failed or diverged, with the axes that distinguish it; one for all
    others with the same reason.
    """
    counts = runs["status"].value_counts()
    lines = ["runs: " + ", ".join(f"{number} {status}" for status, number in counts.items())]
    shown = text_lines.shown_axes(runs.to_dict("records"))
    alike: dict[str, int] = {}
    for row in runs[runs["status"] != RunState.OK].to_dict("records"):
        was_stopped = str(row["reason"]).startswith("cancelled: ")
        if row["status"] in (RunState.FAILED, RunState.DIVERGED) and not was_stopped:
            lines.append(f"{row['status']}: {text_lines.name(row, shown)}: {row['reason']}")
        else:
            text = row["reason"] if was_stopped else f"{row['status']}: {row['reason']}"
            alike[text] = alike.get(text, 0) + 1
    lines += [f"{text_lines.count(number, 'run')} {text}" for text, number in alike.items()]
    return text_lines.wrapped("\n".join(lines))


if __name__ == "__main__":
    gc.disable()  # tables live to the end: to look for garbage among them takes a tenth of the time
    program_errors.told(main)
