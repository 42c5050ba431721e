"""A rank of `test_mpi_all_reduce.py`: exchanges tensors with the others through the strategy.

Usage: mpi_all_reduce_rank.py OUTPUT, with the variables of an MPI job and TF_CONFIG.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tfscaling.cluster import resolver
from tfscaling.study.config_types import MPI_STRATEGY
from tfscaling.train import optimizers, rank, strategies
from tfscaling.train.loop import make_graph_function
from tfscaling.train.mpi import library as mpi
from tfscaling.train.mpi import strategy as mpi_strategy
from tfscaling.train.strategies import STRATEGIES

#: Enough that a thread is free for a sum that is there before another.
THREADS = 4
#: How much later a rank has what others have already.
LATE_S = 0.5
DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64")
ROWS, WIDTH = 4, 3
#: Sums that TensorFlow overwrites.
OVERWRITTEN = ("float32", "float16", "bfloat16")
SEED = 7


def main() -> None:
    rank.load_tensorflow()
    output, own = Path(sys.argv[1]), resolver.resolve(os.environ, gpus=None).rank
    names = strategies.configure_devices(0, "logical", THREADS)
    strategy = STRATEGIES[MPI_STRATEGY].build(names, "ring")
    found = {
        "in turn": in_turn(strategy, own),
        "in shared memory": exchanged(strategy, own),
        "by messages": exchanged(of_nodes(names[0]), own),
    }
    STRATEGIES[MPI_STRATEGY].end()
    output.write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


def of_nodes(device: str) -> Any:
    """The same ranks, as if each had a node of its own."""
    from mpi4py import MPI

    mpi.node_communicator = lambda world: world.Split(world.rank)
    return mpi_strategy.make_strategy_class(device, MPI.COMM_WORLD)()


def exchanged(strategy: Any, own: int) -> dict[str, Any]:
    return {
        "sums": sums(strategy, own),
        "overwritten": overwritten(strategy, own),
        "slices": slices(strategy, own, own),
        "none here": slices(strategy, own, 1 - own),
        "gathered": gathered(strategy, own),
        "looked up": looked_up(strategy, own),
    }


def in_turn(strategy: Any, own: int) -> Any:
    """Sums in a loop, a condition, a function, and after them; what each adds is late on one rank.

    Ranks that sum what they have first would sum one thing with another.
    """
    import tensorflow as tf

    scale = tf.Variable(2.0)

    def late(value: Any, whose: int) -> Any:
        def wait(given: np.ndarray) -> np.ndarray:
            time.sleep(LATE_S if whose == own else 0.0)
            return given

        there = tf.numpy_function(wait, [value], tf.float32, stateful=False)
        return tf.ensure_shape(there, [])

    def summed(value: Any) -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, value)

    def step(number: Any) -> Any:
        first = tf.cond(number < 10.0, lambda: scale * summed(late(number, 0)), lambda: scale * 0.0)
        second = summed(late(tf.constant(10.0), 1))
        third = make_graph_function(lambda: scale * summed(late(tf.constant(100.0), 0)))()
        fourth = summed(late(tf.constant(1000.0), 1))
        return tf.stack([first, second, third, fourth])

    def replica() -> Any:
        _, whole = tf.while_loop(
            lambda number, _: number < 3.0,
            lambda number, whole: (number + 1.0, whole + step(number)),
            (tf.constant(1.0), tf.zeros(4)),
        )
        return whole

    return make_graph_function(lambda: strategy.run(replica))().numpy().tolist()


def of_replicas(strategy: Any, call: Callable[[Any], Any]) -> Any:
    """What a replica gets that calls with its context, in a graph."""
    import tensorflow as tf

    return make_graph_function(
        lambda: strategy.run(lambda: call(tf.distribute.get_replica_context()))
    )()


def sums(strategy: Any, own: int) -> dict[str, Any]:
    """Of tensors of all types together."""
    import tensorflow as tf

    given = [tf.cast(tf.range(ROWS) + own, name) for name in DTYPES]
    found = of_replicas(strategy, lambda c: c.all_reduce("SUM", given))
    return {
        name: [total.dtype.name, tf.cast(total, tf.float64).numpy().tolist()]
        for name, total in zip(DTYPES, found, strict=True)
    }


def overwritten(strategy: Any, own: int) -> list[bool]:
    """Whether sums are right to which TensorFlow writes the result of the next operation.

    It does so if the sum, or a part of it at an aligned place, is the input of nothing else. The
    sums are random, in one message and in several, below and above the size of small ones.
    """
    import tensorflow as tf

    dice = np.random.default_rng(SEED)
    found = []
    for dtype in OVERWRITTEN:
        for most in (10, 4096, 1 << 18):
            sizes = [16 * int(size) for size in dice.integers(1, max(2, most // 16), 4)]
            sizes.append(int(dice.integers(1, most)))
            given = [tf.fill([size], tf.cast(own + 1, dtype)) for size in dice.permutation(sizes)]

            def doubled(context: Any, given: Any = given) -> Any:
                several, alone = (
                    context.all_reduce("SUM", given),
                    context.all_reduce("SUM", given[0]),
                )
                parts = [part * 2 for part in (*several, alone)]
                # each part on its own, when nothing else has the whole
                halves = tf.split(context.all_reduce("SUM", tf.tile(given[0], [32])), 2)
                return [*parts, *(tf.clip_by_value(half, 0, 2) * 3 for half in halves)]

            totals = [
                tf.cast(total, tf.float32).numpy() for total in of_replicas(strategy, doubled)
            ]
            found += [bool((total == 6).all()) for total in totals]
    return found


def slices(strategy: Any, own: int, count: int) -> dict[str, Any]:
    """Sum and mean of an embedding's gradients, of `count` rows on this rank, and a dense sum."""
    import tensorflow as tf

    given = tf.IndexedSlices(
        tf.fill([count, WIDTH], float(own + 1)), tf.fill([count], own), tf.constant([ROWS, WIDTH])
    )

    def call(context: Any) -> Any:
        dense, total = context.all_reduce("SUM", [tf.constant(1.0), given])
        return dense, total.values, total.indices, context.all_reduce("MEAN", given).values

    found = of_replicas(strategy, call)
    names = ("dense", "values", "indices", "means")
    return {name: part.numpy().tolist() for name, part in zip(names, found, strict=True)}


def looked_up(strategy: Any, own: int) -> dict[str, Any]:
    """Indices and rows of the summed gradient of a table, by what the ranks look up."""
    import tensorflow as tf

    places = {
        "positions": tf.range(ROWS),
        "biases": tf.constant([0, 1, 1, 0]),
        "other places on each rank": tf.range(ROWS) + own,
        "words": tf.constant([1, 1]),
        "a length": tf.range(2),
        "words of other numbers": tf.fill([own + 1], 1),
    }
    unknown = ("words", "a length", "words of other numbers")

    def call(context: Any) -> Any:
        found = []
        for name, indices in places.items():
            if name in unknown:
                indices = tf.raw_ops.PlaceholderWithDefault(input=indices, shape=[None])
            values = tf.ones([tf.size(indices), WIDTH]) * float(own + 1)
            given = tf.IndexedSlices(values, indices, tf.constant([ROWS + 1, WIDTH]))
            none, total = optimizers.sum_over_replicas([None, given])
            assert none is None
            found += [total.indices, tf.convert_to_tensor(total)]
        return found

    found = [part.numpy() for part in of_replicas(strategy, call)]
    return {
        name: [indices.tolist(), total[:, 0].tolist()]
        for name, indices, total in zip(places, found[::2], found[1::2], strict=True)
    }


def gathered(strategy: Any, own: int) -> dict[str, Any]:
    """Tensors of another number of rows or columns on each rank, and a gradient through them."""
    import tensorflow as tf

    rows = tf.fill([own + 1, 2], float(own))
    signs = tf.fill([own + 1], own == 1)

    def call(context: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(rows)
            whole = context.all_gather(rows, axis=0)
            loss = tf.reduce_sum(whole * whole)
        columns = context.all_gather(tf.transpose(rows), axis=1)
        return whole, columns, context.all_gather(signs, axis=0), tape.gradient(loss, rows)

    found = of_replicas(strategy, call)
    names = ("rows", "columns", "signs", "gradient")
    return {name: part.numpy().tolist() for name, part in zip(names, found, strict=True)}


if __name__ == "__main__":
    main()
