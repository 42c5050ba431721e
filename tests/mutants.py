#!/usr/bin/env python
"""Change random lines of the library, one at a time, and list the changes that no test notices.

`make mutants` calls it. It tests a clone of the last commit, and never changes your files.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import itertools
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from changed import concerned
from covered_lines import LIBRARY, CoveringTests, measure

REPOSITORY = Path(__file__).resolve().parents[1]
#: Imported once: the tests of each mutant run in a fork.
PRELOADED = ["pandas", "scipy.stats", "matplotlib.pyplot", "msgspec", "hypothesis", "tensorflow"]
#: Keywords whose values stay: they raise an error if a programmer has made a mistake.
KEPT = {"frozen", "kw_only", "strict"}
#: Seconds of tests for a mutant, by their measured durations; seconds until a test, or all, hang.
TESTS_S, TEST_HANGS_S, HANGING_S = 60.0, 300.0, 3600.0
#: Operators that replace each other.
PAIRS = [
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn)),
    *((ast.Is, ast.IsNot), (ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div)),
]
SWAPS: dict[type, Any] = {**dict(PAIRS), **{new: old for old, new in PAIRS}}


def is_time_setting(node: ast.AST) -> bool:
    """Return whether a node sets constants in seconds: tests assert no measured time."""
    if not isinstance(node, ast.Assign):
        return False
    names = [each.id for each in ast.walk(node.targets[0]) if isinstance(each, ast.Name)]
    return all(name.isupper() and name.endswith("_S") for name in names)


def changes(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Yield each expression that is changed in this node, and its new text."""
    if isinstance(node, ast.Compare):
        ops = [SWAPS[type(node.ops[0])](), *node.ops[1:]]
        yield node, ast.unparse(ast.Compare(node.left, ops, node.comparators))
    elif isinstance(node, ast.BoolOp):
        yield node, ast.unparse(ast.BoolOp(SWAPS[type(node.op)](), node.values))
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        yield node, ast.unparse(ast.BinOp(node.left, SWAPS[type(node.op)](), node.right))
    elif isinstance(node, ast.If | ast.While | ast.IfExp | ast.comprehension):
        conditions = node.ifs if isinstance(node, ast.comprehension) else [node.test]
        yield from ((test, f"not ({ast.unparse(test)})") for test in conditions)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield node, repr(not node.value if isinstance(node.value, bool) else node.value + 1)


def drawn(library: Path, seed: int, number: int, only: str = "") -> list[tuple[str, ast.expr, str]]:
    """Draw lines of the library and one change of each: file, expression, new text.

    Args:
        library: Folder of the modules.
        seed: Seed of the random generator.
        number: Number of lines.
        only: FILE draws lines of this module; FILE:LINE returns all changes of this line.
    """
    by_line = defaultdict(list)
    file, _, line = only.partition(":")
    for path in [library / file] if file else sorted(library.rglob("*.py")):
        nodes: list[ast.AST] = [ast.parse(path.read_text())]
        for node in nodes:  # grows
            if is_time_setting(node):
                continue
            # the parts of an f-string have no positions in Python 3.11
            if not isinstance(node, ast.JoinedStr) and getattr(node, "arg", None) not in KEPT:
                nodes += ast.iter_child_nodes(node)
            for old, new in changes(node):
                by_line[path, old.lineno].append((str(path.relative_to(library)), old, new))
    if line:
        return by_line[library / file, int(line)]
    draw, lines = random.Random(seed), sorted(by_line)
    number = min(number, len(lines)) if file else number
    return [draw.choice(by_line[line]) for line in draw.sample(lines, number)]


def split(text: bytes, node: ast.expr) -> tuple[bytes, bytes, bytes]:
    """Return the text before the expression, the expression, and the text after it."""
    starts = [0, *itertools.accumulate(len(line) for line in text.splitlines(keepends=True))]
    start = starts[node.lineno - 1] + node.col_offset
    end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
    return text[:start], text[start:end], text[end:]


@cache
def seconds_of_files() -> dict[str, float]:
    """Return how long each file of tests took in the last `make test`, if there was one."""
    report = REPOSITORY / ".pytest_cache/test.xml"
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        seconds[f"{case.attrib['classname'].replace('.', '/')}.py"] += float(case.attrib["time"])
    return seconds


def tests_of_module(file: str, clone: Path) -> list[str]:
    """Return the files of tests that concern a module: its own, then the fastest within TESTS_S.

    Files that are not in the clone, such as new ones, are left out.
    """
    own, seconds = f"test_{Path(file).name}", seconds_of_files()
    known = (test for test in concerned([LIBRARY + file]) if (clone / test).exists())
    tests = sorted(known, key=lambda t: (Path(t).name != own, seconds[t], t))
    spent = itertools.accumulate(seconds[test] for test in tests)
    limited = zip(tests, spent, strict=True)
    return [test for test, total in limited if total < TESTS_S or Path(test).name == own]


def find_lint_error(clone: Path) -> str | None:
    """Return the first error of mypy or of the schemas' check, as in `make lint`, or None."""
    checks = {
        "mypy": ["-m", "mypy", "--no-error-summary"],
        "schemas": ["workflow/schemas/generate.py", "--check"],
    }
    for name, words in checks.items():
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
        if done.returncode:
            first = (done.stdout + done.stderr).partition("\n")[0]
            return f"{name}: {first}"
    return None


def run_tests(clone: Path, output: Path, names: list[str]) -> None:
    """Run these tests, or files of tests, in their order; end with pytest's exit code."""
    os.setsid()
    os.chdir(clone)
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)

    def choose(items: list[pytest.Item]) -> None:
        chosen = {}
        for item in items:
            for name in {item.nodeid, item.nodeid.partition("::")[0]} & places.keys():
                chosen[item] = places[name]
        items[:] = sorted(chosen, key=chosen.__getitem__)

    places = {name: place for place, name in enumerate(names)}
    plugin = SimpleNamespace(pytest_collection_modifyitems=choose)
    files = dict.fromkeys(name.partition("::")[0] for name in names)
    words = ["-x", "-m", "not full", "-p", "no:cacheprovider", f"--timeout={TEST_HANGS_S}", *files]
    os._exit(pytest.main(words, plugins=[plugin]))


def find_failure(clone: Path, names: list[str]) -> str | None:
    """Run the tests in a fork; return the first that fails, or None if all pass."""
    output = clone.parent / "output"
    call = (clone, output, names)
    process = multiprocessing.get_context("fork").Process(target=run_tests, args=call)
    process.start()
    process.join(HANGING_S)
    code = process.exitcode
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)  # with programs that a failed test has left
    process.join()
    if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return None
    failures = re.findall(r"^(?:FAILED|ERROR) (\S+)", output.read_text(), re.MULTILINE)
    return "tests hang" if code is None else failures[0] if failures else f"exit code {code}"


def main() -> None:
    """Test each mutant by the tests that concern its module, by lint, and by all that cover it.

    Which tests cover a line is measured once for a commit, if a mutant needs it.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--near", action="store_true", help="only tests that concern the module")
    parser.add_argument("--only", default="", help="lines of FILE; or all changes of FILE:LINE")
    given = parser.parse_args()
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, text=True)
    measured = REPOSITORY / ".pytest_cache/mutants" / commit.strip()
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        clone = Path(folder, "clone")
        subprocess.run(["git", "clone", "--quiet", "--shared", REPOSITORY, clone], check=True)
        for module in PRELOADED:
            importlib.import_module(module)
        mutants = drawn(clone / LIBRARY, given.seed, given.number, given.only)
        for file, old, new in mutants:
            path = clone / LIBRARY / file
            text = path.read_bytes()
            before, expression, after = split(text, old)
            mutated, names = before + f"({new})".encode() + after, tests_of_module(file, clone)
            path.write_bytes(mutated)
            failure = (find_failure(clone, names) if names else None) or find_lint_error(clone)
            if failure is None and not given.near:
                path.write_bytes(text)
                if not (measured / "coverage").exists():
                    measure(clone, measured)
                names = CoveringTests(measured).choose(file, text.decode(), old, TESTS_S)
                path.write_bytes(mutated)
                failure = find_failure(clone, names) if names else None
            path.write_bytes(text)
            mutant = f"{file}:{old.lineno}: {' '.join(expression.decode().split())} → {new}"
            what = "files of tests" if given.near else "tests"
            fate = f"killed by {failure}" if failure else f"survives {len(names)} {what}"
            print(f"{mutant}\n    {fate}", flush=True)
            survivors += [] if failure else [mutant]
    summary = f"{len(mutants) - len(survivors)} killed of {len(mutants)}; survivors:"
    print("", summary, *survivors, sep="\n")


if __name__ == "__main__":
    main()
