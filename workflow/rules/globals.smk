"""The configuration, the planned runs, wildcard constraints, and look-ups for rules."""

import atexit
import functools
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
from tfscaling.console import text_lines
from tfscaling.console.dry_run import DryRun
from tfscaling.console.sweep_outcome import SweepOutcome
from tfscaling.console.sweep_progress import SweepProgress
from tfscaling.datasets.catalogue import DATASETS
from tfscaling.files import atomic
from tfscaling.launch.launchers import LAUNCHERS
from tfscaling.page.plot_registry import PLOTS
from tfscaling.record import run_states
from tfscaling.record.metrics import METRICS
from tfscaling.study import acceptance, grid, config_files, config_validation, platforms
from tfscaling.study import run_spec, user_code, variants
from tfscaling.study.config_types import AXES
from tfscaling.study.registries import Registries
from tfscaling.plan import retries, unrequested_runs
from tfscaling.snakemake_adapter.sweep_jobs import SweepJobs
from tfscaling.plan.driver_signals import handle_signals_in_thread
from tfscaling.plan.sweep_start import SweepStart
from tfscaling.plan.to_do import RunRequests, RunsToDo
from tfscaling.train.models import MODELS
from tfscaling.train.strategies import STRATEGIES

PLATFORMS_FILE = config_validation.PLATFORMS_FILE
#: The configuration and the manifest of a plan, in the folder of the study.
PLANNED = "details/planned"


def config_sources():
    """Return (name, content) of every configuration file and the command line, in their order."""
    files = []
    for name in INVOCATION.configuration_files:
        try:
            files.append((name, READ.get(name) or config_files.read_config_file(name)))
        except config_validation.ConfigError:
            # a file of an outer workflow may have anything: only messages name places in it
            if not INVOCATION.is_configured:
                raise
    has_platforms = "platforms" in config or not INVOCATION.has_base_files
    if not has_platforms and os.path.exists(PLATFORMS_FILE):
        # a module has the configuration that it is given and reads no file
        files.insert(0, (PLATFORMS_FILE, config_files.read_config_file(PLATFORMS_FILE)))
    return [*files, (config_validation.COMMAND_LINE, INVOCATION.command_line)]


def merged_configuration():
    """Return the configuration from all sources, merged as by Snakemake, but read by YAML 1.2."""
    if INVOCATION.is_configured:
        return {**dict(SOURCES).get(PLATFORMS_FILE, {}), **config}
    return config_files.merge_configurations(SOURCES)


def overridden_configuration():
    """Return the merged configuration, changed by --set-resources and --default-resources."""
    merged, changes = INVOCATION.apply_resource_options(merged_configuration())
    SOURCES.extend(changes)
    return merged


if refused := INVOCATION.refused_options():
    raise WorkflowError("\n".join(refused))
REGISTRIES = Registries(
    MODELS, STRATEGIES, DATASETS, metrics=METRICS, plots=PLOTS, launchers=LAUNCHERS
)
try:
    SOURCES = config_sources()
    MERGED = overridden_configuration()
    if MERGED.get("timings"):
        from tfscaling.tables import timings

        MERGED = timings.add_grid_of_timings(MERGED)
    CONFIG, MANIFEST = acceptance.validate_and_plan(MERGED, REGISTRIES, SOURCES)
    if CONFIG.timings:
        MANIFEST = timings.drop_runs_without_row(MANIFEST, CONFIG.timings)
    if CONFIG.published.path:
        from tfscaling.tables import published_results

        published_results.check_file(CONFIG.published.path, SOURCES)
except config_validation.ConfigError as error:
    raise WorkflowError(str(error)) from None

#: Rights that files do not get, for this process and for jobs; the user's own umask stays.
UMASK, shell_umask = {
    "owner": (0o077, "umask go=; "),
    "group": (0o007, "umask o=; "),
    "all": (0, ""),
}[CONFIG.readable_by]


def strict_shell(command):
    """Return a rule's command with a start that ends it at the first error and restricts its files.

    `shell.prefix` would change the rules of an outer workflow, and an outer workflow may set it.
    """
    return f"set -euo pipefail; {shell_umask}{command}"


if INVOCATION.is_main_process:
    # before the first command is written there: the umask does not hold for Snakemake's own files
    try:
        atomic.restrict_folder(Path(".snakemake"), UMASK)
    except PermissionError as error:
        raise WorkflowError(f"{error}; expected your own folder, or `readable_by: all`") from None

#: The study's folder. Runs and datasets are shared by studies.
RESULTS = f"results/{CONFIG.study}"
DETAILS = f"{RESULTS}/details"
LOGS = f"results/logs/{CONFIG.study}"
CONFIG_TEXT = msgspec.json.format(msgspec.json.encode(CONFIG).decode(), indent=1)
#: Whether Snakemake draws jobs or files and starts none: the picture then has the axes that vary.
IS_DRAWN = any(word.partition("=")[0] in ("--dag", "--filegraph") for word in sys.argv)
#: Whether Snakemake deletes outputs; an option may be shortened.
IS_DELETING = any(word.startswith("--delete-a") for word in sys.argv)
#: The folder of a run below results/runs.
RUN = run_spec.run_path(grid.path_wildcards(MANIFEST.all_runs if IS_DRAWN else ()), "{parameters}")
#: The runs that a sweep makes; none where a file has their times.
TO_MAKE = () if CONFIG.timings else MANIFEST.all_runs
#: These runs by their folder, in the order in which they start.
RUNS = {
    run.spec.path: run for run in grid.randomise_order(TO_MAKE, CONFIG.seed, MANIFEST.revisions)
}
PRIORITY = {path: len(RUNS) - place for place, path in enumerate(RUNS)}
POINTS = dict.fromkeys(run.spec.point for run in MANIFEST.all_runs)
#: Source files of custom functions and programs: a change regenerates the tables, and reruns none.
USER_CODE = local(
    sorted(
        {
            str(file)
            for code in {user_code.code_of_run(run.spec) for run in MANIFEST.all_runs}
            for file in code.files()
        }
    )
)
#: Name of prepared data → the specification of a run that reads it.
PREPARED = {
    variants.data_name_of_run(run.spec): run.spec for run in MANIFEST.all_runs if run.spec.dataset
}
#: Files outside of `results`, to which a module's `prefix` does not apply: published results, the
#: tables of the study of `compare_with`, and timings.
PUBLISHED = local(CONFIG.published.path) if CONFIG.published.path else []
REFERENCE = local(config_validation.reference_study_files(CONFIG))
TIMINGS = local(CONFIG.timings) if CONFIG.timings else []


wildcard_constraints:
    **{axis: "[^/]+" for axis in (*AXES, "dataset")},
    parameters="[0-9a-f]+",
    round=r"[1-9]\d*",


def verbatim(value):
    """Return a function that returns the value.

    In a plain text, Snakemake would take braces for wildcards.
    """
    return lambda wildcards: value


@functools.cache
def checksum_of_code():
    """Return the SHA-256 of the source of tables and page: changed code regenerates them."""
    of_jobs = ("cluster", "datasets", "launch", "train")
    packages = [path for path in SCRIPTS.glob("tfscaling/*") if path.name not in of_jobs]
    files = [each for path in packages for each in path.rglob("*") if each.suffix in (".py", ".j2")]
    texts = [each.read_bytes() for each in sorted([*files, *SCRIPTS.parent.glob("report/page.*")])]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def code_of_tables(wildcards):
    """Return `checksum_of_code` as a parameter of rules.

    A hundred input files would be shown in graphs and lists.
    """
    return checksum_of_code()


def exported(kind, files):
    """Return `files`, name of an output → path, if `export` has this kind of files; else {}."""
    return files if kind in CONFIG.export else {}


def planned(wildcards):
    """Return the specification of the run that a job makes.

    Raises:
        WorkflowError: The configuration has no such run.
    """
    path = RUN.format(**wildcards)
    if path not in RUNS:
        why = "" if INVOCATION.is_main_process else ": its files were changed while the job waited"
        raise WorkflowError(f"{path} is not in the grid of the configuration{why}")
    return RUNS[path].spec


#: Nodes, tasks, gres, partition, … of runs, as `platforms.slurm_resources` has them.
RESOURCES = platforms.job_resources(CONFIG.platforms, POINTS, lambda w: planned(w).point)


def requests_of_runs():
    """Yield the resources that rule train requests for a run of each configuration."""
    for point in POINTS:
        if CONFIG.is_selected(point.platform):
            platform = CONFIG.platforms[point.platform]
            yield {**platforms.slurm_resources(platform, point.geometry), "training_runs": 1}


@platforms.store_signature
def run_priority(wildcards):
    """Return the priority of a run's job: runs start in random order, repeat by repeat."""
    return PRIORITY.get(RUN.format(**wildcards), 0)


@platforms.store_signature
def prepared_dataset(wildcards):
    """Return the file that the ranks of a run read; [] for a user program.

    Data that is prepared again repeats no finished run.
    """
    spec = planned(wildcards)
    if spec.dataset is None:
        return []
    file = f"results/datasets/{variants.data_name_of_run(spec)}.npz"
    is_to_do = not INVOCATION.is_main_process or spec.path in runs_to_do().folders_to_do
    return file if is_to_do else ancient(file)
