"""What conclusions are drawn from: the tables of a study, and what was planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from tfscaling.analysis.eligibility import split, works_of
from tfscaling.race import study_searches
from tfscaling.race.study_searches import StudySearch
from tfscaling.study.config import Comparison, Published
from tfscaling.study.manifest import Manifest
from tfscaling.tables.published_results import PublishedResult
from tfscaling.tables.significance import Samples
from tfscaling.tables.table_rows import Row, rows_of


@dataclass(frozen=True)
class Study:
    """The evidence for all conclusions, read once.

    `comparison` has one row per point and `runs` one per run, both as `runs_table.read_table`
    gives them. `published_tolerance` is the fraction by which the `published_results` may lie
    outside the measured range. `indifference` is the fraction below which a difference between
    points does not matter. The all-reduce benchmarks lie below `benchmarks_dir`.
    """

    comparison: pd.DataFrame
    runs: pd.DataFrame
    manifest: Manifest
    published_results: Sequence[PublishedResult] = ()
    published_tolerance: float = Published().tolerance
    indifference: float = Comparison().indifference
    benchmarks_dir: Path = Path("results/all_reduce")

    @cached_property
    def samples(self) -> Samples:
        """The values of the runs by point."""
        return Samples(self.runs)

    @cached_property
    def points(self) -> Sequence[Row]:
        """The rows of the comparison."""
        return rows_of(self.comparison)

    @cached_property
    def works(self) -> dict[str, list[Row]]:
        """Model and recipe → the points that do this work."""
        return works_of(self.points)

    @cached_property
    def searches(self) -> dict[str, StudySearch]:
        """Model and recipe → the search for the best of the points that do this work."""
        found = study_searches.of_study(self.manifest, self.runs)
        return {", ".join(search.work): search for search in found}

    @cached_property
    def ineligible(self) -> list[tuple[Row, str]]:
        """(point, reason) of every point that takes no part in comparisons."""
        return [pair for rows in self.works.values() for pair in split(rows, self.samples)[1]]
