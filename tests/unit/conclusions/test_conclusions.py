"""The list of conclusions: what each makes, and in what order."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured import around, measured
from tfscaling.conclusions import base as conclusions
from tfscaling.conclusions.base import CONCLUSIONS
from tfscaling.conclusions.evidence import Study
from tfscaling.tables import table_rows
from tfscaling.tables.display import TextTable

#: Conclusions that are text alone.
WITHOUT_TABLE = ("headline", "decision", "findings", "next_steps")
TIMES = {(platform, nodes): around(40 / nodes) for platform in ("east", "west") for nodes in (1, 2)}


@pytest.fixture(scope="module")
def study() -> Study:
    comparison, runs, planned = measured(TIMES)
    return Study(comparison, runs, planned)


def test_every_conclusion_is_made_once_in_the_order_of_the_list(study: Study) -> None:
    made = list(conclusions.tables(study))
    assert [name for name, _ in made] == list(CONCLUSIONS)
    assert all(len(table.columns) for _, table in made)


@pytest.mark.parametrize("name", CONCLUSIONS)
def test_a_page_begins_with_a_heading_and_a_table_is_shown_from_its_file(
    name: str, study: Study, tmp_path: Path
) -> None:
    table = dict(conclusions.tables(study))[name]
    conclusion = CONCLUSIONS[name]
    assert conclusion.page(table, study).startswith("# ") or name == "headline"
    table.to_csv(tmp_path / "table.csv", index=False)
    shown = conclusion.shown(table_rows.read_table(tmp_path / "table.csv"))
    assert isinstance(shown, TextTable) == (name not in WITHOUT_TABLE)
