"""The last lines of `make test`."""

from __future__ import annotations

from pathlib import Path

import pytest
import summary

CASES = '<testsuite>{}<testcase name="b"/><testcase name="c"><skipped/></testcase></testsuite>'


@pytest.mark.parametrize(
    ("case", "make_status", "last", "status"),
    [
        ("", "0", "1 passed, 0 failed, 1 skipped", 0),
        ("", "1", "1 passed, 0 failed, 1 skipped", 1),
        ('<testcase name="a"><error/></testcase>', "0", "1 passed, 1 failed, 1 skipped", 1),
    ],
)
def test_the_last_line_counts_and_the_status_is_that_of_all_parts(
    case: str, make_status: str, last: str, status: int,
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "part.xml").write_text(CASES.format(case))
    assert summary.main(make_status, str(tmp_path / "part.xml")) == status
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_a_part_without_results_has_failed(tmp_path: Path) -> None:
    (tmp_path / "cut.xml").write_text("<testsuite>")
    for name in ("missing.xml", "cut.xml"):
        assert summary.main("0", str(tmp_path / name)) == 1
