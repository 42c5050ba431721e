#!/usr/bin/env python3
"""Collect every planned run into one row: valid, failed, stale and missing ones too.

INPUTS   manifest.json (--manifest), the run records below --runs-dir
OUTPUTS  runs.csv (--csv), runs.parquet (--parquet), epochs.csv (--epochs)
"""

import argparse
from pathlib import Path

from tfscaling.study.manifest import Manifest
from tfscaling.tables import runs_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--runs-dir", type=Path, required=True)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--parquet", type=Path, required=True)
    parser.add_argument("--epochs", type=Path, required=True)
    args = parser.parse_args()
    manifest = Manifest.read(args.manifest)
    collect(manifest, args.runs_dir, args.csv, args.parquet, args.epochs)


def collect(manifest: Manifest, runs_dir: Path, csv: Path, parquet: Path, epochs_csv: Path) -> None:
    """Write the tables of runs and epochs and say what is not valid."""
    runs, epochs = runs_table.run_tables(manifest.runs, runs_dir, manifest.targets)
    runs.to_csv(csv, index=False)
    runs.to_parquet(parquet, index=False)
    epochs.to_csv(epochs_csv, index=False)
    print(runs["status"].value_counts().to_string())
    for _, row in runs[runs["status"] != "ok"].iterrows():
        print(
            f"{row['status']}: {row['platform']} nodes={row['nodes']} "
            f"gpus_per_node={row['gpus_per_node']} repeat={row['repeat']}: {row['reason']}"
        )


if __name__ == "__main__":
    main()
