#!/usr/bin/env python3
"""Print what is slower than in another study, for continuous integration.

INPUTS   regressions.csv (--table)
OUTPUTS  none; exit status 1 if a point is slower, lost or failing, if more runs of the other points
         fail together, or if no point could be compared
"""

import argparse
import sys
from pathlib import Path

import pandas as pd
from tfscaling.analysis import two_sweeps
from tfscaling.console import text_lines
from tfscaling.files import program_errors
from tfscaling.study.config import POINT_AXES
from tfscaling.tables import formats, runs_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, required=True, help="regressions.csv")
    args = parser.parse_args()
    found = runs_table.read_table(args.table, POINT_AXES)
    print(formats.markdown(two_sweeps.as_text(found)))
    if reason := refusal(found):
        sys.exit(reason)


def refusal(found: pd.DataFrame) -> str:
    """Why a change should not be taken, or an empty text."""
    bad = int(found["verdict"].isin(two_sweeps.REGRESSIONS).sum())
    reasons = [f"{text_lines.count(bad, 'point')} slower, lost or failing"] * (bad > 0)
    if (failures := two_sweeps.failures(found)).are_more:
        reasons.append(failures.text)
    if reasons:
        return ". ".join(reasons)
    compared = found["verdict"].isin(two_sweeps.COMPARED).any()
    return "" if compared else "no point could be compared: this shows nothing"


if __name__ == "__main__":
    program_errors.told(main)
