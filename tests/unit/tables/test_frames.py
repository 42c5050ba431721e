"""Rows of a type as a data frame, and back."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tfscaling.tables import table_rows


class Step(msgspec.Struct):
    name: str
    runs: int
    is_done: bool
    round: int | None = None
    why: str = ""
    share: float = 0.5


def test_rows_of_plain_fields_come_back_from_their_file(tmp_path: Path) -> None:
    steps = [Step("a", 1, True, 5, "b", 0.25), Step("c", 2, False, share=1.0)]
    table_rows.write_csv(table_rows.frame(Step, steps), tmp_path / "steps.csv")
    assert table_rows.typed(Step, table_rows.read_table(tmp_path / "steps.csv")) == steps
