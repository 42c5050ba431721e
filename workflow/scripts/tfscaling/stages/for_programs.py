"""Results for continuous integration: what became slower than in another study."""

from __future__ import annotations

import sys

import pandas as pd

from tfscaling.conclusions import two_sweeps
from tfscaling.console import text_lines
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.tables import display


def regressions(study: StudyFolder) -> None:
    """Print what is slower than in another study. Raises SystemExit with the reasons."""
    found = study.read("regressions")
    print(display.markdown(two_sweeps.as_text(found)))
    if reason := refusal(found):
        sys.exit(reason)


def refusal(found: pd.DataFrame) -> str:
    """Why a change should not be taken, or an empty text."""
    bad = int(found["verdict"].isin(two_sweeps.REGRESSIONS).sum())
    if bad:
        return f"{text_lines.count(bad, 'configuration')} slower, lost or failing"
    compared = found["verdict"].isin(two_sweeps.COMPARED).any()
    return "" if compared else "no configuration could be compared: this shows nothing"
