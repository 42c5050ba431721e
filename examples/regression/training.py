"""A regression on tables in CSV files, read by tf.data: the "Friedman 1" function with noise.

Source of the function: J. Friedman, Multivariate adaptive regression splines, 1991.
"""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

COLUMNS = 10
FILES, ROWS = 8, 2500


def prepare(folder: Path):
    """Write the tables: ten columns from 0 to 1, of which five count, and the answer."""
    random = np.random.default_rng(0)
    for part, files in (("train", FILES), ("test", 1)):
        for number in range(files):
            x = random.random((ROWS, COLUMNS))
            y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
            y += 10 * x[:, 3] + 5 * x[:, 4] + random.normal(0, 1, ROWS)
            np.savetxt(folder / f"{part}-{number}.csv", np.c_[x, y], "%.4f", ",")


def data(context):
    """Batches of this worker: of every file each `workers`-th line."""

    def batches(part, shuffle):
        files = sorted(str(path) for path in context.folder.glob(f"{part}-*.csv"))
        lines = tf.data.TextLineDataset(files).shard(context.workers, context.worker)
        if shuffle:
            lines = lines.shuffle(ROWS, seed=context.seed)
        return lines.batch(context.per_worker_batch_size).map(table).prefetch(2)

    return batches("train", shuffle=True), batches("test", shuffle=False)


def table(lines):
    """Columns (examples, 10) and answers (examples, 1), float32."""
    numbers = tf.stack(tf.io.decode_csv(lines, [0.0] * (COLUMNS + 1)), axis=1)
    return numbers[:, :COLUMNS], numbers[:, COLUMNS:]


def model(width=64):
    made = keras.Sequential(
        [
            keras.Input((COLUMNS,)),
            keras.layers.Dense(width, activation="relu"),
            keras.layers.Dense(width, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    mae = keras.metrics.MeanAbsoluteError(name="mae")
    made.compile(keras.optimizers.Adam(0.003), loss="mse", metrics=[mae])
    return made
