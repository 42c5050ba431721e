#!/usr/bin/env python3
"""Print the files of tests that concern what has changed since a commit, for `make check`.

usage: changed.py [COMMIT], by default main: from where this branch left it, with what is not yet
committed. These are the changed files of tests, the file with the name of a changed module, and
the files that import the module: tests of its own package if there are any, else all tests on this
machine. If none imports it, these are the tests of the modules that import it.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
#: The folder of the library's modules, and all folders from which Python imports modules.
LIBRARY = "workflow/scripts"
ROOTS = (LIBRARY, "tests", "benchmarks", "provision/*")
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
                name = ".".join(file.relative_to(parent).with_suffix("").parts)
                return name.removesuffix(".__init__")
    return None


@cache
def imports_of_tests() -> dict[str, set[str]]:
    """Return, for each file of tests on this machine, the names that it imports."""
    return {
        str(file.relative_to(REPOSITORY)): set(imported(file))
        for folder in ("unit", "workflow")
        for file in (REPOSITORY / "tests" / folder).glob("**/test_*.py")
    }


@cache
def imports_of_library() -> dict[str, set[str]]:
    """Return, for each module of the library, the names that it imports."""
    files = (REPOSITORY / LIBRARY).glob("*/**/*.py")
    names = {file: module_name(str(file.relative_to(REPOSITORY))) for file in files}
    return {name: {*imported(file)} for file, name in names.items() if name}


def importing_tests(name: str) -> set[str]:
    """Return the files of tests that import a module, or the nearest modules that import it."""
    modules, nearest = {name}, {name}
    while nearest:
        if found := {test for test, names in imports_of_tests().items() if names & nearest}:
            return found
        library = imports_of_library().items() if name.startswith("tfscaling.") else ()
        nearest = {each for each, names in library if names & nearest} - modules
        modules |= nearest
    return set()


def concerned(paths: list[str]) -> set[str]:
    """Return the files of tests that concern these files."""
    tests = imports_of_tests()
    found = {path for path in paths if path in tests}
    for path in paths:
        found |= {test for begin, test in READERS.items() if path.startswith(begin)}
        if name := module_name(path):
            importing = importing_tests(name)
            package = name.removeprefix("tfscaling.").partition(".")[0]
            own = f"tests/unit/{package}/"
            found |= {test for test in importing if test.startswith(own)} or importing
            found |= {f"{own}test_{Path(path).name}"} & tests.keys()
    return found


if __name__ == "__main__":
    print(*sorted(concerned(changed(*(sys.argv[1:] or ["main"])))), sep="\n")
