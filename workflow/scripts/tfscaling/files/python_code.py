"""The checksum of Python code, which comments, docstrings and layout do not change.

It decides which user code has changed since a run was made.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib


@functools.lru_cache(maxsize=1024)
def code_sha256(content: bytes) -> str:
    """Return the SHA-256 of Python source, in hexadecimal digits, without comments and docstrings.

    The hash is of the syntax tree. Empty fields are left out, because new versions of Python add
    such fields.

    Args:
        content: The source; if it is not valid Python, its bytes are hashed.
    """
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        content = repr(_as_lists(ast.parse(content))).encode()
    return hashlib.sha256(content).hexdigest()


def _as_lists(node: object) -> object:
    """Return a node of the syntax tree as nested lists: its type, then its non-empty fields."""
    if isinstance(node, list):
        return [_as_lists(each) for each in node if not _is_bare_text(each)]
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
    return [type(node).__name__, *((name, _as_lists(value)) for name, value in fields)]


def _is_bare_text(node: object) -> bool:
    """Return whether a node is a statement that is only a string, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
