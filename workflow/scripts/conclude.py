#!/usr/bin/env python3
"""Say what the comparison supports: findings, decision, clouds, published values.

INPUTS   comparison.csv (--comparison), runs.csv (--runs), grid.json (--grid), published results
         (--published, may be left out), the yardsticks below --yardsticks-dir
OUTPUTS  in --output-dir: {findings,decision,clouds,published,scaling,communication,method}.{csv,md}
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from tfscaling import (
    clouds,
    communication,
    decision,
    decision_page,
    findings,
    formats,
    method,
    published,
    records,
    scaling_laws,
    tables,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comparison", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--grid", type=Path, required=True)
    parser.add_argument("--published", type=Path, help="published results")
    parser.add_argument("--tolerance", type=float, default=0.25, help="published.tolerance")
    parser.add_argument(
        "--indifference",
        type=float,
        default=decision.INDIFFERENCE,
        help="comparison.indifference",
    )
    parser.add_argument("--yardsticks-dir", type=Path, required=True)
    parser.add_argument("--output-dir", type=Path, required=True)
    args = parser.parse_args()
    conclude(
        tables.read_table(args.comparison),
        tables.read_table(args.runs),
        records.read_json(args.grid),
        published.read(args.published),
        args.tolerance,
        args.yardsticks_dir,
        args.output_dir,
        args.indifference,
    )


def conclude(
    comparison: pd.DataFrame,
    runs: pd.DataFrame,
    expected: dict,
    published_rows: Sequence[dict],
    tolerance: float,
    yardsticks_dir: Path,
    folder: Path,
    indifference: float = decision.INDIFFERENCE,
) -> None:
    """Write the tables into `folder`, each for programs and for people, and the decision."""
    between = clouds.table(comparison, runs, expected, published_rows)
    pairs = [formats.markdown(pair, 2) for pair in clouds.all_shown(between)]
    told = [f"- {note}" for note in clouds.notes(between, comparison, runs)]
    notes = told if pairs else ["No two clouds to compare."]
    _write(folder / "clouds", between, ["# Clouds against each other\n", *pairs, *notes])
    found = findings.find(comparison, runs, between, indifference)
    topics = [topic for topic in findings.TOPICS if topic in set(found["topic"])]
    parts = [formats.markdown(findings.shown(found, topic), 2) for topic in topics]
    _write(folder / "findings", found, ["# Findings\n", *parts])
    choices = decision.decide(comparison, runs, indifference)
    _write(
        folder / "decision",
        decision.table(choices),
        [decision_page.markdown(comparison, runs, choices)],
    )
    laws = scaling_laws.table(runs, comparison)
    _write(folder / "scaling", laws, [formats.markdown(scaling_laws.shown(laws))])
    timed = communication.table(comparison, expected, yardsticks_dir)
    _write(folder / "communication", timed, [formats.markdown(communication.shown(timed))])
    kept = method.rules(runs, comparison, expected, timed)
    _write(folder / "method", kept, [formats.markdown(method.shown(kept))])
    beside = published.table(published_rows, comparison, runs, expected, tolerance)
    _write(folder / "published", beside, [formats.markdown(published.shown(beside, tolerance))])


def _write(path: Path, table: pd.DataFrame, parts: Sequence[str]) -> None:
    table.to_csv(path.with_suffix(".csv"), index=False)
    path.with_suffix(".md").write_text("\n".join(parts).rstrip() + "\n")


if __name__ == "__main__":
    main()
