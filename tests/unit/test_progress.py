"""What `make test` prints while it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from builders import REPOSITORY
from progress import NAMED_MAX, Progress

CONFTEST = """
import progress


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(progress.Progress(config))
"""
TESTS = """
import pytest


def test_good():
    pass


def test_bad():
    raise ValueError("bad")


@pytest.fixture
def broken():
    raise ValueError("broken")


def test_without_set_up(broken):
    pass


@pytest.mark.skip
def test_skipped():
    pass
"""


def test_failures_are_printed_at_once_and_the_last_line_counts(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {REPOSITORY / 'tests'}\n")
    # otherwise it deletes folders of earlier sessions, which may take a minute
    words = [sys.executable, "-m", "pytest", "--numprocesses=2", "--junitxml=results.xml"]
    words.append(f"--basetemp={tmp_path / 'temporary'}")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    before, _, end = done.stdout.partition("= FAILURES =")
    printed = {line.split()[-1] for line in before.splitlines() if " FAILED " in line}
    assert printed == {"test_some.py::test_bad", "test_some.py::test_without_set_up"}
    *_, output, last = end.splitlines()
    assert output.endswith(" results.xml")
    for count in ("1 failed", "1 passed", "1 skipped", "1 error"):
        assert count in last


def test_a_line_names_the_tests_that_have_run_longest(pytestconfig: pytest.Config) -> None:
    progress = Progress(pytestconfig)
    tests = [f"tests/unit/test_some.py::test_{number}" for number in range(NAMED_MAX + 2)]
    progress.pytest_xdist_node_collection_finished([*tests, "tests/unit/test_some.py::test_last"])
    for test in tests:
        progress.pytest_runtest_logstart(test)
    progress.pytest_runtest_logfinish(tests[0])
    counts, _, running = progress.line().partition("; running: ")
    assert counts == f"1 of {len(tests) + 1} tests, 0 failed"
    names = [name.split(" (")[0] for name in running.split(", ")]
    assert names == [test.removeprefix("tests/unit/") for test in tests[1 : NAMED_MAX + 1]]
