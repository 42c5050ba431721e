#!/usr/bin/env python3
"""How many times as fast as its peers a training is, on each number of workers.

ratios.py RUNS [--page FILE]: the runs.csv of a sweep of studies/peers/config.yaml. Prints as
Markdown when and where it ran, the targets and whether they are reached (open where the interval of
the ratio does not show it), and a table for each number of workers: the time of a step in the
steady state and the execution time, medians with 95 % intervals, and ratios of medians with
bootstrap intervals: how many times as long the published script and PyTorch take, and how many
times as long as the floor with the update this training takes. With --page it writes all this
between the markers of that page instead.

The time of a step is that of all examples after the first step: the global batch over the
throughput. It is what more epochs cost. The execution time has import, start and tracing, too: it
is what these few epochs cost. Which of the two counts depends on how long the training is.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import measured_page
from tfscaling.estimation import intervals
from tfscaling.tables import table_files

#: The peers that a training is compared with, by recipe.
PUBLISHED, PYTORCH = "legacy_fit", "pytorch"
#: Precision of a training → the recipes that bound it: floor, floor with update, peak.
FLOOR, UPDATE, PEAK = (f"{name}+precision={{}}" for name in ("floor", "floor-update", "peak"))
HEADER = (
    "training",
    "ms per step",
    "steps: published / this",
    "steps: PyTorch / this",
    "steps: this / floor+update",
    "execution_time_s",
)
_STRATEGY = "own"  # of programs, which are told apart by their recipes
_PRECISIONS = ("float32", "bfloat16")
#: Of the machine and the packages, as runs.csv has them: column → what the page calls it.
PLACE = {
    "cpu_model": "processor",
    "cpus_online": "CPUs",
    "memory_gb": "memory in GB",
    **{name: name for name in ("python", "tensorflow", "keras", "tf_keras", "torch", "jax")},
    "git_commit": "commit",
}


class Target(NamedTuple):
    """What a training on some number of workers is to reach: a ratio of medians of steps.

    `at_least` so many times as fast as the peer, or `at_most` so many times as long as the floor.
    """

    workers: int
    strategy: str
    recipe: str
    beside: str
    at_least: float | None = None
    at_most: float | None = None


TARGETS = (
    Target(1, "single", "float32", PUBLISHED, at_least=1.4),
    Target(1, "single", "bfloat16", PUBLISHED, at_least=2.2),
    Target(1, "single", "float32", PYTORCH, at_least=1.3),
    Target(1, "single", "float32", UPDATE.format("float32"), at_most=1.3),
    Target(1, "single", "bfloat16", UPDATE.format("bfloat16"), at_most=1.3),
    Target(2, "mpi_all_reduce", "float32", PUBLISHED, at_least=2.5),
    Target(2, "mpi_all_reduce", "float32", PYTORCH, at_least=1.4),
    Target(4, "mpi_all_reduce", "float32", PUBLISHED, at_least=1.8),
    Target(4, "mpi_all_reduce", "float32", PYTORCH, at_least=1.2),
)


class Training(NamedTuple):
    """What was measured of a training on some number of workers: a value of each valid run."""

    strategy: str
    recipe: str
    step_ms: list[float]
    execution_s: list[float]

    @property
    def name(self) -> str:
        return self.recipe if self.strategy == _STRATEGY else f"{self.strategy}, {self.recipe}"


#: By strategy and recipe.
Trainings = dict[tuple[str, str], Training]


def trainings(runs: pd.DataFrame, workers: int) -> Trainings:
    """By strategy and recipe, of the valid runs on this number of workers."""
    valid = runs[(runs["status"] == "ok") & (runs["nodes"] == workers)]
    found = {}
    for key, own in valid.groupby(["strategy", "recipe"], sort=False):
        strategy, recipe = map(str, key)
        step_ms = 1000 * own["global_batch_size"] / own["throughput_examples_per_s"]
        found[strategy, recipe] = Training(
            strategy, recipe, step_ms.tolist(), own["execution_time_s"].tolist()
        )
    return found


def rows(found: Trainings) -> Iterator[tuple[str, ...]]:
    """Yield a row of texts for each training, the quickest step first."""
    for training in sorted(found.values(), key=lambda each: median(each.step_ms)):
        published, pytorch = (found.get((_STRATEGY, name)) for name in (PUBLISHED, PYTORCH))
        precision = next((p for p in _PRECISIONS[1:] if p in training.recipe), _PRECISIONS[0])
        bounds = [name.format(precision) for name in (FLOOR, UPDATE, PEAK)]
        update = found.get((_STRATEGY, UPDATE.format(precision)))
        trains = training.recipe not in bounds
        yield (
            training.name,
            measured(training.step_ms, 1),
            times(published and published.step_ms, training.step_ms),
            times(pytorch and pytorch.step_ms, training.step_ms),
            times(training.step_ms, update and update.step_ms),
            measured(training.execution_s, 1) if trains else "",
        )


def reached(target: Target, found: Trainings) -> tuple[str, ...]:
    """Workers, training, what it is compared with, target, ratio with interval, and the verdict."""
    own = found.get((target.strategy, target.recipe))
    peer = found.get((_STRATEGY, target.beside))
    name = f"{target.strategy}, {target.recipe}"
    if target.at_least is None:
        asked = f"at most {target.at_most} times as long"
        above, below = own, peer
    else:
        asked = f"at least {target.at_least} times as fast"
        above, below = peer, own
    if above is None or below is None:
        return (str(target.workers), name, target.beside, asked, "", "not measured")
    shown = times(above.step_ms, below.step_ms)
    interval = intervals.ratio_interval(above.step_ms, below.step_ms)
    return (str(target.workers), name, target.beside, asked, shown, verdict(target, interval))


def verdict(target: Target, interval: intervals.Interval | None) -> str:
    """Return whether a ratio reaches the target: open unless its whole interval is on one side."""
    if interval is None:
        return "open"
    low, high = interval
    at_least, at_most = target.at_least or 0.0, target.at_most or math.inf
    if at_least <= low and high <= at_most:
        return "yes"
    return "no" if high < at_least or low > at_most else "open"


def measured(values: Sequence[float], digits: int) -> str:
    """Format the median, with its interval if there are enough runs."""
    interval = intervals.median_interval(values)
    shown = f"{median(values):.{digits}f}"
    if interval is None:
        return shown
    return f"{shown} ({interval[0]:.{digits}f}–{interval[1]:.{digits}f})"


def times(numerators: Sequence[float] | None, denominators: Sequence[float] | None) -> str:
    """Format the ratio of medians, with its interval given enough runs; "" without values."""
    if not numerators or not denominators:
        return ""
    if numerators is denominators:
        return "1"
    shown = f"{median(numerators) / median(denominators):.2f}"
    interval = intervals.ratio_interval(numerators, denominators)
    return shown if interval is None else f"{shown} ({interval[0]:.2f}–{interval[1]:.2f})"


def tables(runs: pd.DataFrame) -> str:
    """All of it: place, targets, and a table for each number of workers."""
    of_workers = {workers: trainings(runs, workers) for workers in sorted(set(runs["nodes"]))}
    header = ("workers", "training", "compared with", "target", "measured", "reached")
    asked = [reached(target, of_workers.get(target.workers, {})) for target in TARGETS]
    parts = [
        measured_page.place(runs, PLACE),
        f"### Targets\n\n{measured_page.table(header, asked)}",
    ]
    for workers, found in of_workers.items():
        title = f"### {workers} worker{'s' if workers > 1 else ''}"
        parts.append(f"{title}\n\n{measured_page.table(HEADER, rows(found))}")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="runs.csv of the sweep")
    parser.add_argument("--page", type=Path, help="write between the markers of this page")
    args = parser.parse_args()
    measured_page.show(tables(table_files.read_table(args.runs)), args.page)


if __name__ == "__main__":
    main()
