"""The validated configuration, wildcard constraints, input functions; the only rule file with functions.

INPUTS   the merged configuration (config/config.yaml, config/platforms.yaml, overlays)
OUTPUTS  CONFIG, GRID, RESULTS and ROOT (the folders of the study and of all), RUNS, POINTS,
         BENCHMARKS, RESOURCES, RUN and POINT (path templates)
"""

import json
import os
import shlex
import sys
from pathlib import Path

SCRIPTS = Path(workflow.current_basedir).resolve().parent / "scripts"
sys.path.insert(0, str(SCRIPTS))
# Shells name the folder of the scripts by this variable: their text, which Snakemake compares, is
# the same wherever the project lies. PATH is that of the activated environment, on nodes too.
os.environ["SCRIPTS"] = str(SCRIPTS)
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

from tfscaling.datasets.catalogue import DATASETS, TRAIN_EXAMPLES
from tfscaling.files.source_files import source_files
from tfscaling.plots.plot_registry import PLOTS, titles
from tfscaling.records.metrics import METRICS
from tfscaling.study import (
    all_reduce_benchmark,
    config_files,
    configuration,
    folders,
    grid,
    manifest,
    order,
    parameters,
    platforms,
)
from tfscaling.training.models import MODELS
from tfscaling.training.strategies import STRATEGIES


def config_sources():
    """(name, content) of every configuration file and the command line, for error messages."""
    overlays = [os.path.relpath(path) for path in workflow.overwrite_configfiles]
    base = [os.path.relpath(path) for path in workflow.configfiles]
    names = [*(name for name in base if name not in overlays), *overlays]
    files = [(name, config_files.read(name)) for name in names]
    return [*files, (configuration.COMMAND_LINE, dict(workflow.config_settings.config))]


try:
    SOURCES = config_sources()
    CONFIG = configuration.validate(config, SOURCES)
    folders.check_study(CONFIG["study"], SOURCES)
    platforms.check(CONFIG["platforms"], SOURCES)
    platforms.check_cluster(CONFIG, SOURCES)
    configuration.check_names(CONFIG, METRICS, PLOTS, DATASETS, SOURCES)
    GRID = grid.expand(CONFIG, MODELS, STRATEGIES, SOURCES, TRAIN_EXAMPLES)
    grid.check_baseline(GRID, CONFIG["comparison"]["baseline"], SOURCES)
    if CONFIG["published"]["path"]:
        from tfscaling.tables import published

        published.check(CONFIG["published"]["path"], SOURCES)
except configuration.ConfigError as error:
    sys.exit(str(error))  # one line; Snakemake would add the file and line of this code

#: What is made from this configuration alone. Runs, benchmarks and datasets are shared by studies.
RESULTS = f"results/{CONFIG['study']}"
#: Published results lie where the configuration says, with a module's `prefix` too.
PUBLISHED = local(CONFIG["published"]["path"]) if CONFIG["published"]["path"] else []
PLATFORMS = list(dict.fromkeys(run.platform for run in GRID.runs))
#: The folder of a run below results/runs, of a point below results/all_reduce.
RUN = grid.run_path({axis: f"{{{axis}}}" for axis in grid.AXES})
POINT = RUN.removesuffix("/repeat={repeat}")
#: Folder → run, in the order in which the runs are to start; folder → point.
RUNS = {run.path: run for run in order.randomised(GRID.runs, CONFIG["seed"])}
PRIORITY = {path: len(RUNS) - place for place, path in enumerate(RUNS)}
POINTS = {run.spec.point.path: run.spec.point for run in GRID.runs}
#: The benchmarks that the tables need, if they are enabled.
BENCHMARKS = [
    f"results/all_reduce/{entry['path']}/all_reduce.json"
    for entry in all_reduce_benchmark.entries(CONFIG, GRID.runs, STRATEGIES)
    if not entry["refusal"] and is_selected(CONFIG, entry["axes"]["platform"])
]


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


def code_of(script):
    """The source files of a cheap rule's script, its inputs: new code makes new tables."""
    return local([os.path.relpath(path) for path in source_files(SCRIPTS / script)])


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


#: Of runs and benchmarks: nodes, tasks, gres, partition, … as `platforms.slurm_resources` has them.
RESOURCES = platforms.resource_functions(CONFIG["platforms"], POINTS.values(), point_of)


def run_priority(wildcards):
    """Runs start in random order, repeat by repeat."""
    return PRIORITY[RUN.format(**wildcards)]


def prepared_dataset(wildcards):
    """The file that the ranks of a run read."""
    return f"results/datasets/{run_of(wildcards).spec.dataset}.npz"


def records_of_runs(wildcards):
    """The records of all runs: those of every point and the extra repeats that the rounds ask for."""
    number = 0
    if any(run.further for run in RUNS.values()):
        number = 1
        while round_of_repeats(number)["added"]:
            number += 1
    return records_after_round(number)


def records_before_round(wildcards):
    return records_after_round(int(wildcards.round) - 1)


def records_after_round(number):
    """The records of the runs of every point and of the extra repeats up to this round."""
    extra = set(round_of_repeats(number)["runs"]) if number else set()
    return [
        f"results/runs/{path}/run.json"
        for path, run in RUNS.items()
        if (not run.further or path in extra) and is_selected(run.platform)
    ]


def round_of_repeats(number):
    """What round `number` asks for; Snakemake makes the rounds that are not there yet."""
    return json.loads(Path(checkpoints.assess_repeats.get(round=number).output.runs).read_text())


def round_before(wildcards):
    """The file of the round before, none for the first."""
    number = int(wildcards.round) - 1
    return f"{RESULTS}/repeats/round={number}.json" if number else []
