"""Descriptions of the fields of classes: the text below each field in the class's source.

Schemas, reference tables and the page show them. A module is read and parsed once, when a
description of one of its classes is first needed.
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
    """Return field → its description, for the fields of these classes and of their base classes.

    The description is the string literal below the field. If several classes describe a field, the
    first class in `kinds`, then in its method resolution order, is used.
    """
    found: dict[str, str] = {}
    for each in (each for kind in kinds for each in kind.__mro__):
        found = {**_field_descriptions(each.__module__).get(each.__name__, {}), **found}
    return found


@functools.cache
def _field_descriptions(name: str) -> Mapping[str, Mapping[str, str]]:
    """Return class → field → description for a module; {} if it has no Python source.

    Args:
        name: Name of the module, as in `sys.modules`.
    """
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
