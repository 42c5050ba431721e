"""Custom functions, named `package.module:function`, and the checksums of their source.

They are searched in the folder in which snakemake runs and among the installed packages. Planning
only reads the source: custom code is imported when a job needs it.

The source is the module of each function with the packages around it, and all modules of the
project folder that they import, found in their text. For an installed package the version is used.
Modules imported by a computed name and files that the code reads are not found. Comments,
docstrings and layout do not change a checksum.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from tfscaling.files import python_code
from tfscaling.study.config_types import ParameterValue
from tfscaling.study.run_spec import RunSpec

_T = TypeVar("_T")
#: Arguments of a custom function: name → value.
ArgumentValues = Mapping[str, ParameterValue]
NO_ARGUMENTS: ArgumentValues = MappingProxyType({})
#: Form of the name of a custom function, for messages.
REFERENCE_FORM = "package.module:function"
#: The argument of a dataset's function that makes it a pipeline.
CONTEXT = "context"
#: Arguments of a dataset's function that the workflow gives, not the recipe.
PROVIDED = (CONTEXT,)
#: Name of the function in a pipeline's module that makes its files once, and its argument.
PREPARE, FOLDER = "prepare", "folder"


class UserCodeError(ValueError):
    """A custom function does not exist; the message names what is missing."""


class Arguments(NamedTuple):
    """The arguments of a custom function.

    Attributes:
        names: Arguments that can be passed by name.
        required: Arguments without a default, positional-only ones included.
        takes_all: Whether the function has `**keywords`, which take any name.
    """

    names: tuple[str, ...]
    required: tuple[str, ...]
    takes_all: bool


def is_reference(name: str) -> bool:
    """Return whether a name means a custom function, `package.module:function`."""
    return ":" in name


def is_pipeline(dataset: str) -> bool:
    """Return whether a dataset is a custom input pipeline: a function with an argument `context`.

    Each rank calls it for its own part of the data.

    Raises:
        UserCodeError: If the function does not exist.
    """
    found = declared_arguments(dataset) if is_reference(dataset) else None
    return found is not None and CONTEXT in found.names


def find_prepare_function(dataset: str) -> str | None:
    """Return the name of the function that prepares a pipeline's files, `package.module:prepare`.

    None if the pipeline's module has no such function, or its function has no argument `folder`.
    """
    name = f"{dataset.partition(':')[0]}:{PREPARE}"
    try:
        found = declared_arguments(name)
    except UserCodeError:
        return None
    return name if found is not None and FOLDER in found.names else None


def check_function(name: str) -> None:
    """Check that a custom function's module exists and its source defines the function.

    Raises:
        UserCodeError: If not.
    """
    _find_definition(name, Path.cwd())


def declared_arguments(name: str) -> Arguments | None:
    """Return the arguments of a custom function from its source; None if it does not show them.

    The source shows them if the function is defined by `def`, or is a class with an `__init__`, in
    its module or in a module from which it is imported by name.

    Raises:
        UserCodeError: If the function does not exist.
    """
    found = _find_definition(name, Path.cwd())
    if isinstance(found, ast.ClassDef):
        own = [node for node in found.body if isinstance(node, ast.FunctionDef)]
        init = next((node for node in own if node.name == "__init__"), None)
        return _named_arguments(init.args, is_method=True) if init else None
    return _named_arguments(found.args) if isinstance(found, ast.FunctionDef) else None


def select_arguments(name: str, available: Mapping[str, _T]) -> dict[str, _T]:
    """Return the values that a custom function takes as arguments, by its source.

    All values are returned for a function with `**keywords`, or if the source does not show the
    arguments.

    Args:
        name: The function, as `package.module:function`.
        available: Argument → value.

    Raises:
        UserCodeError: If the function does not exist.
    """
    found = declared_arguments(name)
    if found is None or found.takes_all:
        return dict(available)
    return {key: value for key, value in available.items() if key in found.names}


def call_function(name: str, available: Mapping[str, Any]) -> Any:
    """Call a custom function with those available values that it takes, and return its result.

    `**keywords` receive all values. Exceptions of the import and the call are passed on.

    Args:
        name: The function, as `package.module:function`.
        available: Argument → value.
    """
    function = load_function(name)
    taken = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in taken):
        return function(**available)
    named = [each.name for each in taken if each.kind is not each.POSITIONAL_ONLY]
    return function(**{key: available[key] for key in named if key in available})


def load_function(name: str) -> Callable[..., Any]:
    """Import and return a custom function; exceptions of the import are passed on."""
    module, _, function = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


@functools.cache
def _find_definition(name: str, folder: Path) -> ast.stmt | None:
    """Return the syntax tree of a custom function's definition; None if no source shows it.

    Args:
        name: The function, as `package.module:function`.
        folder: The project folder, in which modules are searched first.

    Raises:
        UserCodeError: The name has another form, or the module has no such name.
    """
    module, _, function = name.partition(":")
    if not (all(part.isidentifier() for part in module.split(".")) and function.isidentifier()):
        raise UserCodeError(f"allowed: {REFERENCE_FORM}")
    source = find_source(module, folder)
    if source is None:
        return None
    tree = parse_source(source)
    bound = list(_bound_names(tree))
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
        return _find_definition(f"{target}:{origin}", folder)
    except (UserCodeError, RecursionError):
        return None  # not a module of source that can be read: only the import itself shows it


def parse_source(source: Path) -> ast.Module:
    """Return the syntax tree of a Python file.

    Raises:
        UserCodeError: The file is not valid Python; the message has the line.
    """
    try:
        return ast.parse(source.read_bytes(), str(source))
    except SyntaxError as error:
        raise UserCodeError(f"{source.name} has a syntax error in line {error.lineno}") from None


def imported_module(statement: ast.ImportFrom, module: str, is_package: bool) -> str:
    """Return the absolute name of the module from which a `from` statement imports.

    Args:
        statement: The statement.
        module: Name of the module that contains the statement.
        is_package: Whether that module is a package's `__init__`.
    """
    if not statement.level:
        return statement.module or ""
    parents = module.split(".")
    parents = parents[: len(parents) - statement.level + is_package]
    return ".".join([*parents, *([statement.module] if statement.module else [])])


def find_source(module: str, folder: Path) -> Path | None:
    """Return a module's source file without importing it; None if the module is compiled.

    Args:
        module: Full name of the module.
        folder: The project folder, in which modules are searched first.

    Raises:
        UserCodeError: The module does not exist.
    """
    importlib.invalidate_caches()
    places: list[str] | None = None
    for part in module.split("."):
        spec = _find_module(part, folder) if places is None else PathFinder.find_spec(part, places)
        if spec is None:
            raise UserCodeError(
                f"there is no module {module} in the project folder or among installed packages"
            )
        places = list(spec.submodule_search_locations or [])
    if spec is None or spec.origin is None:
        raise UserCodeError(f"{module} is a folder without code")
    return Path(spec.origin) if spec.origin.endswith(".py") else None


def _find_module(name: str, folder: Path) -> ModuleSpec | None:
    """Return the import specification of a top-level module; None if no module has the name.

    Args:
        name: Name of the module.
        folder: The project folder, in which modules are searched first.
    """
    sys.path.insert(0, str(folder))
    try:
        specs = (finder.find_spec(name, None) for finder in sys.meta_path)
        found = next((spec for spec in specs if spec is not None), None)
        if found is not None and found.submodule_search_locations is not None:
            # the locations of a package without __init__.py depend on sys.path when they are read
            found.submodule_search_locations = list(found.submodule_search_locations)
        return found
    finally:
        sys.path.remove(str(folder))


def _bound_names(node: ast.AST) -> Iterator[tuple[str, ast.stmt | None]]:
    """Yield each name that a module binds at its top level, with the statement that binds it.

    The statement is None for an assignment.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child.name, child
        elif isinstance(child, ast.Import | ast.ImportFrom):
            yield from ((each.asname or each.name, child) for each in child.names)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id, None
        elif not isinstance(child, ast.Lambda):
            yield from _bound_names(child)


def _named_arguments(args: ast.arguments, is_method: bool = False) -> Arguments:
    """Return the arguments in a function's syntax tree; `self` is omitted for a method."""
    positional = [each.arg for each in (*args.posonlyargs, *args.args)]
    with_default = len(args.defaults)
    required = positional[: len(positional) - with_default][is_method:]
    keywords = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    required += [each.arg for each, default in keywords if default is None]
    named = [each.arg for each in (*args.args, *args.kwonlyargs)]
    named = named[is_method and not args.posonlyargs :]
    return Arguments(tuple(named), tuple(required), args.kwarg is not None)


#: File, relative to the project folder → SHA-256 of its code; installed package → its version.
Checksums = Mapping[str, str]
#: Folders that hold installed packages.
_INSTALLED = {"site-packages", "dist-packages"}
#: Prefix of the names of this library's functions, whose code `trainer_version` covers.
_LIBRARY = f"{__name__.partition('.')[0]}."
_PYTHON = Path(ast.__file__).parent
#: Largest file in a program's command that counts as code; larger files are taken for data.
_SOURCE_MAX_BYTES = 16 * 2**20
#: Number of hexadecimal digits of a checksum in messages.
_SHOWN = 12


class CustomCode(NamedTuple):
    """The custom code of a run or a dataset: names of functions, or a program.

    Attributes:
        functions: Custom functions, as `package.module:function`.
        program: The words of a program's command.
    """

    functions: tuple[str, ...] = ()
    program: tuple[str, ...] = ()

    def files(self) -> list[Path]:
        """Return the source files of the code, sorted, as paths relative to the project folder.

        The project's files that these files import are included.
        """
        found: set[Path] = set()
        for module in self._modules():
            source = _source_or_none(module)
            if source is not None and not _is_installed(source):
                # up to the folder from which the file is imported as this module
                depth = module.count(".") + (source.name == "__init__.py")
                found |= _follow_imports(source, source.parents[depth])
        for path, root in _program_files(self.program):
            found |= _follow_imports(path, root) if path.suffix == ".py" else {path}
        return sorted(map(_relative_to_project, found))

    def checksums(self) -> dict[str, str]:
        """Return the checksums of the code: file → SHA-256, and installed package → its version."""
        found = {path.as_posix(): _code_sha256(path) for path in self.files()}
        for module in self._modules():
            if (source := _source_or_none(module)) is None or _is_installed(source):
                from importlib import metadata  # 0.1 s of CPU time, which few runs need

                top = module.partition(".")[0]
                names = metadata.packages_distributions().get(top, ())
                found |= {name: metadata.version(name) for name in names}
        return found

    def _modules(self) -> list[str]:
        """Return the full name of each function's module."""
        return [name.partition(":")[0] for name in self.functions]


def code_of_run(spec: RunSpec) -> CustomCode:
    """Return the custom code of a run: the functions of model and dataset, or the program."""
    if spec.recipe.program:
        return CustomCode(program=spec.recipe.program)
    return code_of_functions(spec.point.model, spec.dataset)


def code_of_functions(*names: str | None) -> CustomCode:
    """Return the code of the names that mean custom functions; built-in names are ignored."""
    given = (name for name in names if name and is_reference(name))
    return CustomCode(tuple(name for name in given if not name.startswith(_LIBRARY)))


def describe_differences(before: Checksums, now: Checksums) -> dict[str, str]:
    """Return file or package → a text, for each checksum or version that differs.

    The text is `own/model.py (3f2a…, now 7c1b…)`, with 12 digits of each checksum. If `before` has
    the checksum of all bytes of a file, comments included, the file counts as equal while its bytes
    are unchanged.
    """
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    names = [name for name in names if name not in now or before.get(name) != _file_sha256(name)]
    return {
        name: f"{name} ({_short_checksum(before.get(name))}, now {_short_checksum(now.get(name))})"
        for name in names
    }


def _short_checksum(value: str | None) -> str:
    """Return the first digits of a checksum, for messages; "not used" for None."""
    return "not used" if value is None else value[:_SHOWN]


def _source_or_none(module: str) -> Path | None:
    """Return a module's source file; None if the module is compiled or does not exist."""
    try:
        return find_source(module, Path.cwd())
    except UserCodeError:
        return None


def _is_installed(source: Path) -> bool:
    """Return whether a file belongs to an installed package or to Python itself."""
    return not _INSTALLED.isdisjoint(source.parts) or _PYTHON in source.parents


def _program_files(words: Sequence[str]) -> Iterator[tuple[Path, Path]]:
    """Yield (file, folder from which it imports) for each file of the project in a command line.

    The files are words of the command, or modules after `-m`.
    """
    project = Path.cwd().resolve()
    for before, word in zip(["", *words], words, strict=False):
        path = Path(word)
        if before == "-m":
            place = project / word.replace(".", "/")
            candidates = [place.with_suffix(".py"), place / "__main__.py"]
            path = next((each for each in candidates if each.is_file()), path)
        is_file = "\x00" not in word and len(word) < 4096 and path.is_file()
        if not is_file or path.stat().st_size > _SOURCE_MAX_BYTES:
            continue
        if project in (file := path.resolve()).parents:
            yield file, project if before == "-m" else file.parent


def _follow_imports(source: Path, root: Path) -> set[Path]:
    """Return a file, its packages, and all project files that they import, directly or not.

    Args:
        source: The file.
        root: The folder from which its imports are resolved, before the project folder.
    """
    roots = (root, Path.cwd())
    found: set[Path] = set()
    packages = {each / "__init__.py" for each in source.parents if root in each.parents}
    ahead = {source, *filter(Path.is_file, packages)}
    while ahead:
        path = ahead.pop()
        found.add(path)
        base = next((each for each in roots if each in path.parents), root)
        for module in _imported_names(path, base):
            ahead |= {file for each in roots for file in _module_files(module, each)} - found
    return found


def _imported_names(path: Path, root: Path) -> set[str]:
    """Return the full names of the modules that a file imports; some may be no modules.

    For `from a import b` they are `a` and `a.b`: `b` may be a module or a name in `a`. A file that
    is not valid Python gives none.

    Args:
        path: The file.
        root: The folder from which its imports are resolved.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return set()
    inside = path.relative_to(root).with_suffix("").parts if root in path.parents else (path.stem,)
    is_package = inside[-1] == "__init__"
    module = ".".join(inside[:-1] if is_package else inside)
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = imported_module(node, module, is_package)
            names |= {origin, *(f"{origin}.{each.name}".strip(".") for each in node.names)}
    return names - {""}


def _module_files(module: str, root: Path) -> set[Path]:
    """Return the files that an import of `module` loads; empty if it is not below `root`."""
    *packages, last = module.split(".")
    place, files = root, set()
    for package in packages:
        place = place / package
        files.add(place / "__init__.py")
    files |= {place / f"{last}.py", place / last / "__init__.py"}
    return {path for path in files if path.is_file() and not _is_installed(path)}


def _relative_to_project(path: Path) -> Path:
    """Return a path relative to the project folder; unchanged if it is outside."""
    for folder in (Path.cwd(), Path.cwd().resolve()):
        if folder in path.parents:
            return path.relative_to(folder)
    return path


def _code_sha256(path: Path) -> str:
    """Return SHA-256 of a file; comments, docstrings and layout of Python code do not change it."""
    if path.suffix == ".py":
        return python_code.code_sha256(path.read_bytes())
    return _file_sha256(path)


def _file_sha256(path: str | Path) -> str:
    """Return SHA-256 of a file's bytes, comments included; "" if it does not exist."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""
