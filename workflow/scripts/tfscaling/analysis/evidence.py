"""What conclusions are drawn from: the tables of a study, and what was planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import pandas as pd

from tfscaling.analysis.eligibility import split, works_of
from tfscaling.race import study_searches
from tfscaling.race.study_searches import StudySearch
from tfscaling.study.config import POINT_AXES, Comparison, Published
from tfscaling.study.configuration import REFERENCE_FILES, ConfigError
from tfscaling.study.manifest import Manifest
from tfscaling.study.run_spec import Point
from tfscaling.tables import runs_table
from tfscaling.tables.published_results import PublishedResult
from tfscaling.tables.significance import Samples
from tfscaling.tables.table_rows import Row, rows_of

#: Keys of a recipe and of a platform that can change a run, with their values as JSON has them.
Parameters = Mapping[str, object]


@dataclass(frozen=True)
class Sweep:
    """What was measured: `comparison` has one row per point and `runs` one per run.

    Both are as `runs_table.read_table` gives them.
    """

    comparison: pd.DataFrame
    runs: pd.DataFrame

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
    def ineligible(self) -> list[tuple[Row, str]]:
        """(point, reason) of every point that takes no part in comparisons."""
        return [pair for rows in self.works.values() for pair in split(rows, self.samples)[1]]


@dataclass(frozen=True)
class Reference(Sweep):
    """Another study, with which this one is compared; `parameters` are those of its points."""

    folder: Path
    parameters: Mapping[Point, Parameters]

    @classmethod
    def read(cls, folder: Path) -> Reference:
        """The study of a folder `results/<study>`, of this or of another version of the workflow.

        Raises ConfigError with the file that is missing or cannot be read.
        """
        manifest, comparison, runs = (folder / name for name in REFERENCE_FILES)
        try:
            return cls(
                runs_table.read_table(comparison, POINT_AXES),
                runs_table.read_table(runs, POINT_AXES),
                folder,
                _parameters(manifest),
            )
        except (OSError, ValueError) as error:  # of pandas and msgspec
            raise ConfigError(f"compare_with: {folder}: {error}") from error


class _Spec(msgspec.Struct):
    """Of a specification in a manifest what stays the same from version to version."""

    point: Point
    recipe: dict[str, object]
    measured: dict[str, object]


class _Run(msgspec.Struct):
    spec: _Spec


class _Manifest(msgspec.Struct):
    runs: tuple[_Run, ...]


def _parameters(manifest: Path) -> dict[Point, Parameters]:
    runs = msgspec.json.decode(manifest.read_bytes(), type=_Manifest).runs
    return {run.spec.point: {**run.spec.recipe, **run.spec.measured} for run in runs}


@dataclass(frozen=True)
class Study(Sweep):
    """The evidence for all conclusions, read once.

    `published_tolerance` is the fraction by which the `published_results` may lie outside the
    measured range. `indifference` is the fraction below which a difference between points does
    not matter. The all-reduce benchmarks lie below `benchmarks_dir`. `reference` is the study that
    `compare_with` names; `forecast_nodes` are the numbers of nodes of `forecast`. `decision_time`
    is the metric by which the point with the shortest time is chosen.
    """

    manifest: Manifest
    published_results: Sequence[PublishedResult] = ()
    published_tolerance: float = Published().tolerance
    indifference: float = Comparison().indifference
    benchmarks_dir: Path = Path("results/all_reduce")
    reference: Reference | None = None
    forecast_nodes: Sequence[int] = ()
    decision_time: str = Comparison().time

    @cached_property
    def searches(self) -> dict[str, StudySearch]:
        """Model and recipe → the search for the best of the points that do this work."""
        found = study_searches.of_study(self.manifest, self.runs)
        return {", ".join(search.work): search for search in found}
