"""Configuration, grid and wildcard constraints for all stages.

INPUTS   the merged configuration (config/config.yaml, config/platforms.yaml, overlays)
OUTPUTS  CONFIG (validated, defaults filled), RESULTS (the study's folder), GRID, RUNS, PRIORITY,
         PLATFORMS, CODE, PAGE, PUBLISHED
"""

import os
import sys
from pathlib import Path

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

from tfscaling.analysis.conclusions import CONCLUSIONS
from tfscaling.datasets.catalogue import DATASETS, TRAIN_EXAMPLES
from tfscaling.records.metrics import METRICS
from tfscaling.jobs.launchers import LAUNCHERS
from tfscaling.plots.plot_registry import PLOTS
from tfscaling.study import config_files, configuration, grid, order, platforms
from tfscaling.study.registries import Registries
from tfscaling.tables import published
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
    configuration.check_study(CONFIG, SOURCES)
    platforms.check(CONFIG.platforms, SOURCES)
    platforms.check_cluster(CONFIG, SOURCES)
    configuration.check_names(CONFIG, METRICS, PLOTS, DATASETS, LAUNCHERS, SOURCES)
    GRID = grid.expand(CONFIG, Registries(MODELS, STRATEGIES, TRAIN_EXAMPLES), SOURCES)
    grid.check_baseline(CONFIG, GRID, SOURCES)
    published.check(CONFIG.published.path, SOURCES)
except configuration.ConfigError as error:
    raise WorkflowError(str(error)) from None

#: What is made from this configuration alone. Runs, benchmarks and datasets are shared by studies.
RESULTS = f"results/{CONFIG.study}"
#: Inputs of the cheap rules: new code makes new tables. Training has `trainer_version` instead.
#: `local`: a module's `prefix` moves results, not the code.
CODE = local(sorted(os.path.relpath(path) for path in SCRIPTS.glob("**/*.py")))
PAGE = local(sorted(os.path.relpath(path) for path in (SCRIPTS.parent / "report").glob("page.*")))
#: Published results lie where the configuration says, with a `prefix` too.
PUBLISHED = local(CONFIG.published.path) if CONFIG.published.path else []
RUNS = {run.spec.path: run for run in GRID.runs}
PRIORITY = order.priorities(GRID.runs, CONFIG.seed)
PLATFORMS = list(dict.fromkeys(run.spec.point.platform for run in GRID.runs))


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
