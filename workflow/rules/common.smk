"""The validated configuration, wildcard constraints and input functions.

INPUTS   the merged configuration (config/config.yaml, config/platforms.yaml, overlays)
OUTPUTS  CONFIG; RESULTS, the study's folder; RUN and POINT, templates of the folders of runs and
         points; RUNS and POINTS by their folders; BENCHMARKS, PLATFORMS, PUBLISHED, TITLES;
         RESOURCES of the jobs of runs and benchmarks
"""

import functools
import gc
import json
import os
import sys
import time
from pathlib import Path

import msgspec
from snakemake.exceptions import WorkflowError
from snakemake.io import IOFile
from tfscaling.conclusions.base import CONCLUSIONS
from tfscaling.console.sweep_outcome import SweepOutcome
from tfscaling.console.sweep_progress import SweepProgress
from tfscaling.datasets.catalogue import DATASETS, TRAIN_EXAMPLES
from tfscaling.files import atomic
from tfscaling.files.source_files import source_files
from tfscaling.launch.launchers import LAUNCHERS
from tfscaling.page.plot_registry import PLOTS, titles
from tfscaling.record.metrics import METRICS
from tfscaling.spec import grid, config_files, configuration, platforms
from tfscaling.spec import run_spec, user_code, variants
from tfscaling.spec.config import AXES
from tfscaling.spec.manifest import Manifest
from tfscaling.spec.registries import Registries
from tfscaling.plan import drivers, partial_tables
from tfscaling.plan.reruns import Reruns, is_outdated
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
    sys.exit(str(error))  # one line; Snakemake would put the file and line of this code before it


# of all files from here on; jobs have it from this process or, in Slurm, from their own snakemake
os.umask(os.umask(0o077) | {"owner": 0o077, "group": 0o007, "all": 0}[CONFIG.readable_by])

#: What is made from this configuration alone. Runs, benchmarks and datasets are shared by studies.
RESULTS = f"results/{CONFIG.study}"
#: As files have it.
CONFIG_TEXT = msgspec.json.format(msgspec.json.encode(CONFIG).decode(), indent=1)
MANIFEST = Manifest.of(CONFIG, GRID, STRATEGIES)
#: The folder of a run below results/runs, and of a point below results/all_reduce.
RUN = run_spec.run_path({axis: f"{{{axis}}}" for axis in AXES})
POINT = os.path.dirname(RUN)
#: Runs by their folder, in the order in which they are to start; points and benchmarks by theirs.
RUNS = {run.spec.path: run for run in grid.randomised(GRID.runs, CONFIG.seed)}
PRIORITY = {path: len(RUNS) - place for place, path in enumerate(RUNS)}
POINTS = {run.spec.point.path: run.spec.point for run in GRID.runs}
BENCHMARKS = {each.point.path: each.spec for each in MANIFEST.all_reduce_benchmarks if each.spec}
CODES = {user_code.of_run(run.spec) for run in GRID.runs}
#: Name of prepared data → the specification of a run that reads it.
PREPARED = {variants.data_of(run.spec): run.spec for run in GRID.runs if run.spec.dataset}
#: Source files of the user's functions and programs.
USER_CODE = sorted({path for code in CODES for path in code.files()})
PLATFORMS = list(dict.fromkeys(point.platform for point in POINTS.values()))
#: Published results lie where the configuration says, with a module's `prefix` too.
PUBLISHED = local(CONFIG.published.path) if CONFIG.published.path else []
#: The tables of the study that `compare_with` names, which lie where the configuration says, too.
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
    """A function of the value: in texts themselves Snakemake takes braces for wildcards."""
    return lambda wildcards: value


def code_of(stage):
    """The source files of a stage, inputs of its rule: new code makes new tables.

    Training has `trainer_version` instead. A module's `prefix` moves results, not the code.
    """
    source = SCRIPTS / "tfscaling" / "stages" / f"{stage}.py"
    return local([os.path.relpath(path) for path in source_files(source, SCRIPTS)])


def page_files():
    """Template, style and script of the page, inputs as `code_of` has them."""
    return local(sorted(os.path.relpath(p) for p in (SCRIPTS.parent / "report").glob("page.*")))


def force_if(is_due, file):
    """No file, for an input function, which forces the job of `file` if it is due.

    Params would not do: results that were copied or merged lack Snakemake's memory of them.
    """
    if is_due and workflow.is_main_process:
        workflow.dag.forcefiles.add(str(file))  # as --forcerun does
    return []


def force_if_outdated(name, content):
    """An input function that forces the job if the study's file has another content."""

    def no_files(wildcards):
        file = Path(STUDY, name)
        return force_if(is_outdated(file, content()), file)

    return no_files


def force_if_changed(wildcards):
    """The same for data that runs are to be made of, and earlier code made.

    Other data is left as it is: Snakemake looks at no reason of a job after a forced one.
    """
    file = f"{ROOT}/datasets/{wildcards.dataset}.npz"
    return force_if(RERUNS.is_changed_data(wildcards.dataset), file)


@functools.cache
def has_cut_off_jobs():
    """Whether Snakemake knows of jobs that were cut off; asked once, not for each run."""
    marks = Path(workflow.persistence.path, "incomplete")
    return not marks.exists() or any(files for _, _, files in os.walk(marks))


def forget_cut_off(path, file):
    """Let Snakemake forget a job that was cut off, if the record of what is planned is there.

    That is an earlier one that counts again, or the job's own, if it ended after Snakemake.
    Records are whole or not there, and their parameters are in them: the snakemake of a job that is
    ended after its record was written leaves it there.
    """
    if not workflow.is_main_process:
        workflow.execution_settings.keep_incomplete = True
        return
    memory, is_back = workflow.persistence, path in RERUNS.bring_back()
    if is_back or (
        has_cut_off_jobs() and memory._filter_incomplete_keys([file]) and RERUNS.is_made(path)
    ):
        memory.cleanup_metadata(IOFile(file))


@platforms.with_signature
def force_if_stale(wildcards):
    """The same for a run whose record is stale, where `rerun: stale` asks for it."""
    path = RUN.format(**wildcards)
    return force_if(RERUNS.is_stale(path), f"{ROOT}/runs/{path}/run.json")


@platforms.with_signature
def force_if_stale_benchmark(wildcards):
    """The same for a benchmark."""
    path = POINT.format(**wildcards)
    file = f"{ROOT}/all_reduce/{path}/all_reduce.json"
    forget_cut_off(path, file)
    return force_if(RERUNS.is_stale_benchmark(path), file)


def run_of(wildcards):
    """The run that a job of rule train is for."""
    path = RUN.format(**wildcards)
    if path not in RUNS:
        raise WorkflowError(f"{path} is not a run of the grid in the configuration")
    return RUNS[path]


def point_of(wildcards):
    """The point of a run or of a benchmark."""
    path = POINT.format(**wildcards)
    if path not in POINTS:
        raise WorkflowError(f"{path} is not a point of the grid in the configuration")
    return POINTS[path]


#: Nodes, tasks, gres, partition, … of runs and benchmarks, as `platforms.slurm_resources` has them.
RESOURCES = platforms.resource_functions(CONFIG.platforms, POINTS.values(), point_of)


@platforms.with_signature
def run_priority(wildcards):
    """Runs start in random order, repeat by repeat."""
    return PRIORITY.get(RUN.format(**wildcards), 0)


@platforms.with_signature
def prepared_dataset(wildcards):
    """The file that the ranks of a run read; none for a user's program.

    That it is made again is a reason to run only for runs that are to be made of it.
    """
    spec = run_of(wildcards).spec
    forget_cut_off(spec.path, JOBS.record(spec.path))
    if spec.dataset is None:
        return []
    file = f"results/datasets/{variants.data_of(spec)}.npz"
    return file if spec.path in RERUNS.runs_of_changed_data else ancient(file)


def user_code(wildcards):
    """The source files of the user's: a change of them makes new tables, but no new run."""
    return local([str(path) for path in USER_CODE])


def name_of_dataset(wildcards):
    """The name or function of what is prepared."""
    spec = PREPARED.get(wildcards.dataset)
    return spec.dataset if spec else wildcards.dataset


def parameters_of_dataset(wildcards):
    """What the function is given, as JSON."""
    spec = PREPARED.get(wildcards.dataset)
    given = variants.data_parameters(spec.dataset, spec.recipe) if spec else {}
    return msgspec.json.encode(given).decode()


@platforms.with_signature
def specification_of_run(wildcards):
    """The run's specification as JSON; any change of a value reruns exactly this run."""
    return run_spec.encode(run_of(wildcards).spec)


def specification_of_benchmark(wildcards):
    """The same of a benchmark: a change of what cannot change an all-reduce reruns none."""
    return run_spec.encode(BENCHMARKS[POINT.format(**wildcards)])


def local_copy(wildcards):
    """The local copy of a dataset that the configuration names, if any."""
    copy = CONFIG.datasets.get(wildcards.dataset)
    return copy.path if copy else []


def dataset_checksum(wildcards):
    """The checksum of the published data; none of a function of the user's."""
    return DATASETS[wildcards.dataset].sha256 if wildcards.dataset in DATASETS else None


def is_selected(point):
    """Whether the point is on the cluster that was chosen, if one was."""
    return CONFIG.is_selected(point.platform)


def records_of_benchmarks(wildcards):
    """The records of all benchmarks, none unless they are enabled."""
    return [
        f"results/all_reduce/{path}/all_reduce.json"
        for path, spec in BENCHMARKS.items()
        if is_selected(spec.point)
    ]


def records_of_runs(wildcards):
    """The records of all runs, with the extra repeats that the rounds ask for."""
    number = 0
    if any(run.extra_repeat for run in RUNS.values()):
        number = 1
        while round_of_repeats(number)["added"]:
            number += 1
    return records_after_round(number)


def force_if_lost(records, table):
    """An input function that forces the job of a study's table if records of it are gone.

    Snakemake makes no missing file again that only finished files were made of: the table would go
    on saying what nothing shows any more.
    """

    def no_files(wildcards):
        file = Path(STUDY, "tables", table)
        if not (workflow.is_main_process and file.exists()):
            return []
        above = os.path.dirname(ROOT)
        is_there = all(os.path.exists(os.path.join(above, each)) for each in records(wildcards))
        return force_if(not is_there, file)

    return no_files


def merged_records(wildcards):
    """The file that `make merge` writes, if it has taken records into this study."""
    return f"{RESULTS}/merged.json" if Path(STUDY, "merged.json").exists() else []


def records_before_round(wildcards):
    return records_after_round(int(wildcards.round) - 1)


def records_after_round(number):
    """The records of the runs of every point and of the extra repeats up to this round."""
    extra = set(round_of_repeats(number)["runs"]) if number else set()
    wanted = (path for path, run in RUNS.items() if not run.extra_repeat or path in extra)
    return [
        f"results/runs/{path}/run.json"
        for path in wanted
        if is_selected(RUNS[path].spec.point) and path not in given_up()
    ]


@functools.cache
def given_up():
    """The runs of searches that failed too often: their points leave, and the others go on."""
    if not MANIFEST.searches:
        return frozenset()
    from tfscaling.plan import lasting_failures

    searched = {each.point for search in MANIFEST.searches for each in search.points}
    return frozenset(
        path
        for path, run in RUNS.items()
        if run.spec.point in searched and lasting_failures.is_given_up(run, Path(ROOT, "runs"))
    )


def round_of_repeats(number):
    """What round `number` asks for; Snakemake makes the rounds that are not there yet."""
    return json.loads(Path(checkpoints.assess_repeats.get(round=number).output.runs).read_text())


def round_before(wildcards):
    """The file of the round before, none for the first."""
    number = int(wildcards.round) - 1
    return f"{RESULTS}/repeats/round={number}.json" if number else []


def table_of_regressions(wildcards):
    """The table of what is slower than in another study, where one is named."""
    if CONFIG.compare_with is None:
        raise WorkflowError("compare_with names no other study: there is nothing to compare with")
    return f"{RESULTS}/tables/regressions.csv"


def plan_submission(wildcards):
    """How jobs leave this machine, as JSON."""
    from tfscaling.plan import submission

    described = submission.describe(workflow, rules.train.rule.name)
    return msgspec.json.encode(described).decode()


# All of this lives as long as Snakemake: its garbage collector need not look at it again and again.
gc.freeze()
