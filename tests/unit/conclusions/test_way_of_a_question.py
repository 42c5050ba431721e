"""One question through the code: few functions, and no table is read after the evidence."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from builders import SCRIPTS, manifest_of, study_folder
from random_studies import random_config, write_runs
from tfscaling.conclusions import projection
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.evidence import Study
from tfscaling.stages import write_tables

#: Most functions of the conclusions that find the answer to a question by one goal.
FUNCTIONS_MAX = 15
#: Modules with the types and cells of rows: all that an answer uses of the tables.
ROWS = {"row_types", "row_values"}


def ways(study: Study) -> list[set[tuple[str, str]]]:
    """Return the functions, as (module, name), that find each answer of a study by one goal.

    Properties, lambdas and comprehensions are not counted. What is read once for all questions is
    read before.
    """
    assert study.tasks
    assert study.run_rows
    projection.projection_intervals(study)
    library, found = f"{SCRIPTS / 'tfscaling'}/", [set[tuple[str, str]]()]

    def enter(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(library):
            return
        module, name = code.co_filename.removeprefix(library).removesuffix(".py"), code.co_qualname
        if name == "_answer_by_goal":
            found.append({*found[0]})
        if not name.endswith(">") and ("." not in name or "<locals>" in name):
            found[-1].add((module, name))

    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        answer_questions(study)
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("seed", range(300, 308))
def test_an_answer_takes_few_functions_and_reads_no_table(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    config = random_config(dice)
    planned = manifest_of(config)
    write_runs(planned, tmp_path / "runs", dice)
    study = study_folder(tmp_path / "study", config, planned)
    write_tables.collect(study)
    write_tables.compare(study)
    for way in ways(write_tables.load_evidence(study)):
        modules = {module for module, _ in way}
        tables = {m.removeprefix("tables/") for m in modules if m.startswith("tables/")}
        assert tables <= ROWS, tables
        own = {name for module, name in way if module.startswith("conclusions/")}
        assert len(own) <= FUNCTIONS_MAX, sorted(own)
