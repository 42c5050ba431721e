"""MNIST and a small convolutional network on Keras 3 with JAX: `fit` on several nodes.

train.py MNIST_FILE EXAMPLES EXAMPLES_PER_RANK EPOCHS SEED. Each process gives `fit` its own part of
the examples; `keras.distribution` makes global batches of them. No line is the workflow's.
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

path, examples, batch_size, epochs, seed = sys.argv[1], *map(int, sys.argv[2:])
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def mnist(part, number):
    """Return this process's share of the first `number` examples; all shares are equally large."""
    with np.load(path) as arrays:
        images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
    mine = slice(rank, number // (ranks * batch_size) * ranks * batch_size, ranks)
    images = images.astype(np.float32) / 255.0 if images.dtype == np.uint8 else images
    return images[mine], labels[mine].astype(np.int32)


if ranks > 1:
    coordinator = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    keras.distribution.initialize(coordinator, ranks, rank)
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
keras.utils.set_random_seed(seed)
model = keras.Sequential(
    [
        keras.Input((28, 28)),
        keras.layers.Reshape((28, 28, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(10),
    ]
)
model.compile(
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizer=keras.optimizers.SGD(learning_rate=0.2),
    metrics=["accuracy"],
)
x, y = mnist("train", examples)
model.fit(
    x,
    y,
    batch_size=batch_size,
    epochs=epochs,
    validation_data=mnist("test", 2000),
    verbose=2 if rank == 0 else 0,
)
