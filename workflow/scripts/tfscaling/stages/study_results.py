"""The results of a study for other programs: typed rows, data frames and answers.

`tfscaling.read_study` returns a `StudyResults`. docs/python.md lists what stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.base import CONCLUSIONS
from tfscaling.conclusions.evidence import Study
from tfscaling.files.program_errors import InputError
from tfscaling.stages import write_tables
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.tables import data_warnings
from tfscaling.tables.data_warnings import DataWarning
from tfscaling.tables.row_types import PointRow, RunRow
from tfscaling.tables.row_values import point_of

#: Names that `StudyResults.table` accepts.
TABLES = ("runs", "comparison", "epochs", *CONCLUSIONS)


@dataclass(frozen=True, eq=False)
class StudyResults:
    """The results of a study, read from the tables in its folder.

    Attributes:
        folder: The folder of the study.
        warnings: Reasons to read some of the numbers with care, serious ones first.
    """

    folder: Path
    warnings: tuple[DataWarning, ...]
    _evidence: Study

    @classmethod
    def read(cls, folder: Path) -> StudyResults:
        """Read the results of a study from its folder.

        Raises:
            InputError: The folder is not a study's, has no tables yet, or has a file that is wrong.
        """
        study = StudyFolder(folder)
        if not (study.details / "config.json").exists():
            raise InputError(
                f"{folder}: not the folder of a study: details/config.json is missing; name a "
                "folder such as results/main"
            )
        files = [study.table_path("runs"), study.table_path("comparison")]
        if missing := [path for path in files if not path.exists()]:
            raise InputError(
                f"{folder}: no runs yet: {missing[0].name} is missing until the sweep ends; "
                "`snakemake partial` writes the tables of finished runs to its folder partial"
            )
        evidence = write_tables.load_own_evidence(study)
        planned = evidence.manifest.runs
        due = {run.spec.point for run in planned if not run.extra_repeat}
        known = {run.spec.point for run in planned}
        known |= {each.point for each in evidence.manifest.excluded}
        if not due <= {*map(point_of, evidence.points)} <= known:
            raise InputError(
                f"{folder}: the tables are older than the plan of the runs; read them again when "
                "the sweep ends"
            )
        warnings = data_warnings.read_warnings(study.details / "warnings.json")
        return cls(folder, tuple(warnings), evidence)

    @property
    def runs(self) -> tuple[RunRow, ...]:
        """The runs of the grid, without the runs that `explain` adds: rows of runs.csv."""
        return tuple(self._evidence.run_rows)

    @property
    def configurations(self) -> tuple[PointRow, ...]:
        """The configurations: the rows of comparison.csv."""
        return tuple(self._evidence.points)

    @cached_property
    def answers(self) -> tuple[Answer, ...]:
        """The answers to the questions of the study, for the goal in its configuration file."""
        return answer_questions(self._evidence)

    def table(self, name: str) -> pd.DataFrame:
        """Return a table as a data frame; a conclusion without rows has only columns.

        Args:
            name: `runs`, `comparison`, `epochs`, or a conclusion such as `decision`.

        Raises:
            InputError: No table has this name, or its file is wrong.
        """
        if name not in TABLES:
            raise InputError(f"table {name!r} does not exist; allowed: {', '.join(TABLES)}")
        study = StudyFolder(self.folder)
        return study.read_grid_runs() if name == "runs" else study.read_table(name)
