"""A small language model from KerasHub's layers: GPT-2's backbone with random weights, no preset.

It predicts the next character of Python's own source code, so that nothing is downloaded.
"""

import os
from pathlib import Path

import numpy as np

LENGTH, CHARACTERS = 32, 128


def data():
    """Windows of text and the same windows one character later; every tenth window is held out."""
    folder = Path(os.__file__).parent
    text = "".join((folder / name).read_text(encoding="utf-8") for name in ("ast.py", "typing.py"))
    characters = np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int32)
    starts = np.arange(0, len(characters) - LENGTH - 1, LENGTH)
    windows = characters[starts[:, None] + np.arange(LENGTH + 1)]
    held_out = np.arange(len(windows)) % 10 == 0
    train, test = windows[~held_out], windows[held_out]
    return (train[:, :-1], train[:, 1:]), (test[:, :-1], test[:, 1:])


def model(layers=2, width=64):
    # only where ranks train: the workflow's own Python prepares the data
    import keras
    import keras_hub

    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=CHARACTERS,
        num_layers=layers,
        num_heads=4,
        hidden_dim=width,
        intermediate_dim=4 * width,
        dropout=0.0,
        max_sequence_length=LENGTH,
    )
    text = keras.Input((LENGTH,), dtype="int32")
    features = backbone({"token_ids": text, "padding_mask": keras.ops.ones_like(text)})
    logits = backbone.token_embedding(features, reverse=True)
    made = keras.Model(text, logits)
    made.compile(
        keras.optimizers.AdamW(0.003),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return made
