"""The layers of the library, what each may import, and how long a file may be."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import pytest
from builders import REPOSITORY, SCRIPTS, run_python

LIBRARY = SCRIPTS / "tfscaling"
MODULES = {path.stem: path for path in sorted(LIBRARY.glob("*.py")) if path.stem != "__init__"}
#: The ground: from the environment of a process to its cluster. Other modules name their layer.
GROUND = {
    "cluster",
    "cluster_resolver",
    "gpu_allocation",
    "nodelist",
    "slurm_environment",
    "task_layout",
    "tf_config",
    "tf_config_from_slurm",
}
NAMES = {1: "plan", 2: "job", 3: "training", 4: "view"}
#: What a layer may import besides the standard library when its modules are loaded.
PACKAGES = {
    0: {"hostlist"},
    1: {"yaml", "jsonschema", "referencing"},
    2: {"jsonschema", "fastjsonschema"},
    3: {"numpy"},
    4: {"pandas", "numpy", "scipy"},
}
HEAVY = ("tensorflow", "keras", "matplotlib")


def layer(module: str) -> int:
    """The layer that the module's docstring states, 0 for the ground."""
    stated = re.findall(r"Layer (\d) \((\w+)\)", docstring(module))
    if module in GROUND:
        return 0
    assert len(stated) == 1, f"{module} must state its layer once, as in `Layer 2 (job).`"
    number, name = int(stated[0][0]), stated[0][1]
    assert NAMES[number] == name
    return number


def docstring(module: str) -> str:
    return " ".join((ast.get_docstring(ast.parse(MODULES[module].read_text())) or "").split())


def imports(module: str) -> list[tuple[str, bool]]:
    """(imported name, whether it is imported when the module is loaded)."""
    tree = ast.parse(MODULES[module].read_text())
    late = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef) or is_type_checking(outer)
        for node in ast.walk(outer)
    }
    found = []
    for node in ast.walk(tree):
        at_once = id(node) not in late
        if isinstance(node, ast.Import):
            found += [(name.name, at_once) for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            if node.module == "tfscaling":
                found += [(f"tfscaling.{name.name}", at_once) for name in node.names]
            else:
                found.append((node.module or "", at_once))
    return found


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def own_imports(module: str) -> set[str]:
    """Modules of the library that the module imports anywhere, even inside functions."""
    names = {name.split(".")[1] for name, _ in imports(module) if name.startswith("tfscaling.")}
    return names & MODULES.keys()


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_its_own_layer_and_those_below(module: str) -> None:
    above = {other: layer(other) for other in own_imports(module) if layer(other) > layer(module)}
    assert above == {}


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    done: set[str] = set()
    while left := set(MODULES) - done:
        ready = {module for module in left if own_imports(module) <= done}
        assert ready, f"these import each other: {sorted(left)}"
        done |= ready


@pytest.mark.parametrize("module", MODULES)
def test_a_module_loads_only_the_packages_of_its_layer(module: str) -> None:
    loaded = {name.split(".")[0] for name, at_once in imports(module) if at_once}
    allowed = set().union(*(PACKAGES[number] for number in range(layer(module) + 1)))
    assert loaded - {"tfscaling"} - set(sys.stdlib_module_names) <= allowed


def test_the_library_has_all_layers() -> None:
    assert {layer(module) for module in MODULES} == {0, 1, 2, 3, 4}
    assert set(MODULES) > GROUND


SCRIPT_FILES = sorted(SCRIPTS.glob("*.py"))
RULES = REPOSITORY / "workflow" / "rules"
#: Loads modules, then scripts; prints for each what of HEAVY it was the first to load.
LOADER = f"""
import importlib, json, runpy, sys
modules, scripts = map(json.loads, sys.argv[1:])
sys.path.insert(0, {str(SCRIPTS)!r})
heavy, found = set({HEAVY}), {{}}
def note(name):
    found[name] = sorted(heavy & set(sys.modules))
    heavy.difference_update(found[name])
for name in modules:
    importlib.import_module(f"tfscaling.{{name}}")
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
    done = run_python(LOADER, json.dumps(sorted(MODULES)), json.dumps(scripts))
    found: dict[str, list[str]] = json.loads(done.stdout or "null") or pytest.fail(done.stderr)
    return found


@pytest.mark.parametrize("module", MODULES)
def test_loading_a_module_loads_neither_tensorflow_nor_plotting(
    module: str, loaded: dict[str, list[str]]
) -> None:
    assert loaded[module] == []


@pytest.mark.parametrize("script", SCRIPT_FILES, ids=lambda path: path.name)
def test_no_script_loads_tensorflow_before_it_knows_what_to_do(
    script: Path, loaded: dict[str, list[str]]
) -> None:
    assert not {"tensorflow", "keras"} & set(loaded[str(script)])


WITH_FUNCTIONS = {"common.smk", "functions.smk", "wanted.smk"}
LIMITS = [
    *((path, 400) for path in MODULES.values()),
    *((path, 200) for path in SCRIPT_FILES),
    *((path, 120) for path in sorted(RULES.glob("*.smk"))),
]


@pytest.mark.parametrize(("path", "limit"), LIMITS, ids=lambda value: getattr(value, "name", ""))
def test_a_file_is_short_enough_to_read(path: Path, limit: int) -> None:
    assert len(path.read_text().splitlines()) < limit


def test_the_other_rule_files_have_no_functions() -> None:
    with_functions = {
        path.name
        for path in RULES.glob("*.smk")
        if re.search(r"^\s*def |\blambda\b", path.read_text(), re.MULTILINE)
    }
    assert with_functions == WITH_FUNCTIONS


@pytest.mark.parametrize("module", MODULES)
def test_each_module_has_unit_tests_named_after_it(module: str) -> None:
    assert (Path(__file__).parent / f"test_{module}.py").is_file()
