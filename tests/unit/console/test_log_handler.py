"""The handler, with records as Snakemake's own code makes them."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from builders import manifest_of, valid_config
from snakemake.logging import ColorizingTextHandler, DefaultFormatter
from snakemake_interface_logger_plugins.common import LogEvent
from tfscaling.console import log_handler, text_lines
from tfscaling.console.log_handler import Console
from tfscaling.console.sweep_progress import Asked, Estimate, SweepProgress

RUN = manifest_of(valid_config()).runs[0].spec


def progress() -> SweepProgress:
    return SweepProgress(Asked("main", {"run.json": RUN}, lambda _: Estimate(None)))


class Jobs:
    """Of a sweep whose jobs are tried `attempts_left` times more when they have failed."""

    leave_this_machine = False

    def __init__(self, outputs: Sequence[str] | None, left: int = 0) -> None:
        self.outputs, self.left = outputs, left

    def outputs_to_do(self) -> Sequence[str]:
        if self.outputs is None:
            raise KeyError("no DAG")
        return self.outputs

    def attempts_left(self, outputs: Sequence[str]) -> int:
        return self.left


class Outcome:
    """A page, of a sweep that has results or not."""

    def __init__(self, has_result: bool) -> None:
        self.has_result = lambda: has_result

    def lines(self, is_partial: bool) -> list[str]:
        return [f"page: {'partial/' if is_partial else ''}report.html"]


class Log:
    """A logger with Snakemake's handler, and the console in its place."""

    def __init__(
        self, stream: io.StringIO, jobs: Jobs | None = None, has_result: bool = True
    ) -> None:
        self.stream = stream
        self.logger = logging.Logger("snakemake")
        printer = ColorizingTextHandler(stream=stream)
        printer.setFormatter(DefaultFormatter())
        printer.name = "DefaultStreamHandler"
        self.logger.addHandler(printer)
        self.console = Console(progress(), jobs or Jobs([]), Outcome(has_result))
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


def test_where_nothing_valid_came_of_a_finished_sweep_the_exit_status_says_so() -> None:
    log = Log(io.StringIO(), has_result=False)
    log.event(LogEvent.WORKFLOW_STARTED)
    with pytest.raises(SystemExit) as ended:
        log.logger.info("Nothing to be done (all requested files are present and up to date).")
    assert ended.value.code == 1
    assert log.lines[-1] == "page: report.html"
    log.console.close()


@pytest.mark.parametrize("left", [0, 1])
def test_a_failure_that_is_followed_by_another_attempt_is_none_of_the_sweep(left: int) -> None:
    log = Log(io.StringIO(), Jobs([], left))
    log.event(LogEvent.WORKFLOW_STARTED)
    log.event(LogEvent.JOB_INFO, **JOB)
    log.event(LogEvent.JOB_ERROR, **{**JOB, "wildcards": None})
    log.console.end(is_partial=True)
    failed = ["FAILED dataset mnist" in line for line in log.lines[:-1]]
    assert failed == ([False] if left else [True, True])


def test_the_end_has_failures_and_what_to_read(log: Log) -> None:
    log.event(LogEvent.WORKFLOW_STARTED)
    log.event(LogEvent.JOB_INFO, **JOB)
    log.event(LogEvent.JOB_ERROR, **{**JOB, "wildcards": None})
    log.console.end(is_partial=True)
    assert [("FAILED dataset mnist" in line) for line in log.lines] == [True, True, False]
    assert log.lines[-1] == "page: partial/report.html"


def test_if_it_fails_snakemake_prints_again() -> None:
    log = Log(io.StringIO(), Jobs(None))
    log.event(LogEvent.WORKFLOW_STARTED)
    log.event(LogEvent.RUN_INFO, stats={})
    log.logger.info("Building DAG of jobs...")
    assert "KeyError" in log.lines[0]
    assert log.lines[-1] == "Building DAG of jobs..."


def test_a_logger_that_the_user_has_chosen_is_left_alone() -> None:
    logger = logging.Logger("snakemake")
    other = logging.StreamHandler(io.StringIO())
    logger.addHandler(other)
    Console(progress(), Jobs([]), Outcome(True)).install(logger)
    assert logger.handlers == [other]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_signs_of_life_replace_each_other_on_a_terminal_only(
    stream: Callable[[], io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_handler, "_SIGN_S", 0.01)
    monkeypatch.setattr(log_handler, "_SIGN_TERMINAL_S", 0.01)
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


@pytest.mark.parametrize("line_s", [0.0, 1000.0])
def test_of_a_run_a_new_line_or_a_dot_is_a_sign_of_life(
    line_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_handler, "_SIGN_S", 0.01)
    monkeypatch.setattr(log_handler, "_LINE_S", line_s)
    log = Log(io.StringIO(), Jobs(["run.json"]))
    log.event(LogEvent.WORKFLOW_STARTED)
    log.event(LogEvent.RUN_INFO, stats={})
    log.event(LogEvent.JOB_INFO, **{**JOB, "output": ["run.json"]})
    sign = "..." if line_s else "starting"
    while log.stream.getvalue().count(sign) < 2:
        pass
    log.console.jobs_ended()
    log.stream.write("from elsewhere\n")
    log.console.close()
    assert log.lines[-1] == "from elsewhere"
    assert (sum("starting" in line for line in log.lines) == 1) == bool(line_s)
    assert log.stream.getvalue().endswith("\n")


def test_a_line_takes_no_more_dots_than_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_handler, "_SIGN_S", 1000.0)
    monkeypatch.setattr(log_handler, "_LINE_S", 1000.0)
    log = Log(io.StringIO(), Jobs(["run.json"]))
    log.event(LogEvent.WORKFLOW_STARTED)
    log.event(LogEvent.RUN_INFO, stats={})
    log.event(LogEvent.JOB_INFO, **{**JOB, "output": ["run.json"]})
    for _ in range(2 * text_lines.WIDTH):
        log.console._sign_of_life()
    log.console.close()
    signs = [line for line in log.lines if "starting" in line]
    assert [len(line) for line in signs[:2]] == [text_lines.WIDTH] * 2


def test_lines_that_say_how_far_it_is_become_rarer_with_time() -> None:
    elapsed_s = [0.0, 60.0, 299.0, 1000.0, 10000.0, 1e6]
    intervals_s = [log_handler.line_interval_s(elapsed, is_remote=False) for elapsed in elapsed_s]
    assert max(intervals_s[:3]) < 10.0
    assert intervals_s == sorted(intervals_s)
    # lines in a night of 12 hours
    moment_s = lines = 0
    while moment_s < 12 * 3600:
        moment_s += log_handler.line_interval_s(moment_s, is_remote=True)
        lines += 1
    assert lines < 150


def test_lines_of_a_dry_run_are_cut() -> None:
    log = Log(io.StringIO())
    log_handler.shorten(log.logger)
    log.logger.info("Reason: " + "x" * 500 + "\n    next")
    assert [len(line) for line in log.lines] == [text_lines.WIDTH, 8]
