"""The handler, with records as Snakemake's own code makes them."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from typing import Any

import pytest
from snakemake.logging import ColorizingTextHandler, DefaultFormatter
from snakemake_interface_logger_plugins.common import LogEvent
from tfscaling.console import log_handler, text_lines
from tfscaling.console.log_handler import Console
from tfscaling.console.sweep_progress import Asked, Estimate, SweepProgress


class Log:
    """A logger with Snakemake's handler, and the console in its place."""

    def __init__(self, stream: io.StringIO, fails: bool = False) -> None:
        self.stream = stream
        self.logger = logging.Logger("snakemake")
        printer = ColorizingTextHandler(stream=stream)
        printer.setFormatter(DefaultFormatter())
        printer.name = "DefaultStreamHandler"
        self.logger.addHandler(printer)

        def to_do() -> list[str]:
            if fails:
                raise KeyError("no DAG")
            return []

        def to_read(is_partial: bool) -> list[str]:
            return [f"page: {'partial/' if is_partial else ''}report.html"]

        sweep = SweepProgress(Asked("main", {}, lambda _: Estimate(1.0, False)))
        self.console = Console(sweep, to_do, lambda: False, to_read)
        self.console.install(self.logger)

    def event(self, event: LogEvent, **fields: Any) -> None:
        self.logger.info("text", extra={"event": event, **fields})

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def log() -> Log:
    return Log(io.StringIO())


JOB: dict[str, Any] = {
    "jobid": 3, "rule_name": "prepare_dataset", "rule_msg": None, "output": ["a.npz"], "log": [],
    "wildcards": {"dataset": "mnist"},
}  # fmt: skip


def test_until_a_workflow_starts_snakemake_prints(log: Log) -> None:
    log.logger.info("Unlocked working directory.")
    assert log.lines == ["Unlocked working directory."]


def test_jobs_are_told_in_the_sweeps_lines_alone(log: Log) -> None:
    log.event(LogEvent.WORKFLOW_STARTED)
    log.event(LogEvent.RUN_INFO, stats={})
    log.logger.info("Select jobs to execute...")
    log.event(LogEvent.JOB_INFO, **JOB)
    log.event(LogEvent.SHELLCMD, shellcmd="x")
    log.event(LogEvent.JOB_FINISHED, job_id=3)
    log.event(LogEvent.PROGRESS, done=1, total=2)
    (line,) = log.lines
    assert "dataset mnist: prepared in 0 s" in line
    assert line[2] == line[5] == ":"
    log.console.close()


def test_warnings_come_once_errors_whole_and_guesses_not(log: Log) -> None:
    log.event(LogEvent.WORKFLOW_STARTED)
    log.logger.warning("No SLURM account given, trying to guess.")
    log.logger.warning("No job memory information ('mem_mb' or 'mem_mb_per_cpu') is given")
    for _ in range(3):
        log.logger.warning("a node is down")
    log.logger.error("WorkflowError: " + "word " * 100)
    assert log.lines[0] == "a node is down"
    assert " ".join(log.lines[1:]).count("word") == 100
    assert max(map(len, log.lines)) <= text_lines.WIDTH
    log.console.close()


def test_a_finished_sweep_shows_its_page_again(log: Log) -> None:
    log.event(LogEvent.WORKFLOW_STARTED)
    log.logger.info("Nothing to be done (all requested files are present and up to date).")
    assert log.lines[-1] == "page: report.html"
    log.console.close()


def test_the_end_has_failures_and_what_to_read(log: Log) -> None:
    log.event(LogEvent.WORKFLOW_STARTED)
    log.event(LogEvent.JOB_INFO, **JOB)
    log.event(LogEvent.JOB_ERROR, **{**JOB, "wildcards": None})
    log.console.end(is_partial=True)
    assert [("FAILED dataset mnist" in line) for line in log.lines] == [True, True, False]
    assert log.lines[-1] == "page: partial/report.html"


def test_if_it_fails_snakemake_prints_again() -> None:
    log = Log(io.StringIO(), fails=True)
    log.event(LogEvent.WORKFLOW_STARTED)
    log.event(LogEvent.RUN_INFO, stats={})
    log.logger.info("Building DAG of jobs...")
    assert "KeyError" in log.lines[0]
    assert log.lines[-1] == "Building DAG of jobs..."


def test_a_logger_that_the_user_has_chosen_is_left_alone() -> None:
    logger = logging.Logger("snakemake")
    other = logging.StreamHandler(io.StringIO())
    logger.addHandler(other)
    sweep = SweepProgress(Asked("main", {}, lambda _: Estimate(1.0, False)))
    Console(sweep, list, lambda: False, lambda _: []).install(logger)
    assert logger.handlers == [other]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_signs_of_life_replace_each_other_on_a_terminal_only(
    stream: Callable[[], io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_handler, "_INTERVAL_S", 0.01)
    monkeypatch.setattr(log_handler, "_INTERVAL_TERMINAL_S", 0.01)
    log = Log(stream())
    log.event(LogEvent.WORKFLOW_STARTED)
    log.event(LogEvent.JOB_INFO, **JOB)
    while log.stream.getvalue().count("dataset mnist, ") < 2:
        pass
    log.event(LogEvent.JOB_FINISHED, job_id=3)
    log.console.close()
    text = log.stream.getvalue()
    assert ("\x1b" in text) == log.stream.isatty()
    assert text.endswith("dataset mnist: prepared in 0 s\n")
    if log.stream.isatty():
        assert text.count("\n") == 1


def test_signs_become_rarer_with_time() -> None:
    elapsed_s = [0.0, 60.0, 299.0, 1000.0, 10000.0, 1e6]
    silences_s = [log_handler.interval_s(elapsed, is_remote=False) for elapsed in elapsed_s]
    assert max(silences_s[:3]) < 10.0
    assert silences_s == sorted(silences_s)
    # lines in a night of 12 hours
    moment_s = lines = 0
    while moment_s < 12 * 3600:
        moment_s += log_handler.interval_s(moment_s, is_remote=True)
        lines += 1
    assert lines < 150


def test_lines_of_a_dry_run_are_cut() -> None:
    log = Log(io.StringIO())
    log_handler.shorten(log.logger)
    log.logger.info("Reason: " + "x" * 500 + "\n    next")
    assert [len(line) for line in log.lines] == [text_lines.WIDTH, 8]
