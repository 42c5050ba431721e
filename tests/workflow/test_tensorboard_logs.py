"""`snakemake tensorboard`: event files of the runs that have finished, read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from project import Project
from tfscaling.record import tensorboard


def test_finished_runs_have_event_files_with_the_values_of_their_records(
    finished: Project, tmp_path: Path
) -> None:
    project = finished.copy(tmp_path / "project")
    records = sorted(project.folder.glob("results/runs/**/run.json"))
    records.pop(0).unlink()  # is not made again for this
    logs = project.folder / "results/main/tensorboard"
    (logs / "earlier").mkdir(parents=True)
    made = project.made()
    project.snakemake("tensorboard")
    assert project.made() == made and not (logs / "earlier").exists()
    scalars = list(tensorboard.scalars(logs))
    runs = project.folder / "results/runs"
    assert {runs / scalar.run / "run.json" for scalar in scalars} == set(records)
    for path in records:
        record = json.loads(path.read_text())
        (epoch,) = record["metrics"]["epochs"]
        own = {s.tag: s for s in scalars if runs / s.run == path.parent}
        for name in ("loss", "test_loss", "test_accuracy", "duration_s"):
            assert own[name].value == pytest.approx(epoch[name], rel=1e-6)
        assert {s.step for s in own.values()} == {1}
        begin_s = record["ranks"][0]["start_s"]
        wall_s = sum(filter(None, record["phases"].values()))
        assert begin_s < own["loss"].time_s < own["test_loss"].time_s < begin_s + wall_s
