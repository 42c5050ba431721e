#!/usr/bin/env python3
"""Print each assertion that depends on how fast a test's processes were; exit with 1 after one.

A test that starts processes may assert that a time is present, or that a table has a record's time.
It may not compare a measured time, or an answer that follows from times, with a value of the test:
such tests have known times, from `timed_runs` or `generator`. Where the value does not depend on
the speed, a comment says why, in the assertion or on the line above: `# not by time: …`.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
#: Names by which a test starts processes, and modules whose records have known times.
PROCESSES = frozenset(("Project", "Cluster", "Submit", "subprocess", "Popen", "run_python"))
KNOWN_TIMES = frozenset(("timed_runs", "generator"))
#: Columns, keys and attributes that hold a measured time, or an answer that follows from times.
MEASURED = re.compile(
    r".+_(s|usd|hours|share|ratio)|st_mtime(_ns)?|speedup\w*|\w*efficiency"
    r"|support|held_back_by|verdict|is_decided"
)
#: Tables with such answers: what their rows are is measured, too.
ANSWERS = re.compile(r".*/(attribution|decision|forecast|headline|projection|search)\.csv")
CLOCKS = frozenset(("monotonic", "perf_counter", "process_time", "time", "total_seconds"))
REASON = "# not by time: "
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Times:
    """Which expressions of a function are measured times: `names` hold them, `keys` name them."""

    def __init__(self, function: Function) -> None:
        self.names: set[str] = set()
        self.keys: set[str] = set()
        for _ in range(2):  # a name may be used above its assignment, as in a loop
            for node in ast.walk(function):
                if isinstance(node, ast.Assign):
                    self._bind(node.targets, node.value)
                elif isinstance(node, ast.For | ast.comprehension):
                    self._bind([node.target], node.iter)
                elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value:
                    self._bind([node.target], node.value)

    def _bind(self, targets: list[ast.expr], value: ast.expr) -> None:
        bound = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        if self.is_time(value):
            self.names |= bound
        if isinstance(value, ast.Tuple | ast.List) and any(map(_is_key, value.elts)):
            self.keys |= bound

    def is_time(self, node: ast.AST) -> bool:
        """Whether the expression is a measured time, or computed from one."""
        if isinstance(node, ast.Compare | ast.JoinedStr):
            return False
        if isinstance(node, ast.Name):
            return node.id in self.names
        if isinstance(node, ast.Attribute) and MEASURED.fullmatch(node.attr):
            return True
        if isinstance(node, ast.Subscript):
            index = node.slice
            named = isinstance(index, ast.Name) and index.id in self.keys
            return named or _is_key(index) or self.is_time(node.value)
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            return self.is_time(node.elt)
        if isinstance(node, ast.Call):
            name = _name(node.func)
            if name in ("len", "isinstance"):
                return False
            keys = {"get": MEASURED, "table": ANSWERS}.get(name)
            if _is_clock(node.func) or (keys and any(_is_key(a, keys) for a in node.args)):
                return True
        return any(map(self.is_time, ast.iter_child_nodes(node)))

    def is_judged(self, compare: ast.Compare) -> bool:
        """Whether a measured time is compared with a value that is none."""
        sides = [compare.left, *compare.comparators]
        if any(map(_is_absent, sides)) and all(isinstance(op, ast.Eq) for op in compare.ops):
            return False
        triples = zip(sides, compare.ops, sides[1:], strict=False)
        return any(self._is_judged(*pair, op) for a, op, b in triples for pair in _pairs(a, b))

    def _is_judged(self, left: ast.expr, right: ast.expr, op: ast.cmpop) -> bool:
        times = [side for side in (left, right) if self.is_time(side)]
        if not times or any(map(_is_absent, (left, right))):
            return False
        if isinstance(op, ast.In | ast.NotIn):
            return times == [left]
        return len(times) == 1 or not isinstance(op, ast.Eq | ast.NotEq)


def _is_key(node: ast.AST, pattern: re.Pattern[str] = MEASURED) -> bool:
    last = node.values[-1] if isinstance(node, ast.JoinedStr) else node
    value = last.value if isinstance(last, ast.Constant) else None
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_clock(node: ast.expr) -> bool:
    name = _name(node)
    return name in CLOCKS and (name != "time" or _name(getattr(node, "value", node)) == "time")


def _is_absent(node: ast.expr) -> bool:
    """Whether it is the value of what is missing, or zero."""
    return isinstance(node, ast.Constant) and node.value in ("", None, 0)


def _name(node: ast.AST) -> str:
    return str(getattr(node, "attr", None) or getattr(node, "id", ""))


def _pairs(left: ast.expr, right: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The expressions that a comparison of two literals compares with each other."""
    rows = (ast.Tuple, ast.List, ast.Set)
    if isinstance(left, ast.ListComp | ast.SetComp) and isinstance(right, rows):
        for each in right.elts:
            yield from _pairs(left.elt, each)
    elif isinstance(left, rows) and isinstance(right, rows) and len(left.elts) == len(right.elts):
        for pair in zip(left.elts, right.elts, strict=True):
            yield from _pairs(*pair)
    else:
        yield left, right


def judged(text: str) -> list[int]:
    """Lines of a module's assertions that judge measured times."""
    tree, lines = ast.parse(text), text.splitlines()
    defined = {n.name: n for n in tree.body if isinstance(n, Function | ast.ClassDef)}

    def used(node: ast.AST, seen: set[str]) -> set[str]:
        own = {_name(n) or getattr(n, "arg", None) or "" for n in ast.walk(node)} - seen
        seen |= own
        for name in own & defined.keys():
            used(defined[name], seen)
        return seen

    found = []
    for function in [n for n in ast.walk(tree) if isinstance(n, Function)]:
        names = used(function, set())
        if names.isdisjoint(PROCESSES) or not names.isdisjoint(KNOWN_TIMES):
            continue
        times = Times(function)
        for node in [n for n in ast.walk(function) if isinstance(n, ast.Assert)]:
            excused = any(REASON in line for line in lines[node.lineno - 2 : node.end_lineno])
            compared = (n for n in ast.walk(node.test) if isinstance(n, ast.Compare))
            if not excused and any(map(times.is_judged, compared)):
                found.append(node.lineno)
    return sorted({*found})


def main() -> int:
    listed = subprocess.check_output(["git", "ls-files", "tests/**.py"], cwd=PROJECT, text=True)
    hits = [(name, n) for name in listed.split() for n in judged((PROJECT / name).read_text())]
    for name, line in hits:
        print(f"{name}:{line}: a measured time is judged: see tests/measured_time.py")
    return bool(hits)


if __name__ == "__main__":
    sys.exit(main())
