"""The last lines of `make test`."""

from __future__ import annotations

from pathlib import Path

import pytest
import summary

CASES = '<testsuite>{}<testcase name="b"/><testcase name="c"><skipped/></testcase></testsuite>'
FAILED = '<testcase classname="x" name="a"><error/></testcase>'


@pytest.mark.parametrize(
    ("results", "passed", "named", "last"),
    [
        (CASES.format(""), ("test", "lint"), [], "1 passed, 0 failed, 1 skipped"),
        (CASES.format(""), ("test",), ["lint"], "1 passed, 1 failed, 1 skipped"),
        (CASES.format(FAILED), ("lint",), ["x.a"], "1 passed, 1 failed, 1 skipped"),
        ("<testsuite>", ("lint",), ["test"], "0 passed, 1 failed"),
        ("", (), ["test", "lint"], "0 passed, 2 failed"),
    ],
    ids=["all passed", "lint failed", "a test failed", "pytest was killed", "nothing ran"],
)
def test_failed_tests_and_parts_are_named_and_counted(
    results: str, passed: tuple[str, ...], named: list[str], last: str,
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "test.xml").write_text(results)
    for part in passed:
        (tmp_path / f"{part}.passed").touch()
    assert summary.main(str(tmp_path), "test", "lint") == int(bool(named))
    *lines, counts = capsys.readouterr().out.splitlines()
    assert [line.split()[1].rstrip(";") for line in lines] == named
    assert counts == last
