"""Private interfaces of Snakemake, its Slurm plugin, TensorFlow and Keras: what is used, and where.

A use that is not listed fails, and so does a listed one that is used no more: the lists are the
limit. An attribute that another version lacks names its part. Keras's and TensorFlow's attributes
are checked by tests/unit/train/test_keras_internals.py.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import snakemake_executor_plugin_slurm as upstream
from builders import REPOSITORY, SCRIPTS
from snakemake.api import SnakemakeApi  # noqa: F401  # first: modules import each other
from snakemake.dag import DAG
from snakemake.jobs import Job, Reason
from snakemake.modules import WorkflowModifier
from snakemake.settings.types import ConfigSettings, ExecutionSettings, OutputSettings
from snakemake.workflow import Workflow
from snakemake_executor_plugin_slurm import submit_string, utils
from snakemake_executor_plugin_slurm_sweep.slurm_client import QueuedJob
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.workflow import WorkflowExecutorInterface
from snakemake_interface_logger_plugins.base import LogHandlerBase
from tfscaling.train import keras_internals

PLUGINS = REPOSITORY / "plugins"
SNAKEMAKE, SLURM = "snakemake", "snakemake-executor-plugin-slurm"
#: Versions with which the uses were checked, by tests/workflow and tests/slurm.
CHECKED = {SNAKEMAKE: "9.27.1", SLURM: "2.8.0"}
#: Package, object, attribute → part that uses it.
USES: dict[tuple[str, Any, str], str] = {
    (SNAKEMAKE, DAG, "forcefiles"): "sweep_jobs: stale runs that are repeated on request",
    (SNAKEMAKE, DAG, "needrun_jobs"): "sweep_jobs: jobs to do",
    (SNAKEMAKE, DAG, "reason"): "plugin: adoption of an ended job",
    (SNAKEMAKE, Reason, "missing_output"): "plugin: adoption of a job that has just ended",
    (SNAKEMAKE, Job, "priority"): "plugins: order of submissions",
    (SNAKEMAKE, Job, "restart_times"): "plugin: no retry of a run that would fail again",
    (SNAKEMAKE, Job, "wildcards"): "plugin: comment of a job",
    (SLURM, submit_string, "get_submit_command"): "plugin, submission: the sbatch line",
    (SLURM, utils, "set_gres_string"): "submission: the sbatch line of the plain executor",
    (SLURM, upstream.Executor, "run_uuid"): "plugin: submission, queries",
    (SLURM, upstream.Executor, "slurm_logdir"): "plugin: submission",
}
#: Attributes of Snakemake's object `workflow` → part that uses them. Attributes of the documented
#: interface of executors are left out. The limit is WORKFLOW_MAX.
WORKFLOW: dict[str, str] = {
    "config_settings": "invocation: values of --config",
    "configfiles": "invocation: files of the configuration",
    "current_basedir": "rules: place of a file of rules",
    "dag": "sweep_jobs: jobs to do",
    "dag_settings": "sweep_jobs: runs that are forced by name",
    "executor_settings": "plugins, submission: settings of the executor",
    "get_rule": "invocation: resources that a module has replaced",
    "global_resources": "invocation: one run at a time on this machine",
    "is_main_process": "invocation, sweep_jobs: what jobs need not do",
    "modifier.modify_rulename": "invocation: name of rule train in a module",
    "modifier.namespace": "invocation: a module, whose handlers are not run",
    "modifier.skip_configfile": "invocation: configuration in a module",
    "output_settings": "invocation: dry-run, logger plugin",
    "overwrite_configfiles": "invocation: files of the configuration",
    "resource_settings": "invocation, submission: overrides, description of a submission",
}
WORKFLOW_MAX = 16
#: Fields of Snakemake's settings, which its API has as arguments → part that uses them.
SETTINGS: dict[str, str] = {
    "config_settings.config": "invocation: values of --config",
    "config_settings.replace_workflow_config": "invocation: files of the configuration",
    "execution_settings.latency_wait": "invocation, plugin: files that appear late",
    "execution_settings.lock": "invocation: no second snakemake in a folder",
    "execution_settings.no_hooks": "invocation: requests of runs without onstart",
    "execution_settings.retries": "invocation: attempts of a run",
    "output_settings.dryrun": "invocation: plan",
    "output_settings.log_handler_settings": "invocation: the logger plugin sweep",
}
#: The objects that these attributes of `workflow` have.
OBJECTS = {
    "config_settings": ConfigSettings, "execution_settings": ExecutionSettings,
    "modifier": WorkflowModifier, "output_settings": OutputSettings,
}  # fmt: skip
#: The files of the library and of plugins with all of them.
ADAPTER = SCRIPTS / "tfscaling/snakemake_adapter"
SUBMISSION = ADAPTER / "submission.py"
PLUGIN = PLUGINS / "snakemake-executor-plugin-slurm-sweep/snakemake_executor_plugin_slurm_sweep"
ALLOCATION = PLUGIN.parent / "snakemake_executor_plugin_slurm_allocation"
LOGGER = PLUGINS / "snakemake-logger-plugin-sweep/snakemake_logger_plugin_sweep"
#: Files with rules, in which `workflow` is a global name.
RULES = [*REPOSITORY.glob("*akefile"), *REPOSITORY.glob("workflow/rules/*.smk")]
#: A strategy of TensorFlow's kind is a subclass with private methods.
STRATEGY = SCRIPTS / "tfscaling/train/mpi/strategy.py"
INTERNALS = SCRIPTS / "tfscaling/train/keras_internals.py"
#: Documented names that begin with an underscore.
DOCUMENTED = {"_asdict", "_exit", "_fields", "_replace"}

FILES = sorted([*SCRIPTS.rglob("*.py"), *PLUGINS.rglob("*.py")])


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """The nodes of a file's syntax tree."""
    return [*ast.walk(ast.parse(path.read_text()))]


@functools.cache
def defined(path: Path) -> set[str]:
    """The names of functions, classes, variables and attributes that a file defines."""
    return {
        getattr(node, "attr", None) or getattr(node, "name", None) or getattr(node, "id", "")
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        or isinstance(getattr(node, "ctx", None), ast.Store)
    }


@functools.cache
def library_names() -> set[str]:
    """The names that our own code defines; the methods of the strategy are TensorFlow's."""
    return DOCUMENTED.union(*(defined(path) for path in FILES if path != STRATEGY))


PRIVATE_MODULE = re.compile(
    r"keras\.src|tensorflow\.python|snakemake_executor_plugin_slurm\.|.*\._"
)
PUBLIC_OF_SNAKEMAKE = re.compile(r"snakemake_interface_\w+|snakemake\.(utils|exceptions)\b")


@functools.cache
def attributes(owner: Any) -> set[str]:
    """The names that a module or class defines, its fields, and what methods assign to `self`."""
    classes = owner.__mro__ if isinstance(owner, type) else ()
    assigned = {
        node.attr
        for each in classes
        if each.__module__ != "builtins"
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(each))))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and getattr(node.value, "id", None) == "self"
    }
    declared = {name for each in classes for name in inspect.get_annotations(each)}
    return {*dir(owner)} | assigned | declared


@pytest.mark.parametrize(
    ("use", "part"), USES.items(), ids=[f"{package}-{name}" for package, _, name in USES]
)
def test_the_attribute_exists(use: tuple[str, Any, str], part: str) -> None:
    package, owner, name = use
    assert name in attributes(owner), (
        f"{part}: {owner.__name__}.{name} of {package} {CHECKED[package]} is missing in "
        f"{version(package)}"
    )


@pytest.mark.parametrize(("name", "part"), [*WORKFLOW.items(), *SETTINGS.items()])
def test_the_workflow_has_the_attribute(name: str, part: str) -> None:
    first, _, second = name.partition(".")
    exists = first in attributes(Workflow)
    exists &= not second or second in attributes(OBJECTS[first])
    assert exists, (
        f"{part}: workflow.{name} of {CHECKED[SNAKEMAKE]} is missing in {version(SNAKEMAKE)}"
    )


def test_what_only_a_text_mentions_is_no_attribute() -> None:
    assert {"dag", "configfiles", "modifier"} <= attributes(Workflow)
    assert "Snakefile" in inspect.getsource(Workflow)
    assert not {"Snakefile", "self", "workflow"} & attributes(Workflow)


def test_at_most_twelve_of_keras_and_tensorflow_are_used() -> None:
    assert len(keras_internals.PRIVATE) <= 12


def private(path: Path) -> Iterator[str]:
    """Private names of libraries that a file uses: attributes, and what it imports."""
    known = library_names() | defined(path)
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute):
            if node.attr.startswith("_") and not node.attr.startswith("__"):
                yield from {node.attr} - known
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
    """The attributes of Snakemake's object `workflow` that a file of Python uses.

    An attribute of OBJECTS has its own attribute, if the file uses one there.
    """
    found = set()
    nodes = [node for node in nodes_of(path) if isinstance(node, ast.Attribute)]
    outer = {id(node.value): node.attr for node in nodes}
    for node in nodes:
        if (getattr(node.value, "id", None) or getattr(node.value, "attr", None)) == "workflow":
            inner = outer.get(id(node), "") if node.attr in OBJECTS else ""
            found.add(f"{node.attr}.{inner}" if inner else node.attr)
    return found


def in_rules(path: Path) -> set[str]:
    """The attributes of `workflow` in a file of rules, but not in the name of a file."""
    return set(re.findall(r"\bworkflow\.(\w+)", path.read_text())) - {"rst"}


def of_jobs(path: Path) -> set[str]:
    """Attributes with the names of Snakemake's, whatever object has them in this file."""
    names = {name for package, _, name in USES if package == SNAKEMAKE}
    names -= library_names()
    return {n.attr for n in nodes_of(path) if isinstance(n, ast.Attribute) and n.attr in names}


def beyond(paths: Sequence[Path], variable: str, *documented: type) -> set[str]:
    """Attributes of a variable, or of an attribute of this name, that no documented type has."""
    known = set().union(*map(attributes, documented))
    if variable == "self":
        known.update(*map(defined, paths))
    return {
        node.attr
        for path in paths
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute)
        and (getattr(node.value, "id", None) or getattr(node.value, "attr", None)) == variable
    } - known


def unlisted(path: Path) -> set[str]:
    """What a file uses of private names and of Snakemake's objects, and no list above has."""
    uses = {
        SUBMISSION: {"submit_string", "utils"},
        PLUGIN / "__init__.py": {name for package, _, name in USES if package == SLURM},
        INTERNALS: {name.rpartition(".")[2] for name in keras_internals.PRIVATE} | {
            "collective_all_reduce_strategy",
        },
    }  # fmt: skip
    found = {*private(path)} - uses.get(path, set())
    if ADAPTER not in path.parents:
        documented = attributes(WorkflowExecutorInterface) if PLUGINS in path.parents else set()
        of_executors = {"executor_settings", "execution_settings.latency_wait"}
        executors = of_executors if PLUGINS in path.parents else set()
        found |= of_workflow(path) - documented - executors
    executors_files = {folder / "__init__.py" for folder in (PLUGIN, ALLOCATION)}
    if ADAPTER not in path.parents and path not in executors_files:
        found |= of_jobs(path)
    return found


def test_no_file_uses_what_is_not_listed() -> None:
    found = {path: unlisted(path) for path in FILES}
    assert {str(path): names for path, names in found.items() if names} == {}


def test_the_listed_attributes_of_the_workflow_are_those_that_are_used() -> None:
    documented = attributes(WorkflowExecutorInterface)
    files = [path for path in FILES if ADAPTER in path.parents or PLUGINS in path.parents]
    used = set().union(*map(of_workflow, files), *map(in_rules, RULES))
    fields = {name for name in used if "." in name and not name.startswith("modifier.")}
    first = {name if name.startswith("modifier.") else name.partition(".")[0] for name in used}
    assert fields == SETTINGS.keys()
    assert first - documented == WORKFLOW.keys()
    assert len(WORKFLOW) <= WORKFLOW_MAX


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_rules_use_the_workflow_by_the_adapter(path: Path) -> None:
    assert in_rules(path) <= ({"current_basedir"} if path.name == "config_files.smk" else set())


def test_the_listed_attributes_of_jobs_and_executors_are_those_that_are_used() -> None:
    """Of all three plugins, what their documented base classes have is not counted."""
    executors = [PLUGIN / "__init__.py", ALLOCATION / "__init__.py"]

    def listed(of: Any) -> set[str]:
        return {name for _, owner, name in USES if owner is of}

    assert beyond(executors, "job", JobExecutorInterface, QueuedJob) == listed(Job)
    assert beyond(executors, "self", RemoteExecutor) == listed(upstream.Executor)
    assert beyond([LOGGER / "__init__.py"], "self", LogHandlerBase) == set()
    assert beyond([*executors, ADAPTER / "sweep_jobs.py"], "dag") == listed(DAG)
