"""Runs with known times: records of real runs, whose durations a formula gives.

A busy machine changes what a run measures. So tests of what follows from times set the times: the
launcher makes one run of each configuration, of a program that does not wait (`PROGRAM`), and all
repeats get this run's record with the durations of `time_s`, scattered by a seed. Tables, answers
and page then follow by the workflow's own rules. Records without any process are in `generator`.
"""

from __future__ import annotations

import datetime
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from project import Project
from tfscaling.record import run_record
from tfscaling.study import grid
from tfscaling.study.manifest import Manifest
from tfscaling.study.run_spec import RunSpec

#: The name that the program has in a project's folder; `EPOCHS STEPS EXAMPLES ACCURACY` follow it.
FILE = "reporting.py"
#: Reports epochs of so many steps, each with so many examples on all ranks, and this accuracy.
PROGRAM = """
import os
import sys

import observe

epochs, steps, examples = map(int, sys.argv[1:4])
accuracy, ranks = float(sys.argv[4]), int(os.environ["WORLD_SIZE"])
for _ in range(epochs):
    for _ in observe.steps(range(steps), examples=examples // ranks):
        pass
    observe.epoch(loss=1 - accuracy)
    observe.eval(accuracy=accuracy)
"""
#: Keys that are no duration of the training: moments, clocks, and what is around the ranks' work.
UNCHANGED = frozenset(
    (
        *("start_s", "offset_s", "uncertainty_s"),
        *("queue_time_s", "boot_time_s", "launch_time_s", "teardown_time_s"),
    )
)
#: Seconds between a run's end and the next run's start.
_PAUSE_S = 5.0
#: When the first run starts.
_BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def make(
    project: Project,
    time_s: Callable[[RunSpec], float],
    *arguments: str,
    study: str = "main",
    config: list[str] | None = None,
    seed: int = 1,
    scatter: float = 0.01,
) -> None:
    """Have the first repeat of each configuration run, and write records of all planned repeats.

    Args:
        project: a folder with a configuration, and the program if its recipes name it.
        time_s: the execution time of a run in seconds, without scatter.
        arguments: further words for snakemake.
        study: the study's name in the configuration.
        config: the files of the configuration; by default the overlay.
        seed: seed of the scatter.
        scatter: standard deviation of the logarithm of the times within a configuration.
    """
    (project.folder / FILE).write_text(PROGRAM)
    manifest = f"results/{study}/details/manifest.json"
    project.snakemake(manifest, config=config)
    planned = Manifest.read(project.folder / manifest)
    due = [run for run in planned.runs if not run.is_conditional]
    first = {run.spec.point: run.spec for run in reversed(due)}
    targets = [str(_record(spec)) for spec in first.values()]
    project.snakemake(*arguments, *targets, config=config)
    made = {point: (project.folder / _record(spec)).read_text() for point, spec in first.items()}
    scattered = random.Random(seed)
    begun = _BEGIN
    for run in grid.randomise_order(due, planned.order_seed, planned.revisions):
        spec = run.spec
        duration_s = time_s(spec) * math.exp(scattered.gauss(0.0, scatter))
        record = timed(json.loads(made[spec.point]), duration_s)
        record["axes"], record["parameters"] = spec.axes, spec.parameters
        record["parameters_hash"] = spec.parameters_hash
        record["environment"]["started"] = begun.isoformat()
        begun += datetime.timedelta(seconds=duration_s + _PAUSE_S)
        write(project.folder / _record(spec), record)


def set_times(project: Project, time_s: Callable[[dict[str, Any]], float]) -> None:
    """Give each record of a project the execution time `time_s(record)` in seconds."""
    for path in sorted(project.folder.glob(f"results/runs/**/{run_record.RECORD}")):
        record = json.loads(path.read_text())
        write(path, timed(record, time_s(record)))
    date_apart(project)


def date_apart(project: Project) -> None:
    """Date a project's records one after the other: runs at the same time are not compared."""
    paths = project.folder.glob(f"results/runs/**/{run_record.RECORD}")
    records = {path: json.loads(path.read_text()) for path in paths}
    begun = _BEGIN
    for path in sorted(records, key=lambda path: records[path]["environment"]["started"]):
        records[path]["environment"]["started"] = begun.isoformat()
        longest_s = sum(filter(None, records[path]["phases"].values()))
        begun += datetime.timedelta(seconds=longest_s + _PAUSE_S)
        write(path, records[path])


def write(path: Path, record: dict[str, Any]) -> None:
    """Write a record that the workflow reads. Raises RecordError if it is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    run_record.read_record(path)


def timed(record: dict[str, Any], execution_time_s: float) -> dict[str, Any]:
    """Return a record with this execution time, in which epochs and steps are equally long.

    All durations of the training change by the same factor, and rates by its inverse.
    """
    factor = execution_time_s / record["phases"]["execution_time_s"]
    parts = ("phases", "metrics", "ranks", "short_run")
    record |= {part: _scaled(record[part], factor) for part in parts if part in record}
    phases, epochs = record["phases"], record["metrics"]["epochs"]
    train_time_s = phases["train_time_s"] or execution_time_s
    ended_s = execution_time_s - train_time_s
    for epoch in epochs:
        epoch["duration_s"] = train_time_s / len(epochs)
        ended_s += epoch["duration_s"] + epoch.get("evaluation_time_s", 0.0)
        epoch["ended_s"] = ended_s
    steady = (record.get("short_run") or {}).get("steady", [])
    steps, steady_s = (sum(block[key] for block in steady) for key in ("steps", "duration_s"))
    for block in steady:
        block["duration_s"] = steady_s * block["steps"] / steps
    return record


def _scaled(value: Any, factor: float, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _scaled(item, factor, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_scaled(item, factor) for item in value]
    if not isinstance(value, float | int) or key in UNCHANGED or not key.endswith("_s"):
        return value
    return value / factor if key.endswith("_per_s") else value * factor


def _record(spec: RunSpec) -> Path:
    return Path("results/runs", spec.path, run_record.RECORD)
