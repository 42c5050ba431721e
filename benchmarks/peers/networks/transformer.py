"""A transformer of four layers that predicts the next character of Python's source, by AdamW."""

import os
from pathlib import Path

import numpy as np

BATCH_SIZE = 8
TRAINABLE_PARAMETERS = 3_257_984
CHARACTERS, LENGTH, WIDTH, HEADS, LAYERS = 128, 128, 256, 4, 4


def data(examples):
    """Windows of text, and the same windows one character later."""
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

    class Positions(keras.layers.Layer):
        """Adds a learned vector for each place in the window."""

        def build(self, shape):
            self.table = self.add_weight(shape=shape[1:], initializer="zeros")

        def call(self, vectors):
            return vectors + self.table

    text = keras.Input((LENGTH,), dtype="int32")
    vectors = Positions()(layers.Embedding(CHARACTERS, WIDTH)(text))
    for _ in range(LAYERS):
        normal = layers.LayerNormalization(epsilon=1e-5)(vectors)
        attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        vectors = layers.Add()([vectors, attention(normal, normal, use_causal_mask=True)])
        normal = layers.LayerNormalization(epsilon=1e-5)(vectors)
        hidden = layers.Dense(4 * WIDTH, activation="gelu")(normal)
        vectors = layers.Add()([vectors, layers.Dense(WIDTH)(hidden)])
    normal = layers.LayerNormalization(epsilon=1e-5)(vectors)
    model = keras.Model(text, layers.Dense(CHARACTERS, dtype="float32")(normal))
    model.compile(
        optimizer=keras.optimizers.AdamW(learning_rate=0.001, weight_decay=0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def torch_module():
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(CHARACTERS, WIDTH)
            self.positions = nn.Parameter(torch.zeros(LENGTH, WIDTH))
            layer = nn.TransformerEncoderLayer(
                WIDTH,
                HEADS,
                dim_feedforward=4 * WIDTH,
                dropout=0.0,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            self.layers = nn.TransformerEncoder(
                layer, LAYERS, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False
            )
            self.logits = nn.Linear(WIDTH, CHARACTERS)
            mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
            self.register_buffer("mask", mask, persistent=False)

        def forward(self, text):
            vectors = self.embedding(text) + self.positions
            return self.logits(self.layers(vectors, mask=self.mask, is_causal=True))

    return Network()


def torch_optimizer(parameters):
    import torch

    return torch.optim.AdamW(parameters, lr=0.001, weight_decay=0.01)


def torch_loss(outputs, labels):
    from torch.nn import functional

    return functional.cross_entropy(outputs.flatten(0, 1), labels.flatten())
