"""The end of a sweep, from the tables of its study."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest
from tfscaling.console.sweep_outcome import SweepOutcome

CODE = "made by other code: own.py has changed; make it again with --config rerun=stale"
BRACKETS = "In brackets: range of the runs."
CANCELLED = "cancelled: the launcher received SIGTERM"
HEADER = ("status", "reason", "nodes", "wall_time_s", "lost_time_s", "failed_attempts")


def outcome(study: Path, *rows: tuple[str, str]) -> SweepOutcome:
    """Of runs on two nodes with this status and reason, for half an hour and as long lost."""
    (study / "details/conclusions").mkdir(parents=True)
    with (study / "runs.csv").open("w", newline="") as file:
        full = [(status, reason, 2, 1800.0, 1800.0, 3) for status, reason in rows]
        csv.writer(file).writerows([HEADER, *full])
    (study / "details/conclusions/headline.md").write_text("Fastest: 1 node.\n")
    wide = "".join(f" column {number} |" for number in range(20))
    table = f"|{wide}\n|{wide}\n{BRACKETS}\n"
    (study / "details/conclusions/console.md").write_text(table)
    (study / "report.html").write_text("")
    return SweepOutcome(study)


def test_the_table_comes_first_then_the_cost_the_answer_and_the_page(tmp_path: Path) -> None:
    found = outcome(tmp_path, ("ok", ""), ("stale", CODE))
    *table, brackets, spent, headline, page = found.lines()
    assert found.has_result()
    assert len(table) == 2 and all(line[0] == line[-1] == "|" for line in table)
    assert max(map(len, table)) <= 100 and "column 5" in table[0]
    assert brackets == BRACKETS
    assert (headline, page) == ("Fastest: 1 node.", f"page: {tmp_path}/report.html")
    # each of two runs took an hour of each of two nodes, half of it in failed attempts
    assert "1 of 2 runs" in spent and "1 stale: made by other code: own.py has changed" in spent
    assert "--config rerun=stale" in spent
    assert "4 node-hours spent" in spent and " 2 node-hours" in spent


def test_a_cell_may_be_longer_than_pythons_limit(tmp_path: Path) -> None:
    *_, spent, _, _ = outcome(tmp_path, ("ok", ""), ("failed", "x" * 140_000)).lines()
    assert "1 failed: xxx" in spent


def test_runs_of_one_cause_are_one_reason_whatever_their_hosts_and_logs(tmp_path: Path) -> None:
    rows = [
        ("failed", f"rank_died: rank {n} on node{n}: pid 1234{n}: exit code 3; log: runs/{n}.log")
        for n in range(30)
    ]
    *_, spent, _, _ = outcome(tmp_path, ("ok", ""), *rows).lines()
    assert "30 failed: rank_died: rank 0 on node0" in spent and "other reason" not in spent
    rows[7] = ("failed", "rank_died: rank 7 on node7: exit code 4; log: runs/7.log")
    *_, spent, _, _ = outcome(tmp_path / "two", ("ok", ""), *rows).lines()
    assert "and 1 other reason" in spent


@pytest.mark.parametrize(("columns", "longest"), [(80, 80), (60, 80), (90, 90), (200, 100)])
def test_the_table_fits_a_terminal(
    columns: int, longest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    *table, _, _, _, _ = outcome(tmp_path, ("ok", "")).lines()
    assert longest - 12 < max(map(len, table)) <= longest


@pytest.mark.parametrize("status", ["diverged", "failed", "missing"])
def test_without_a_valid_run_there_is_no_result(status: str, tmp_path: Path) -> None:
    found = outcome(tmp_path, (status, "any"))
    assert not found.has_result()
    assert f"1 {status}" in found.lines()[-2]


def test_a_sweep_that_ended_before_its_first_run_resumes(tmp_path: Path) -> None:
    resumes = "The same command resumes the sweep."
    found = outcome(tmp_path / "a", ("missing", "no run record"), ("missing", "no run record"))
    assert found.lines()[-2] == f"No valid run: 2 missing. {resumes}"
    found = outcome(tmp_path / "b", ("missing", ""), ("failed", "rank_died: exit code 3"))
    assert not any(resumes in line for line in found.lines())


def test_a_sweep_that_was_stopped_has_not_failed(tmp_path: Path) -> None:
    found = outcome(tmp_path / "a", ("failed", CANCELLED), ("failed", CANCELLED), ("missing", ""))
    assert found.lines()[-2].startswith("Stopped: 2 runs")
    found = outcome(tmp_path / "b", ("failed", CANCELLED), ("failed", "rank_died: exit code 3"))
    assert not any(line.startswith("Stopped") for line in found.lines())


def test_stale_runs_have_their_reason_once_and_the_option(tmp_path: Path) -> None:
    found = outcome(tmp_path, ("stale", CODE), ("stale", CODE), ("stale", "other data"))
    reason = found.lines()[-2]
    assert "own.py has changed" in reason and "1 other reason" in reason
    assert "--config rerun=stale" in reason


def test_runs_that_do_not_count_have_their_reason_in_the_line(tmp_path: Path) -> None:
    rows = [("ok", ""), *[("failed", "rank_died: exit code 3")] * 2, ("failed", "other")]
    line = outcome(tmp_path, *rows, ("missing", "no run record")).lines()[-3]
    assert line.startswith("1 of 5 runs valid (3 failed: rank_died: exit code 3, and 1 other ")
    assert "; 1 missing: no run record); " in line


def test_only_files_of_this_start_are_new(tmp_path: Path) -> None:
    found = outcome(tmp_path, ("ok", ""))
    assert not found.has_output() and not found.is_plan_refused()
    os.utime(tmp_path / "report.html", (1, 1))
    (tmp_path / "details/plan.csv").write_text("starts\nrefused\n")
    assert found.has_output() and found.is_plan_refused()
