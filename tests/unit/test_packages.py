"""Which packages of the library may import which, and what each may load."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from builders import SCRIPTS, run_python

LIBRARY = SCRIPTS / "tfscaling"


class Allowed(NamedTuple):
    """What the modules of a package may import: packages, and libraries when they are loaded."""

    packages: frozenset[str]
    libraries: frozenset[str]


def allowed(packages: str = "", libraries: str = "") -> Allowed:
    return Allowed(frozenset(packages.split()), frozenset(libraries.split()))


#: The house: no package imports one that is not in its row; so there is no circle either.
PACKAGES = {
    "files": allowed(libraries="msgspec"),
    "cluster": allowed(),
    "study": allowed("files", "msgspec yaml"),
    "record": allowed("files study", "msgspec"),
    "datasets": allowed("files study record", "numpy"),
    "launch": allowed("files cluster study record"),
    "train": allowed("files cluster study record datasets launch", "numpy"),
    "estimation": allowed("study record", "numpy scipy"),
    "tables": allowed("files study record estimation", "pandas numpy scipy"),
    "conclusions": allowed("files study record estimation tables search", "pandas numpy scipy"),
    "search": allowed("study record estimation tables", "pandas numpy scipy"),
    "snakemake_adapter": allowed("study record", "msgspec"),
    "plan": allowed(
        "files cluster study record launch estimation tables conclusions search snakemake_adapter",
        "pandas",
    ),
    "console": allowed("files study record plan"),
    "page": allowed("files study record estimation tables conclusions", "pandas numpy markupsafe"),
    "stages": allowed(
        "files study record estimation tables conclusions search snakemake_adapter"
        " plan console page"
    ),
}
HEAVY = ("tensorflow", "keras", "matplotlib")


class Import(NamedTuple):
    """An import: its full name, and whether it takes place when the module is loaded."""

    name: str
    at_once: bool


def modules() -> dict[str, Path]:
    """`package.module` → file."""
    paths = sorted(LIBRARY.glob("*/**/*.py"))
    packages = {path: path.relative_to(LIBRARY).parts[0] for path in paths}
    return {f"{packages[path]}.{path.stem}": path for path in paths if path.stem != "__init__"}


MODULES = modules()


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """All imports of a file."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text())
    late = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef) or is_type_checking(outer)
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(name.name, id(node) not in late) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            whole = [f"{node.module}.{name.name}" for name in node.names]
            yield from (Import(name, id(node) not in late) for name in whole)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


@cache
def house_imports(path: Path) -> set[tuple[str, str]]:
    """(package, module) that a file imports anywhere, even inside functions."""
    words = [found.name.split(".") for found in imports(path)]
    return {(w[1], w[2]) for w in words if w[0] == "tfscaling" and len(w) > 2}


def exported(package: str) -> set[str]:
    """`__all__` of a package: its modules that others may import."""
    tree = ast.parse((LIBRARY / package / "__init__.py").read_text())
    (value,) = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    return set(ast.literal_eval(value))


def test_the_table_names_all_packages() -> None:
    assert {path.parent.name for path in LIBRARY.glob("*/__init__.py")} == set(PACKAGES)
    assert {path.name for path in LIBRARY.glob("*.py")} == {"__init__.py", "__main__.py", "cli.py"}


def test_a_module_imports_only_what_its_package_may() -> None:
    refused = {}
    for name, path in MODULES.items():
        package = name.split(".")[0]
        others = {other for other, _ in house_imports(path)} - {package}
        refused[name] = others - PACKAGES[package].packages
    assert {name: others for name, others in refused.items() if others} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_exports_what_others_use_and_no_more(package: str) -> None:
    files = [*SCRIPTS.rglob("*.py"), *(SCRIPTS.parent / "rules").glob("*.smk")]
    outside = [path for path in files if LIBRARY / package not in path.parents]
    used = {
        module
        for path in outside
        for other, module in (
            house_imports(path) if path.suffix == ".py" else rule_file_imports(path)
        )
        if other == package
    }
    assert exported(package) == used
    folder = LIBRARY / package
    parts = [*folder.glob("*.py"), *(path.parent for path in folder.glob("*/__init__.py"))]
    assert exported(package) <= {path.stem for path in parts}


def rule_file_imports(path: Path) -> set[tuple[str, str]]:
    """The same of a rule file, which is not Python as a whole."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    found = set()
    for line in (each.split() for each in lines if each.startswith("from tfscaling.")):
        words, names = line[1].split("."), " ".join(line[3:]).strip("()").split(", ")
        found |= {(words[1], words[2])} if len(words) > 2 else {(words[1], n) for n in names}
    return found


def is_in_a_circle(package: str, module: str) -> bool:
    """Return whether a module imports itself by others of its package."""
    seen: set[str] = set()
    ahead = [module]
    while ahead:
        path = MODULES.get(f"{package}.{ahead.pop()}")
        inside = {m for p, m in house_imports(path) if p == package} if path else set()
        ahead += inside - seen
        seen |= inside
    return module in seen


def test_modules_of_a_package_do_not_import_each_other_in_a_circle() -> None:
    assert [name for name in MODULES if is_in_a_circle(*name.split("."))] == []


def test_a_module_loads_only_the_libraries_of_its_package() -> None:
    refused = {}
    for name, path in MODULES.items():
        loaded = {found.name.split(".")[0] for found in imports(path) if found.at_once}
        package = PACKAGES[name.split(".")[0]]
        below = set().union(*(PACKAGES[other].libraries for other in package.packages))
        libraries = loaded - {"tfscaling"} - set(sys.stdlib_module_names)
        refused[name] = libraries - package.libraries - below
    assert {name: libraries for name, libraries in refused.items() if libraries} == {}


def test_no_module_shares_its_name_with_another_or_with_the_standard_library() -> None:
    modules = [name.split(".")[1] for name in MODULES]
    names = [*modules, *(path.stem for path in SCRIPTS.glob("*.py"))]
    assert sorted(set(names)) == sorted(names)
    assert not set(PACKAGES) & set(modules)
    assert not {*names, *PACKAGES} & set(sys.stdlib_module_names)


SCRIPT_FILES = sorted(SCRIPTS.glob("*.py"))
#: Loads modules, then scripts; prints for each what of HEAVY it was the first to load.
LOADER = f"""
import importlib, json, runpy, sys
modules, scripts = map(json.loads, sys.argv[1:])
sys.path.insert(0, {str(SCRIPTS)!r})
heavy, found = set({HEAVY}), {{}}
def note(name):
    found[name] = sorted(heavy & set(sys.modules))
    heavy.difference_update(found[name])
for name, dotted in modules.items():
    importlib.import_module(dotted)
    note(name)
for path in scripts:
    runpy.run_path(path, run_name="loaded")
    note(path)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """Module or script → the heavy packages that it was the first to load; all in one process."""
    scripts = [str(path) for path in SCRIPT_FILES]
    dotted = {
        name: ".".join(MODULES[name].relative_to(SCRIPTS).with_suffix("").parts)
        for name in sorted(MODULES)
    }
    done = run_python(LOADER, json.dumps(dotted), json.dumps(scripts))
    found: dict[str, list[str]] = json.loads(done.stdout or "null") or pytest.fail(done.stderr)
    return found


def test_loading_a_module_loads_neither_tensorflow_nor_plotting(
    loaded: dict[str, list[str]],
) -> None:
    assert {name: loaded[name] for name in MODULES if loaded[name]} == {}


@pytest.mark.parametrize("script", SCRIPT_FILES, ids=lambda path: path.name)
def test_no_script_loads_tensorflow_before_it_knows_what_to_do(
    script: Path, loaded: dict[str, list[str]]
) -> None:
    assert not {"tensorflow", "keras"} & set(loaded[str(script)])
