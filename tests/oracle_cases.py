"""Trainings whose result `fit` on one device gives, too: what test_oracle_*.py compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from strategy_rank import small_model, synthetic_arrays
from tfscaling.datasets.catalogue import Arrays
from tfscaling.study.config_types import MPI_STRATEGY
from tfscaling.train.all_reduce import EVALUATION_BATCH

#: Relative, of losses and metrics: sums are rounded in another order.
#: Of float64, too, losses are summed in float32.
TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "mixed_bfloat16": 2e-2, "mixed_float16": 1e-2}


@dataclass(frozen=True)
class Case:
    """A model, compiled or a classifier by the recipe, its data, and how it is trained.

    `batch` is the global batch; four replicas divide it. `recipe` has further keys of the recipe.
    """

    model: Callable[[], Any]
    arrays: Arrays
    batch: int = 16
    epochs: int = 5
    precision: str = "float32"
    recipe: Mapping[str, Any] = field(default_factory=dict)
    replicas: tuple[int, ...] = (1, 2, 4)
    #: Names of strategies; None means all.
    strategies: tuple[str, ...] | None = None
    #: A way of training that is left out.
    without_way: str = ""
    #: Steps after which a loss scale grows: updates that overflow are skipped.
    growth_steps: int | None = None
    #: The loss scale at the beginning; None means Keras's own, which halves after each overflow.
    loss_scale: float | None = None
    #: The reference is no `fit`, but plain Keras with a copy of the model for each replica.
    is_by_hand: bool = False
    #: Whether what is held out is compared, too.
    is_evaluated: bool = True
    #: Ends of names of metrics that need not be equal: means over batches of whatever size, ties.
    not_compared: tuple[str, ...] = ()

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.precision]

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.arrays.train_examples // self.batch)


def split(examples: int, x: Any, y: Any, weights: Any = None) -> Arrays:
    """The first `examples` are trained, the others held out."""
    import keras

    def part(nest: Any, places: slice) -> Any:
        return None if nest is None else keras.tree.map_structure(lambda a: a[places], nest)

    first, rest = slice(examples), slice(examples, None)
    return Arrays(
        part(x, first), part(y, first), part(x, rest), part(y, rest),
        part(weights, first), part(weights, rest),
    )  # fmt: skip


#: Ten steps an epoch, the last of 7 examples: the second of two replicas has none of these.
EXAMPLES, HELD_OUT = 151, 45


def texts(length: int = 8, words: int = 50, is_padded: bool = False) -> tuple[Any, Any]:
    """Sequences of words, and of each whether a word is among them."""
    dice = np.random.default_rng(0)
    x = dice.integers(1, words, (EXAMPLES + HELD_OUT, length)).astype(np.int32)
    y = (x < 5).any(axis=1).astype(np.int32)
    if is_padded:
        lengths = dice.integers(1, length + 1, len(x))
        x[np.arange(length) >= lengths[:, None]] = 0
    return x, y


def positions(length: int) -> Any:
    """A layer with tables that are looked up at the same places for each example."""
    import keras

    class Positions(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.table = keras.layers.Embedding(length, 16)
            self.bias = keras.layers.Embedding(1 + length // 3, 16)

        def call(self, vectors: Any) -> Any:
            places = keras.ops.arange(keras.ops.shape(vectors)[-2])
            return vectors + self.table(places) + self.bias(places // 3)

    return Positions()


def transformer() -> Any:
    """Build the model of Keras's guide: tables of words and of positions, an attention, Adam."""
    import keras

    given = keras.Input((8,), dtype="int32")
    vectors = positions(8)(keras.layers.Embedding(50, 16)(given))
    attended = keras.layers.MultiHeadAttention(2, 8)(vectors, vectors)
    vectors = keras.layers.LayerNormalization()(vectors + attended)
    hidden = keras.layers.Dense(32, "relu")(keras.layers.GlobalAveragePooling1D()(vectors))
    return keras.Model(given, keras.layers.Dense(2)(hidden))


def compiled(
    model: Callable[[], Any], optimizer: Callable[[], Any], loss: Any = None, metrics: Any = None
) -> Callable[[], Any]:
    def build() -> Any:
        import keras

        made = model()
        entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        made.compile(optimizer(), loss or entropy, metrics=metrics or ["accuracy"])
        return made

    return build


def optimizer(name: str, *given: Any, **settings: Any) -> Callable[[], Any]:
    def build() -> Any:
        import keras

        return getattr(keras.optimizers, name)(*given, **settings)

    return build


def transfer() -> Any:
    """A frozen network that scales bytes by operations, as `preprocess_input` does; a head."""
    import keras

    images = keras.Input((8, 8, 3))
    base = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Conv2D(16, 3, activation="relu")], name="base"
    )
    base.trainable = False
    features = base(images / 127.5 - 1.0)
    pooled = keras.layers.GlobalAveragePooling2D()(features)
    return keras.Model(images, keras.layers.Dense(3)(pooled))


def bytes_of_images() -> Arrays:
    dice = np.random.default_rng(1)
    y = dice.integers(0, 3, EXAMPLES + HELD_OUT)
    x = dice.integers(0, 100, (len(y), 8, 8, 3)) + 70 * np.eye(3)[y].astype(int)[:, None, None]
    return split(EXAMPLES, x.astype(np.uint8), y.astype(np.int32))


def tagger() -> Any:
    """A number for each word, padding included; the loss counts words only."""
    import keras

    class Tagger(keras.Model):
        def compute_loss(self, x: Any, y: Any, y_pred: Any, *_: Any, **__: Any) -> Any:
            counts = keras.ops.cast(x > 0, "float32")
            entropy = keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
            of_examples = keras.ops.sum(entropy * counts, -1) / keras.ops.sum(counts, -1)
            return keras.ops.mean(of_examples)

    given = keras.Input((8,), dtype="int32")
    vectors = keras.layers.Embedding(50, 8)(given)
    model = Tagger(given, keras.layers.Dense(4)(keras.layers.Dense(16, "tanh")(vectors)))
    model.compile(keras.optimizers.AdamW(0.01))
    return model


def text_arrays(is_padded: bool = False) -> Arrays:
    return split(EXAMPLES, *texts(is_padded=is_padded))


def tags() -> Arrays:
    x, _ = texts(is_padded=True)
    return split(EXAMPLES, x, x % 4)


def fixed_batch() -> Any:
    """A loss that divides by a number, of values of examples: the way out of a fixed batch."""
    import keras

    class Mine(keras.losses.Loss):
        def call(self, y_true: Any, y_pred: Any) -> Any:
            return keras.ops.square(y_true - y_pred)[:, 0]

    given = keras.Input((8, 8, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(keras.layers.Rescaling(1 / 255)(given))
    model = keras.Model(given, keras.layers.Dense(1)(pooled))
    model.compile(keras.optimizers.SGD(0.5, momentum=0.9), Mine(), metrics=["mae"])
    return model


def numbers_of_images() -> Arrays:
    arrays: Any = bytes_of_images()
    train, test = (y[:, None].astype(np.float32) for y in (arrays.y_train, arrays.y_test))
    return Arrays(arrays.x_train, train, arrays.x_test, test)


def mixed(count: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Two inputs, two outputs by name, and weights of the examples of each output."""
    random = np.random.default_rng(seed)
    left = random.random((count, 4), np.float32)
    right = random.integers(0, 5, (count, 3))
    total = left.sum(axis=1) + right.sum(axis=1)
    kind, value = (total > 8).astype(np.int32), (total[:, None] / 8).astype(np.float32)
    weights = {name: random.random(count, np.float32) for name in ("kind", "value")}
    return {"left": left, "right": right}, {"kind": kind, "value": value}, weights


def numbers(answer: str, examples: int = EXAMPLES) -> Arrays:
    """One input, and one of the answers."""
    x, y, _ = mixed(examples + HELD_OUT)
    return split(examples, x["left"], y[answer])


def two_outputs() -> Any:
    """A compiled model with all that `compile` takes, and a metric with a state."""
    import keras

    class F1(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="f1")
            self.right = self.add_variable((), "zeros", name="right")
            self.wrong = self.add_variable((), "zeros", name="wrong")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            true = keras.ops.cast(keras.ops.reshape(y_true, (-1,)), "bool")
            found = keras.ops.argmax(y_pred, axis=-1) == 1
            self.right.assign_add(keras.ops.sum(keras.ops.cast(true & found, "float32")))
            self.wrong.assign_add(keras.ops.sum(keras.ops.cast(true ^ found, "float32")))

        def result(self) -> Any:
            return 2 * self.right / (2 * self.right + self.wrong + 1e-9)

    left = keras.Input((4,), name="left")
    right = keras.Input((3,), dtype="int64", name="right")
    words = keras.layers.Flatten()(keras.layers.Embedding(5, 2)(right))
    whole = keras.layers.concatenate([left, words])
    hidden = keras.layers.Dense(8, "tanh", kernel_regularizer=keras.regularizers.L2(0.01))(whole)
    outputs = {
        "kind": keras.layers.Dense(2, name="kind")(hidden),
        "value": keras.layers.Dense(1, name="value", kernel_regularizer="l2")(hidden),
    }
    model = keras.Model({"left": left, "right": right}, outputs)
    model.compile(
        keras.optimizers.AdamW(0.01, weight_decay=0.02, clipnorm=0.3),
        {"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "value": "huber"},
        loss_weights={"kind": 0.7, "value": 2.0},
        metrics={"kind": ["accuracy", F1()], "value": "mae"},
        weighted_metrics={"value": [keras.metrics.MeanSquaredError(name="weighted_mse")]},
    )
    return model


def custom_loss_model() -> Any:
    """A subclass with a custom loss and custom metrics, as Keras's guides show it."""
    import keras

    class Focal(keras.Model):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.confidence = keras.metrics.Mean(name="confidence")

        def compute_loss(
            self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True
        ) -> Any:
            entropy = keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
            return keras.ops.mean(entropy * entropy) + sum(self.losses)

        def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            self.confidence.update_state(keras.ops.softmax(y_pred)[:, 0])
            return super().compute_metrics(x, y, y_pred, sample_weight)

    given = keras.Input((4,))
    hidden = keras.layers.Dense(8, "relu", kernel_regularizer="l2")(given)
    model = Focal(given, keras.layers.Dense(2, dtype="float32")(hidden))
    model.compile(keras.optimizers.SGD(0.2, momentum=0.5), metrics=["accuracy"])
    return model


def accumulated() -> Any:
    """Two optimizers with different settings; one updates weights in some steps only."""
    import keras

    given = keras.Input((4,))
    hidden = keras.layers.Dense(8, "tanh")(given)
    model = keras.Model(given, keras.layers.Dense(1, name="head")(hidden))
    head = keras.optimizers.SGD(
        0.05, 0.9, weight_decay=0.1, clipnorm=0.5, gradient_accumulation_steps=4
    )
    rest = keras.optimizers.Adam(0.02, use_ema=True, ema_momentum=0.5)
    optimizers = keras.optimizers.OptimizerMap(rest, {"head.*": head})
    model.compile(keras.optimizers.MultiOptimizer(optimizers), "mse", metrics=["mae"])
    return model


def collectives() -> Any:
    """A layer's statistics are over all replicas' examples, another's variable has their mean."""
    import keras

    class Centred(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.centre = self.add_weight(
                shape=(shape[-1],), trainable=False, aggregation="mean", name="centre"
            )

        def call(self, inputs: Any, training: bool = False) -> Any:
            if training:
                self.centre.assign(0.5 * self.centre + 0.5 * keras.ops.mean(inputs, axis=0))
            return inputs - self.centre

    given = keras.Input((4,))
    # a bias would have a gradient of roundings only, which Adam makes as large as any other
    hidden = keras.layers.Dense(8, use_bias=False)(Centred()(given))
    hidden = keras.layers.BatchNormalization(momentum=0.5, synchronized=True)(hidden)
    model = keras.Model(given, keras.layers.Dense(1)(keras.layers.ReLU()(hidden)))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def recurrent() -> Any:
    """A bidirectional LSTM and a GRU over words, padding masked; one answer for each text."""
    import keras

    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8,), dtype="int32"),
            layers.Embedding(50, 16, mask_zero=True),
            layers.Bidirectional(layers.LSTM(8, return_sequences=True)),
            layers.GRU(16),
            layers.Dense(2),
        ]
    )


def tied() -> Any:
    """The next word: the table of words is looked up, and gives the logits, too."""
    import keras

    class Words(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.table = keras.layers.Embedding(48, 16)
            self.hidden = keras.layers.Dense(16, "tanh")

        def call(self, words: Any) -> Any:
            vectors = self.hidden(self.table(words))
            return keras.ops.matmul(vectors, keras.ops.transpose(self.table.embeddings))

    given = keras.Input((8,), dtype="int32")
    return keras.Model(given, Words()(given))


def next_words() -> Arrays:
    x, _ = texts(words=48)
    return split(EXAMPLES, x, np.roll(x, -1, axis=1))


def residual() -> Any:
    """Two residual blocks of convolutions, each with batch normalization."""
    import keras

    layers = keras.layers
    given = keras.Input((8, 8, 3))
    images = layers.Conv2D(16, 3, padding="same", use_bias=False)(given)
    for _ in range(2):
        hidden = layers.BatchNormalization(momentum=0.9)(images)
        hidden = layers.Conv2D(16, 3, padding="same", use_bias=False)(layers.ReLU()(hidden))
        images = images + layers.BatchNormalization(momentum=0.9)(hidden)
    pooled = layers.GlobalAveragePooling2D()(layers.ReLU()(images))
    return keras.Model(given, layers.Dense(3)(pooled))


#: Whole batches, or a last one of 7 examples.
WHOLE, UNEVEN = 160, 151
#: Only mixed_float16 scales the loss; what several replicas sum is float32 in each of them.
PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")
BY_SGD = {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9}
#: A schedule of learning rates with all that the recipe's optimizer can do besides.
SCHEDULED = {**BY_SGD, "nesterov": True, "weight_decay": 0.05, "warmup_epochs": 1.5,
             "decay": "cosine", "label_smoothing": 0.2}  # fmt: skip
#: A training whose scaled loss overflows every few steps, on the replica with a bright image.
GROWTH_STEPS, BRIGHT = 3, 8
OVERFLOW = {**BY_SGD, "learning_rate": 1e-6, "momentum": 0.0}


def images_of(examples: int, held_out: int | None = None) -> Arrays:
    every: Any = synthetic_arrays(WHOLE)
    test = (every.x_test[:held_out], every.y_test[:held_out])
    return Arrays(every.x_train[:examples], every.y_train[:examples], *test)


def bright_images() -> Arrays:
    """Dark images, and a few bright ones of different classes."""
    arrays: Any = images_of(WHOLE)
    images, labels = arrays.x_train // 64, arrays.y_train.copy()
    images[:BRIGHT], labels[:BRIGHT] = 255, np.arange(BRIGHT)
    return Arrays(images, labels, arrays.x_test, arrays.y_test)


def layers() -> Any:
    """Layers that Keras does not have."""
    import keras

    class WithoutGradient(keras.layers.Layer):
        """A trainable variable that the loss does not depend on."""

        def build(self, shape: Any) -> None:
            self.unused = self.add_weight(shape=(3,), name="unused")

        def call(self, inputs: Any) -> Any:
            return inputs

    class Spread(keras.layers.Layer):
        """Add a loss, a mean over the batch."""

        def call(self, inputs: Any) -> Any:
            self.add_loss(0.1 * keras.ops.mean(keras.ops.square(inputs)))
            return inputs

    return WithoutGradient, Spread


def plain_model() -> Any:
    """All that does not depend on how a batch is split: embedding, L2, no gradient, no dropout."""
    import keras

    without_gradient, _ = layers()
    return keras.Sequential(
        [
            keras.Input((8, 8)),
            keras.layers.Flatten(),
            keras.layers.Rescaling(255 / 16, dtype="float32"),
            keras.layers.Embedding(16, 3),
            keras.layers.Flatten(),
            keras.layers.Dense(16, "relu", kernel_regularizer=keras.regularizers.L2(0.01)),
            without_gradient(),
            keras.layers.Dropout(0.0),
            keras.layers.Dense(10),
        ]
    )  # fmt: skip


def split_model() -> Any:
    """What depends on how a batch is split: batch normalization, dropout, losses of a batch."""
    import keras

    without_gradient, spread = layers()
    return keras.Sequential(
        [
            keras.Input((8, 8)),
            keras.layers.Flatten(),
            keras.layers.Dense(16, kernel_regularizer=keras.regularizers.L2(0.01)),
            keras.layers.BatchNormalization(momentum=0.9),
            keras.layers.ReLU(),
            spread(dtype="float32"),  # Keras cannot add losses of several types
            keras.layers.Dropout(0.5),
            keras.layers.Dense(
                16, activity_regularizer=keras.regularizers.L2(0.001), dtype="float32"
            ),
            without_gradient(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10),
        ]
    )


def overflowing_model() -> Any:
    """The gradient of its weights is the brightest image times that of the loss.

    So it overflows above a scale of 2 ** 14 if there is a bright image among a replica's images.
    """
    import keras

    return keras.Sequential(
        [
            keras.Input((8, 8)),
            keras.layers.Flatten(),
            keras.layers.Rescaling(64.0),
            keras.layers.Dense(10, use_bias=False, kernel_initializer="zeros"),
        ]
    )


#: A transformer takes four times as long as others: one optimizer trains it in all ways.
TWO_REPLICAS: dict[str, Any] = {
    "replicas": (2,),
    "strategies": ("mirrored", "multi_worker_mirrored", MPI_STRATEGY),
}
#: Models of public guides, and small ones with all that optimizers do with tables.
PUBLIC: dict[str, Case] = {
    "transformer, AdamW": Case(compiled(transformer, optimizer("AdamW", 0.01)), text_arrays()),
    "transformer, RMSprop": Case(
        compiled(transformer, optimizer("RMSprop", 0.003)), text_arrays(), **TWO_REPLICAS
    ),
    "transformer, Adagrad": Case(
        compiled(transformer, optimizer("Adagrad", 0.05)), text_arrays(), **TWO_REPLICAS
    ),
    "transformer, the recipe's adam": Case(
        transformer,
        text_arrays(),
        recipe={"optimizer": "adam", "learning_rate": 0.01},
        **TWO_REPLICAS,
    ),
    "transfer learning on bytes": Case(
        compiled(transfer, optimizer("Adam", 0.01)), bytes_of_images()
    ),
    "masked sequences": Case(tagger, tags()),
    "a loss of one value for each example": Case(fixed_batch, numbers_of_images()),
    "recurrent": Case(
        compiled(recurrent, optimizer("Adam", 0.01)), text_arrays(is_padded=True), epochs=3
    ),
    "tied embedding": Case(compiled(tied, optimizer("AdamW", 0.01)), next_words()),
    # later epochs of so few examples make roundings grow
    "residual network": Case(residual, bytes_of_images(), epochs=2, recipe=BY_SGD, is_by_hand=True),
}


def three_layers() -> Any:
    """Return a network whose gradients begin at multiples of 64 bytes in what ranks sum.

    TensorFlow takes memory as it is from there, and writes results into it.
    """
    import keras

    dense = keras.layers.Dense
    return keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            keras.layers.Flatten(),
            dense(64, "relu"),
            dense(64, "relu"),
            dense(16),
        ]
    )


def images_of_16_classes(examples: int) -> Arrays:
    dice = np.random.default_rng(4)
    x = dice.random((examples + 1, 16, 16, 3), np.float32)
    return split(examples, x, dice.integers(0, 16, examples + 1).astype(np.int32))


#: Ordinary networks, which two ranks train by MPI; one without padding.
ORDINARY: dict[str, Case] = {
    f"three layers, {name}": Case(
        compiled(three_layers, optimizer(name, rate)), images_of_16_classes(examples), batch=32,
        epochs=2, replicas=(2,), strategies=(MPI_STRATEGY,), is_evaluated=False,
    )
    for name, rate, examples in [
        ("SGD", 0.1, UNEVEN - 1), ("Adam", 0.01, WHOLE), ("RMSprop", 0.003, UNEVEN - 1),
    ]
}  # fmt: skip


def features() -> dict[str, Case]:
    """All that depends on precision, on how a batch is split, and on the recipe."""
    found = {}
    for precision in PRECISIONS:
        replicas = (1,) if precision == "mixed_bfloat16" else (1, 2, 4)
        usual: dict[str, Any] = {"precision": precision, "recipe": BY_SGD}
        found[f"plain, {precision}"] = Case(
            plain_model, images_of(UNEVEN), replicas=replicas, **usual
        )
        # held-out examples without padding, too, which takes part in losses of layers
        whole = images_of(WHOLE, EVALUATION_BATCH)
        found[f"whole, {precision}"] = Case(split_model, whole, replicas=(1,), **usual)
        found[f"split, {precision}"] = Case(
            split_model, images_of(UNEVEN), replicas=replicas, is_by_hand=True, **usual
        )
    found["scheduled"] = Case(small_model, images_of(UNEVEN), recipe=SCHEDULED)
    found["overflow"] = Case(
        overflowing_model, bright_images(), epochs=8, precision="mixed_float16",
        recipe=OVERFLOW, growth_steps=GROWTH_STEPS, not_compared=("accuracy",),
    )  # fmt: skip
    not_compared = ("kind_loss", "value_loss")
    found["two outputs"] = Case(
        two_outputs, split(EXAMPLES, *mixed(EXAMPLES + HELD_OUT)), not_compared=not_compared
    )
    found["own loss"] = Case(custom_loss_model, numbers("kind"), precision="mixed_float16")
    found["accumulated"] = Case(accumulated, numbers("value"), recipe={"steps_per_execution": 5})
    # statistics of a complete batch
    found["collectives"] = Case(collectives, numbers("value", WHOLE))
    return found


#: With `jit_compile`: a classifier with an embedding and regularisers, also with a scaled loss,
#: tables of words, two outputs.
_BY_XLA: dict[str, Any] = {
    "replicas": (1, 2),
    "strategies": ("single", *TWO_REPLICAS["strategies"]),
}
XLA: dict[str, Case] = {
    **{
        f"xla, {precision}": Case(
            plain_model,
            images_of(UNEVEN),
            precision=precision,
            recipe={**BY_SGD, "jit_compile": True},
            **_BY_XLA,
        )
        for precision in ("float32", "mixed_float16")
    },
    "xla, transformer": Case(
        compiled(transformer, optimizer("AdamW", 0.01)),
        text_arrays(),
        recipe={"jit_compile": True, "steps_per_execution": 5},
        **_BY_XLA,
    ),
    "xla, two outputs": Case(
        two_outputs,
        split(EXAMPLES, *mixed(EXAMPLES + HELD_OUT)),
        not_compared=("kind_loss", "value_loss"),
        recipe={"jit_compile": True},
        **_BY_XLA,
    ),
}


def compiled_by_xla(first: int, last: int) -> Iterator[tuple[str, Case]]:
    return iter([*XLA.items()][first:last])


def ordinary(first: int, last: int) -> Iterator[tuple[str, Case]]:
    return iter([*ORDINARY.items()][first:last])


def public(first: int, last: int) -> Iterator[tuple[str, Case]]:
    return iter([*PUBLIC.items()][first:last])


def feature_cases(first: int, last: int) -> Iterator[tuple[str, Case]]:
    return iter([*features().items()][first:last])


def fifty_steps() -> dict[str, Case]:
    """A transformer for `make versions`: fifty steps on one replica and on two."""
    name = "transformer, AdamW"
    strategies = ("multi_worker_mirrored", MPI_STRATEGY)
    return {name: replace(PUBLIC[name], replicas=(1, 2), strategies=strategies)}


def fifty(first: int, last: int) -> Iterator[tuple[str, Case]]:
    return iter([*fifty_steps().items()][first:last])
