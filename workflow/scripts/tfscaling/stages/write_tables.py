"""Tables, conclusions and regressions of a study.

INPUTS   config.json, manifest.json, the run records or a file of timings, published results and
         another study if configured
OUTPUTS  runs.csv, comparison.csv; in details/:
         epochs.csv, comparison.md; warnings.json: limits on what the numbers mean;
         conclusions/headline.md and console.md, which the console prints, and
         conclusions/<name>.csv of each conclusion with rows;
         on request (`export`) runs.parquet and conclusions/<name>.md
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd

from tfscaling.conclusions import projection
from tfscaling.conclusions import regressions as conclusion
from tfscaling.conclusions.base import CONCLUSIONS, tables
from tfscaling.conclusions.evidence import Reference, Study
from tfscaling.console import text_lines
from tfscaling.files import atomic
from tfscaling.record.run_states import RESULTS, RunState
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.study.config_types import AXES
from tfscaling.tables import (
    comparison,
    console_table,
    data_warnings,
    display,
    published_results,
    row_values,
    runs_table,
    table_files,
    timings,
)
from tfscaling.tables.table_files import row_dicts

#: Number of runs with the same status and cause that `summary_lines` lists each.
RUNS_LISTED = 3


def collect(study: StudyFolder) -> None:
    """Write the tables of runs and epochs, and print which runs are not valid."""
    manifest = study.manifest
    if study.config.timings:
        runs, epochs = timings.run_tables_of_timings(
            manifest.runs, study.config.timings, manifest.targets
        )
    else:
        runs, epochs = runs_table.run_tables(manifest.all_runs, study.runs_dir, manifest.targets)
        epochs = row_values.without_points(epochs, manifest.explaining_points)
    table_files.write_csv(runs, study.table_path("runs"))
    parquet = study.details / "runs.parquet"
    parquet.unlink(missing_ok=True)
    if "parquet" in study.config.export:
        table_files.write_parquet(runs, parquet)
    table_files.write_csv(epochs, study.table_path("epochs"))
    print("\n".join(summary_lines(runs)))


def summary_lines(runs: pd.DataFrame) -> list[str]:
    """Return lines with the number of runs of each status, and why runs do not count.

    Each run that failed, diverged or ran out of memory has a line, but only the first RUNS_LISTED
    with the same cause. Other runs, cancelled ones included, share a line if they have the same
    reason.

    Args:
        runs: The table of runs.
    """
    counts = runs["status"].value_counts()
    lines = ["runs: " + ", ".join(f"{number} {status}" for status, number in counts.items())]
    shown = text_lines.axes_to_show(row_dicts(runs, AXES))
    alike: dict[str, int] = {}
    causes: Counter[tuple[str, str]] = Counter()
    for row in row_dicts(runs[runs["status"] != RunState.OK]):
        was_stopped = str(row["reason"]).startswith("cancelled: ")
        if row["status"] in (RunState.FAILED, *RESULTS) and not was_stopped:
            key = (str(row["status"]), text_lines.cause_key(row["reason"]))
            causes[key] += 1
            line = f"{row['status']}: {text_lines.run_name(row, shown)}: {row['reason']}"
            lines += [line] * (causes[key] <= RUNS_LISTED)
        else:
            text = row["reason"] if was_stopped else f"{row['status']}: {row['reason']}"
            alike[text] = alike.get(text, 0) + 1
    for (status, cause), number in causes.items():
        if number > RUNS_LISTED:
            lines.append(
                f"{status}: {text_lines.count_text(number - RUNS_LISTED, 'more run')}, with "
                f"{'its reason' if number == RUNS_LISTED + 1 else 'their reasons'} in runs.csv: "
                f"{cause}"
            )
    lines += [f"{text_lines.count_text(number, 'run')} {text}" for text, number in alike.items()]
    return lines


def compare(study: StudyFolder) -> None:
    """Write comparison.csv, comparison.md and warnings.json."""
    shown, runs = study.config.comparison, study.read_grid_runs()
    published = published_results.read_published(study.config.published.path)
    table = comparison.comparison_table(runs, study.manifest, shown.baseline.axes, published)
    # projected values have one interval everywhere
    found = projection.table(Study(table, runs, study.manifest))
    table = projection.add_intervals(table, found) if len(found) else table
    table_files.write_csv(table, study.table_path("comparison"))
    cpus = {name: platform.cpus_per_node for name, platform in study.config.platforms.items()}
    warnings = data_warnings.find_warnings(table, runs, cpus)
    data_warnings.write_warnings(study.details / "warnings.json", warnings)
    imported_from = timings.imported_from(runs)
    points = comparison.comparison_text_table(table, shown.title, shown.columns, imported_from)
    texts = [warning.text for warning in warnings]
    page = display.insert_warnings(display.to_markdown(points), texts)
    atomic.write_text(study.details / "comparison.md", page)


def analyse(study: StudyFolder) -> None:
    """Write the CSV file of each conclusion that has rows, console.md, and headline.md.

    If the configuration exports Markdown, each conclusion has a Markdown file.
    """
    warnings = data_warnings.read_warnings(study.details / "warnings.json")
    evidence = load_evidence(study)
    columns, goal = study.config.comparison.columns, study.config.question.goal
    lines = console_table.console_table(evidence.comparison, columns, goal)
    with study.replace_folder("conclusions") as folder:
        atomic.write_text(folder / "console.md", "\n".join([*lines, ""]))
        for name, table in tables(evidence):
            if table.empty:
                continue
            table_files.write_csv(table, folder / f"{name}.csv")
            if name == "headline" or "markdown" in study.config.export:
                page = CONCLUSIONS[name].page(table, evidence, warnings)
                atomic.write_text(folder / f"{name}.md", page)


def load_evidence(study: StudyFolder) -> Study:
    """Return tables, manifest and configuration of a study, as the evidence for conclusions."""
    config = study.config
    return replace(
        load_own_evidence(study),
        published_results=published_results.read_published(config.published.path),
        published_tolerance=config.published.tolerance,
        reference=Reference.read(Path(config.compare_with)) if config.compare_with else None,
    )


def load_own_evidence(study: StudyFolder) -> Study:
    """Return the evidence in a study's folder, without published results and reference.

    It is sufficient for the answers to the study's questions.
    """
    return Study(
        study.read_table("comparison"),
        study.read_table("runs"),
        study.manifest,
        forecast_nodes=study.config.forecast.nodes,
        question=study.config.question,
    )


def print_regressions(study: StudyFolder) -> None:
    """Print the comparison of each configuration with its reference; fail if one is worse.

    Raises:
        SystemExit: A configuration is slower, lost or failing, or no comparison is conclusive.
    """
    found = study.read_table("regressions")
    print(display.to_markdown(conclusion.as_text(found)))
    if reason := describe_regressions(found):
        sys.exit(reason)


def describe_regressions(found: pd.DataFrame) -> str:
    """Return why the check for regressions fails, as a clause; "" if it passes.

    It fails if a configuration is slower, lost or failing, or if no comparison is conclusive.

    Args:
        found: The table of the conclusion on regressions.
    """
    bad = int(found["verdict"].isin(conclusion.REGRESSIONS).sum())
    if bad:
        return f"{text_lines.count_text(bad, 'configuration')} slower, lost or failing"
    if found["verdict"].isin(conclusion.DECIDED).any():
        return ""
    return (
        "no configuration is shown to be slower, faster or the same: this shows nothing. Six runs "
        "of each configuration, here and in the reference, often suffice"
    )
