"""A training that its storage limits: batches arrive at a stated pace, so the truth is known.

Workers read at full pace until together they reach READERS times the pace of one.
"""

import math
import time

import numpy as np
import tensorflow as tf

from resources.own.training import EXAMPLES, model, two_spirals

__all__ = ["data", "model"]

#: Of a batch, of a kilobyte of an example, of all workers; scatter of a run, and of a batch.
SEEK_S, KILOBYTE_S, READERS, OF_RUN, OF_BATCH = 0.08, 0.00125, 3.0, 0.05, 0.05


def batch_s(examples, kilobytes, workers):
    """Seconds until a batch of a worker has arrived, on average."""
    return SEEK_S + examples * kilobytes * KILOBYTE_S * max(1.0, workers / READERS)


def data(context, kilobytes):
    """(train, test) of this worker; train is endless."""
    x, y = two_spirals(EXAMPLES["train"], seed=1)
    x, y = x[context.worker :: context.workers], y[context.worker :: context.workers]
    size = context.per_worker_batch_size
    of_run = [context.seed, size, context.workers, round(10 * kilobytes)]
    run_pace = math.exp(OF_RUN * np.random.default_rng(of_run).standard_normal())

    def batches():
        dice = np.random.default_rng([context.seed, context.worker])
        while True:
            usual_s = run_pace * batch_s(size, kilobytes, context.workers)
            time.sleep(usual_s * math.exp(OF_BATCH * dice.standard_normal()))
            chosen = dice.integers(len(x), size=size)
            yield x[chosen], y[chosen]

    like = tf.TensorSpec((None, 2), tf.float32), tf.TensorSpec((None, 1), tf.float32)
    test = tf.data.Dataset.from_tensor_slices(two_spirals(EXAMPLES["test"], seed=2))
    mine = test.shard(context.workers, context.worker).batch(size)
    return tf.data.Dataset.from_generator(batches, output_signature=like), mine
