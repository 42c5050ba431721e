"""What a long session of tests prints: every ten seconds what runs and how far it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

EVERY_S = 10.0
#: Tests that a line names: those that have run longest.
NAMED_MAX = 3


class Progress:
    """Prints a line every EVERY_S seconds, and each test that fails at once; nothing for others.

    A plugin of the process that starts pytest-xdist's workers.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._begun_s = time.monotonic()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._print_regularly, daemon=True)
        #: Test → when it began, in seconds of the monotonic clock.
        self._running: dict[str, float] = {}
        self._total = self._finished = self._failed = 0

    def pytest_sessionstart(self) -> None:
        self._thread.start()

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._total = len(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)
        self._finished += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport | pytest.CollectReport
    ) -> tuple[str, str, str] | None:
        """Print no letter for each test; a failure is printed here."""
        if report.failed:
            self._failed += 1
            self._print(f"FAILED {report.nodeid}")
            return ("failed" if report.when == "call" else "error"), "", ""
        if report.skipped and not hasattr(report, "wasxfail"):
            return "skipped", "", ""
        if report.passed and report.when == "call":
            return "passed", "", ""
        return None

    def pytest_sessionfinish(self) -> None:
        self._is_over.set()
        self._thread.join()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """Name the file with the results, if any, before the last line."""
        yield
        if path := self._config.getoption("xmlpath", None):
            terminalreporter.write_line(f"output of each test: {path}")

    def _print_regularly(self) -> None:
        while not self._is_over.wait(EVERY_S):
            self._print(self.line())

    def line(self) -> str:
        """Return how many tests have run and failed, and which ones run."""
        if not self._total:
            return "tests are collected"
        now_s = time.monotonic()
        running = sorted(self._running.items(), key=lambda item: item[1])
        names = [f"{_short(test)} ({now_s - since_s:.0f} s)" for test, since_s in running]
        counts = f"{self._finished} of {self._total} tests, {self._failed} failed"
        return f"{counts}; running: {', '.join(names[:NAMED_MAX]) or 'none'}"

    def _print(self, text: str) -> None:
        minutes, seconds = divmod(round(time.monotonic() - self._begun_s), 60)
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        reporter.write_line(f"{minutes:2}:{seconds:02}  {text}")
        reporter.flush()


def _short(test: str) -> str:
    """Return the file's name and the test's, without folders."""
    path, _, name = test.partition("::")
    return f"{Path(path).name}::{name}"[:60]
