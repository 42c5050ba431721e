"""Which tests run which lines of the library: one run of `make test` with coverage.py.

As a plugin of pytest, this module names each test to coverage.py and writes its duration.
"""

from __future__ import annotations

import ast
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

LIBRARY = "workflow/scripts/tfscaling/"
WORKFLOW = "tests/workflow/"
#: The tests of `make test` that need no Slurm cluster.
CIRCLE = ["-m", "not full", "tests/unit", WORKFLOW]
_CONFIG = """[run]
parallel = true
patch = fork, _exit
include = {library}/*
data_file = {folder}/coverage
context = ${{PYTEST_CURRENT_TEST-}}
disable_warnings = no-data-collected, module-not-imported
"""
_PYTEST = "import sys, pytest; sys.path.insert(0, 'tests'); sys.exit(pytest.main(sys.argv[1:]))"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Assign the lines that run in this process to the test; write its duration if it passes."""
    measured = coverage.Coverage.current()
    assert measured, "COVERAGE_PROCESS_START is not set"
    measured.switch_context(item.nodeid)
    failed, start = item.session.testsfailed, time.monotonic()
    result = yield
    measured.switch_context("")
    if item.session.testsfailed == failed:
        with Path(os.environ["DURATIONS"]).open("a") as file:
            file.write(f"{time.monotonic() - start} {item.nodeid}\n")
    return result


def measure(clone: Path, folder: Path) -> None:
    """Run all tests in a clone; `folder` gets the lines that each test and its programs ran."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "settings"
    config.write_text(_CONFIG.format(library=clone / LIBRARY, folder=folder))
    variables = {"COVERAGE_PROCESS_START": str(config), "DURATIONS": str(folder / "durations")}
    words = [sys.executable, "-c", _PYTEST, "-p", __name__, "-n", "2", "--dist", "loadfile"]
    subprocess.run([*words, *CIRCLE], cwd=clone, env={**os.environ, **variables}, check=False)
    coverage.Coverage(data_file=str(folder / "coverage")).combine([str(folder)], strict=True)


class CoveringTests:
    """The tests of each line, by what `measure` has written."""

    def __init__(self, folder: Path) -> None:
        self.data = coverage.CoverageData(str(folder / "coverage"))
        self.data.read()
        entries = (line.split(" ", 1) for line in (folder / "durations").read_text().splitlines())
        self.seconds = {name: float(duration) for duration, name in entries}
        self.paths = {path.partition(LIBRARY)[2]: path for path in self.data.measured_files()}

    def choose(self, file: str, source: str, node: ast.expr, limit_s: float) -> list[str]:
        """Choose tests that ran an expression, those of its package first, then the fastest.

        All tests of a file cover what runs at its import. Programs that the workflow starts are
        forks of one process: each test of the workflow may cover what only they run.

        Args:
            file: Path below the library's folder.
            source: Text of the file.
            node: The expression, which may be inside a longer statement.
            limit_s: Sum of the chosen tests' durations.
        """
        lines = self.data.contexts_by_lineno(self.paths[file]) if file in self.paths else {}
        around = [
            each
            for each in ast.walk(ast.parse(source))
            if isinstance(each, ast.stmt) and each.lineno <= node.lineno <= (each.end_lineno or 0)
        ]
        if any(
            isinstance(each, ast.FunctionDef) and each.body[0].lineno <= node.lineno
            for each in around
        ):
            statement = range(max(each.lineno for each in around), (node.end_lineno or 0) + 1)
            lines = {line: lines.get(line, []) for line in statement}
        names = {name.split(" (")[0] for name in itertools.chain(*lines.values())}
        if names and all(name.startswith(WORKFLOW) for name in names - {""}):
            names = {name for name in self.seconds if name.startswith(WORKFLOW)}
        near = f"tests/unit/{file.partition('/')[0]}/"
        order = sorted(
            names & self.seconds.keys(),
            key=lambda name: (not name.startswith(near), self.seconds[name]),
        )
        spent = itertools.accumulate(self.seconds[name] for name in order)
        return [name for name, total in zip(order, spent, strict=True) if total < limit_s]
