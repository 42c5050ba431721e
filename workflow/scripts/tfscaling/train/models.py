"""Models to train, by name. Keras is imported inside functions only."""

from __future__ import annotations

import functools
import re
from typing import Any

from tfscaling.study import user_code
from tfscaling.study.registries import Model
from tfscaling.study.user_code import NO_ARGUMENTS, ArgumentValues
from tfscaling.train import user_model


def _mnist_cnn() -> Any:
    """Return an untrained network for MNIST: one convolution and two dense layers."""
    import keras

    return keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Reshape((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def _cifar10_cnn() -> Any:
    """Return an untrained network for CIFAR-10: three convolutions and two dense layers."""
    import keras

    return keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def _resnet50() -> Any:
    """Return an untrained ResNet-50; batch normalization uses each replica's part of a batch."""
    import keras

    return keras.applications.ResNet50(
        weights=None, input_shape=(224, 224, 3), classes=1000, classifier_activation=None
    )


#: Name → model, for every built-in model of the grid.
MODELS: dict[str, Model] = {
    "mnist_cnn": Model(
        "The convolutional network of TensorFlow's multi-worker tutorial: 2.8 million parameters.",
        "mnist",
        _mnist_cnn,
        (28, 28),
    ),
    "cifar10_cnn": Model(
        "The convolutional network of TensorFlow's image tutorial: 0.12 million parameters.",
        "cifar10",
        _cifar10_cnn,
        (32, 32, 3),
    ),
    "resnet50": Model(
        "ResNet-50 of keras.applications, untrained: 25.6 million parameters, 1,000 classes.",
        "tfscaling.datasets.image_files:data",
        _resnet50,
        (224, 224, 3),
    ),
}


def find_model(name: str, parameters: ArgumentValues = NO_ARGUMENTS) -> Model:
    """Return a built-in model by its name, or a custom model.

    Args:
        name: Name in MODELS, or `package.module:function`.
        parameters: Values of the recipe that a custom function may take as arguments.

    Raises:
        KeyError: MODELS has no such name.
    """
    if not user_code.is_reference(name):
        return MODELS[name]
    build = functools.partial(
        user_model.build_model, name, lambda: user_code.call_function(name, parameters)
    )
    return Model("A custom function.", None, build)


#: Operations that the profiler does not count, and that may have most of the work.
_UNCOUNTED = re.compile(r"Einsum|While|Call|RNN|FFT|Sparse|^(Stateless)?(If|Case)$")


def training_flops(model: Any) -> float | None:
    """Return the floating-point operations (FLOPs) of a training step per example.

    They are three times the operations of the forward pass.

    Returns:
        None if TensorFlow's profiler cannot count all operations of the model.
    """
    import tensorflow as tf

    def forward(*inputs: Any) -> Any:
        """Return the outputs of the model for one example."""
        return model(inputs[0] if len(inputs) == 1 else list(inputs), training=False)

    try:
        shapes = [tf.TensorSpec([1, *each.shape[1:]], each.dtype) for each in model.inputs]
        graph = tf.function(forward).get_concrete_function(*shapes).graph
        if any(_UNCOUNTED.search(each.type) for each in graph.get_operations()):
            return None
        options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
        options["output"] = "none"
        counted = tf.compat.v1.profiler.profile(graph, options=options)
    except Exception:  # of a user's model, of whatever kind: it has trained without this
        return None
    # the backward pass has two products for each one of the forward pass
    return 3 * counted.total_float_ops or None
