"""The checksum of Python code, which comments, docstrings and layout do not change."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib


@functools.lru_cache(maxsize=1024)
def sha256(content: bytes) -> str:
    """Return SHA-256 of the syntax tree of a source file; of its bytes if it is not valid Python.

    Texts alone as statements, such as docstrings, are not part of it, nor are empty fields of the
    tree: new versions of Python add some.
    """
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        content = repr(_as_lists(ast.parse(content))).encode()
    return hashlib.sha256(content).hexdigest()


def _as_lists(node: object) -> object:
    """Return the syntax tree as nested lists: for each node its type and its fields."""
    if isinstance(node, list):
        return [_as_lists(each) for each in node if not _is_remark(each)]
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
    return [type(node).__name__, *((name, _as_lists(value)) for name, value in fields)]


def _is_remark(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
