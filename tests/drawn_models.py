"""Random trainings: layers, widths, depths, optimizers, data; each follows from its seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from oracle_cases import Case, compiled, optimizer, positions, split
from tfscaling.study.config_types import MPI_STRATEGY

#: Optimizers with settings that a draw completes, and a learning rate that learns.
OPTIMIZERS: list[tuple[str, float, dict[str, Any]]] = [
    ("SGD", 0.1, {}),
    ("SGD", 0.05, {"momentum": 0.9}),
    ("SGD", 0.05, {"momentum": 0.8, "nesterov": True}),
    ("Adam", 0.02, {}),
    ("Adam", 0.02, {"amsgrad": True}),
    ("AdamW", 0.02, {"weight_decay": 0.02}),
    ("RMSprop", 0.005, {}),
    ("Adagrad", 0.1, {}),
    ("Lion", 0.003, {}),
]
CHANGES: list[dict[str, Any]] = [
    *({}, {}, {}, {"clipnorm": 0.5}, {"global_clipnorm": 1.0}, {"clipvalue": 0.05}),
    {"use_ema": True, "ema_momentum": 0.9},
]
#: Widths of layers: multiples of 16, whose sums TensorFlow gets aligned, and others.
WIDTHS = (16, 32, 48, 64, 128, 256, 1, 3, 10, 17, 33, 100)
#: A layer of this width after another one has gradients of 4 to 20 MB.
WIDE = (1024, 1500, 2000)
CLASSES = 16, 10, 3, 2, 32
#: With Keras's 2**15 the gradients of some models overflow in a whole batch, where `fit` skips the
#: update, and in no replica's part of it. See `overflow_of_whole_batches`.
LOSS_SCALE = 2.0**8


class Draw:
    """A training that follows from the dice."""

    def __init__(self, seed: int, number: int) -> None:
        self.dice = np.random.default_rng([seed, number])
        self.kind = self.one_of(("numbers", "images", "bytes", "texts", "tiny"))
        self.is_classifier = self.kind != "tiny" and self.dice.random() < 0.25
        self.is_compiled = not self.is_classifier or bool(self.dice.random() < 0.3)
        self.has_classes = self.is_classifier or bool(self.dice.random() < 0.5)
        self.batch = 4 * int(self.dice.integers(2, 9))
        #: Moments of a synchronized batch normalization are those of `fit` in complete batches.
        self.is_normalized = self.kind in ("numbers", "images") and self.dice.random() < 0.3
        steps = int(self.dice.integers(3, 8))
        last = self.batch if self.is_normalized else int(self.dice.integers(1, self.batch + 1))
        self.examples = max((steps - 1) * self.batch + last, self.batch)
        self.outputs = int(self.one_of(CLASSES if self.has_classes else WIDTHS[:10]))
        self.depth = 0 if self.kind == "tiny" else int(self.dice.integers(1, 4))
        self.widths = [int(self.one_of(WIDTHS)) for _ in range(self.depth)]
        if self.kind == "numbers" and self.dice.random() < 0.15:
            self.widths[-2:] = [int(self.one_of(WIDE)), int(self.one_of(WIDE))]
        self.activation = self.one_of(("relu", "tanh", "gelu"))
        self.is_regularized = bool(self.dice.random() < 0.3)
        self.is_weighted = not self.is_classifier and bool(self.dice.random() < 0.3)
        self.is_half = bool(self.dice.random() < 0.1) and not self.is_normalized
        name, rate, settings = self.one_of(OPTIMIZERS)
        self.optimizer = (name, rate, {**settings, **self.one_of(CHANGES)})
        self.loss = self.one_of(("mse", "mae", "huber"))
        #: Four ranks of MPI are on one node or on two.
        self.other_nodes = self.one_of(("mpi_all_reduce 4", "mpi_all_reduce of two nodes 4"))

    def one_of(self, items: Any) -> Any:
        return items[int(self.dice.integers(len(items)))]

    def case(self) -> Case:
        recipe: dict[str, Any] = {}
        if not self.is_compiled or self.is_classifier:
            kind = self.one_of(("adam", "sgd"))
            recipe = {"optimizer": kind, "learning_rate": 0.02 if kind == "adam" else 0.05}
            recipe |= {"momentum": 0.9} if kind == "sgd" else {}
            recipe |= {"loss": "sparse_categorical_crossentropy"}
        return Case(
            self.model,
            self.data(),
            self.batch,
            epochs=2,
            precision="mixed_float16" if self.is_half else "float32",
            loss_scale=LOSS_SCALE if self.is_half else None,
            recipe=recipe,
            is_evaluated=False,
            without_way=self.other_nodes,
        )

    def data(self) -> Any:
        count = self.examples + 1
        if self.kind == "texts":
            x: Any = self.dice.integers(0, 30, (count, 12)).astype(np.int32)
        elif self.kind in ("images", "bytes"):
            x = self.dice.integers(0, 256, (count, 8, 8, 3)).astype(np.uint8)
            x = x if self.kind == "bytes" else (x / np.float32(255))
        else:
            x = self.dice.standard_normal((count, 9)).astype(np.float32)
        if self.has_classes:
            y: Any = self.dice.integers(0, self.outputs, count).astype(np.int32)
        else:
            y = self.dice.standard_normal((count, self.outputs)).astype(np.float32)
        weights = self.dice.random(count).astype(np.float32) if self.is_weighted else None
        return split(self.examples, x, y, weights)

    def model(self) -> Any:
        import keras

        given, vectors = self.begun()
        penalty = keras.regularizers.L2(0.001) if self.is_regularized else None
        for width in self.widths:
            hidden = keras.layers.Dense(width, kernel_regularizer=penalty)(vectors)
            if self.is_normalized:
                hidden = keras.layers.BatchNormalization(momentum=0.8, synchronized=True)(hidden)
            hidden = keras.layers.Activation(self.activation)(hidden)
            if hidden.shape == vectors.shape:  # a residual block
                hidden = hidden + vectors
            vectors = hidden
        wide = keras.config.dtype_policy().variable_dtype  # float32 in mixed precision
        outputs = keras.layers.Dense(self.outputs, dtype=wide)(vectors)
        model = keras.Model(given, outputs)
        if self.is_compiled:
            name, rate, settings = self.optimizer
            entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            metric = "accuracy" if self.has_classes else "mae"
            model.compile(
                getattr(keras.optimizers, name)(rate, **settings),
                entropy if self.has_classes else self.loss,
                metrics=[metric],
            )
        return model

    def begun(self) -> tuple[Any, Any]:
        """The input, and a vector of numbers for each example."""
        import keras

        layers = keras.layers
        if self.kind == "texts":
            given = keras.Input((12,), dtype="int32")
            vectors = positions(12)(layers.Embedding(30, 16)(given))
            return given, layers.GlobalAveragePooling1D()(layers.Activation("tanh")(vectors))
        if self.kind not in ("images", "bytes"):
            given = keras.Input((9,))
            return given, given
        given = images = keras.Input((8, 8, 3))
        if self.kind == "bytes" and not self.is_classifier:
            images = images / 127.5 - 1.0
        images = layers.Conv2D(16, 3, padding="same", activation=self.activation)(images)
        images = images + layers.Conv2D(16, 3, padding="same")(images)
        return given, layers.Flatten()(layers.MaxPooling2D(4)(images))


def in_float64(case: Case) -> Case:
    """The same training in float64.

    Of a recipe, whose loss is in float32, model and optimizer are compiled, and bytes are scaled as
    for a recipe.
    """
    if not case.recipe:
        return replace(case, precision="float64")
    name = {"adam": "Adam", "sgd": "SGD"}[case.recipe["optimizer"]]
    settings = {key: case.recipe[key] for key in case.recipe.keys() & {"momentum"}}
    model = compiled(case.model, optimizer(name, case.recipe["learning_rate"], **settings))
    arrays = case.arrays
    train, test = (np.asarray(each) for each in (arrays.x_train, arrays.x_test))
    if train.dtype == np.uint8:
        byte = np.float32(255)
        arrays = replace(arrays, x_train=train / byte, x_test=test / byte)
    return replace(case, precision="float64", model=model, arrays=arrays, recipe={})


def cases(
    seed: int, first: int, last: int, are_few: int = 0, are_exact: int = 0
) -> Iterator[tuple[str, Case]]:
    """Yield random trainings.

    Args:
        seed: The seed of all draws.
        first: Number of the first model.
        last: One more than the number of the last model.
        are_few: Whether each is trained on two replicas by MPI and another strategy only.
        are_exact: Whether roundings are left out of the comparison: models train in float64. In
            16 bits the sum of the parts of a gradient is not the gradient of the batch: there the
            measure is the same sum by hand.
    """
    for number in range(first, last):
        draw = Draw(seed, number)
        case = draw.case()
        if are_exact and draw.is_half:
            case = replace(case, is_by_hand=True)
        elif are_exact:
            case = in_float64(case)
        if are_few:
            other = ("mirrored", "multi_worker_mirrored")[number % 2]
            case = replace(case, replicas=(2,), strategies=(MPI_STRATEGY, other))
        yield f"seed {seed}, model {number}", case


def overflow_of_whole_batches() -> Iterator[tuple[str, Case]]:
    """Yield a random model whose gradients overflow in whole batches and not in parts of them."""
    case = replace(Draw(1203, 77).case(), loss_scale=None, is_by_hand=True)
    yield "overflow of whole batches", case
