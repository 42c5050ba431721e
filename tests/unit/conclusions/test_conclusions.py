"""The list of conclusions: what each makes, and in what order."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import SCRIPTS
from measured import around, measured
from tfscaling.conclusions import base as conclusions
from tfscaling.conclusions.base import CONCLUSIONS
from tfscaling.conclusions.evidence import Study
from tfscaling.tables import table_files
from tfscaling.tables.display import TextTable

#: Conclusions that are text alone.
WITHOUT_TABLE = ("headline", "decision", "findings", "next_steps")
TIMES = {(platform, nodes): around(40 / nodes) for platform in ("east", "west") for nodes in (1, 2)}


@pytest.fixture(scope="module")
def study() -> Study:
    comparison, runs, planned = measured(TIMES)
    return Study(comparison, runs, planned)


def test_every_module_that_makes_a_table_is_a_conclusion_with_its_columns(study: Study) -> None:
    modules = [*(SCRIPTS / "tfscaling/conclusions").glob("*.py")]
    with_table = [path.stem for path in modules if "\ndef table(" in path.read_text()]
    made = list(conclusions.tables(study))
    functions = (each.load().table for each in CONCLUSIONS.values())
    assert sorted(each.__module__.rpartition(".")[2] for each in functions) == sorted(with_table)
    assert len(made) == len(with_table)
    assert all(table.columns.tolist() == CONCLUSIONS[name].columns for name, table in made)


@pytest.mark.parametrize("name", CONCLUSIONS)
def test_a_page_begins_with_a_heading_and_a_table_is_shown_from_its_file(
    name: str, study: Study, tmp_path: Path
) -> None:
    table = dict(conclusions.tables(study))[name]
    conclusion = CONCLUSIONS[name]
    assert conclusion.page(table, study).startswith("# ") or name == "headline"
    table.to_csv(tmp_path / "table.csv", index=False)
    shown = conclusion.text_table(table_files.read_table(tmp_path / "table.csv"))
    assert isinstance(shown, TextTable) == (name not in WITHOUT_TABLE)
