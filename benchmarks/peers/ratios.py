#!/usr/bin/env python3
"""How many times as fast as its peers the workflow's trainer is, for each network.

ratios.py RUNS... [--page FILE]: the runs.csv of each sweep of `make peers`. Prints as Markdown
when and where they ran, the targets and whether they are reached (open where the interval of the
ratio does not show it), and a table for each network and number of workers. With --page it writes
all this between the markers of that page instead.

- Step: the time of a step in the steady state, the global batch over the throughput after the first
  step. It is what more epochs cost.
- Training: from the start of the first rank until the last step has ended, so it includes import,
  start and tracing.
- Start-up: from there until the first step has ended.

Times are medians with 95 % intervals, ratios are ratios of medians with bootstrap intervals.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import NamedTuple

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import measured_page
from tfscaling.estimation import intervals
from tfscaling.tables import table_files

#: Programs that a training is compared with: the recipe's name before the precision.
PYTORCH, KERAS, FLOOR = "pytorch", "keras", "floor"
#: Number of workers → the strategy that represents the workflow's trainer in the targets.
OURS = {1: "single", 2: "mpi_all_reduce"}
FLOAT32, BFLOAT16 = "float32", "bfloat16"
#: Phases of a start: of the trainer, or of a program.
START_UP = (
    "import_time_s",
    "rendezvous_time_s",
    "data_time_s",
    "build_time_s",
    "preparation_time_s",
    "first_step_time_s",
)
HEADER = (
    "training",
    "ms per step",
    "steps: PyTorch / this",
    "training (s)",
    "training: PyTorch / this",
    "start-up (s)",
    "steps: this / floor",
)
TARGETS_HEADER = (
    "network",
    "workers",
    "training",
    "time",
    "compared with",
    "target",
    "measured",
    "reached",
)
_STRATEGY = "own"  # of programs, which are told apart by their recipes
#: Of the machine and the packages, as runs.csv has them: column → what the page calls it.
PLACE = {
    "cpu_model": "processor",
    "cpus_online": "CPUs",
    "memory_gb": "memory in GB",
    **{name: name for name in ("python", "tensorflow", "keras", "torch", "jax")},
    "git_commit": "commit",
}


class Training(NamedTuple):
    """A training of a network on some workers, with a value of each valid run."""

    peer: str
    precision: str
    step_ms: list[float]
    training_s: list[float]
    start_up_s: list[float]

    @property
    def name(self) -> str:
        return f"{self.peer}, {self.precision}"


#: By network, workers, peer or strategy, and precision.
Key = tuple[str, int, str, str]
Trainings = Mapping[Key, Training]
#: Numerator and denominator of a ratio of medians.
Samples = tuple[Sequence[float], Sequence[float]]


class Target(NamedTuple):
    """A ratio that the trainer is to reach.

    Attributes:
        workers: Number of workers.
        precision: Precision of the trainer's runs.
        time: The compared times, as a field of `Training`.
        peer: What the trainer is compared with.
        peer_workers: The peer's number of workers.
        at_least: Lower limit of peer / this on each network.
        mean_at_least: Lower limit of its geometric mean over the networks.
        at_most: Upper limit of this / peer on each network.
        network: The only network of the target; None means each.
    """

    workers: int
    precision: str
    time: str
    peer: str
    peer_workers: int
    at_least: float | None = None
    mean_at_least: float | None = None
    at_most: float | None = None
    network: str | None = None


TARGETS = (
    Target(1, FLOAT32, "step_ms", PYTORCH, 1, at_least=1.0, mean_at_least=1.3),
    Target(2, FLOAT32, "step_ms", PYTORCH, 2, at_least=1.0, mean_at_least=1.4),
    Target(1, FLOAT32, "training_s", PYTORCH, 1, at_least=1.0),
    Target(2, FLOAT32, "training_s", PYTORCH, 2, at_least=1.0),
    Target(2, FLOAT32, "start_up_s", KERAS, 1, at_most=1.2),
    Target(1, FLOAT32, "step_ms", FLOOR, 1, at_most=1.6, network="cnn"),
    Target(1, BFLOAT16, "step_ms", FLOOR, 1, at_most=2.0, network="cnn"),
)
_TIMES = {"step_ms": "step", "training_s": "training", "start_up_s": "start-up"}


def trainings(runs: pd.DataFrame) -> dict[Key, Training]:
    """Return the trainings of the valid runs with times; some have none, as they overlapped."""
    valid = runs[(runs["status"] == "ok") & runs["train_time_s"].notna()].copy()
    start_up_s = valid.reindex(columns=list(START_UP)).fillna(0.0).sum(axis=1)
    measured = valid.assign(
        step_ms=1000 * valid["global_batch_size"] / valid["throughput_examples_per_s"],
        start_up_s=start_up_s,
        training_s=start_up_s + valid["train_time_s"],
    )
    by_key = {}
    axes = ["model", "nodes", "strategy", "recipe"]
    for values, group in measured.groupby(axes, sort=False):
        model, nodes, strategy, recipe = map(str, values)
        *program, precision, _ = recipe.split("-")
        peer = program[0] if strategy == _STRATEGY else strategy
        samples = (group[name].tolist() for name in _TIMES)
        key = (network_name(model), int(nodes), peer, precision)
        by_key[key] = Training(peer, precision, *samples)
    return by_key


def network_name(model: str) -> str:
    """Return the network of a program's model, or of `package.module:function`."""
    return model.partition(":")[0].rpartition(".")[2]


def rows(measured_trainings: Trainings, network: str, workers: int) -> Iterator[tuple[str, ...]]:
    """Yield a row of texts for each training of a network, the quickest step first."""
    here = [each for key, each in measured_trainings.items() if key[:2] == (network, workers)]
    for training in sorted(here, key=lambda each: median(each.step_ms)):
        precision = BFLOAT16 if training.precision == BFLOAT16 else FLOAT32
        pytorch = measured_trainings.get((network, workers, PYTORCH, precision))
        floor = measured_trainings.get((network, workers, FLOOR, precision))
        trains = training.peer not in (FLOOR, "floor_update", "peak")
        yield (
            training.name,
            measured(training.step_ms, 1),
            times(pytorch and pytorch.step_ms, training.step_ms),
            measured(training.training_s, 1) if trains else "",
            times(pytorch and pytorch.training_s, training.training_s) if trains else "",
            measured(training.start_up_s, 1) if trains else "",
            times(training.step_ms, floor and floor.step_ms),
        )


def reached(target: Target, measured_trainings: Trainings) -> Iterator[tuple[str, ...]]:
    """Yield a row of texts for each network of a target, and for their geometric mean."""
    every = sorted({key[0] for key in measured_trainings})
    networks = [network for network in every if target.network in (None, network)]
    pairs = [samples_of(target, measured_trainings, network) for network in networks]
    strategy = OURS[target.workers]
    workers = "1 worker" if target.peer_workers == 1 else f"{target.peer_workers} workers"
    fixed = (
        str(target.workers),
        f"{strategy}, {target.precision}",
        _TIMES[target.time],
        f"{target.peer}, {workers}",
    )
    for network, samples in zip(networks, pairs, strict=True):
        yield (network, *fixed, *judged(samples and [samples], target.at_least, target.at_most))
    if target.at_most is None and len(networks) > 1:
        complete = [samples for samples in pairs if samples is not None]
        known = complete if len(complete) == len(networks) else None
        yield ("geometric mean", *fixed, *judged(known, target.mean_at_least, None))


def samples_of(target: Target, measured_trainings: Trainings, network: str) -> Samples | None:
    """Return the times whose ratio is compared with a target; None if one was not measured."""
    ours = measured_trainings.get((network, target.workers, OURS[target.workers], target.precision))
    peer = measured_trainings.get((network, target.peer_workers, target.peer, target.precision))
    if ours is None or peer is None:
        return None
    both: Samples = (getattr(peer, target.time), getattr(ours, target.time))
    return both if target.at_most is None else (both[1], both[0])


def judged(
    pairs: Sequence[Samples] | None, at_least: float | None, at_most: float | None
) -> tuple[str, str, str]:
    """Return target, geometric mean of the ratios with its interval, and the verdict, as texts.

    Without a limit, target and verdict are empty.
    """
    limit = "" if at_least is None else f"at least {at_least} times as fast"
    limit = limit if at_most is None else f"at most {at_most} times as long"
    if pairs is None:
        return limit, "", "not measured"
    interval = geometric_mean_interval(pairs)
    mean = geometric_mean(median(above) / median(below) for above, below in pairs)
    judgement = verdict(interval, at_least, at_most) if limit else ""
    return limit, format_with_interval(mean, interval, 2), judgement


def geometric_mean_interval(pairs: Sequence[Samples]) -> intervals.Interval | None:
    """Return the percentile bootstrap interval of the geometric mean of ratios of medians.

    Each sample is resampled separately, with a fixed seed. With one pair this is the interval of
    its ratio. None if a sample has too few values for an interval.
    """
    if len(pairs) == 1:
        return intervals.ratio_interval(*pairs[0])
    if min(map(len, itertools.chain(*pairs))) < intervals.RUNS_FOR_INTERVAL:
        return None
    random = np.random.default_rng(0)

    def medians(values: Sequence[float]) -> np.ndarray:
        """Return the median of each resample."""
        drawn = random.choice(np.sort(values), (intervals.RESAMPLES, len(values)))
        return np.asarray(np.median(drawn, axis=1))

    logarithms = [np.log(medians(above) / medians(below)) for above, below in pairs]
    tail = (1 - intervals.CONFIDENCE) / 2
    low, high = np.exp(np.quantile(np.mean(logarithms, axis=0), [tail, 1 - tail])).tolist()
    return low, high


def verdict(
    interval: intervals.Interval | None, at_least: float | None, at_most: float | None
) -> str:
    """Return whether a ratio reaches the target: open unless its whole interval is on one side."""
    if interval is None:
        return "open"
    low, high = interval
    least, most = at_least or 0.0, at_most or math.inf
    if least <= low and high <= most:
        return "yes"
    return "no" if high < least or low > most else "open"


def measured(values: Sequence[float], digits: int) -> str:
    """Format the median, with its interval if there are enough runs."""
    return format_with_interval(median(values), intervals.median_interval(values), digits)


def times(numerators: Sequence[float] | None, denominators: Sequence[float] | None) -> str:
    """Format the ratio of medians, with its interval given enough runs; "" without values."""
    if not numerators or not denominators:
        return ""
    if numerators is denominators:
        return "1"
    ratio = median(numerators) / median(denominators)
    return format_with_interval(ratio, intervals.ratio_interval(numerators, denominators), 2)


def format_with_interval(value: float, interval: intervals.Interval | None, digits: int) -> str:
    """Format a value with its interval, if it has one."""
    shown = f"{value:.{digits}f}"
    if interval is None:
        return shown
    return f"{shown} ({interval[0]:.{digits}f}–{interval[1]:.{digits}f})"


def tables(runs: pd.DataFrame) -> str:
    """Return place, targets, and a table for each network and number of workers, as Markdown."""
    measured_trainings = trainings(runs)
    target_rows = [row for target in TARGETS for row in reached(target, measured_trainings)]
    parts = [
        measured_page.place(runs, PLACE),
        f"### Targets\n\n{measured_page.table(TARGETS_HEADER, target_rows)}",
    ]
    for network, workers in sorted({key[:2] for key in measured_trainings}):
        title = f"### {network}, {workers} worker{'s' if workers > 1 else ''}"
        table = measured_page.table(HEADER, rows(measured_trainings, network, workers))
        parts.append(f"{title}\n\n{table}")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", help="runs.csv of each network's sweep")
    parser.add_argument("--page", type=Path, help="write between the markers of this page")
    args = parser.parse_args()
    runs = pd.concat([table_files.read_table(path) for path in args.runs], ignore_index=True)
    measured_page.show(tables(runs), args.page)


if __name__ == "__main__":
    main()
