"""Configuration, look-ups and wildcard constraints for all stages.

INPUTS   the merged configuration (config/config.yaml, config/platforms.yaml, overlays)
OUTPUTS  CONFIG (validated, defaults filled), GRID, and the functions that the rules call
"""

import json
import os
import shlex
import sys
from pathlib import Path

import yaml
from snakemake.exceptions import WorkflowError

SCRIPTS = Path(workflow.current_basedir).resolve().parent / "scripts"
sys.path.insert(0, str(SCRIPTS))
# Rules call the scripts by name: the shell text stays the same wherever the project lies, and a
# job on a node finds the interpreter of the environment that submitted it.
os.environ.update(
    PATH=os.pathsep.join(
        [str(SCRIPTS), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    )
)

from tfscaling import configuration, expectations, grid, parameters, plan, platforms, published
from tfscaling import yardstick
from tfscaling.datasets import DATASETS
from tfscaling.metrics import METRICS
from tfscaling.models import MODELS
from tfscaling.plots import PLOTS, titles
from tfscaling.strategies import STRATEGIES


def config_sources():
    """(name, content) of every configuration file and the command line, for error messages."""
    overlays = [os.path.relpath(path) for path in workflow.overwrite_configfiles]
    base = [os.path.relpath(path) for path in workflow.configfiles]
    names = [*(name for name in base if name not in overlays), *overlays]
    files = [(name, yaml.safe_load(Path(name).read_text()) or {}) for name in names]
    return [*files, ("--config", dict(workflow.config_settings.config))]


SOURCES = config_sources()
try:
    CONFIG = configuration.validate(config, SOURCES)
    platforms.check(CONFIG["platforms"], SOURCES)
    configuration.check_names(CONFIG, METRICS, PLOTS, DATASETS, SOURCES)
    GRID = grid.expand(CONFIG, MODELS, STRATEGIES, SOURCES)
    grid.check_baseline(GRID, CONFIG["comparison"]["baseline"], SOURCES)
    published.check(CONFIG["published"]["path"], SOURCES)
except configuration.ConfigError as error:
    raise WorkflowError(str(error)) from None

#: Inputs of the cheap rules: new code makes new tables. Training has `trainer_version` instead.
CODE = sorted(os.path.relpath(path) for path in SCRIPTS.glob("**/*.py"))
PAGE = sorted(os.path.relpath(path) for path in (SCRIPTS.parent / "report").glob("page.*"))
RUNS = {run.path: run for run in GRID.runs}
PLATFORMS = list(dict.fromkeys(run.platform for run in GRID.runs))


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


def run_of(wildcards):
    """The run that a train job is for; of a yardstick, which has no repeat, the point's first."""
    path = grid.run_path({"repeat": 1, **dict(wildcards.items())})
    if path not in RUNS:
        raise WorkflowError(f"{path} is not a run of the grid in the configuration")
    return RUNS[path]


RESOURCES = platforms.resource_functions(CONFIG["platforms"], GRID.runs, run_of)


def prepared_dataset(wildcards):
    """The file that the run's ranks read."""
    return f"results/datasets/{expectations.dataset_of(CONFIG, run_of(wildcards))}.npz"


def run_arguments(wildcards):
    """Axes and parameters of a run as flags; any change of a value reruns exactly this run."""
    run = run_of(wildcards)
    values = parameters.run_parameters(CONFIG, run, expectations.dataset_of(CONFIG, run))
    return shlex.join(parameters.to_arguments(run.axes, values))


def yardstick_arguments(wildcards):
    """The same of a yardstick: a change of what cannot change an all-reduce reruns none."""
    run = run_of(wildcards)
    values = yardstick.parameters_of(CONFIG, run)
    return shlex.join(parameters.to_arguments(yardstick.axes_of(run), values))


def wanted_records(wildcards):
    """The records that the tables wait for; a sweep beyond the budget ends here, a plan does not."""
    if refusal := plan.refusal(CONFIG, Path("results/runs"), SOURCES):
        sys.exit(refusal)  # one line; Snakemake would show an exception with a traceback
    wanted = (run for run in GRID.runs if plan.is_selected(CONFIG, run.platform))
    return [f"results/runs/{run.path}/run.json" for run in wanted]


def wanted_yardsticks(wildcards):
    """The yardsticks that the tables wait for, if they are enabled."""
    wanted = yardstick.entries(CONFIG, GRID.runs, STRATEGIES)
    timed = (e for e in wanted if plan.is_selected(CONFIG, e["axes"]["platform"]))
    return [f"results/yardsticks/{e['path']}/all_reduce.json" for e in timed if not e["refusal"]]


def submission(wildcards):
    """How jobs leave this machine, as JSON."""
    return json.dumps(plan.submission_of(workflow), default=str)


def grid_config(wildcards):
    """What grid.json is made from, as JSON: runs, parameters, prices, titles, target accuracy."""
    kept = {key: CONFIG[key] for key in ("grid", "recipes", "platforms", "seed", "yardstick")}
    target = {"target_accuracy": CONFIG["comparison"]["target_accuracy"]}
    return json.dumps({**kept, "comparison": target}, sort_keys=True)


def dataset_path(wildcards):
    """`--path FILE` if the configuration names a local copy of the dataset."""
    path = CONFIG["datasets"].get(wildcards.dataset, {}).get("path")
    return shlex.join(["--path", path]) if path else ""


def published_flag(wildcards, input):
    """`--published FILE` if the configuration names published results."""
    return shlex.join(["--published", input.published]) if input.published else ""
