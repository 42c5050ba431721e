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
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from tfscaling.study.config import ParameterValue

_T = TypeVar("_T")
#: What a function is given: argument → value.
Given = Mapping[str, ParameterValue]
NOTHING: Given = MappingProxyType({})
#: How a function is named, for messages.
FORM = "package.module:function"
#: The argument of a dataset's function that makes it a pipeline.
CONTEXT = "context"
#: Arguments of a dataset's function that the workflow gives itself.
PROVIDED = (CONTEXT,)
#: The function of a pipeline's module that makes its files once, and its argument.
PREPARE, FOLDER = "prepare", "folder"


class UserCodeError(ValueError):
    """There is no such function; says what is missing."""


class Arguments(NamedTuple):
    """What a function can be given by name."""

    names: tuple[str, ...]
    #: Those without a default, and those that cannot be given by name.
    required: tuple[str, ...]
    #: Whether it has `**keywords`, which take any name.
    takes_all: bool


def is_reference(name: str) -> bool:
    """Whether `name` is meant as a function of the user's and not as a registered name."""
    return ":" in name


def is_pipeline(dataset: str) -> bool:
    """Whether each rank calls the function for its own part of the data, by the source alone.

    Raises UserCodeError as `check` does.
    """
    found = arguments(dataset) if is_reference(dataset) else None
    return found is not None and CONTEXT in found.names


def preparing(dataset: str) -> str | None:
    """The function that makes the files of a dataset once; None if its module has none."""
    name = f"{dataset.partition(':')[0]}:{PREPARE}"
    try:
        found = arguments(name)
    except UserCodeError:
        return None
    return name if found is not None and FOLDER in found.names else None


def check(name: str) -> None:
    """Raise UserCodeError unless the module is there and its source defines the function."""
    _definition(name, Path.cwd())


def arguments(name: str) -> Arguments | None:
    """What the function can be given, by the source alone; None if the source does not tell.

    It does not where the function is not defined by `def`, or a class with an `__init__`, in its
    module or in one from which it is imported by name. Raises UserCodeError as `check` does.
    """
    found = _definition(name, Path.cwd())
    if isinstance(found, ast.ClassDef):
        own = [node for node in found.body if isinstance(node, ast.FunctionDef)]
        init = next((node for node in own if node.name == "__init__"), None)
        return _arguments(init.args, is_method=True) if init else None
    return _arguments(found.args) if isinstance(found, ast.FunctionDef) else None


def taken(name: str, available: Mapping[str, _T]) -> dict[str, _T]:
    """Those of `available` that the function has an argument for, by its source.

    All where the source does not tell. Raises UserCodeError as `check` does.
    """
    found = arguments(name)
    if found is None or found.takes_all:
        return dict(available)
    return {key: value for key, value in available.items() if key in found.names}


def call(name: str, available: Mapping[str, Any]) -> Any:
    """What the function returns, given those of `available` that it has an argument for.

    `**keywords` take all. Whatever the import and the call raise is passed on.
    """
    function = load(name)
    taken = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in taken):
        return function(**available)
    named = [each.name for each in taken if each.kind is not each.POSITIONAL_ONLY]
    return function(**{key: available[key] for key in named if key in available})


def load(name: str) -> Callable[..., Any]:
    """Import the module and return the function; whatever the import raises is passed on."""
    module, _, function = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


@functools.cache
def _definition(name: str, folder: Path) -> ast.stmt | None:
    """Where the function is defined; None if the source does not tell. Raises UserCodeError."""
    module, _, function = name.partition(":")
    if not (all(part.isidentifier() for part in module.split(".")) and function.isidentifier()):
        raise UserCodeError(f"allowed: {FORM}")
    source = source_of(module, folder)
    if source is None:
        return None
    tree = parsed(source)
    bound = list(_bound(tree))
    if not {name for name, _ in bound} & {function, "*", "__getattr__"}:
        raise UserCodeError(f"{source.name} defines no {function}")
    definition = [node for name, node in bound if name == function]
    if not definition:
        return None
    last = definition[-1]  # the one that counts where there are several
    if not isinstance(last, ast.ImportFrom):
        return last
    origin = next(each.name for each in last.names if (each.asname or each.name) == function)
    target = imported_module(last, module, is_package=source.name == "__init__.py")
    try:
        return _definition(f"{target}:{origin}", folder)
    except (UserCodeError, RecursionError):
        return None  # not a module of source that can be read: only the import itself can tell


def parsed(source: Path) -> ast.Module:
    """The syntax tree of a file. Raises UserCodeError with the line where there is none."""
    try:
        return ast.parse(source.read_bytes(), str(source))
    except SyntaxError as error:
        raise UserCodeError(f"{source.name} has a syntax error in line {error.lineno}") from None


def imported_module(statement: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The module after `from` in a statement of `module`, without dots before it."""
    if not statement.level:
        return statement.module or ""
    parents = module.split(".")
    parents = parents[: len(parents) - statement.level + is_package]
    return ".".join([*parents, *([statement.module] if statement.module else [])])


def source_of(module: str, folder: Path) -> Path | None:
    """The module's file, or None if it is compiled; no parent package is imported.

    Raises UserCodeError if there is no such module.
    """
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
        found = next((spec for spec in specs if spec is not None), None)
        if found is not None and found.submodule_search_locations is not None:
            # a package without __init__.py has those of sys.path as it is when they are asked for
            found.submodule_search_locations = list(found.submodule_search_locations)
        return found
    finally:
        sys.path.remove(str(folder))


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.stmt | None]]:
    """Names that the module binds at its top level, in conditions and loops as well, and by what.

    None stands for an assignment.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child.name, child
        elif isinstance(child, ast.Import | ast.ImportFrom):
            yield from ((each.asname or each.name, child) for each in child.names)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id, None
        elif not isinstance(child, ast.Lambda):
            yield from _bound(child)


def _arguments(args: ast.arguments, is_method: bool = False) -> Arguments:
    positional = [each.arg for each in (*args.posonlyargs, *args.args)]
    with_default = len(args.defaults)
    required = positional[: len(positional) - with_default][is_method:]
    keywords = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    required += [each.arg for each, default in keywords if default is None]
    named = [each.arg for each in (*args.args, *args.kwonlyargs)]
    named = named[is_method and not args.posonlyargs :]
    return Arguments(tuple(named), tuple(required), args.kwarg is not None)
