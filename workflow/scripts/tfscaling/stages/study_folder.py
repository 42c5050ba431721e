"""The folder of a study, results/<study>: configuration, manifest, tables, plots, page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from tfscaling.files import program_errors
from tfscaling.spec.config import POINT_AXES, Config
from tfscaling.spec.manifest import Manifest
from tfscaling.tables import table_rows


@dataclass(frozen=True)
class StudyFolder:
    """The files of a study; config.json and manifest.json are in `folder`.

    `results` holds the records that studies share, by default the folder above. `round` is the
    round of extra repeats to assess, `other` the results to merge. Reading raises InputError and
    OSError.
    """

    folder: Path
    results: Path | None = None
    round: int = 0
    other: Path | None = None

    @cached_property
    def config(self) -> Config:
        return program_errors.read_json(self.folder / "config.json", Config)

    @cached_property
    def manifest(self) -> Manifest:
        return Manifest.read(self.folder / "manifest.json")

    @property
    def runs_dir(self) -> Path:
        """The folder of all run records."""
        return (self.results or self.folder.parent) / "runs"

    @property
    def tables(self) -> Path:
        return self.folder / "tables"

    def table(self, name: str) -> Path:
        """The CSV file of a table or conclusion."""
        return self.tables / f"{name}.csv"

    def plot(self, name: str) -> Path:
        return self.folder / "plots" / f"{name}.svg"

    def read(self, name: str, axes: Sequence[str] = POINT_AXES) -> pd.DataFrame:
        """A table; the columns `axes` are read as texts and whole numbers."""
        return table_rows.read_table(self.table(name), axes)
