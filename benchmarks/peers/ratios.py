#!/usr/bin/env python3
"""How many times as fast as its peers a training is, on each number of workers.

ratios.py RUNS: the runs.csv of a sweep of config/peers.yaml. Prints a table for each number of
workers, as Markdown: the time of a step in the steady state and the execution time, medians with
95 % intervals, and ratios of medians with bootstrap intervals: how many times as long the published
script and PyTorch take, and how many times as long as the floor this training takes.

The time of a step is that of all examples after the first step: the global batch over the
throughput. It is what more epochs cost. The execution time has import, start and tracing, too: it
is what these few epochs cost. Which of the two counts depends on how long the training is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pandas as pd

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "workflow/scripts"))

from tfscaling.tables import intervals, runs_table  # noqa: E402

#: The peers that a training is compared with, by recipe.
PUBLISHED, PYTORCH = "legacy_fit", "pytorch"
#: Recipe of a training → the floor of its arithmetic.
FLOORS = {"bfloat16": "floor+precision=bfloat16"}
FLOOR = "floor+precision=float32"
HEADER = (
    "training",
    "ms per step",
    "steps: published / this",
    "steps: PyTorch / this",
    "steps: this / floor",
    "execution_time_s",
    "execution: published / this",
    "execution: PyTorch / this",
)
_STRATEGY = "own"  # of programs, which are told apart by their recipes


class Training(NamedTuple):
    """What was measured of a training on some number of workers: a value of each valid run."""

    strategy: str
    recipe: str
    step_ms: list[float]
    execution_s: list[float]

    @property
    def name(self) -> str:
        return self.recipe if self.strategy == _STRATEGY else f"{self.strategy}, {self.recipe}"


def trainings(runs: pd.DataFrame, workers: int) -> dict[tuple[str, str], Training]:
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


def rows(found: dict[tuple[str, str], Training]) -> Iterator[tuple[str, ...]]:
    """A row of texts for each training, the quickest step first."""
    for training in sorted(found.values(), key=lambda each: median(each.step_ms)):
        published, pytorch = (found.get((_STRATEGY, name)) for name in (PUBLISHED, PYTORCH))
        floor = found.get((_STRATEGY, FLOORS.get(training.recipe, FLOOR)))
        is_floor = training.recipe.startswith("floor")
        yield (
            training.name,
            measured(training.step_ms, 1),
            times(published and published.step_ms, training.step_ms),
            times(pytorch and pytorch.step_ms, training.step_ms),
            times(training.step_ms, floor and floor.step_ms),
            "" if is_floor else measured(training.execution_s, 1),
            "" if is_floor else times(published and published.execution_s, training.execution_s),
            "" if is_floor else times(pytorch and pytorch.execution_s, training.execution_s),
        )


def measured(values: Sequence[float], digits: int) -> str:
    """The median, with its interval where there are enough runs."""
    interval = intervals.median_interval(values)
    shown = f"{median(values):.{digits}f}"
    if interval is None:
        return shown
    return f"{shown} ({interval[0]:.{digits}f}–{interval[1]:.{digits}f})"


def times(numerators: Sequence[float] | None, denominators: Sequence[float] | None) -> str:
    """The ratio of medians, with its interval where there are enough runs; "" without values."""
    if not numerators or not denominators:
        return ""
    if numerators is denominators:
        return "1"
    shown = f"{median(numerators) / median(denominators):.2f}"
    interval = intervals.ratio_interval(numerators, denominators)
    return shown if interval is None else f"{shown} ({interval[0]:.2f}–{interval[1]:.2f})"


def table(runs: pd.DataFrame) -> str:
    """A table of Markdown for each number of workers."""
    parts = []
    for workers in sorted(set(runs["nodes"])):
        lines = [HEADER, (":--", *["--:"] * (len(HEADER) - 1))]
        lines += rows(trainings(runs, workers))
        body = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        parts.append(f"### {workers} worker{'s' if workers > 1 else ''}\n\n{body}\n")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="runs.csv of the sweep")
    print(table(runs_table.read_table(parser.parse_args().runs)))


if __name__ == "__main__":
    main()
