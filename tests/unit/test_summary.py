"""The last lines of continuous integration."""

from __future__ import annotations

from pathlib import Path

import pytest
import summary

CASES = '<testsuite>{}<testcase name="b"/><testcase name="c"><skipped/></testcase></testsuite>'
FAILED = '<testcase classname="x" name="a"><{}/></testcase>'


@pytest.mark.parametrize(
    ("results", "named", "last"),
    [
        ((CASES.format(""),), [], "1 passed, 0 failed, 1 skipped"),
        ((CASES.format(""), CASES.format("")), [], "2 passed, 0 failed, 2 skipped"),
        ((CASES.format(FAILED.format("error")),), ["x.a"], "1 passed, 1 failed, 1 skipped"),
        (("<testsuite>", CASES.format(FAILED.format("failure"))), ["0.xml", "x.a"],
         "1 passed, 2 failed, 1 skipped"),
        ((None,), ["0.xml"], "0 passed, 1 failed"),
    ],
    ids=["all passed", "two sessions", "a test failed", "pytest was killed", "nothing ran"],
)  # fmt: skip
def test_failed_tests_and_sessions_are_named_and_counted(
    results: tuple[str | None, ...], named: list[str], last: str,
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    files = [tmp_path / f"{number}.xml" for number in range(len(results))]
    for file, text in zip(files, results, strict=True):
        if text is not None:
            file.write_text(text)
    assert summary.main(*map(str, files)) == int(bool(named))
    *lines, counts = capsys.readouterr().out.splitlines()
    assert [Path(line.split()[1]).name for line in lines] == named
    assert counts == last
