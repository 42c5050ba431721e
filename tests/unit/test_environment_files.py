"""The conda environments have what the scripts import, in the versions of the lock.

And the lock names no host.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = REPOSITORY / "workflow/scripts"


#: The locks of the examples' environments.
OF_EXAMPLES = [
    f"examples/requirements-{name}.txt"
    for name in ("jax", "keras_hub", "notebook", "tf_keras", "torch", "trainers")
]


#: The locks of the parts of the environment, which are installed together.
PARTS = ["requirements.txt", *sorted(path.name for path in REPOSITORY.glob("requirements-*.txt"))]


def pinned(name: str) -> dict[str, list[str]]:
    """Package → version and marker of each of its entries in a lock."""
    entries: dict[str, list[str]] = {}
    text = (REPOSITORY / name).read_text()
    for package, pin in re.findall(r"^([a-z0-9-]+)(?:\[.*\])?==(.*?) *\\$", text, re.MULTILINE):
        entries.setdefault(package, []).append(pin)
    return entries


def locked(*names: str) -> dict[str, str]:
    """Package → version for the Python of the conda environments, the oldest in the lock.

    By default of all parts of the environment.
    """
    entries = [entry for name in names or PARTS for entry in pinned(name).items()]
    return {package: pins[0].split(" ")[0] for package, pins in reversed(entries)}


@cache
def imported() -> set[str]:
    """The modules that scripts and library import anywhere, but those of Snakemake and Python.

    Snakemake is in an environment of its own, and TensorFlow brings the module `google`.
    """
    modules = set()
    for path in SCRIPTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module.partition(".")[0])
    inside = {"tfscaling", *(path.stem for path in SCRIPTS.glob("*.py"))}
    found = modules - inside - set(sys.stdlib_module_names) - {"google"}
    return {module for module in found if not module.startswith("snakemake")}


def modules_of(package: str) -> set[str]:
    """The modules that an installed package brings."""
    installed = distribution(package)
    named = installed.read_text("top_level.txt")
    files = installed.files or []
    return set(named.split()) if named else {file.parts[0].split(".")[0] for file in files}


@pytest.mark.parametrize("name", ["environment", "environment-cuda"])
def test_a_conda_environment_has_the_imported_packages_in_the_versions_of_the_lock(
    name: str,
) -> None:
    content = yaml.safe_load((REPOSITORY / f"workflow/envs/{name}.yaml").read_text())
    packages = next(d["pip"] for d in content["dependencies"] if isinstance(d, dict))
    versions = dict(re.sub(r"\[.*\]", "", package).split("==") for package in packages)
    assert versions.items() <= locked().items()
    assert imported() <= set().union(*map(modules_of, versions))


TOOLS = [f"tests/tools/{path.name}" for path in (REPOSITORY / "tests/tools").glob("*.txt")]
LOCKS = [*PARTS, *sorted(TOOLS), *OF_EXAMPLES]


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(PARTS, 2)])
def test_parts_of_the_environment_agree(one: str, other: str) -> None:
    """They are installed together, in any choice: a common package has the same version."""
    first, second = pinned(one), pinned(other)
    common = first.keys() & second.keys()
    versions = [
        {package: {pin.split(" ")[0] for pin in pins[package]} for package in common}
        for pins in (first, second)
    ]
    assert versions[0] == versions[1]


def test_the_workflow_alone_has_neither_the_trainer_nor_what_tests_need() -> None:
    alone = locked("requirements.txt").keys()
    assert {"snakemake", "pandas", "scipy", "matplotlib", "msgspec", "uv"} <= alone
    assert not {"tensorflow", "keras", "mpi4py", "mpich", "pyarrow", "pytest", "mypy"} & alone


@pytest.mark.parametrize("name", LOCKS)
def test_locks_have_hashes_and_name_no_host(name: str) -> None:
    text = (REPOSITORY / name).read_text()
    assert "://" not in text
    with_hash = re.findall(r"^[a-z0-9.-]+(?:\[[a-z,-]+\])?==\S+ (?:; .* )?\\$", text, re.MULTILINE)
    entries = re.findall(r"^[a-z0-9.-]+(?:\[[a-z,-]+\])?==", text, re.MULTILINE)
    assert len(with_hash) == len(entries) > 0
    assert text.count("--hash=sha256:") >= len(entries)


@pytest.mark.parametrize("name", OF_EXAMPLES)
def test_an_environment_of_an_example_has_the_versions_of_the_lock(name: str) -> None:
    ours, theirs = locked(), locked(name)
    common = ours.keys() & theirs.keys()
    assert "numpy" in common
    assert {package: theirs[package] for package in common} == {p: ours[p] for p in common}
