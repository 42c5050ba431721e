"""The conda environments have what the scripts import, in the versions of the lock.

And the lock names no host.
"""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = REPOSITORY / "workflow/scripts"


#: The locks of the examples' environments.
OF_EXAMPLES = [f"examples/requirements-{name}.txt" for name in ("jax", "tf_keras", "torch")]


def locked(name: str = "requirements.txt") -> dict[str, str]:
    """Package → version for the Python of the conda environments, the oldest in the lock."""
    versions: dict[str, str] = {}
    text = (REPOSITORY / name).read_text()
    for name, version in re.findall(r"^([a-z0-9-]+)==([^ ;\\]+)", text, re.MULTILINE):
        versions.setdefault(name, version)
    return versions


def imported() -> set[str]:
    """The packages of the modules that scripts and library import anywhere, but Snakemake's.

    Those are in Snakemake's own environment; `sweep_jobs.sbatch_line` works without them.
    """
    modules = set()
    for path in SCRIPTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module.partition(".")[0])
    inside = {"tfscaling", *(path.stem for path in SCRIPTS.glob("*.py"))}
    distributions = packages_distributions()
    found = {
        distributions[module][0].lower().replace("_", "-")
        for module in modules - inside - set(sys.stdlib_module_names)
    }
    return {package for package in found if not package.startswith("snakemake-")}


@pytest.mark.parametrize("name", ["environment", "environment-cuda"])
def test_a_conda_environment_has_the_imported_packages_in_the_versions_of_the_lock(
    name: str,
) -> None:
    content = yaml.safe_load((REPOSITORY / f"workflow/envs/{name}.yaml").read_text())
    packages = next(d["pip"] for d in content["dependencies"] if isinstance(d, dict))
    versions = dict(re.sub(r"\[.*\]", "", package).split("==") for package in packages)
    assert versions.items() <= locked().items()
    assert imported() <= versions.keys()


TOOLS = [f"tests/tools/{path.name}" for path in (REPOSITORY / "tests/tools").glob("*.txt")]
LOCKS = ["requirements.txt", "requirements-cuda.txt", *sorted(TOOLS), *OF_EXAMPLES]


@pytest.mark.parametrize("name", LOCKS)
def test_locks_have_hashes_and_name_no_host(name: str) -> None:
    text = (REPOSITORY / name).read_text()
    assert "://" not in text
    pinned = re.findall(r"^[a-z0-9.-]+(?:\[[a-z,-]+\])?==\S+ (?:; .* )?\\$", text, re.MULTILINE)
    entries = re.findall(r"^[a-z0-9.-]+(?:\[[a-z,-]+\])?==", text, re.MULTILINE)
    assert len(pinned) == len(entries) >= 10
    assert text.count("--hash=sha256:") >= len(entries)


@pytest.mark.parametrize("name", OF_EXAMPLES)
def test_an_environment_of_an_example_has_the_versions_of_the_lock(name: str) -> None:
    ours, theirs = locked(), locked(name)
    common = ours.keys() & theirs.keys()
    assert "numpy" in common
    assert {package: theirs[package] for package in common} == {p: ours[p] for p in common}
