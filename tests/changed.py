#!/usr/bin/env python3
"""Print the files of tests that concern what has changed since a commit, for `make check`.

usage: changed.py [COMMIT], by default main: from where this branch left it, with what is not yet
committed. These are the changed files of tests, and those that import a changed module: of the
module's own package if it has any, of all tests on this machine otherwise.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
#: Folders from which Python imports modules.
ROOTS = ("workflow/scripts", "tests", "benchmarks", "provision/*")
#: Beginning of a file's path → tests that read it.
READERS = {
    "docs/": "tests/unit/test_documentation.py",
    "README.md": "tests/unit/test_documentation.py",
    "workflow/rules/": "tests/workflow/test_sweep.py",
    "Snakefile": "tests/workflow/test_sweep.py",
    "Makefile": "tests/workflow/test_make_targets.py",
}


def changed(since: str) -> list[str]:
    """Return the paths of files that were added or changed since a commit."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(
            ["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=True
        )
        return done.stdout.split("\n")[:-1]

    (base,) = git("merge-base", since, "HEAD")
    tracked = git("diff", "--name-only", "--diff-filter=d", base)
    return sorted({*tracked, *git("ls-files", "--others", "--exclude-standard")})


def imported(file: Path) -> Iterator[str]:
    """Yield the full names that a file imports: modules, and what is imported from them."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_name(path: str) -> str | None:
    """Return a file's name as Python imports it; None if it is not a module."""
    file = Path(path)
    if file.suffix != ".py":
        return None
    for root in ROOTS:
        for parent in file.parents:
            if parent.match(root) and len(parent.parts) == len(Path(root).parts):
                return ".".join(file.relative_to(parent).with_suffix("").parts)
    return None


@cache
def imports_of_tests() -> dict[str, set[str]]:
    """Return, for each file of tests on this machine, the names that it imports."""
    return {
        str(file.relative_to(REPOSITORY)): set(imported(file))
        for folder in ("unit", "workflow")
        for file in (REPOSITORY / "tests" / folder).glob("**/test_*.py")
    }


def concerned(paths: list[str]) -> set[str]:
    """Return the files of tests that concern these files."""
    tests = imports_of_tests()
    found = {path for path in paths if path in tests}
    for path in paths:
        found |= {test for begin, test in READERS.items() if path.startswith(begin)}
        if name := module_name(path):
            importing = {test for test, names in tests.items() if name in names}
            own = f"tests/unit/{Path(path).parent.name}/"
            found |= {test for test in importing if test.startswith(own)} or importing
    return found


if __name__ == "__main__":
    print(*sorted(concerned(changed(*(sys.argv[1:] or ["main"])))), sep="\n")
