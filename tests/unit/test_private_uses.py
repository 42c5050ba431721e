"""Private interfaces of Snakemake, its Slurm plugin, TensorFlow and Keras: what is used, and where.

A use that is not listed fails, and a listed attribute that another version lacks names its part.
Keras's and TensorFlow's attributes are checked by tests/unit/train/test_keras_internals.py.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import snakemake_executor_plugin_slurm as upstream
from builders import REPOSITORY, SCRIPTS
from snakemake.api import SnakemakeApi  # noqa: F401  # first: modules import each other
from snakemake.dag import DAG
from snakemake.jobs import Job, Reason
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake.workflow import Workflow
from snakemake_executor_plugin_slurm import job_cancellation, job_status_query, submit_string, utils
from tfscaling.train import keras_internals

PLUGINS = REPOSITORY / "plugins"
SNAKEMAKE, SLURM = "snakemake", "snakemake-executor-plugin-slurm"
#: Versions with which the uses were checked, by tests/workflow and tests/slurm.
CHECKED = {SNAKEMAKE: "9.27.1", SLURM: "2.8.0"}
#: Package, object, attribute → part that uses it.
USES: dict[tuple[str, Any, str], str] = {
    (SNAKEMAKE, DAG, "forcefiles"): "sweep_jobs: reruns of outdated outputs",
    (SNAKEMAKE, DAG, "needrun_jobs"): "sweep_jobs: jobs to do",
    (SNAKEMAKE, DAG, "reason"): "sweep_jobs: missing data; plugin: adoption of an ended job",
    (SNAKEMAKE, Job, "attempt"): "plugin: no retry of a run that would fail again",
    (SNAKEMAKE, JobScheduler, "executor_error_callback"): "plugin: errors of submissions",
    (SNAKEMAKE, Reason, "missing_output"): "plugin: adoption of a job that has just ended",
    (SNAKEMAKE, Reason, "updated_input_run"): "sweep_jobs: missing data",
    (SLURM, submit_string, "get_submit_command"): "plugin, sweep_jobs: submission",
    (SLURM, utils, "set_gres_string"): "plugin, sweep_jobs: submission",
    (SLURM, upstream.Executor, "get_partition_arg"): "plugin: submission",
    (SLURM, job_status_query, "query_job_status"): "plugin: queries",
    (SLURM, job_cancellation, "cancel_slurm_jobs"): "plugin: cancellation",
}
#: The files with all of them.
SWEEP_JOBS = SCRIPTS / "tfscaling/plan/sweep_jobs.py"
PLUGIN = PLUGINS / "snakemake-executor-plugin-slurm-sweep/snakemake_executor_plugin_slurm_sweep"
#: Attributes of Snakemake's object `workflow`, by the parts that may use them: its options, which
#: executor plugins and Snakefiles are given, and the graph and scheduler.
OF_EXECUTORS = {"executor_settings", "workdir_init"}
OPTIONS = {
    *OF_EXECUTORS,
    *("deployment_settings", "executor_plugin", "is_main_process", "resource_settings"),
}
OF_RULES = {
    *("config_settings", "configfiles", "current_basedir", "execution_settings"),
    *("is_main_process", "local_exec", "modifier", "output_settings", "overwrite_configfiles"),
}
#: A strategy of TensorFlow's kind is a subclass with private methods.
STRATEGY = SCRIPTS / "tfscaling/train/mpi/strategy.py"
INTERNALS = SCRIPTS / "tfscaling/train/keras_internals.py"
#: Documented names that begin with an underscore.
DOCUMENTED = {"_asdict", "_exit", "_fields", "_replace"}

FILES = sorted([*SCRIPTS.rglob("*.py"), *PLUGINS.rglob("*.py")])
TREES = {path: [*ast.walk(ast.parse(path.read_text()))] for path in FILES}


def defined(path: Path) -> set[str]:
    """The names of functions, classes, variables and attributes that a file defines."""
    return {
        getattr(node, "attr", None) or getattr(node, "name", None) or getattr(node, "id", "")
        for node in TREES[path]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        or isinstance(getattr(node, "ctx", None), ast.Store)
    }


#: Names that our own code defines; the methods of the strategy are TensorFlow's.
OWN = DOCUMENTED.union(*(defined(path) for path in FILES if path != STRATEGY))
PRIVATE_MODULE = re.compile(
    r"keras\.src|tensorflow\.python|snakemake_executor_plugin_slurm\.|.*\._"
)
PUBLIC_OF_SNAKEMAKE = re.compile(r"snakemake_interface_\w+|snakemake\.(utils|exceptions)\b")


@pytest.mark.parametrize(
    ("use", "part"), USES.items(), ids=[f"{package}-{name}" for package, _, name in USES]
)
def test_the_attribute_exists(use: tuple[str, Any, str], part: str) -> None:
    package, owner, name = use
    exists = name in dir(owner) or f"self.{name}" in inspect.getsource(owner)
    assert exists, (
        f"{part}: {owner.__name__}.{name} of {package} {CHECKED[package]} is missing in "
        f"{version(package)}"
    )


@pytest.mark.parametrize("name", sorted(OPTIONS | OF_RULES | {"dag", "scheduler"}))
def test_the_workflow_has_the_attribute(name: str) -> None:
    found = name in dir(Workflow) or name in inspect.getsource(Workflow)
    assert found, f"Workflow.{name} of {CHECKED[SNAKEMAKE]} is missing in {version(SNAKEMAKE)}"


def test_at_most_twelve_of_each_are_used() -> None:
    assert len(USES) <= 12
    assert len(keras_internals.PRIVATE) <= 12


def private(path: Path) -> Iterator[str]:
    """Private names of libraries that a file uses: attributes, and what it imports."""
    own_names = OWN | defined(path)
    for node in TREES[path]:
        if isinstance(node, ast.Attribute):
            if node.attr.startswith("_") and not node.attr.startswith("__"):
                yield from {node.attr} - own_names
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            own = (name.name for name in node.names)
            is_private = PRIVATE_MODULE.match(module) is not None
            if module.startswith("snakemake.") and not PUBLIC_OF_SNAKEMAKE.match(module):
                is_private = True
            modules = {"submit_string", "utils", "job_status_query", "job_cancellation"}
            yield from (
                n for n in own if is_private or (module == upstream.__name__ and n in modules)
            )
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if PRIVATE_MODULE.match(each.name))


def of_workflow(path: Path) -> set[str]:
    """The attributes of Snakemake's object `workflow` that a file uses."""
    return {
        node.attr
        for node in TREES[path]
        if isinstance(node, ast.Attribute)
        and (getattr(node.value, "id", None) or getattr(node.value, "attr", None)) == "workflow"
    }


def of_jobs(path: Path) -> set[str]:
    """Attributes with the names of Snakemake's, whatever object has them in this file."""
    names = {name for package, _, name in USES if package == SNAKEMAKE} - {"attempt"}
    return {n.attr for n in TREES[path] if isinstance(n, ast.Attribute) and n.attr in names - OWN}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_no_file_uses_what_is_not_listed(path: Path) -> None:
    uses = {
        SWEEP_JOBS: {"submit_string", "utils"},
        PLUGIN / "__init__.py": {name for package, _, name in USES if package == SLURM},
        INTERNALS: {name.rpartition(".")[2] for name in keras_internals.PRIVATE} | {
            "rng_utils", "collective_all_reduce_strategy",
        },
    }  # fmt: skip
    of_objects = {
        SWEEP_JOBS: OPTIONS | {"dag"},
        PLUGIN / "__init__.py": OF_EXECUTORS | {"scheduler"},
    }
    in_plugin = OF_EXECUTORS if PLUGINS in path.parents else set()
    assert {*private(path)} <= uses.get(path, set())
    assert of_workflow(path) <= of_objects.get(path, in_plugin)
    if path not in of_objects:
        assert of_jobs(path) == set()


@pytest.mark.parametrize(
    "path", [*REPOSITORY.glob("*akefile"), *REPOSITORY.glob("workflow/rules/*.smk")], ids=str
)
def test_rules_use_options_of_the_workflow_alone(path: Path) -> None:
    used = {*re.findall(r"\bworkflow\.([a-z_]+)", path.read_text())} - {"rst"}
    assert used <= OF_RULES
