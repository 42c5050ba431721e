"""A program that calls `Model.fit` in all ways, run under `observe: fit`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from project import REPOSITORY

OBSERVE = REPOSITORY / "workflow/observe/observe.py"
VARIABLE, EVENTS = "TFSCALING_EVENTS", "rank-0.program.jsonl"

PROGRAM = """
import sys
import traceback
import numpy as np
import tensorflow as tf
keras, folder = tf.keras, sys.argv[1]
rng = np.random.default_rng(1)
x = rng.random((70, 4), dtype="float32")
y = (x.sum(1) > 2).astype("float32")

def model(cls=keras.Sequential, **settings):
    made = cls([keras.layers.Dense(1, activation="sigmoid")])
    made.compile("sgd", "binary_crossentropy", metrics=["accuracy"], **settings)
    return made

def batches():
    for begin in range(0, 70, 16):
        yield x[begin:begin + 16], y[begin:begin + 16]

class Own(keras.Sequential):
    def train_step(self, data):
        return {**super().train_step(data), "mine": 1.5}

first = model()
first.fit(x, y, batch_size=16, epochs=2, validation_data=(x[:20], y[:20]), verbose=0)
first.evaluate(x[:30], y[:30], verbose=0)
first.evaluate(x, y, verbose=0)  # of the examples of the training
if "generator" in sys.argv:
    data = tf.data.Dataset.from_generator(
        batches, output_signature=(tf.TensorSpec((None, 4)), tf.TensorSpec((None,))))
    model(steps_per_execution=2).fit(data, verbose=0)
model(Own).fit(x, y * np.nan, verbose=0)
try:
    first.fit(x, y[:3], verbose=0)
except ValueError:
    traceback.print_exc()
"""


def of_fit(events: Path, path: str = "") -> dict[str, str]:
    """What a program's environment needs for `observe: fit`; `path` is its own PYTHONPATH."""
    site = OBSERVE.parent / "site"
    return {VARIABLE: str(events), "PYTHONPATH": os.pathsep.join(filter(None, [str(site), path]))}


def fitted(folder: Path, *words: str, python: str = sys.executable, **environment: str) -> None:
    """Run it with the words; its events and its errors are in the folder."""
    script = folder / "train.py"
    script.write_text(PROGRAM)
    environ = of_fit(folder / EVENTS, os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(
        [python, str(script), str(folder), *words],
        env={**os.environ, **environment, **environ, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (folder / "stderr").write_text(done.stderr)
