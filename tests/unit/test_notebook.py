"""The notebook of the examples, run without Jupyter on a study of known times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import REPOSITORY, manifest_of, study_folder, valid_config, write_record
from tfscaling.estimation.samples import SUPPORTED
from tfscaling.stages import write_tables

NOTEBOOK = REPOSITORY / "examples/notebook/study.ipynb"


def code_cells() -> list[str]:
    """The code of the notebook, cell by cell."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_the_cells_read_the_newest_study_and_draw_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = valid_config((("grid", 0, "repeats"), 6), (("grid", 0, "nodes"), [1, 2, 4]))
    planned = manifest_of(config)
    times_s = {1: 60.0, 2: 35.0, 4: 20.0}
    for run in planned.runs:
        write_record(tmp_path / "results/runs", run, times_s[run.spec.point.nodes])
    study = study_folder(tmp_path / "results/newest", config, planned)
    for stage in (write_tables.collect, write_tables.compare, write_tables.analyse):
        stage(study)
    (study.folder / "report.html").touch()
    (tmp_path / "workflow").symlink_to(REPOSITORY / "workflow")
    (tmp_path / "examples/notebook").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "examples/notebook")
    monkeypatch.setenv("MPLBACKEND", "agg")
    capsys.readouterr()
    names: dict[str, Any] = {}
    for code in code_cells():
        exec(compile(code, str(NOTEBOOK), "exec"), names)
    printed = capsys.readouterr().out
    assert "newest: 18 runs, 3 configurations" in printed and f"4 nodes ({SUPPORTED})" in printed
    drawn = [[*line.get_ydata()] for line in names["axes"].get_lines()]
    assert drawn[0] == [60.0, 35.0, 20.0] and len(drawn[1]) == 18


def test_the_kept_outputs_have_no_error() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    outputs = [each for cell in cells for each in cell.get("outputs", [])]
    assert [each for each in outputs if each["output_type"] == "error"] == []
