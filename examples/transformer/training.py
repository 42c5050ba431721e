"""A small transformer that predicts the next character of Python's own source code.

The model has a loss of its own (cross-entropy and a term that keeps the logits small) and a metric
of its own, perplexity: how many characters the model still hesitates between.
"""

import os
from pathlib import Path

import keras
import numpy as np
from keras import ops

LENGTH = 64
CHARACTERS = 128
#: Of the standard library: text that every Python brings.
FILES = ("argparse.py", "ast.py", "inspect.py", "pathlib.py", "typing.py", "zipfile.py")


def data():
    """Windows of text and the same windows one character later; every tenth window is held out."""
    folder = Path(os.__file__).parent
    text = "".join((folder / name).read_text(encoding="utf-8") for name in FILES)
    characters = np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int32)
    starts = np.arange(0, len(characters) - LENGTH - 1, LENGTH)
    windows = characters[starts[:, None] + np.arange(LENGTH + 1)]
    held_out = np.arange(len(windows)) % 10 == 0
    train, test = windows[~held_out], windows[held_out]
    return (train[:, :-1], train[:, 1:]), (test[:, :-1], test[:, 1:])


class Position(keras.layers.Layer):
    """Adds a learned vector for each place in the window."""

    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:], initializer="random_normal")

    def call(self, vectors):
        return vectors + self.table


class Perplexity(keras.metrics.Mean):
    """exp of the mean cross-entropy over all characters."""

    def __init__(self, name="perplexity"):
        super().__init__(name=name)

    def update_state(self, answers, logits, sample_weight=None):
        loss = keras.losses.sparse_categorical_crossentropy(answers, logits, from_logits=True)
        super().update_state(loss, sample_weight)

    def result(self):
        return ops.exp(super().result())


def loss(answers, logits):
    """Cross-entropy, and 1e-4 of the squared logarithm of the sum of the exponentials."""
    entropy = keras.losses.sparse_categorical_crossentropy(answers, logits, from_logits=True)
    return entropy + 1e-4 * ops.square(ops.logsumexp(logits, axis=-1))


def block(vectors, width):
    """Attention to earlier characters, then two dense layers, each added to what it is given."""
    given = keras.layers.LayerNormalization()(vectors)
    attention = keras.layers.MultiHeadAttention(4, width // 4)
    vectors = vectors + attention(given, given, use_causal_mask=True)
    given = keras.layers.LayerNormalization()(vectors)
    given = keras.layers.Dense(4 * width, activation="gelu")(given)
    return vectors + keras.layers.Dense(width)(given)


def model(depth=2, width=64):
    text = keras.Input((LENGTH,), dtype="int32")
    vectors = Position()(keras.layers.Embedding(CHARACTERS, width)(text))
    for _ in range(depth):
        vectors = block(vectors, width)
    logits = keras.layers.Dense(CHARACTERS, dtype="float32")(
        keras.layers.LayerNormalization()(vectors)
    )
    made = keras.Model(text, logits)
    made.compile(keras.optimizers.AdamW(0.003), loss=loss, metrics=[Perplexity()])
    return made
