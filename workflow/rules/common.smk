"""The configuration, the planned runs, wildcard constraints, and look-ups for rules."""

import functools
import json
import os
import sys
import time
from pathlib import Path

import msgspec
from snakemake.exceptions import WorkflowError
from tfscaling.conclusions.base import CONCLUSIONS
from tfscaling.console.sweep_outcome import SweepOutcome
from tfscaling.console.sweep_progress import SweepProgress
from tfscaling.datasets.catalogue import DATASETS, TRAIN_EXAMPLES
from tfscaling.files import atomic
from tfscaling.files.python_code import source_files
from tfscaling.launch.launchers import LAUNCHERS
from tfscaling.page.plot_registry import PLOTS, titles
from tfscaling.record.metrics import METRICS
from tfscaling.spec import grid, config_files, configuration, platforms
from tfscaling.spec import run_spec, user_code, variants
from tfscaling.spec.config import AXES
from tfscaling.spec.manifest import Manifest
from tfscaling.spec.registries import Registries
from tfscaling.plan import sweep_jobs
from tfscaling.plan.reruns import Reruns
from tfscaling.plan.sweep_jobs import SweepJobs
from tfscaling.plan.sweep_start import SweepStart
from tfscaling.train.models import MODELS
from tfscaling.train.strategies import STRATEGIES

PLATFORMS_FILE = "config/platforms.yaml"


def config_sources():
    """(name, content) of every configuration file and the command line, for error messages."""
    overlays = [os.path.relpath(path) for path in workflow.overwrite_configfiles]
    base = [os.path.relpath(path) for path in workflow.configfiles]
    names = [*(name for name in base if name not in overlays), *overlays]
    files = [(name, READ.get(name) or config_files.read(name)) for name in names]
    if "platforms" not in config and os.path.exists(PLATFORMS_FILE):
        # a module has the configuration that it is given and reads no file
        files.insert(0, (PLATFORMS_FILE, config_files.read(PLATFORMS_FILE)))
        config.update(files[0][1])
    return [*files, (configuration.COMMAND_LINE, dict(workflow.config_settings.config))]


REGISTRIES = Registries(
    MODELS, STRATEGIES, TRAIN_EXAMPLES, DATASETS, metrics=METRICS, plots=PLOTS, launchers=LAUNCHERS
)
try:
    SOURCES = config_sources()
    CONFIG, GRID = grid.accept(config, REGISTRIES, SOURCES)
    if CONFIG.published.path:
        from tfscaling.tables import published_results

        published_results.check(CONFIG.published.path, SOURCES)
except configuration.ConfigError as error:
    sys.exit(
        str(error)
    )  # one line; a WorkflowError would add file, line and traceback of this code

#: Rights that files do not get, for this process and for jobs; the user's own umask stays.
UMASK, SHELL_UMASK = {
    "owner": (0o077, "umask go=; "),
    "group": (0o007, "umask o=; "),
    "all": (0, ""),
}[CONFIG.readable_by]
shell.prefix(f"set -euo pipefail; {SHELL_UMASK}")

#: The study's folder. Runs, benchmarks and datasets are shared by studies.
RESULTS = f"results/{CONFIG.study}"
CONFIG_TEXT = msgspec.json.format(msgspec.json.encode(CONFIG).decode(), indent=1)
MANIFEST = Manifest.of(CONFIG, GRID, STRATEGIES)
#: The folder of a run below results/runs, and of a point below results/all_reduce.
RUN = run_spec.run_path({axis: f"{{{axis}}}" for axis in AXES})
POINT = os.path.dirname(RUN)
#: Runs by their folder, in the order in which they start; points and benchmarks by their folders.
RUNS = {run.spec.path: run for run in grid.randomised(GRID.runs, CONFIG.seed)}
PRIORITY = {path: len(RUNS) - place for place, path in enumerate(RUNS)}
POINTS = {run.spec.point.path: run.spec.point for run in GRID.runs}
BENCHMARKS = {each.point.path: each.spec for each in MANIFEST.all_reduce_benchmarks if each.spec}
PLATFORMS = list(dict.fromkeys(point.platform for point in POINTS.values()))
#: Source files of custom functions and programs.
USER_CODE = {path for run in GRID.runs for path in user_code.of_run(run.spec).files()}
#: Name of prepared data → the specification of a run that reads it.
PREPARED = {variants.data_of(run.spec): run.spec for run in GRID.runs if run.spec.dataset}
#: Files outside of `results`, to which a module's `prefix` does not apply: published results, and
#: the tables of the study of `compare_with`.
PUBLISHED = local(CONFIG.published.path) if CONFIG.published.path else []
REFERENCE = local(configuration.reference_files(CONFIG))
#: Name → title of the plots to draw.
TITLES = titles(CONFIG.plots, MANIFEST.qualities.values(), bool(MANIFEST.searches))


wildcard_constraints:
    platform=r"[^/]+",
    model=r"[^/]+",
    strategy=r"[^/]+",
    recipe=r"[^/]+",
    nodes=r"\d+",
    gpus_per_node=r"\d+",
    tasks_per_node=r"[\d+]+",
    repeat=r"\d+",
    dataset=r"[^/]+",
    round=r"[1-9]\d*",


def verbatim(value):
    """A function that returns the value: Snakemake takes braces in plain texts for wildcards."""
    return lambda wildcards: value


def code_of(stage):
    """The source files of a stage, inputs of its rule: changed code regenerates its tables."""
    source = SCRIPTS / "tfscaling" / "stages" / f"{stage}.py"
    return local([os.path.relpath(path) for path in source_files(source, SCRIPTS)])


def page_files():
    """Template, style and script of the page."""
    return local(sorted(os.path.relpath(p) for p in (SCRIPTS.parent / "report").glob("page.*")))


def user_code_files(wildcards):
    """The user's source files: a change regenerates the tables, but reruns no training."""
    return local(sorted(map(str, USER_CODE)))


def planned(entries, template, wildcards):
    """The run, point or benchmark of a job."""
    path = template.format(**wildcards)
    if path not in entries:
        raise WorkflowError(f"{path} is not in the grid of the configuration")
    return entries[path]


def point_of(wildcards):
    """The point of a run or of a benchmark."""
    return planned(POINTS, POINT, wildcards)


#: Nodes, tasks, gres, partition, … of runs and benchmarks, as `platforms.slurm_resources` has them.
RESOURCES = platforms.resource_functions(CONFIG.platforms, POINTS.values(), point_of)


@platforms.with_signature
def run_priority(wildcards):
    """Runs start in random order, repeat by repeat."""
    return PRIORITY.get(RUN.format(**wildcards), 0)


@platforms.with_signature
def prepared_dataset(wildcards):
    """The file that the ranks of a run read; none for a user program.

    Data that is prepared again reruns only runs that need the new data.
    """
    spec = planned(RUNS, RUN, wildcards).spec
    if spec.dataset is None:
        return []
    file = f"results/datasets/{variants.data_of(spec)}.npz"
    return file if spec.path in RERUNS.runs_of_changed_data else ancient(file)


@platforms.with_signature
def specification_of_run(wildcards):
    """The run's specification as JSON; a changed value reruns exactly this run."""
    return run_spec.encode(planned(RUNS, RUN, wildcards).spec)


def specification_of_benchmark(wildcards):
    """The benchmark's specification as JSON, without values that cannot change an all-reduce."""
    return run_spec.encode(planned(BENCHMARKS, POINT, wildcards))


def is_selected(point):
    """Whether the point is on the chosen cluster; True without a choice."""
    return CONFIG.is_selected(point.platform)
