"""`make mutants`: how lines are changed, and which tests are chosen for a line."""

from __future__ import annotations

import ast
from pathlib import Path

import coverage
import mutants
import pytest
from covered_lines import LIBRARY, CoveringTests
from project import REPOSITORY


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = a <= b < c", {"x = (a < b < c)"}),
        ("if a and b: pass", {"if (a or b): pass", "if (not (a and b)): pass"}),
        ("ä = [é for é in y if é - 1]", {
            "ä = [é for é in y if (é + 1)]", "ä = [é for é in y if (not (é - 1))]",
            "ä = [é for é in y if é - (2)]",
        }),
        ("f(True, 'text', None, x % 2.5)", {
            "f((False), 'text', None, x % 2.5)", "f(True, 'text', None, x % (3.5))",
        }),
        ("a = (b *\n    c)", {"a = ((b / c))"}),
        ("f'{a + 1}'", set()),
        ("zip(x, y, strict=True)", set()),
        ("WAIT_S = 5.0", set()),
        ("_A_S, _B_S = 5.0, 6.0", set()),
        ("_N_MAX, _B_S = n, 6.0", {"_N_MAX, _B_S = n, (7.0)"}),
        ("wait_s = 5.0", {"wait_s = (6.0)"}),
    ],
)  # fmt: skip
def test_each_change_replaces_one_expression(text: str, expected: set[str], tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(f"\n{text}\n")
    found = set()
    for seed in range(40):
        if not expected:
            with pytest.raises(ValueError, match="larger than population"):
                mutants.drawn(tmp_path, seed, 1)
            continue
        ((file, old, new),) = mutants.drawn(tmp_path, seed, 1)
        before, _, after = mutants.split((tmp_path / file).read_bytes(), old)
        changed = (before + f"({new})".encode() + after).decode().strip()
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
        found.add(changed)
    assert found == expected


def test_lines_of_a_module_or_all_changes_of_a_line_may_be_chosen(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1\ny = 2 + z\n")

    def drawn(number: int, only: str = "") -> set[tuple[str, int, str]]:
        found = mutants.drawn(tmp_path, 1, number, only)
        return {(file, old.lineno, new) for file, old, new in found}

    assert {(file, line) for file, line, _ in drawn(4)} == {
        (file, line) for file in ("a.py", "b.py") for line in (1, 2)
    }
    assert {(file, line) for file, line, _ in drawn(9, "b.py")} == {("b.py", 1), ("b.py", 2)}
    assert drawn(9, "b.py:2") == {("b.py", 2, "2 - z"), ("b.py", 2, "3")}
    assert drawn(9, "b.py:3") == set()


def test_errors_of_types_and_old_schemas_are_found(tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text("[mypy]\nfiles = a.py\n")
    (tmp_path / "a.py").write_text("x: int = 1\n")
    (schemas := tmp_path / "workflow/schemas/generate.py").parent.mkdir(parents=True)
    schemas.write_text("")
    assert mutants.find_lint_error(tmp_path) is None
    schemas.write_text("import sys\nsys.exit('old')\n")
    assert mutants.find_lint_error(tmp_path) == "schemas: old"
    (tmp_path / "a.py").write_text("x: int = 1 + ''\n")
    assert "a.py:1: error" in (mutants.find_lint_error(tmp_path) or "")


def test_a_module_is_tested_by_its_own_tests_then_the_fastest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "REPOSITORY", tmp_path)  # without measured durations
    mutants.seconds_of_files.cache_clear()
    own, *others = mutants.tests_of_module("tables/display.py", REPOSITORY)
    assert own == "tests/unit/tables/test_display.py" and len(others) > 2
    assert others == sorted(others)
    assert mutants.tests_of_module("tables/display.py", tmp_path) == []
    (tmp_path / ".pytest_cache").mkdir()
    cases = "".join(
        f'<testcase classname="{test[:-3].replace("/", ".")}" time="{seconds}"/>' * 2
        for test, seconds in zip(others, [40, *range(len(others) - 1, 0, -1)], strict=True)
    )
    (tmp_path / ".pytest_cache/test.xml").write_text(f"<testsuite>{cases}</testsuite>")
    mutants.seconds_of_files.cache_clear()
    try:
        assert mutants.tests_of_module("tables/display.py", REPOSITORY) == [own, *others[:0:-1]]
    finally:
        mutants.seconds_of_files.cache_clear()


def test_a_line_is_tested_by_the_tests_that_ran_it_the_nearest_and_fastest_first(
    tmp_path: Path,
) -> None:
    near, slow, far = (f"tests/unit/{name}.py::test" for name in ("plan/a", "plan/b", "c"))
    sweeps = [f"tests/workflow/{name}.py::test" for name in ("d", "e")]
    failed = "tests/unit/plan/failed.py::test"
    data = coverage.CoverageData(str(tmp_path / "coverage"))
    for name, lines in {
        "": [1, 4], near: [5], slow: [5, 6], far: [5], failed: [5], f"{sweeps[0]} (call)": [5, 9],
    }.items():  # fmt: skip
        data.set_context(name)
        data.add_lines({f"/somewhere/{LIBRARY}plan/module.py": lines})
    data.close()
    seconds = {slow: 3.0, near: 2.0, far: 1.0, sweeps[0]: 5.0, sweeps[1]: 4.0}
    entries = [f"{duration} {name}\n" for name, duration in seconds.items()]
    (tmp_path / "durations").write_text("".join(entries))
    tests = CoveringTests(tmp_path)
    source = "A = 1\n\n\ndef f():\n    x = 2\n    y = (\n        3)\n\n    z = 4\n\n    a = 5\n"

    def chosen(value: int, limit_s: float = 60.0) -> list[str]:
        (node,) = (
            each
            for each in ast.walk(ast.parse(source))
            if isinstance(each, ast.Constant) and each.value == value
        )
        return tests.choose("plan/module.py", source, node, limit_s)

    everything = [near, slow, far, sweeps[0]]
    assert chosen(1) == everything  # at import
    assert chosen(2) == everything
    assert chosen(2, 5.5) == [near, slow]
    assert chosen(3) == [slow]  # within a statement that begins a line earlier
    assert chosen(4) == sweeps[::-1]  # by a workflow alone
    assert chosen(5) == []  # by nothing
