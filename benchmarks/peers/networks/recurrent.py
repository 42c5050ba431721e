"""A recurrent network of two GRU layers that predicts the next character, by Adam."""

import os
from pathlib import Path

import numpy as np

BATCH_SIZE = 32
CHARACTERS, LENGTH, VECTOR, WIDTH = 128, 48, 64, 128
#: The embedding, two GRU layers with two biases each, and the logits.
TRAINABLE_PARAMETERS = (
    CHARACTERS * VECTOR
    + 3 * WIDTH * (VECTOR + WIDTH + 2)
    + 3 * WIDTH * (WIDTH + WIDTH + 2)
    + WIDTH * CHARACTERS
    + CHARACTERS
)


def data(examples):
    """Windows of the source of Python's standard library, and the same windows one character later.

    The library differs between versions of Python; held-out windows overlap trained ones.
    """
    folder, number = Path(os.__file__).parent, examples + BATCH_SIZE
    text = "".join(path.read_text("utf-8") for path in sorted(folder.glob("[a-z]*.py")))
    characters = np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int32)
    starts = np.random.default_rng(0).integers(0, len(characters) - LENGTH, number)
    windows = characters[starts[:, None] + np.arange(LENGTH + 1)]
    x, y = windows[:, :-1], windows[:, 1:].astype(np.int64)
    return (x[:examples], y[:examples]), (x[examples:], y[examples:])


def keras_model():
    import keras

    layers = keras.layers
    text = keras.Input((LENGTH,), dtype="int32")
    states = layers.Embedding(CHARACTERS, VECTOR)(text)
    for _ in range(2):
        states = layers.GRU(WIDTH, return_sequences=True)(states)
    model = keras.Model(text, layers.Dense(CHARACTERS, dtype="float32")(states))
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate=0.001),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def torch_module():
    from torch import nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(CHARACTERS, VECTOR)
            self.recurrent = nn.GRU(VECTOR, WIDTH, num_layers=2, batch_first=True)
            self.logits = nn.Linear(WIDTH, CHARACTERS)

        def forward(self, text):
            states, _ = self.recurrent(self.embedding(text))
            return self.logits(states)

    return Network()


def torch_optimizer(parameters):
    import torch

    return torch.optim.Adam(parameters, lr=0.001)


def torch_loss(outputs, labels):
    from torch.nn import functional

    return functional.cross_entropy(outputs.flatten(0, 1), labels.flatten())
