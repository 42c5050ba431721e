"""Small but complete inputs for the tests: configurations, ranks' reports and run records."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import generator
import msgspec
import pandas as pd
import psutil
import pytest
from generator import phases, training_report
from msgspec.structs import replace
from tfscaling.datasets.catalogue import DATASETS
from tfscaling.launch.launchers import LAUNCHERS
from tfscaling.page.plot_registry import PLOTS
from tfscaling.record import attempts, run_record
from tfscaling.record import events as rank_events_file
from tfscaling.record.attempts import Cause, FailureReport
from tfscaling.record.events import Event, EventName
from tfscaling.record.metrics import METRICS
from tfscaling.record.rank_report import Epoch
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.study import acceptance, config_validation, question_checks
from tfscaling.study import manifest as manifests
from tfscaling.study.config_types import Config
from tfscaling.study.config_validation import ConfigError
from tfscaling.study.manifest import PlannedRun
from tfscaling.study.registries import Registries
from tfscaling.study.run_spec import RunSpec
from tfscaling.train.models import MODELS
from tfscaling.train.strategies import STRATEGIES

REGISTRIES = Registries(
    MODELS, STRATEGIES, DATASETS, metrics=METRICS, plots=PLOTS, launchers=LAUNCHERS
)


def manifest_of(config: Config) -> manifests.Manifest:
    """The manifest of a configuration, whose question can be answered."""
    planned = acceptance.plan_grid(config, REGISTRIES)
    question_checks.check_question(config, planned)
    return planned


REPOSITORY = Path(__file__).resolve().parents[1]
SCRIPTS = REPOSITORY / "workflow" / "scripts"
#: The reason of a run that diverged.
DIVERGENCE = "diverged: loss is NaN from epoch 2"

#: One Slurm platform with GPUs and a price, one local one, one recipe; nothing beyond need.
MINIMAL: dict[str, Any] = {
    "grid": [{"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": [1, 2]}],
    "recipes": {"weak": {"per_replica_batch_size": 64, "learning_rate": 0.1, "epochs": 2}},
    "platforms": {
        "cluster": {"launcher": "srun", "nodes_max": 8, "cpus_per_node": 8, "gpus_per_node_max": 4},
        "laptop": {
            "launcher": "local",
            "devices": "logical",
            "nodes_max": 4,
            "cpus_per_node": 2,
            "gpus_per_node_max": 2,
        },
    },
}


def raw_config(*changes: tuple[Sequence[str | int], Any]) -> dict[str, Any]:
    """The minimal configuration as a user writes it, with each (path, value) of `changes` set.

    Blocks that do not say how often they repeat have one run of each point.
    """
    config = copy.deepcopy(MINIMAL)
    for path, value in changes:
        place: Any = config
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
    if isinstance(config["grid"], list):
        for block in config["grid"]:
            if isinstance(block, dict):
                block.setdefault("repeats", 1)
    return config


def valid_config(*changes: tuple[Sequence[str | int], Any]) -> Config:
    """The same, validated, with defaults."""
    return config_validation.convert_to_types(raw_config(*changes))


def refused(call: Callable[..., object], *arguments: Any, **keys: Any) -> str:
    """The one line with which this call refuses a configuration."""
    with pytest.raises(ConfigError) as caught:
        call(*arguments, **keys)
    (line,) = str(caught.value).splitlines()
    return line


def study_folder(
    folder: Path, config: Config, planned: manifests.Manifest | None = None, **tables: pd.DataFrame
) -> StudyFolder:
    """The folder of a study with its configuration, manifest and `tables`, for a stage."""
    study = StudyFolder(folder)
    (study.details / "conclusions").mkdir(parents=True, exist_ok=True)
    (study.details / "config.json").write_bytes(msgspec.json.encode(config))
    (planned or manifest_of(config)).write(study.details / "manifest.json")
    for name, table in tables.items():
        table.to_csv(study.table_path(name), index=False)
    return study


def rank_events(rank: int, passed_s: Mapping[Any, float], **start: Any) -> list[Event]:
    """Return a rank's events at these times; `start` has the details of the first event."""
    events = [
        Event(name=EventName(name), time_s=time_s, rank=rank) for name, time_s in passed_s.items()
    ]
    return [replace(events[0], details=start), *events[1:]]


def write_events(folder: Path, rank: int, events: Sequence[Event]) -> None:
    """Write events as a rank does that has no connection."""
    rank_events_file.write_events(folder / f"rank-{rank}.events.jsonl", events)


def record_of(
    planned: PlannedRun, execution_time_s: float = 17.75, divergence: str = "", **of_ranks: Any
) -> dict[str, Any]:
    """The content of the run record of a planned run.

    `divergence` makes it a run that diverged in its second epoch; `of_ranks` changes the reports.
    """
    if divergence:
        epochs = (
            Epoch(epoch=1, loss=0.5, accuracy=0.8, duration_s=2.3),
            Epoch(epoch=2, loss=None, accuracy=0.1, duration_s=0.3),
        )
        of_ranks = {"epochs": epochs, "test_loss": None, "test_accuracy": None, **of_ranks}
    spec = planned.spec
    reports = [training_report(rank, **of_ranks) for rank in range(spec.geometry.tasks)]
    made = generator.record(spec, reports, phases(execution_time_s), divergence=divergence)
    return generator.content(made)


@contextmanager
def changed(path: Path) -> Iterator[dict[str, Any]]:
    """The content of a JSON file, which is written again as it is then; ranks have all keys."""
    content = json.loads(path.read_text())
    if "ranks" in content:
        content["ranks"] = [*run_record.restore_omitted_keys(content["ranks"])]
    yield content
    path.write_text(json.dumps(content))


def a_record() -> dict[str, Any]:
    """The content of a record of the minimal configuration's run on two nodes."""
    return record_of(manifest_of(valid_config()).runs[1])


def write_record(
    runs_dir: Path,
    planned: PlannedRun,
    execution_time_s: float = 17.75,
    divergence: str = "",
    **of_ranks: Any,
) -> Path:
    folder = runs_dir / planned.spec.path
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / run_record.RECORD
    path.write_text(json.dumps(record_of(planned, execution_time_s, divergence, **of_ranks)))
    return path


def write_failure(folder: Path, planned: PlannedRun, **cause: Any) -> None:
    """Write the failure report of a run, below the folder of all runs."""
    usual = {"kind": "rank_died", "message": "exit code 3", "rank": 1, "host": "node1"}
    path = folder / planned.spec.path / run_record.FAILURE
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"axes": planned.spec.axes, "attempt": 1, "cause": {**usual, **cause}}
    path.write_text(json.dumps(content))


def write_failed_attempt(folder: Path, planned: PlannedRun, number: int, **report: Any) -> None:
    """Write the failure report of an attempt at a run, below the folder of all runs.

    The attempt took half an hour, unless `report` says otherwise.
    """
    path = attempts.attempt_folder(folder / planned.spec.path, number)
    path.mkdir(parents=True)
    cause = Cause(kind="time_limit", message="x")
    usual = {"axes": planned.spec.axes, "attempt": number, "cause": cause, "wall_time_s": 1800.0}
    attempts.write_failure(path, FailureReport(**{**usual, **report}))


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own that finds the library.

    It is given up after 15 minutes, which a busy machine does not need.
    """
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS), **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def wait_until(happened: Callable[[], bool], timeout_s: float = 300) -> bool:
    """Return True once it has happened; fail if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return True


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that did may wait for its parent."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def local_spec(**recipe: Any) -> RunSpec:
    """A run on the point `laptop` with one node and two logical devices."""
    block = {"platform": "laptop", "model": "mnist_cnn", "recipe": "weak", "nodes": 1}
    changes = [(("recipes", "weak", key), value) for key, value in recipe.items()]
    config = valid_config((("grid",), [{**block, "gpus_per_node": 2}]), *changes)
    (run,) = acceptance.plan_grid(config, REGISTRIES).runs
    return run.spec
