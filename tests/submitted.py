"""How the Slurm profile of the repository submits, for the tests of the plan."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import snakemake_executor_plugin_slurm as plugin
import yaml
from builders import REPOSITORY, manifest_of, raw_config
from snakemake.resources import Resources
from tfscaling.plan import budget, costed_plan
from tfscaling.snakemake_adapter import submission
from tfscaling.snakemake_adapter.submission import Submission
from tfscaling.study import config_validation
from tfscaling.study.config_types import Config
from tfscaling.study.config_validation import Sources
from tfscaling.study.manifest import PlannedRun


def config_of(budget: dict[str, Any] | None = None, repeats: int = 1, **platform: Any) -> Config:
    """Runs on 1, 2 and (beyond nodes_max) 9 nodes; a time limit of 30 minutes."""
    raw = raw_config((("grid", 0, "nodes"), [1, 2, 9]), (("grid", 0, "repeats"), repeats))
    raw["platforms"]["cluster"].update({"runtime_min": 30, **platform})
    raw["budget"] = budget or {}
    return config_validation.convert_to_types(raw)


def plan_of(config: Config, runs_dir: Path) -> costed_plan.Plan:
    return costed_plan.make_plan(config, manifest_of(config), runs_dir)


def refusal_of(config: Config, runs_dir: Path, sources: Sources = ()) -> str | None:
    return budget.find_excess(config, manifest_of(config), runs_dir, sources)


def planned_runs(config: Config) -> tuple[PlannedRun, ...]:
    return manifest_of(config).runs


PROFILE = yaml.safe_load((REPOSITORY / "profiles/slurm/config.yaml").read_text())
#: As Snakemake sets them where a profile sets none.
DEFAULTS = Resources.parse(["mem_mb=1000", "disk_mb=1000"], allow_expressions=True)


def described(
    executor: str = "slurm-sweep", folder: str | Path = "/shared/my project", **settings: Any
) -> Submission:
    """As rule plan gives it: Snakemake's workflow under profiles/slurm, through JSON."""
    usual = {"logdir": Path(PROFILE["slurm-sweep-logdir"])}
    workflow = SimpleNamespace(
        executor_plugin=SimpleNamespace(name=executor),
        executor_settings=plugin.ExecutorSettings(**{**usual, **settings}),
        resource_settings=SimpleNamespace(default_resources=DEFAULTS),
        workdir_init=str(folder),
        deployment_settings=SimpleNamespace(deployment_method=set()),
    )
    return submission.read_submission(workflow)
