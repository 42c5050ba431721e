"""What Slurm said of runs that have no record, as the tables show it."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import manifest_of, valid_config, write_failure, write_record
from tfscaling.record import run_states
from tfscaling.tables import runs_table

RUNS = manifest_of(valid_config((("grid", 0, "nodes"), [1, 2, 3, 4]))).runs


def test_runs_without_a_record_have_slurms_words_as_their_reason(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    made, failed, refused, waiting = RUNS
    write_record(folder, made)
    write_failure(folder, failed)
    points = {run.spec.point.path: "Slurm refuses it: no" for run in (made, failed, refused)}
    specs = [run.spec for run in RUNS]
    run_states.write_queue_notes(folder, specs, {**points, waiting.spec.path: "waits: Priority"})
    table, _ = runs_table.run_tables(RUNS, folder)
    assert list(table["status"]) == ["ok", "failed", "missing", "missing"]
    assert list(table["reason"])[2:] == ["Slurm refuses it: no", "waits: Priority"]
    run_states.write_queue_notes(folder, [waiting.spec], {})  # by the sweep of another study
    table, _ = runs_table.run_tables(RUNS, folder)
    assert list(table["reason"])[2:] == ["Slurm refuses it: no", "not run yet"]
    run_states.write_queue_notes(folder, specs, {})
    table, _ = runs_table.run_tables(RUNS, folder)
    assert set(table["reason"][2:]) == {"not run yet"}
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("text", ["", "{", '{"words": 3}'])
def test_broken_notes_say_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "queue.json").write_text(text)
    assert run_states.read_queue_notes(tmp_path / "runs").of(RUNS[0].spec) == ""
