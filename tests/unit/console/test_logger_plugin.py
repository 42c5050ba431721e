"""The logger plugin, with records as Snakemake makes them."""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from builders import REPOSITORY
from snakemake.logging import DefaultFilter, DefaultFormatter
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry
from snakemake_interface_logger_plugins.tests import MockOutputSettings
from snakemake_logger_plugin_sweep import LogHandler, simplify_error, wrap_text

LOG = "results/logs/" + "x" * 90 + ".log"


class Sweep:
    """Repeats what it hears of jobs."""

    is_over = False

    def on_event(self, event: str, fields: Mapping[str, Any], now_s: float) -> list[str]:
        if fields["jobid"] == 13:
            raise KeyError("no such job")
        return [f" FAILED {fields['jobid']}: the rank on node cpu2 ended with exit code 3; {LOG}"]

    def poll(self, now_s: float) -> list[str]:
        return []

    def status(self, now_s: float) -> str:
        return "[0/2] cluster nodes=1: epoch 3/9, " + "loss 0.25, " * 20

    def result_lines(self) -> list[str]:
        return ["page: results/main/report.html"]

    def preview(self, jobs: list[Mapping[str, Any]]) -> list[str]:
        return [f"jobs {[job['jobid'] for job in jobs]}"]


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Handlers end with their test: they have a thread each."""
    made: list[LogHandler] = []
    begin = LogHandler.__init__

    def begun(self: LogHandler, *given: Any) -> None:
        begin(self, *given)
        made.append(self)

    monkeypatch.setattr(LogHandler, "__init__", begun)
    yield
    for handler in made:
        handler.close()


class Log:
    """A handler as Snakemake sets it up."""

    def __init__(self, capsys: pytest.CaptureFixture[str], **settings: bool) -> None:
        self._capsys, given = capsys, MockOutputSettings()
        for name, value in {"printshellcmds": False, **settings}.items():
            setattr(given, name, value)
        self.handler = LogHandler(given, None)
        self.handler.setFormatter(DefaultFormatter())
        self.handler.addFilter(DefaultFilter(None, False, False, given.dryrun, False))

    def add(self, msg: str = "", level: int = logging.INFO, **fields: Any) -> None:
        content = {"msg": msg, "levelno": level, "name": "snakemake", **fields}
        self.handler.handle(logging.makeLogRecord(content))

    def fail(self, number: int, **changes: Any) -> None:
        given = dict.fromkeys(("rule_msg", "input", "output", "log", "conda_env", "shellcmd"))
        fields = {**given, "rule_name": "train", "jobid": number, "aux": {}}
        self.add("Error", logging.ERROR, event=LogEvent.JOB_ERROR, **{**fields, **changes})

    def lines(self) -> list[str]:
        """What was printed since the last call."""
        return self._capsys.readouterr().err.splitlines()


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "strftime", lambda *_: "12:00:00")


def test_snakemake_finds_the_plugin_by_its_name() -> None:
    assert LoggerPluginRegistry().is_installed("sweep")


def test_a_sweep_is_printed_in_few_lines_that_grep_finds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = Log(capsys)
    log.add("Assuming unrestricted shared filesystem usage.")
    log.add(sweep=Sweep())
    log.add("Building DAG of jobs...")
    log.add("study main: 2 runs to do", sweep=Sweep())
    log.fail(7)
    log.add("CalledProcessError in file train.smk", logging.ERROR, event=LogEvent.ERROR)
    for _ in range(2):
        log.add("2 runs wait in Slurm's queue: " + "Resources, " * 9, logging.WARNING)
    log.add("Nothing to be done (all requested files are present and up to date).")
    log.add("| a | b |" * 20, sweep=Sweep())
    assert log.lines() == [
        "study main: 2 runs to do",
        f"12:00:00  FAILED 7: the rank on node cpu2 ended with exit code 3; {LOG}",
        f"2 runs wait in Slurm's queue: {'Resources, ' * 9}",
        "Nothing to be done (all requested files are present and up to date).",
        "page: results/main/report.html",
        "| a | b |" * 20,
    ]


def test_lines_of_a_terminal_are_broken_between_words() -> None:
    text = f"12:00:00 FAILED 7: the rank on node cpu2 ended with exit code 3; {LOG}\n{'| a |' * 30}"
    assert wrap_text(text, 100) == [
        "12:00:00 FAILED 7: the rank on node cpu2 ended with exit code 3;",
        f"    {LOG}",
        "| a |" * 30,
    ]
    assert max(map(len, wrap_text("word " * 99, 40))) <= 40


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            'WorkflowError in file "/a b/workflow/rules/globals.smk", line 68:\n'
            "sweep.yaml: line 2: study: 3 is not allowed; write a text in quotes\n"
            '  File "/a b/workflow/rules/globals.smk", line 68, in <module>',
            "sweep.yaml: line 2: study: 3 is not allowed; write a text in quotes",
        ),
        (
            'WorkflowError in file "globals.smk", line 7:\nfirst option\nsecond option',
            "first option\nsecond option",
        ),
        ("NameError in file globals.smk, line 7:\nname 'x' is not defined",) * 2,
        ("WorkflowError:\nConfig file is not valid JSON or YAML.",) * 2,  # here is no CHECK
    ],
)
def test_an_error_before_the_sweep_is_its_message(
    text: str, shown: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    log = Log(capsys)
    log.add("Config file config.yaml is extended by additional config specified via the command.")
    log.add(text, logging.ERROR, event=LogEvent.ERROR)
    assert log.lines() == shown.splitlines()


@pytest.mark.parametrize("option", ["--configfile", "--configfiles"])
@pytest.mark.parametrize("name", ["tabs.yaml", "latin.yaml", "missing.yaml"])
def test_a_file_that_snakemake_cannot_read_is_explained_with_its_line(
    option: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("workflow").symlink_to(REPOSITORY / "workflow")
    Path("good.yaml").write_text("study: a\n")
    Path("tabs.yaml").write_text("grid:\n\t- 1\n")
    Path("latin.yaml").write_bytes(b"study: a\ntitle: \xe9\n")
    words = ["plan", "--profile", "profiles/slurm", option, "good.yaml", name, "-n"]
    text = 'Traceback\n  File "configfile.py", line 25, in _load_configfile\nUnicodeDecodeError'
    line = "" if name == "missing.yaml" else "line 2: "
    explained = simplify_error(text, words)
    assert explained.startswith(f"{name}: {line}") and "\n" not in explained


@pytest.mark.parametrize("words", [["--profile", "x"], ["--configfi", "x.yaml"], []])
def test_an_error_of_files_that_no_option_names_stays_as_it_is(words: list[str]) -> None:
    text = "Config file is not valid JSON or YAML. In case of YAML, make sure to not mix tabs"
    assert simplify_error(text, words) == text


def test_a_status_is_complete_in_a_log_and_cut_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status = Sweep().status(0.0)
    log = Log(capsys)
    log.handler._line_s -= 3600.0
    log.handler._print_status(status)
    assert log.lines() == [f"12:00:00 {status}"]
    width = random.randint(40, 120)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    log = Log(capsys)
    log.handler._print_status(status)
    (line,) = (each for each in log.lines() if "epoch" in each)
    log.handler.close()
    shown = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]|\r", "", line).rstrip()
    assert shown.endswith("…") and len(shown) < min(width, 100)


def test_a_dry_run_ends_with_what_the_sweep_says_of_all_jobs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = Log(capsys, dryrun=True)
    log.add(sweep=Sweep())
    log.add("Building DAG of jobs...")
    given = dict.fromkeys(("rule_msg", "input", "output", "log", "reason", "resources"))
    for number in (3, 7):
        fields = {**given, "rule_name": "train", "jobid": number}
        log.add("Rule: train", event=LogEvent.JOB_INFO, **fields)
    log.add("a budget is missing", logging.WARNING)
    assert log.lines() == ["a budget is missing"]
    log.add("This was a dry-run (flag -n). The order of jobs does not reflect …")
    first, *_ = log.lines()
    assert first == "jobs [3, 7]"


#: Colours or clears a terminal, rings its bell, turns the direction of a text.
HIDDEN = ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\u202egpj.exe", "\u2067", "\u200f"]


@pytest.mark.parametrize("is_plain", [True, False])
@pytest.mark.parametrize("source", ["message", "log"])
def test_no_text_of_others_changes_the_terminal(
    source: str, is_plain: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a message, such as Slurm's words, nor a log that Snakemake shows."""
    log, hidden = Log(capsys, verbose=is_plain), random.choice(HIDDEN)
    text = f"before\t{hidden} after"
    log.handler.setFormatter(DefaultFormatter(show_failed_logs=True))
    log.add(event=LogEvent.WORKFLOW_STARTED, sweep=None if is_plain else Sweep())
    if source == "message":
        log.add(text, logging.WARNING)
    else:
        (tmp_path / "rank.log").write_text(f"{text}\n")
        log.fail(5, log=[str(tmp_path / "rank.log")])
    shown = "\n".join(log.lines())
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200f\u202e\u2067]", shown), hidden
    is_shown = is_plain or source == "message"
    assert (hidden.encode("unicode_escape").decode() in shown) is is_shown, shown


@pytest.mark.parametrize(
    "settings",
    [{"verbose": True}, {"debug_dag": True}, {"printshellcmds": True}, {"quiet": True}],
)
@pytest.mark.parametrize("is_dry", [True, False])
def test_snakemakes_own_lines_are_printed_where_they_are_asked_for(
    settings: dict[str, bool], is_dry: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log(capsys, dryrun=is_dry, **settings)
    log.add("Building DAG of jobs...", sweep=Sweep())
    assert log.lines() == ["Building DAG of jobs..."]


def test_a_workflow_without_a_sweep_is_printed_as_snakemake_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = Log(capsys)
    log.add("Assuming unrestricted shared filesystem usage.")
    assert log.lines() == []
    log.add("not so good", logging.WARNING)
    assert [line.split()[0] for line in log.lines()] == ["Assuming", "not"]


def test_a_plugin_that_fails_leaves_the_sweep_to_snakemake(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = Log(capsys)
    log.add(sweep=Sweep())
    log.fail(13)
    log.add("Building DAG of jobs...")
    said, after = log.lines()
    assert "KeyError" in said and after == "Building DAG of jobs..."
