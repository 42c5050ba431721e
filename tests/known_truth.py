"""Sets of run records with known truth: what tables and conclusions must find, and must not.

Every set has the same grid: two platforms of two clouds, four numbers of nodes, six repeats. The
kind of a set names what is wrong with its records; the truth of every run is kept with them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import generator
from builders import manifest_of, raw_config, write_failure
from tfscaling.record import attempts, run_record
from tfscaling.study import config_validation
from tfscaling.study.manifest import Manifest, PlannedRun

REPEATS, EPOCHS = 6, 2
NODES = (1, 2, 3, 4)
#: Platform → (cloud, US dollars per node-hour).
PLATFORMS = {"east": ("gcp", 1.0), "west": ("aws", 2.0)}
#: What each kind of set has, drawn by `draw`.
KINDS = (
    *("equal", "slow", "scaling", "outliers", "diverged", "missing", "zero", "dropped"),
    *("stepped", "more", "missed", "retried", "paused"),
)
#: The test accuracy that runs are to reach, and the error of a run that misses it.
TARGET, MISSED_ERROR = 0.9, 0.3
OK, DIVERGED, FAILED, MISSING, STEPPED = "ok", "diverged", "failed", "missing", "stepped"

Key = tuple[str, int]


@dataclass(frozen=True)
class TrueRun:
    """One run as it was.

    It trained `share` of the examples and reached the target after `to_target_s`, if it did. After
    each epoch it wrote a checkpoint and probed for `pause_s`. Failed attempts took `lost_s` before.
    """

    outcome: str
    time_s: float
    error: float
    share: float = 1.0
    pause_s: float = 0.0
    lost_s: float = 0.0

    @property
    def to_target_s(self) -> float | None:
        """Seconds to the end of the last epoch, which is the first that reaches the target."""
        is_reached = self.outcome == OK and 1 - self.error >= TARGET
        return self.time_s - self.pause_s if is_reached else None


@dataclass(frozen=True)
class TruePoint:
    """A point's true median time in seconds and true median error 1 - accuracy, and its runs."""

    time_s: float
    error: float
    runs: tuple[TrueRun, ...]

    @property
    def counted(self) -> tuple[TrueRun, ...]:
        """The runs that count."""
        return tuple(run for run in self.runs if run.outcome == OK)

    @property
    def median_time_s(self) -> float | None:
        """The sample's median, by another way than the library's."""
        times = [run.time_s for run in self.counted]
        return median(times) if times else None


@dataclass(frozen=True)
class TrueSet:
    """One set: `points` by platform and number of nodes."""

    number: int
    kind: str
    noise: float
    points: Mapping[Key, TruePoint]


def planned_runs() -> Manifest:
    """The manifest that all sets share."""
    price = {"price_date": "2026-01-01", "price_source": "made up"}
    shape = {"launcher": "srun", "nodes_max": 8, "cpus_per_node": 2, **price}
    platforms = {
        name: {**shape, "cloud": cloud, "usd_per_node_hour": usd}
        for name, (cloud, usd) in PLATFORMS.items()
    }
    block = {
        "platform": list(PLATFORMS), "model": "mnist_cnn", "recipe": "weak",
        "nodes": list(NODES), "repeats": REPEATS,
    }  # fmt: skip
    asked = {"limits": {"test_accuracy": {"at_least": TARGET}}}
    raw = raw_config((("platforms",), platforms), (("grid",), [block]), (("question",), asked))
    return manifest_of(config_validation.convert_to_types(raw))


def draw(number: int) -> TrueSet:
    """The set of this number; kinds take turns, the rest is drawn from the number."""
    kind = KINDS[number % len(KINDS)]
    rng = random.Random(number)
    noise = rng.choice((0.02, 0.05, 0.1, 0.2))
    keys = [(platform, nodes) for platform in PLATFORMS for nodes in NODES]
    times_s = dict.fromkeys(keys, 100.0)
    if kind == "slow":
        times_s[rng.choice(keys)] *= rng.choice((1.3, 2.0))
    elif kind != "equal":
        share = rng.uniform(0.0, 0.3)
        times_s |= {
            (platform, n): 100.0 * (share + (1 - share) / n) * rng.choice((1.0, 1.2))
            for platform, n in keys
        }
    perfect = rng.choice(list(PLATFORMS)) if kind == "zero" else None
    errors = {key: 0.0 if key[0] == perfect else 0.02 for key in keys}
    if kind == "scaling":
        errors[keys[0]] = 0.005
    points = {key: _point(rng, kind, noise, times_s[key], errors[key]) for key in keys}
    return TrueSet(number, kind, noise, points)


def _point(rng: random.Random, kind: str, noise: float, time_s: float, error: float) -> TruePoint:
    # what happens to a point's runs happens to some points only
    hit = rng.random() < 0.4
    share = rng.choice((0.5, 0.75)) if kind == "dropped" and hit else 1.0
    share = rng.choice((1.5, 2.0)) if kind == "more" and hit else share
    pause_s = rng.uniform(5.0, 15.0) if kind == "paused" and hit else 0.0
    runs = []
    for _ in range(REPEATS):
        outcome = OK
        if kind == "diverged" and hit and rng.random() < 0.5:
            outcome = DIVERGED
        elif kind == "missing" and hit:
            outcome = rng.choice((OK, MISSING, FAILED))
        elif kind == "stepped" and hit and rng.random() < 0.5:
            outcome = STEPPED
        slow = 3.0 if kind == "outliers" and rng.random() < 0.05 else 1.0
        seconds = time_s * share * slow * rng.lognormvariate(0.0, noise) + EPOCHS * pause_s
        is_missed = kind == "missed" and hit and rng.random() < 0.4
        run_error = MISSED_ERROR if is_missed else error * rng.lognormvariate(0.0, 0.1)
        lost_s = rng.uniform(10.0, 60.0) if kind == "retried" and rng.random() < 0.3 else 0.0
        runs.append(TrueRun(outcome, seconds, run_error, share, pause_s, lost_s))
    return TruePoint(time_s + EPOCHS * pause_s, error, tuple(runs))


class Writer:
    """Writes the records of sets; a record is made once for each planned run and then changed."""

    def __init__(self) -> None:
        self.planned = planned_runs()
        self._records = [
            json.dumps(
                generator.content(
                    generator.scattered(
                        run.spec, 100.0, random.Random(0), generator.prepared("mnist")
                    )
                )
            )
            for run in self.planned.runs
        ]

    def write(self, truth: TrueSet, runs_dir: Path) -> None:
        """Write the records and failures of the set below `runs_dir`."""
        for planned, usual in zip(self.planned.runs, self._records, strict=True):
            spec = planned.spec
            run = truth.points[spec.point.platform, spec.point.nodes].runs[spec.repeat - 1]
            if run.outcome == MISSING:
                continue
            if run.outcome == FAILED:
                write_failure(runs_dir, planned, host="n1")
                continue
            folder = runs_dir / spec.path
            folder.mkdir(parents=True)
            record = _changed(json.loads(usual), run)
            if run.lost_s:
                _write_lost(folder, planned, run.lost_s)
                record["attempt"] = 2
            (folder / run_record.RECORD).write_text(json.dumps(record, allow_nan=False))


def _write_lost(folder: Path, planned: PlannedRun, lost_s: float) -> None:
    """Write the failure of a first attempt that took `lost_s` seconds."""
    cause = attempts.Cause(kind="node_failed", message="the node was lost")
    report = attempts.FailureReport(
        axes=planned.spec.axes, attempt=1, cause=cause, wall_time_s=lost_s
    )
    attempts.create_attempt(folder, 1)
    attempts.write_failure(attempts.attempt_folder(folder, 1), report)


def _changed(record: dict[str, Any], run: TrueRun) -> dict[str, Any]:
    phases, metrics = record["phases"], record["metrics"]
    phases["train_time_s"] += run.time_s - phases["execution_time_s"]
    phases["execution_time_s"] = run.time_s
    if run.outcome == STEPPED:  # a clock went back during the run
        phases |= {"execution_time_s": -2.0, "teardown_time_s": -119.0}
    learned = {"loss": run.error, "accuracy": 1.0 - run.error}
    metrics |= learned | {f"test_{name}": value for name, value in learned.items()}
    train_s = (run.time_s - EPOCHS * run.pause_s) / EPOCHS
    for number, epoch in enumerate(metrics["epochs"], 1):
        epoch |= {"duration_s": train_s, "test_accuracy": 0.5}
        epoch["ended_s"] = number * train_s + (number - 1) * run.pause_s
    metrics["epochs"][-1] |= learned | {"test_accuracy": learned["accuracy"]}
    metrics["examples_trained"] = round(metrics["examples_trained"] * run.share)
    if run.outcome == DIVERGED:
        metrics |= dict.fromkeys(("loss", "test_loss", "test_accuracy"))
        metrics["epochs"] = [metrics["epochs"][0] | {"loss": None}]
        reason = "diverged: loss is NaN from epoch 1"
        record["validity"] |= {"valid": False, "status": DIVERGED, "reason": reason}
    return record
