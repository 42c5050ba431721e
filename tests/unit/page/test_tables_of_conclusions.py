"""The tables that conclusions have on the page."""

from __future__ import annotations

import report_inputs
from tfscaling.conclusions import clouds, published_values
from tfscaling.tables.display import TextTable


def orders(table: TextTable, name: str) -> list[float | None]:
    return [getattr(text, "value", None) for text in table.cells[name]]


def test_clouds_show_values_with_the_digits_of_their_metric() -> None:
    table = clouds.as_text(report_inputs.clouds())
    assert table.cells["value_a"].tolist() == ["20.000", "0.2000"]
    assert table.cells["margin"].tolist() == ["1.50 (1.40–1.60)", "2.00"]
    assert orders(table, "margin") == [1.5, 2.0]
    assert table.cells["winner"].tolist() == ["gcp", "aws"]
    assert "platform a big, platform b small" in table.above


def test_published_values_stand_beside_the_measured_ones_with_verdicts() -> None:
    table = published_values.as_text(report_inputs.published())
    assert table.cells["loss"].tolist() == ["0.3100 (0.3000–0.3200)", "–"]
    assert orders(table, "loss") == [0.31, None]
    assert table.cells["execution_time_s"].tolist() == ["20.0", "–"]
    assert table.cells["accuracy_verdict"].tolist() == ["outside", "not measured"]
    assert table.cells["runs"].tolist() == ["2", "0"]
    assert "source a paper" in table.above
