"""Runs that no study requests: what they took, and which of them are removed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from builders import (
    manifest_of,
    valid_config,
    write_failed_attempt,
    write_failure,
    write_record,
)
from msgspec.structs import replace
from tfscaling.plan.unrequested_runs import find_unrequested, report_and_remove
from tfscaling.record import attempts, run_record
from tfscaling.study.manifest import Manifest


@pytest.fixture
def planned() -> Manifest:
    """Two repeats on two and on three nodes."""
    return manifest_of(valid_config((["grid", 0, "nodes"], [2, 3]), (["grid", 0, "repeats"], 2)))


def test_unrequested_runs_have_the_node_hours_of_all_attempts(
    planned: Manifest, tmp_path: Path, dice: random.Random
) -> None:
    kept = replace(planned, runs=planned.runs[:1])
    _, complete, failed, begun = planned.runs
    runs_dir, lost_s = tmp_path / "runs", dice.uniform(1000, 9000)
    record = run_record.read_outcome(write_record(runs_dir, complete))
    assert record is not None
    for number in (1, 2):
        for run in (complete, failed):
            write_failed_attempt(runs_dir, run, number, wall_time_s=lost_s / number)
    attempts.attempt_folder(runs_dir / begun.spec.path, 1).mkdir(parents=True)
    found = {run.path: run for run in find_unrequested(tmp_path, "demo", kept)}
    assert [*found] == sorted(run.spec.path for run in planned.runs[1:])
    own = run_record.node_hours(record)
    assert own > 0
    for run in (complete, failed, begun):
        expected = 0.0 if run is begun else run.spec.point.nodes * 1.5 * lost_s / 3600
        expected += own if run is complete else 0.0
        assert found[run.spec.path].node_hours == pytest.approx(expected)
        assert found[run.spec.path].has_record == (run is complete)
        assert found[run.spec.path].is_unfinished == (run is not complete)


def test_only_ended_runs_that_no_study_requests_are_removed(
    planned: Manifest, tmp_path: Path
) -> None:
    kept, gone, begun, failed = planned.runs
    runs_dir = tmp_path / "runs"
    write_record(runs_dir, kept)
    write_record(runs_dir, gone)
    write_failure(runs_dir, failed)
    attempts.attempt_folder(runs_dir / begun.spec.path, 1).mkdir(parents=True)
    asked = replace(planned, runs=(kept,))
    listed = report_and_remove(tmp_path, "demo", asked, remove=False)
    assert "2 runs with" in listed[-1] and (runs_dir / gone.spec.path).exists()
    report_and_remove(tmp_path, "demo", asked, remove=True)
    left = [run for run in planned.runs if (runs_dir / run.spec.path).exists()]
    assert left == [kept, begun]
