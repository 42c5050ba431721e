"""Python code: a checksum that comments, docstrings and layout do not change, and source files.

The source files of a module are what its results depend on. They are found in the text of the
import statements: a workflow needs them at each start, and parsing files would take most of its
time.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import re
from pathlib import Path

#: `import a.b`, `from a.b import c`, `from a.b import (c, d)`, at any depth of indentation.
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)|import[ \t]+([^\n#(]*))",
    re.MULTILINE,
)
#: `import_module(f"a.b.{name}")`: each module of the package a.b, and its templates.
_ANY_OF = re.compile(r"import_module\(f\"([\w.]+)\.\{")
_COMMENT = re.compile(r"#[^\n]*")


def source_files(module: Path, folder: Path) -> list[Path]:
    """The module and all files below `folder` that it imports, directly or not; sorted.

    Files of other packages, such as the environment's, are not among them. An import inside
    a function counts, and so does each module of a package from which one is imported by its name.
    """
    found: set[Path] = set()
    ahead = {module}
    while ahead:
        path = ahead.pop()
        found.add(path)
        ahead |= _imported(path, folder) - found
    return sorted(found)


@functools.cache
def _imported(path: Path, folder: Path) -> frozenset[Path]:
    """The files below `folder` that a file imports itself, with their packages' `__init__`."""
    files: set[Path] = set()
    for module, names, modules in _IMPORT.findall(path.read_text()):
        imported = _words(modules) or [module, *(f"{module}.{name}" for name in _words(names))]
        for name in imported:
            files |= _files_of(name, folder)
    for package in _ANY_OF.findall(path.read_text()):
        place = folder.joinpath(*package.split("."))
        files |= {*place.glob("*.py"), *place.glob("templates/*")}
    return frozenset(files)


def _words(names: str) -> list[str]:
    """The names of `a, b as c` or of `(a, b,)`."""
    plain = _COMMENT.sub("", names).strip().strip("()")
    return [part.split()[0] for part in plain.split(",") if part.strip()]


@functools.cache
def _files_of(module: str, folder: Path) -> frozenset[Path]:
    """The files that an import of `module` loads, none if it is not below `folder`."""
    files = set()
    *packages, last = module.split(".")
    place = folder
    for package in packages:
        place = place / package
        files.add(place / "__init__.py")
    files |= {place / f"{last}.py", place / last / "__init__.py"}
    return frozenset(path for path in files if path.is_file())


@functools.lru_cache(maxsize=1024)
def sha256(content: bytes) -> str:
    """SHA-256 of the syntax tree of a source file; of the bytes if it is not valid Python.

    Texts that stand alone as statements, such as docstrings, are not part of it, nor are empty
    fields of the tree: new versions of Python add some.
    """
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        content = repr(_plain(ast.parse(content))).encode()
    return hashlib.sha256(content).hexdigest()


def _plain(node: object) -> object:
    """The tree as nested lists: of each node its kind, and name and value of its fields."""
    if isinstance(node, list):
        return [_plain(each) for each in node if not _is_remark(each)]
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
    return [type(node).__name__, *((name, _plain(value)) for name, value in fields)]


def _is_remark(node: object) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
