"""What holds a point back is named only if it is certainly the largest part of a step."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import generator
import msgspec
import pandas as pd
import pytest
from builders import manifest_of, raw_config
from rows import tables_of
from tfscaling.analysis import what_holds_back
from tfscaling.analysis.evidence import Study
from tfscaling.records import run_record
from tfscaling.records.run_record import Attribution, Share
from tfscaling.study import configuration
from tfscaling.tables.comparison import comparison_table

Shares = dict[str, tuple[float, float, float]]
INPUT = {
    "input": (0.6, 0.55, 0.65), "computation": (0.2, 0.1, 0.3),
    "stragglers": (0.05, 0.0, 0.1), "communication": (0.15, 0.1, 0.2),
}  # fmt: skip
UNCERTAIN = INPUT | {"communication": (0.5, 0.4, 0.6), "input": (0.3, 0.2, 0.45)}
COMPUTATION = INPUT | {"computation": (0.9, 0.8, 0.95), "input": (0.0, -0.01, 0.01)}


def study_of(folder: Path, of_nodes: dict[int, Shares]) -> Study:
    """Two runs at each of these numbers of nodes, whose steps have these parts."""
    raw = raw_config(
        (("grid", 0, "nodes"), list(of_nodes)),
        (("grid", 0, "repeats"), 2),
        (("recipes", "weak", "attribution"), True),
    )
    planned = manifest_of(configuration.validate(raw))
    for run in planned.runs:
        shares: dict[str, Any] = {
            part: Share(median=median, low=low, high=high)
            for part, (median, low, high) in of_nodes[run.spec.point.nodes].items()
        }
        record = generator.scattered(
            run.spec, 100.0, random.Random(run.spec.repeat), generator.prepared(run.spec.dataset)
        )
        found = Attribution(rounds=6, step_time_s=0.04, input_rank=1, input_host="node1", **shares)
        metrics = msgspec.structs.replace(record.metrics, attribution=found)
        path = folder / run.spec.path / run_record.RECORD
        path.parent.mkdir(parents=True)
        run_record.write_json(path, msgspec.structs.replace(record, metrics=metrics))
    runs, _ = tables_of(planned, folder)
    return Study(comparison_table(runs, planned), runs, planned)


def test_each_point_has_the_parts_of_its_steps_and_what_holds_it_back(tmp_path: Path) -> None:
    study = study_of(tmp_path, {1: COMPUTATION, 2: INPUT, 4: UNCERTAIN})
    table = what_holds_back.table(study).set_index("nodes")
    assert table["held_back_by"].to_dict() == {
        1: "computation", 2: "input", 4: "communication or input",
    }  # fmt: skip
    assert table.loc[2, "runs"] == 2
    shares = [table.loc[2, f"input_share{end}"] for end in ("", "_low", "_high")]
    assert shares == pytest.approx([0.6, 0.55, 0.65])
    assert "the input is mnist, slowest on rank 1 on node1" in table.loc[2, "text"]
    assert "communication" not in table.loc[2, "text"]
    assert "mnist" not in table.loc[1, "text"]


def test_the_page_has_a_row_for_each_point(tmp_path: Path) -> None:
    table = what_holds_back.table(study_of(tmp_path, {1: COMPUTATION, 2: INPUT}))
    shown = what_holds_back.as_text(table)
    assert shown.cells["nodes"].tolist() == ["1", "2"]
    assert shown.cells["input"].tolist() == ["0% (-1%–1%)", "60% (55%–65%)"]


def test_without_it_the_table_is_empty_and_says_how_to_measure_it(tmp_path: Path) -> None:
    planned = manifest_of(configuration.validate(raw_config()))
    runs, _ = tables_of(planned, tmp_path)
    table = what_holds_back.table(Study(comparison_table(runs, planned), runs, planned))
    assert isinstance(table, pd.DataFrame) and table.empty
    assert "attribution: true" in what_holds_back.as_text(table).notes[0]
