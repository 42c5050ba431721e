"""Descriptions of fields: the text below a field in the source of its class.

A module is read and parsed once, and only when a description of one of its classes is needed.
"""

from __future__ import annotations

import ast
import functools
import itertools
import sys
from collections.abc import Mapping
from pathlib import Path


@functools.cache
def descriptions(*kinds: type) -> Mapping[str, str]:
    """Return field → its description, the text below the field, for classes and their base classes.

    If a field has several descriptions, the first one is taken.
    """
    found: dict[str, str] = {}
    for each in (each for kind in kinds for each in kind.__mro__):
        found = {**_in_module(each.__module__).get(each.__name__, {}), **found}
    return found


@functools.cache
def _in_module(name: str) -> Mapping[str, Mapping[str, str]]:
    """Return class → field → description in a module; {} for modules without Python source."""
    file = Path(getattr(sys.modules[name], "__file__", None) or "")
    if file.suffix != ".py":
        return {}
    kinds = [each for each in ast.parse(file.read_text()).body if isinstance(each, ast.ClassDef)]
    return {
        kind.name: {
            ast.unparse(field.target): " ".join(ast.literal_eval(text.value).split())
            for field, text in itertools.pairwise(kind.body)
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
        }
        for kind in kinds
    }
