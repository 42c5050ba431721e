"""Print what is slower than in another study, for continuous integration.

INPUTS   tables/regressions.csv
OUTPUTS  none; exit status 1 if a configuration is slower, lost or failing, if more runs of the
         others fail together, or if nothing could be compared
"""

from __future__ import annotations

import sys

import pandas as pd

from tfscaling.conclusions import two_sweeps
from tfscaling.console import text_lines
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.tables import display


def run(study: StudyFolder) -> None:
    """Print the table. Raises SystemExit with the reasons against the change."""
    found = study.read("regressions")
    print(display.markdown(two_sweeps.as_text(found)))
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
