#!/usr/bin/env python3
"""Tables, plots and report of whatever has finished; starts no training and waits for none.

INPUTS   config.json (--config), manifest.json (--manifest), the run records below --runs-dir and
         the benchmarks beside them
OUTPUTS  tables/, plots/ and report.html below --output-dir
"""

import argparse
import shutil
from pathlib import Path

import compare
import msgspec
import plot
import write_report
from analyse import analyse
from collect import collect
from tfscaling.analysis.conclusions import CONCLUSIONS
from tfscaling.analysis.evidence import Study
from tfscaling.plots import plot_registry
from tfscaling.records import benchmark_record, run_record
from tfscaling.report.page import Results
from tfscaling.study import manifest
from tfscaling.study.config import Config
from tfscaling.study.manifest import Manifest
from tfscaling.tables import data_warnings, display, published, runs_table
from tfscaling.tables.comparison import comparison_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", required=True, type=Path, help="config.json")
    parser.add_argument("--manifest", required=True, type=Path, help="manifest.json")
    parser.add_argument("--runs-dir", type=Path, required=True)
    parser.add_argument("--output-dir", type=Path, required=True)
    args = parser.parse_args()
    config = msgspec.json.decode(args.config.read_bytes(), type=Config)
    planned = Manifest.read(args.manifest)
    for name in ("tables", "plots"):  # of platforms and plots that are no more
        shutil.rmtree(args.output_dir / name, ignore_errors=True)
    (args.output_dir / "report.html").unlink(missing_ok=True)
    tabulate(config, planned, args.runs_dir, args.output_dir / "tables")
    draw(config, planned, args.output_dir)
    print(f"tables, plots and report of what has finished: {args.output_dir}")


def tabulate(config: Config, planned: Manifest, runs_dir: Path, folder: Path) -> None:
    """All tables, as the rules collect, compare and analyse make them."""
    (folder / "platforms").mkdir(parents=True, exist_ok=True)
    planned.write(folder.parent / "manifest.json")
    expected = manifest.as_dict(planned)
    csv, comparison = folder / "runs.csv", folder / "comparison.csv"
    collect(expected, runs_dir, csv, csv.with_suffix(".parquet"), folder / "epochs.csv")
    runs, rows = runs_table.read_table(csv), published.read(config.published.path)
    shown = config.comparison
    table = comparison_table(runs, expected, shown.baseline.axes, rows)
    table.to_csv(comparison, index=False)
    warnings = data_warnings.find(table, runs)
    run_record.write_json(folder / "warnings.json", data_warnings.to_json(warnings))
    compare.write(
        display.comparison(table, shown.title, shown.columns),
        warnings,
        [comparison.with_suffix(ending) for ending in compare.FORMATS],
    )
    platforms = expected["platforms"]
    files = [folder / "platforms" / f"{name}.md" for name in platforms]
    compare.write_platforms(table, runs, platforms, files)
    study = Study(
        runs_table.read_table(comparison),
        runs,
        expected,
        rows,
        config.published.tolerance,
        shown.indifference,
        benchmark_record.folder_beside(runs_dir),
    )
    analyse(study, warnings, folder)


def draw(config: Config, planned: Manifest, folder: Path) -> None:
    """All plots and the report, from the tables in `folder`."""
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    titles = plot_registry.titles(msgspec.to_builtins(config.plots))
    files = [folder / "plots" / f"{name}.svg" for name in titles]
    names = ["runs", "comparison", "epochs", *CONCLUSIONS]
    csv = {name: folder / "tables" / f"{name}.csv" for name in names}
    warnings = folder / "tables" / "warnings.json"
    tables = plot.read_tables(csv["comparison"], csv["epochs"], warnings, csv["published"])
    plot.draw(tables, dict(zip(files, titles.values(), strict=True)))
    results = Results(
        manifest.as_dict(planned),
        runs_table.read_table(csv["runs"]),
        runs_table.read_table(csv["comparison"]),
        data_warnings.from_json(run_record.read_json(warnings)),
        {name: runs_table.read_table(csv[name]) for name in CONCLUSIONS},
        write_report.read_plots(files, list(titles.values())),
    )
    comparison = config.comparison
    write_report.write(results, comparison.title, comparison.columns, folder / "report.html")


if __name__ == "__main__":
    main()
