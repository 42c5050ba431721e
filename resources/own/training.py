"""Your training: a model and its data. Put yours in place of what is here.

Keys of `parameters` in config.yaml come as arguments of the same name.
"""

import keras
import numpy as np
import tensorflow as tf

EXAMPLES = {"train": 8000, "test": 2000}


def model(width=32):
    """Any Keras 3 model. Compiled, it is trained by its own loss, metrics and optimizer."""
    made = keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(width, activation="relu"),
            keras.layers.Dense(width, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    made.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)],
    )
    return made


def data(context):
    """(train, test) of this worker, batched. Every example is on one worker only."""

    def part(name, seed):
        x, y = two_spirals(EXAMPLES[name], seed)
        examples = tf.data.Dataset.from_tensor_slices((x, y))
        mine = examples.shard(context.workers, context.worker)
        if name == "train":
            mine = mine.shuffle(1000, seed=context.seed)
        return mine.batch(context.per_worker_batch_size).prefetch(2)

    return part("train", seed=1), part("test", seed=2)


def two_spirals(examples, seed):
    """Points (examples, 2) on one of two spirals, and on which (examples, 1); float32."""
    random = np.random.default_rng(seed)
    spiral = random.integers(0, 2, examples)
    angle = 2 * np.pi * np.sqrt(random.random(examples))
    turned = angle + np.pi * spiral
    x = np.stack([np.cos(turned), np.sin(turned)], axis=1) * (angle / 6)[:, None]
    x += random.normal(0, 0.03, x.shape)
    return x.astype(np.float32), spiral[:, None].astype(np.float32)
