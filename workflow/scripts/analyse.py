#!/usr/bin/env python3
"""Say what the comparison supports: findings, decision, clouds, published values.

INPUTS   comparison.csv (--comparison), runs.csv (--runs), manifest.json (--grid), warnings.json
         (--warnings), published results (--published, may be left out), the benchmarks below
         --benchmarks-dir
OUTPUTS  in --output-dir, each .csv and .md: findings, decision, clouds, published, scaling,
         communication, methodology
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from tfscaling.analysis import (
    clouds,
    communication,
    contest,
    decision,
    decision_page,
    findings,
    methodology,
    scaling_laws,
)
from tfscaling.records import run_record
from tfscaling.tables import data_warnings, formats, published, runs_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comparison", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--grid", type=Path, required=True)
    parser.add_argument("--warnings", type=Path, required=True, help="warnings.json")
    parser.add_argument("--published", type=Path, help="published results")
    parser.add_argument("--tolerance", type=float, default=0.25, help="published.tolerance")
    parser.add_argument(
        "--indifference",
        type=float,
        default=contest.INDIFFERENCE,
        help="comparison.indifference",
    )
    parser.add_argument("--benchmarks-dir", type=Path, required=True)
    parser.add_argument("--output-dir", type=Path, required=True)
    args = parser.parse_args()
    analyse(
        runs_table.read_table(args.comparison),
        runs_table.read_table(args.runs),
        run_record.read_json(args.grid),
        published.read(args.published),
        args.tolerance,
        args.benchmarks_dir,
        data_warnings.from_json(run_record.read_json(args.warnings)),
        args.output_dir,
        args.indifference,
    )


def analyse(
    comparison: pd.DataFrame,
    runs: pd.DataFrame,
    expected: dict,
    published_rows: Sequence[dict],
    tolerance: float,
    benchmarks_dir: Path,
    warnings: Sequence[data_warnings.DataWarning],
    folder: Path,
    indifference: float = contest.INDIFFERENCE,
) -> None:
    """Write the tables into `folder`, each for programs and for people, and the decision.

    What people read begins with the warnings.
    """

    def write(name: str, table: pd.DataFrame, *parts: str) -> None:
        table.to_csv(folder / f"{name}.csv", index=False)
        page = formats.with_warnings("\n".join(parts), warnings)
        (folder / f"{name}.md").write_text(page)

    between = clouds.table(comparison, runs, expected, published_rows)
    pairs = [formats.markdown(pair, 2) for pair in clouds.text_tables(between)]
    told = [f"- {note}" for note in clouds.notes(between, comparison, runs)]
    notes = told if pairs else ["No two clouds to compare."]
    write("clouds", between, "# Clouds against each other\n", *pairs, *notes)
    found = findings.find(comparison, runs, between, indifference)
    topics = [topic for topic in findings.TOPICS if topic in set(found["topic"])]
    parts = [formats.markdown(findings.as_text(found, topic), 2) for topic in topics]
    write("findings", found, "# Findings\n", *parts)
    choices = decision.decide(comparison, runs, indifference)
    write("decision", decision.table(choices), decision_page.markdown(comparison, runs, choices))
    laws = scaling_laws.table(runs, comparison)
    write("scaling", laws, formats.markdown(scaling_laws.as_text(laws)))
    timed = communication.table(comparison, expected, benchmarks_dir)
    write("communication", timed, formats.markdown(communication.as_text(timed)))
    kept = methodology.rules(runs, comparison, expected, timed)
    write("methodology", kept, formats.markdown(methodology.as_text(kept)))
    beside = published.table(published_rows, comparison, runs, expected, tolerance)
    write("published", beside, formats.markdown(published.as_text(beside, tolerance)))


if __name__ == "__main__":
    main()
