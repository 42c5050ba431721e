"""The folder of a study, results/<study>: page, two tables, and the folder `details`."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from tfscaling.conclusions.base import CONCLUSIONS
from tfscaling.files import atomic, program_errors
from tfscaling.study.config_types import POINT_AXES, Config
from tfscaling.study.manifest import Manifest
from tfscaling.tables import row_values, table_files


@dataclass(frozen=True)
class StudyFolder:
    """The files of a study, read when they are first needed.

    Reading raises InputError for a file that is missing or wrong, and OSError.

    Attributes:
        folder: The folder of the study, results/<study>.
        results: The folder with `runs`, which all studies share; None: the parent of `folder`.
        round: Number of the round of conditional runs to decide; 0 in other stages.
        place: Path to which `folder` is moved when the stage has ended; None if it is not moved.
    """

    folder: Path
    results: Path | None = None
    round: int = 0
    place: Path | None = None

    @cached_property
    def config(self) -> Config:
        """The configuration, from details/config.json."""
        return program_errors.read_json(self.details / "config.json", Config)

    @cached_property
    def manifest(self) -> Manifest:
        """The planned runs, from details/manifest.json."""
        return Manifest.read(self.details / "manifest.json")

    @property
    def runs_dir(self) -> Path:
        """The folder of all run records."""
        return (self.results or self.folder.parent) / "runs"

    @property
    def details(self) -> Path:
        """The folder `details` of the study, with files that few readers need."""
        return self.folder / "details"

    def replace_folder(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """Provide an empty folder, which replaces `details/<name>` when the `with` block ends."""
        return atomic.folder_replacement(self.details / name)

    def table_path(self, name: str) -> Path:
        """Return the path of the CSV file of a table or conclusion, by its name."""
        if name in CONCLUSIONS:
            return self.details / "conclusions" / f"{name}.csv"
        return (self.details if name == "epochs" else self.folder) / f"{name}.csv"

    def read_grid_runs(self) -> pd.DataFrame:
        """Return the table of runs, without runs that the configuration's key `explain` adds."""
        return row_values.without_points(self.read_table("runs"), self.manifest.explaining_points)

    def read_table(self, name: str) -> pd.DataFrame:
        """Return a table or conclusion as a data frame, by its name.

        A conclusion without a file has its columns and no rows.
        """
        if name not in CONCLUSIONS:
            return table_files.read_table(self.table_path(name), POINT_AXES)
        if self.table_path(name).exists():
            return table_files.read_table(self.table_path(name))
        return pd.DataFrame(columns=CONCLUSIONS[name].columns)
