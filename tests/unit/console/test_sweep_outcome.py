"""What is said of a sweep that is over."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from tfscaling.console import text_lines
from tfscaling.console.sweep_outcome import SweepOutcome, again, command_lines
from tfscaling.sweep.sweep_jobs import SweepJobs

CODE = "made by other code: own.py has changed; make it again with --config rerun=stale"


def outcome(study: Path, *made: str) -> SweepOutcome:
    """Of a study of which these files were asked for."""
    jobs = [SimpleNamespace(log=[], output=[f"{study}/{name}"]) for name in made]
    workflow = SimpleNamespace(dag=SimpleNamespace(jobs=jobs))
    return SweepOutcome(str(study), SweepJobs(workflow, {}, {}, "results"), ["snakemake", "all"])


def tables(study: Path, *rows: tuple[str, str]) -> None:
    """Runs with their status and reason, a headline and a page."""
    (study / "tables").mkdir(parents=True)
    with (study / "tables/runs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("status", "reason"), *rows])
    (study / "tables/headline.md").write_text("Fastest: 1 node.\n")
    (study / "report.html").write_text("")


BOTH = ("report.html", "tables/runs.csv")


@pytest.mark.parametrize("status", ["ok", "diverged"])
def test_one_run_with_a_result_is_enough_for_the_headline(status: str, tmp_path: Path) -> None:
    tables(tmp_path, ("stale", CODE), (status, ""))
    found = outcome(tmp_path, *BOTH)
    assert found.has_result()
    assert found.lines(is_partial=False) == ["Fastest: 1 node.", f"page: {tmp_path}/report.html"]


def test_of_stale_runs_alone_their_reason_and_the_command_are_told(tmp_path: Path) -> None:
    tables(tmp_path, ("stale", CODE), ("stale", CODE), ("stale", "other data"), ("missing", ""))
    found = outcome(tmp_path, *BOTH)
    assert not found.has_result()
    said = found.lines(is_partial=False)
    assert "3 stale" in said[0] and "1 missing" in said[0]
    assert "own.py has changed, and 1 other reason" in said[1]
    assert shlex.split(said[2])[1:] == ["all", "--config", "rerun=stale"]
    assert said[3:] == [f"page: {tmp_path}/report.html"]


def test_what_was_not_asked_for_is_no_result_that_is_missing(tmp_path: Path) -> None:
    tables(tmp_path, ("stale", CODE))
    found = outcome(tmp_path, "plan.md")
    assert found.has_result()
    assert found.lines(is_partial=False) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--configfile a.yaml all", "--configfile a.yaml all --config rerun=stale"),
        ("--config cluster=x seed=3 --jobs 2", "--config rerun=stale cluster=x seed=3 --jobs 2"),
        ("-C a=1 -C b=2", "-C a=1 -C rerun=stale b=2"),
    ],
)
def test_the_command_is_the_one_that_was_used_with_one_value_more(
    words: str, expected: str
) -> None:
    assert again(["/elsewhere/bin/snakemake", *words.split()]) == ["snakemake", *expected.split()]
    assert again([f"{Path.cwd()}/x/snakemake", *words.split()])[0] == "x/snakemake"


def test_a_long_command_is_lines_of_a_shell() -> None:
    words = ["snakemake", *(f"target {'x' * 40} {number}" for number in range(20))]
    lines = command_lines(words)
    assert max(map(len, lines)) <= text_lines.WIDTH and len(lines) > 3
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == words
