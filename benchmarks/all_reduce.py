#!/usr/bin/env python3
"""MPI beside gRPC: all-reduces by size, and steps of a training, both in turn in one start.

Starts --workers ranks on this machine, as the launcher `local` does. Each rank has both strategies,
`multi_worker_mirrored` and `mpi_all_reduce`, and times them in turn: all-reduces of each size, and
steps of the published network with 64 examples per worker. Prints milliseconds (medians, of the
slowest rank), the ratio of the medians, and its 95 % interval over --rounds rounds.

*Two copies* is the time in which all ranks, at once, copy as many bytes twice. A sum on a node
moves at least these bytes: each rank writes what others sum to memory that they read, its part of
the sum there too, and the whole sum to its own memory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[1]
SCRIPTS = REPOSITORY / "workflow/scripts"
sys.path.insert(0, str(SCRIPTS))

from tfscaling.cluster import resolver  # noqa: E402
from tfscaling.datasets.catalogue import Arrays  # noqa: E402
from tfscaling.estimation.intervals import ratio_interval  # noqa: E402
from tfscaling.launch.launchers import LAUNCHERS, LaunchRequest  # noqa: E402
from tfscaling.study import acceptance, config_validation  # noqa: E402
from tfscaling.study.config_types import MPI_STRATEGY  # noqa: E402
from tfscaling.study.registries import Registries  # noqa: E402
from tfscaling.study.run_spec import RunSpec  # noqa: E402
from tfscaling.train import rank, strategies  # noqa: E402
from tfscaling.train.all_reduce import ArrayTrainer  # noqa: E402
from tfscaling.train.models import MODELS  # noqa: E402
from tfscaling.train.mpi import library as mpi  # noqa: E402
from tfscaling.train.strategies import STRATEGIES  # noqa: E402

GRPC, MPI = "multi_worker_mirrored", MPI_STRATEGY
SIDES = (GRPC, MPI)
COPIES = "two copies"
BATCH, STEPS = 64, 5
#: The last but one is the published network's gradient.
SIZES_BYTES = (4, 16_384, 1_048_576, 11_082_536, 104_857_600)
#: Smaller sums take what their calls take, and are not compared with copies.
COPIED_MIN_BYTES = 1_048_576
#: Small tensors are reduced this often in one call, so that the call's overhead does not count: as
#: often as these bytes have room for, at most CALL_MAX times.
CALL_BYTES, CALL_MAX = 1 << 24, 10
WARM_UP = 3
STEP = "step"

#: What was timed → side → seconds of each round, of one rank.
Times = dict[str, dict[str, list[float]]]


def specs(workers: int) -> dict[str, RunSpec]:
    """Return a training of the published network for each side."""
    recipe = {"per_replica_batch_size": BATCH, "learning_rate": 0.01, "epochs": 1,
              "steps_per_execution": 1}  # fmt: skip
    block = {"platform": "here", "model": "mnist_cnn", "recipe": "published", "nodes": workers}
    platform = {"launcher": "local", "nodes_max": workers, "cpus_per_node": os.cpu_count()}
    raw = {
        "grid": [{**block, "strategy": list(SIDES), "repeats": 1}],
        "recipes": {"published": recipe},
        "platforms": {"here": platform},
    }
    config = config_validation.convert_to_types(raw)
    runs = acceptance.plan_grid(config, Registries(MODELS, STRATEGIES)).runs
    return {run.spec.point.strategy: run.spec for run in runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        run_rank(args.workers, args.rounds)
    else:
        sys.exit(start(args.workers, args.rounds))


def start(workers: int, rounds: int) -> int:
    """Run the ranks; rank 0 prints the table. Returns the first exit status that is not 0."""
    words = [sys.executable, __file__, "--rank", f"--workers={workers}", f"--rounds={rounds}"]
    spec = specs(workers)[MPI]
    with contextlib.ExitStack() as stack:
        request = LaunchRequest(
            words,
            spec.geometry,
            spec.jobs,
            spec.cpus_per_task,
            Path(),
            uses_gpus=False,
            mpi="",
            resources=stack,
        )
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        processes = [
            subprocess.Popen(command.argv, env={**os.environ, **command.env, **quiet})
            for command in LAUNCHERS["local"](request)
        ]
        try:
            return next((code for process in processes if (code := process.wait())), 0)
        finally:
            for process in processes:
                process.kill()


def run_rank(workers: int, rounds: int) -> None:
    """Time both sides, and print what the slowest ranks took."""
    rank.load_tensorflow()
    planned, own = specs(workers), resolver.resolve(os.environ, gpus=None)
    os.environ["TF_CONFIG"] = own.tf_config()
    threads = planned[MPI].threads_per_operation(len(os.sched_getaffinity(0)))
    names = strategies.configure_devices(0, "logical", threads)
    built = {side: STRATEGIES[side].build(names, "ring") for side in SIDES}
    world = mpi.world_communicator(own.rank, workers)
    found: Times = {}
    for size in SIZES_BYTES:
        calls = {side: all_reduce(strategy, size) for side, strategy in built.items()}
        if size >= COPIED_MIN_BYTES:
            calls[COPIES] = two_copies(size)
        found[f"all-reduce, {size:,} bytes"] = in_turn(calls, rounds, world)
    calls = {side: steps(built[side], planned[side]) for side in SIDES}
    found[f"{STEP}, {BATCH} examples per worker"] = in_turn(calls, rounds, world)
    of_ranks = world.gather(found)
    if own.rank == 0:
        print(
            f"{workers} workers, threads of each {threads}, {mpi.library_version()}, load", end=" "
        )
        print(" ".join(f"{load:.1f}" for load in os.getloadavg()))
        print_table(of_ranks)
    sys.stdout.flush()
    world.Barrier()
    os._exit(0)  # TensorFlow's servers have no shutdown


def all_reduce(strategy: Any, size: int) -> Callable[[], float]:
    """Make a call that averages `size` bytes over the ranks and returns the seconds of one.

    The call raises AssertionError if the result is not the mean of what the ranks gave.
    """
    import tensorflow as tf

    per_call = max(1, min(CALL_MAX, CALL_BYTES // size))
    expected = (strategy.num_replicas_in_sync + 1) / 2
    given = strategy.experimental_distribute_values_from_function(
        lambda context: tf.fill([size // 4], context.replica_id_in_sync_group + 1.0)
    )

    def mean(value: Any) -> Any:
        # an argument of a tf.function has no device, which a sum on one device needs
        value = tf.identity(value)
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, value)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def means(value: Any) -> Any:
        value = strategy.run(mean, args=(value,))
        for _ in tf.range(per_call - 1):
            value = strategy.run(mean, args=(value,))
        return strategy.run(lambda mean: mean[0], args=(value,))

    def call() -> float:
        start_s = time.perf_counter()
        (found,) = strategy.experimental_local_results(means(given))
        found = found.numpy()
        duration_s = time.perf_counter() - start_s
        assert found == expected, f"the all-reduce gave {found}, not {expected}"
        return duration_s / per_call

    return call


def two_copies(size: int) -> Callable[[], float]:
    """Make a call that copies `size` bytes twice, and returns the seconds of both copies."""
    per_call = max(1, min(CALL_MAX, CALL_BYTES // size))
    own, shared, total = (np.full(size // 4, value, np.float32) for value in (1.0, 2.0, 3.0))

    def call() -> float:
        start_s = time.perf_counter()
        for _ in range(per_call):
            np.copyto(shared, own)
            np.copyto(total, shared)
        return (time.perf_counter() - start_s) / per_call

    return call


def steps(strategy: Any, spec: RunSpec) -> Callable[[], float]:
    """Make a call that trains STEPS steps on random images and returns the mean seconds of one."""
    import tensorflow as tf

    dice = np.random.default_rng(0)
    images = dice.integers(0, 256, (STEPS * spec.global_batch_size, 28, 28), np.uint8)
    labels = dice.integers(0, 10, len(images), np.uint8)
    arrays = Arrays(images, labels, images[:1], labels[:1])
    trainer = ArrayTrainer(strategy, MODELS["mnist_cnn"].build, arrays, spec)
    order = tf.constant(trainer.order.epoch_indices(spec.seed, 1))

    def call() -> float:
        durations = []
        for step in range(STEPS):
            start, end = tf.constant(step), tf.constant(step + 1)
            start_s = time.perf_counter()
            trainer._wait_for_values(trainer._execute(order, start, end, *trainer.train_data))
            durations.append(time.perf_counter() - start_s)
        return fmean(durations)

    return call


def in_turn(
    calls: dict[str, Callable[[], float]], rounds: int, world: Any
) -> dict[str, list[float]]:
    """Return the results of each call in each round; ranks begin each call together."""
    found: dict[str, list[float]] = {side: [] for side in calls}
    sides = list(calls)
    for number in range(WARM_UP + rounds):
        # no side always comes after the same one
        for side in sides if number % 2 else sides[::-1]:
            world.Barrier()
            duration_s = calls[side]()
            if number >= WARM_UP:
                found[side].append(duration_s)
    return found


def print_table(of_ranks: Sequence[Times]) -> None:
    print("| timed | gRPC, ms | MPI, ms | gRPC / MPI | two copies, ms | MPI / two copies |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, of_sides in of_ranks[0].items():
        slowest = {
            side: np.max([times[name][side] for times in of_ranks], axis=0).tolist()
            for side in of_sides
        }
        cells = [name, *(f"{1000 * median(slowest[side]):.2f}" for side in SIDES)]
        cells.append(ratio_text(slowest[GRPC], slowest[MPI]))
        if COPIES in slowest:
            cells += [f"{1000 * median(slowest[COPIES]):.2f}"]
            cells += [ratio_text(slowest[MPI], slowest[COPIES])]
        else:
            cells += ["", ""]
        print(f"| {' | '.join(cells)} |")


def ratio_text(numerator_s: Sequence[float], denominator_s: Sequence[float]) -> str:
    """Return the ratio of two medians with its 95 % interval."""
    interval = ratio_interval(numerator_s, denominator_s)
    shown = "too few rounds" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"
    return f"{median(numerator_s) / median(denominator_s):.2f} ({shown})"


if __name__ == "__main__":
    main()
