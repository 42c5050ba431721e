"""Functions of the user's own, named `package.module:function`.

They are found in the project folder (the folder in which snakemake runs) or among the installed
packages. Planning only looks at the source: nothing of the user's is imported before a job needs
it, so that a plan stays quick and a model may import TensorFlow at the top of its file.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

#: How a function is named, for messages.
FORM = "package.module:function"


class UserCodeError(ValueError):
    """There is no such function; says what is missing."""


def is_reference(name: str) -> bool:
    """Whether `name` is meant as a function of the user's and not as a registered name."""
    return ":" in name


def check(name: str) -> None:
    """Raise UserCodeError unless the module is there and its source defines the function."""
    _check(name, Path.cwd())


def parameters(name: str) -> frozenset[str]:
    """Names of the function's parameters, by its source alone.

    None where the module does not define it by `def` at its top level, as where it imports it.
    Raises UserCodeError as `check` does.
    """
    check(name)
    return _parameters(name, Path.cwd())


def call(name: str, available: Mapping[str, Any]) -> Any:
    """What the function returns, given those of `available` that it has parameters for.

    A function with `**` gets all of them. Whatever the call raises is passed on.
    """
    function: Callable[..., Any] = load(name)
    taken = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken):
        return function(**available)
    return function(**{p.name: available[p.name] for p in taken if p.name in available})


def load(name: str) -> Callable[..., Any]:
    """Import the module and return the function; whatever the import raises is passed on."""
    module, _, function = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


@functools.cache
def _check(name: str, folder: Path) -> None:
    module, _, function = name.partition(":")
    if not (all(part.isidentifier() for part in module.split(".")) and function.isidentifier()):
        raise UserCodeError(f"allowed: {FORM}")
    source = _source(module, folder)
    if source is None:
        return
    try:
        names = set(_names(ast.parse(source.read_bytes(), str(source))))
    except SyntaxError as error:
        raise UserCodeError(f"{source.name} has a syntax error in line {error.lineno}") from None
    if not names & {function, "*", "__getattr__"}:
        raise UserCodeError(f"{source.name} defines no {function}")


@functools.cache
def _parameters(name: str, folder: Path) -> frozenset[str]:
    module, _, function = name.partition(":")
    source = _source(module, folder)
    for node in ast.parse(source.read_bytes()).body if source else ():
        if isinstance(node, ast.FunctionDef) and node.name == function:
            named = node.args
            return frozenset(each.arg for each in (*named.args, *named.kwonlyargs))
    return frozenset()


def _source(module: str, folder: Path) -> Path | None:
    """The module's file, or None if it is compiled; no parent package is imported."""
    importlib.invalidate_caches()
    places: list[str] | None = None
    for part in module.split("."):
        spec = _find(part, folder) if places is None else PathFinder.find_spec(part, places)
        if spec is None:
            raise UserCodeError(
                f"there is no module {module} in the project folder or among installed packages"
            )
        places = list(spec.submodule_search_locations or [])
    if spec is None or spec.origin is None:
        raise UserCodeError(f"{module} is a folder without code")
    return Path(spec.origin) if spec.origin.endswith(".py") else None


def _find(name: str, folder: Path) -> ModuleSpec | None:
    """The top-level module as `load` would find it."""
    sys.path.insert(0, str(folder))
    try:
        specs = (finder.find_spec(name, None) for finder in sys.meta_path)
        return next((spec for spec in specs if spec is not None), None)
    finally:
        sys.path.remove(str(folder))


def _names(node: ast.AST) -> Iterator[str]:
    """Names that the module binds at its top level, in conditions and loops as well."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child.name
        elif isinstance(child, ast.alias):
            yield child.asname or child.name
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        elif not isinstance(child, ast.Lambda):
            yield from _names(child)
