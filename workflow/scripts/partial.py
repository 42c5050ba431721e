#!/usr/bin/env python3
"""Tables, plots and report of whatever has finished; starts no training and waits for none.

INPUTS   config.json (--config), manifest.json (--manifest), the run records below --runs-dir and
         the benchmarks in the folder next to it
OUTPUTS  tables/, plots/ and report.html below --output-dir
"""

import argparse
import shutil
from pathlib import Path

import compare
import plot
import write_report
from analyse import analyse
from collect import collect
from tfscaling.analysis.conclusions import CONCLUSIONS
from tfscaling.analysis.evidence import Reference, Study
from tfscaling.files import program_errors
from tfscaling.plots import plot_registry
from tfscaling.records import benchmark_record
from tfscaling.report.page import Results
from tfscaling.study.config import Config
from tfscaling.study.manifest import Manifest
from tfscaling.tables import csv_files, data_warnings, display, published_results, runs_table
from tfscaling.tables.comparison import comparison_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", required=True, type=Path, help="config.json")
    parser.add_argument("--manifest", required=True, type=Path, help="manifest.json")
    parser.add_argument("--runs-dir", type=Path, required=True)
    parser.add_argument("--output-dir", type=Path, required=True)
    args = parser.parse_args()
    config = program_errors.read_json(args.config, Config)
    manifest = Manifest.read(args.manifest)
    for name in ("tables", "plots"):  # of platforms and plots that are no more
        shutil.rmtree(args.output_dir / name, ignore_errors=True)
    (args.output_dir / "report.html").unlink(missing_ok=True)
    tabulate(config, manifest, args.runs_dir, args.output_dir / "tables")
    draw(config, manifest, args.output_dir)
    print(f"tables, plots and report of what has finished: {args.output_dir}")


def tabulate(config: Config, manifest: Manifest, runs_dir: Path, folder: Path) -> None:
    """All tables, as the rules collect, compare and analyse make them."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("runs.csv", "runs.parquet", "epochs.csv", "datapackage.json")
    collect(manifest, runs_dir, *(folder / name for name in names))
    conclude(config, manifest, folder, benchmark_record.folder_beside(runs_dir))


def conclude(config: Config, manifest: Manifest, folder: Path, benchmarks_dir: Path) -> None:
    """The tables that the rules compare and analyse make of runs.csv, which is in `folder`."""
    (folder / "platforms").mkdir(exist_ok=True)
    manifest.write(folder.parent / "manifest.json")
    comparison, shown = folder / "comparison.csv", config.comparison
    runs = runs_table.read_table(folder / "runs.csv")
    results = published_results.read(config.published.path)
    table = comparison_table(runs, manifest, shown.baseline.axes, results)
    csv_files.write(table, comparison)
    warnings = data_warnings.find(table, runs)
    data_warnings.write(folder / "warnings.json", warnings)
    compare.write(
        display.comparison(table, shown.title, shown.columns),
        warnings,
        [comparison.with_suffix(ending) for ending in compare.FORMATS],
    )
    files = [folder / "platforms" / f"{name}.md" for name in manifest.platforms]
    compare.write_platforms(table, runs, manifest.platforms, files)
    study = Study(
        runs_table.read_table(comparison),
        runs,
        manifest,
        results,
        config.published.tolerance,
        shown.indifference,
        benchmarks_dir,
        Reference.read(Path(config.compare_with)) if config.compare_with else None,
        config.forecast.nodes,
        shown.time,
    )
    analyse(study, warnings, folder)


def draw(config: Config, manifest: Manifest, folder: Path) -> None:
    """All plots and the report, from the tables in `folder`."""
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    qualities, is_searched = manifest.qualities.values(), bool(manifest.searches)
    titles = plot_registry.titles(config.plots, qualities, is_searched)
    files = [folder / "plots" / f"{name}.svg" for name in titles]
    names = ["runs", "comparison", "epochs", *CONCLUSIONS]
    csv = {name: folder / "tables" / f"{name}.csv" for name in names}
    warnings = folder / "tables" / "warnings.json"
    tables = plot.read_tables(
        *(csv["comparison"], csv["epochs"], warnings, csv["published"], csv["search"])
    )
    plot.draw(tables, dict(zip(files, titles.values(), strict=True)))
    points = runs_table.read_table(csv["comparison"])
    results = Results(
        manifest,
        runs_table.read_table(csv["runs"]),
        points,
        data_warnings.read(warnings),
        {name: runs_table.read_table(csv[name]) for name in CONCLUSIONS},
        write_report.read_plots(files, list(titles.values()), points),
    )
    comparison = config.comparison
    write_report.write(results, comparison.title, comparison.columns, folder / "report.html")


if __name__ == "__main__":
    program_errors.told(main)
