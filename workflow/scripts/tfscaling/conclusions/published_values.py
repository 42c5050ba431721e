"""Published values against measured ones."""

from __future__ import annotations

import pandas as pd

from tfscaling.conclusions.evidence import Study
from tfscaling.tables import display, published
from tfscaling.tables.published import page_table as as_text

__all__ = ["as_text", "page", "table"]


def table(study: Study) -> pd.DataFrame:
    """One row for each published point."""
    return published.table(
        study.published_results,
        study.comparison,
        study.runs,
        study.manifest,
        study.published_tolerance,
    )


def page(table: pd.DataFrame, study: Study) -> str:
    """The page published.md."""
    return display.markdown(published.as_text(table, study.published_tolerance))
