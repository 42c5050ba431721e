"""The source that functions and programs of the user's are made of, and its checksums.

That is the module of each function with the packages around it, and all modules of the project
folder that these import, found in their text. Of an installed package the version is taken instead.
What is imported by a name that is computed, and files that the code reads, are not found. Comments,
docstrings and the layout of Python code are no code: a change of them changes no checksum.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from tfscaling.files import python_code
from tfscaling.study import user_code
from tfscaling.study.run_spec import RunSpec

#: File, relative to the project folder → SHA-256 of its code; installed package → its version.
Checksums = Mapping[str, str]
#: Folders that hold installed packages.
_INSTALLED = {"site-packages", "dist-packages"}
#: Functions of this library, whose code `trainer_version` stands for.
_LIBRARY = f"{__name__.partition('.')[0]}."
_PYTHON = Path(ast.__file__).parent
#: Words of a program that name larger files are taken for data.
_SOURCE_MAX_BYTES = 16 * 2**20
#: As many hexadecimal digits tell checksums apart for a reader.
_SHOWN = 12


class Code(NamedTuple):
    """What of the user's a run or a dataset is made of."""

    functions: tuple[str, ...] = ()
    #: The words of a program.
    program: tuple[str, ...] = ()

    def files(self) -> list[Path]:
        """The source files, sorted, relative to the project folder; none of what is not there."""
        found: set[Path] = set()
        for module in self._modules():
            source = _source(module)
            if source is not None and not _is_installed(source):
                found |= _followed(source, _root(source, module))
        for path, root in _of_program(self.program):
            found |= _followed(path, root) if path.suffix == ".py" else {path}
        return sorted(map(_shown, found))

    def checksums(self) -> dict[str, str]:
        """SHA-256 of each file's code, and versions of installed packages that have functions."""
        found = {path.as_posix(): _sha256(path) for path in self.files()}
        return found | dict(version for name in self._modules() for version in _version(name))

    def _modules(self) -> list[str]:
        return [name.partition(":")[0] for name in self.functions]


def of_run(spec: RunSpec) -> Code:
    """The functions of model and dataset, or the program."""
    if spec.recipe.program:
        return Code(program=spec.recipe.program)
    return of_names(spec.point.model, spec.dataset)


def of_names(*names: str | None) -> Code:
    """Those of the names that are functions of the user's, not of this library."""
    given = (name for name in names if name and user_code.is_reference(name))
    return Code(tuple(name for name in given if not name.startswith(_LIBRARY)))


def differences(before: Checksums, now: Checksums) -> dict[str, str]:
    """`own/model.py (3f2a…, now 7c1b…)` of each file or package that differs, by its name.

    A checksum of a whole file, as the first records have them, may be what is compared with.
    """
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    names = [name for name in names if name not in now or before.get(name) != _of_whole(name)]
    return {
        name: f"{name} ({_short(before.get(name))}, now {_short(now.get(name))})" for name in names
    }


def _short(value: str | None) -> str:
    return "not used" if value is None else value[:_SHOWN]


def _source(module: str) -> Path | None:
    """The module's file; None if it is compiled, or if there is none."""
    try:
        return user_code.source_of(module, Path.cwd())
    except user_code.UserCodeError:
        return None


def _root(source: Path, module: str) -> Path:
    """The folder from which the file is imported as this module."""
    depth = module.count(".") + (source.name == "__init__.py")
    return source.parents[depth]


def _is_installed(source: Path) -> bool:
    """Whether the file is of an installed package, or of Python itself."""
    return not _INSTALLED.isdisjoint(source.parts) or _PYTHON in source.parents


def _version(module: str) -> Iterator[tuple[str, str]]:
    """The installed package of a module, if it is of one, with its version."""
    source = _source(module)
    if source is not None and not _is_installed(source):
        return
    top = module.partition(".")[0]
    for name in metadata.packages_distributions().get(top, ()):
        yield name, metadata.version(name)


def _of_program(words: Sequence[str]) -> Iterator[tuple[Path, Path]]:
    """Files of the project that are words, or modules after `-m`; each with its import folder."""
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


def _followed(source: Path, root: Path) -> set[Path]:
    """The file, the packages around it, and what they import from `root` or the project folder."""
    roots = (root, Path.cwd())
    found: set[Path] = set()
    ahead = {source, *_around(source, root)}
    while ahead:
        path = ahead.pop()
        found.add(path)
        base = next((each for each in roots if each in path.parents), root)
        for module in _imported(path, base):
            ahead |= {file for each in roots for file in _files_of(module, each)} - found
    return found


def _around(source: Path, root: Path) -> set[Path]:
    packages = [parent for parent in source.parents if root in parent.parents]
    return {path for each in packages if (path := each / "__init__.py").is_file()}


def _imported(path: Path, root: Path) -> set[str]:
    """Full names of what a file imports: modules, and names that may be modules."""
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
            origin = user_code.imported_module(node, module, is_package)
            names |= {origin, *(f"{origin}.{each.name}".strip(".") for each in node.names)}
    return names - {""}


def _files_of(module: str, root: Path) -> set[Path]:
    """The files that an import of `module` loads, none if it is not below `root`."""
    *packages, last = module.split(".")
    place, files = root, set()
    for package in packages:
        place = place / package
        files.add(place / "__init__.py")
    files |= {place / f"{last}.py", place / last / "__init__.py"}
    return {path for path in files if path.is_file() and not _is_installed(path)}


def _shown(path: Path) -> Path:
    """Relative to the project folder, if it lies there."""
    for folder in (Path.cwd(), Path.cwd().resolve()):
        if folder in path.parents:
            return path.relative_to(folder)
    return path


def _sha256(path: Path) -> str:
    return python_code.sha256(path.read_bytes()) if path.suffix == ".py" else _of_whole(path)


def _of_whole(path: str | Path) -> str:
    """SHA-256 of a file, comments included; "" if there is none."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""
