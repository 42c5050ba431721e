"""Published values against measured ones."""

from __future__ import annotations

import pandas as pd

from tfscaling.conclusions.evidence import Study
from tfscaling.tables import published
from tfscaling.tables.published import as_text

__all__ = ["as_text", "table"]


def table(study: Study) -> pd.DataFrame:
    """One row for each published point."""
    return published.table(
        study.published_results,
        study.comparison,
        study.runs,
        study.manifest,
        study.published_tolerance,
    )
