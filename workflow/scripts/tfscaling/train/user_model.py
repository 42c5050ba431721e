"""A custom Keras model: which of its settings train it, and what is refused or reported.

A compiled model, or one with a custom `compute_loss`, is trained by its own loss, metrics and
optimizer (`custom_train_step`); keys of the recipe win where they are given. Any other model is a
classifier whose layers, weights and `call` are used, and whose loss is the cross-entropy; so is
every model if the recipe's `loss` requests it. A model with a custom `train_step` or `fit` is
refused: a program trains it.

A model that trains itself gets the arrays as `fit` gives them. A classifier's bytes are images,
which are scaled to [0, 1], unless the model takes whole numbers: an integer `keras.Input` takes
them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfscaling.datasets.catalogue import Nest
from tfscaling.study.config_types import Recipe
from tfscaling.train import keras_internals
from tfscaling.train.optimizers import learning_rate_factor, make_learning_rate, make_optimizer

#: Methods of keras.Model that the trainer, which has its own loop, does not call.
NEVER_CALLED = (
    *("train_step", "test_step", "make_train_function", "make_test_function"),
    *("fit", "evaluate"),
)
#: Methods that define how a model trains and is measured.
OWN_TRAINING = ("compute_loss", "compute_metrics", "get_metrics_result")
#: Arguments of `compile()` that define what is trained and measured.
_LOSS_AND_METRICS = ("loss", "loss_weights", "metrics", "weighted_metrics")


class ModelError(ValueError):
    """The model cannot be trained as it is; the message names the problem and what to change."""


def build_model(name: str, function: Callable[[], Any]) -> Any:
    """Call the user's function and return the Keras model.

    Args:
        name: Name of the function, for messages.
        function: The function, without arguments.

    Raises:
        ModelError: The model cannot be trained, or the function sets the random seed or dtype
            policy.
    """
    import keras
    import tensorflow as tf

    # they belong to the recipe and the run; `keras.utils.set_random_seed` sets TensorFlow's seed
    policy, seed = keras.config.dtype_policy().name, tf.compat.v1.random.get_seed(0)
    model = function()
    wrong = find_problem(model)
    if tf.compat.v1.random.get_seed(0) != seed:
        wrong = (
            "the function sets the random seed; the run's seed gives each repeat its own weights"
        )
    if (own := keras.config.dtype_policy().name) != policy:
        wrong = (
            f"the function sets the dtype policy to {own}; the recipe has the key precision, and a "
            "layer may have a separate dtype"
        )
    if wrong is not None:
        raise ModelError(f"model {name}: {wrong}")
    return model


def find_problem(model: Any) -> str | None:
    """Return why the built-in trainer cannot train a custom model, as a clause; None if it can.

    It must be a Keras model with trainable weights, and may not override methods such as
    `train_step`, which the trainer does not call.
    """
    import keras

    if not isinstance(model, keras.Model):
        return f"the function returns {type(model).__name__}; it must return a model of Keras 3"
    if overridden := [name for name in NEVER_CALLED if has_own_method(model, name)]:
        return (
            f"the model has its own {', '.join(overridden)}, which would not be called: the "
            "workflow has a separate loop. Put what is special into compute_loss, or run your "
            "script as a program (docs/programs.md)"
        )
    if not model.built or not model.trainable_variables:
        return (
            "the model has no weights to train yet; begin it with keras.Input, or call it once on "
            "an example, as in model(keras.ops.zeros((1, 28, 28)))"
        )
    return None


def uses_own_loss(model: Any, recipe: Recipe) -> bool:
    """Return whether the model is trained with its own loss, by the recipe and the model.

    Otherwise it is trained as a classifier, with cross-entropy.
    """
    return recipe.loss == "model" and bool(model.compiled or has_own_method(model, "compute_loss"))


def check_classifier(model: Any, labels_problem: str | None) -> None:
    """Check that the model can be trained by the cross-entropy of one output.

    Args:
        model: The model.
        labels_problem: Why the labels are not classes, from `label_problem`; None if they are.

    Raises:
        ModelError: The model overrides a method in OWN_TRAINING, it does not have exactly one input
            and one output of logits, or the labels are not classes.
    """
    if overridden := [name for name in OWN_TRAINING if has_own_method(model, name)]:
        raise ModelError(
            f"the model has its own {', '.join(overridden)}, which would not be called: its loss "
            "is the cross-entropy. Compile the model, or leave `loss` out of the recipe"
        )
    wrong = _shape_problem(model) or labels_problem
    if wrong is not None:
        raise ModelError(
            f"{wrong}. Without a loss of the model's own, the cross-entropy trains it; "
            "compile() it with a loss to train it otherwise"
        )


def _shape_problem(model: Any) -> str | None:
    """Return why the model is no classifier with one input and one output of logits.

    Returns:
        None if it is one, or if it does not list its inputs and outputs, like a subclass of
        keras.Model.
    """
    inputs, outputs = getattr(model, "inputs", None), getattr(model, "outputs", None)
    if not inputs or not outputs:
        return None
    if len(inputs) > 1 or len(outputs) > 1:
        return (
            f"the model has {len(inputs)} inputs and {len(outputs)} outputs, and not one input "
            "and one output, the logits of the classes"
        )
    shape = tuple(outputs[0].shape)
    if len(shape) != 2:
        return f"the output has the shape {shape}, and not one logit for each class"
    last = model.layers[-1]
    kind = getattr(getattr(last, "activation", None), "__name__", type(last).__name__).lower()
    if kind in ("softmax", "sigmoid"):
        return (
            f"layer {last.name} ends the model with a {kind}, which the cross-entropy applies "
            "itself: leave it out"
        )
    return None


def label_problem(*elements: tuple[Any, ...]) -> str | None:
    """Return why labels are not one non-negative integer for each example; None if they are.

    Args:
        *elements: Pairs (inputs, labels) of all examples, as arrays or TensorSpecs.
    """
    for element in elements:
        if not isinstance(element, tuple) or len(element) != 2:
            return "the data is something else than (inputs, labels), as with weights of examples"
        labels = element[1]
        if isinstance(labels, dict | tuple):
            return f"the labels have {len(labels)} arrays, and not one"
        kind = np.dtype(getattr(labels.dtype, "as_numpy_dtype", labels.dtype)).kind
        if kind not in "ui" or any(size not in (None, 1) for size in labels.shape[1:]):
            return (
                f"the labels have the type {labels.dtype.name} and the shape {labels.shape}, and "
                "not one whole number for each example"
            )
        if isinstance(labels, np.ndarray) and labels.min() < 0:
            return f"there is a label {labels.min()}, and labels are from 0 on"
    return None


def apply_recipe_settings(
    model: Any, recipe: Recipe, replicas: int, updates_per_epoch: int | None = None
) -> None:
    """Set optimizer and learning rate of a model with its own loss as the recipe requests.

    Settings that the recipe does not give stay as compiled.

    Args:
        model: The model, which is changed.
        recipe: The recipe.
        replicas: Number of replicas, by which the learning rate may be scaled.
        updates_per_epoch: Updates in an epoch; None if unknown.

    Raises:
        ModelError: The model lacks a loss or optimizer, or cannot take a setting of the recipe.
    """
    if recipe.label_smoothing:
        raise ModelError(
            "the model's own loss trains it, which the recipe's label_smoothing cannot follow: "
            "leave it out, or let the recipe's `loss` be sparse_categorical_crossentropy"
        )
    if not model.compiled:
        if has_own_method(model, "compile"):
            raise ModelError("the model has its own compile(); call it in the function")
        model.compile(make_optimizer(recipe, replicas, updates_per_epoch), jit_compile=False)
        return
    if getattr(model, "loss", None) is None and not has_own_method(model, "compute_loss"):
        raise ModelError(
            "compile() names no loss; name one there, or `loss` in the recipe, or override "
            "compute_loss if only the losses that layers add count"
        )
    if model.optimizer is None and recipe.optimizer == "model":
        raise ModelError(
            "compile() names no optimizer; name one there, or `optimizer` in the recipe"
        )
    if recipe.optimizer != "model":
        model.optimizer = make_optimizer(recipe, replicas, updates_per_epoch)
        return
    _change_optimizer(model, recipe, learning_rate_factor(recipe, replicas), updates_per_epoch)


def _change_optimizer(
    model: Any, recipe: Recipe, factor: float, updates_per_epoch: int | None
) -> None:
    """Change the settings of the compiled optimizer to those in the recipe.

    Args:
        model: The model, whose optimizer is changed.
        recipe: The recipe.
        factor: Factor of the learning rate by the number of replicas.
        updates_per_epoch: Updates in an epoch; None if unknown.

    Raises:
        ModelError: The optimizer cannot take a setting.
    """
    import keras

    asked = {key: getattr(recipe, key) for key in ("momentum", "nesterov", "weight_decay")}
    given = {key: value for key, value in asked.items() if value is not None}
    replaces = recipe.learning_rate is not None or recipe.has_schedule
    if not given and not replaces and factor == 1.0:
        return
    inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if isinstance(inner, keras.optimizers.MultiOptimizer):
        raise ModelError(
            "the model's optimizer is a MultiOptimizer, each of whose optimizers has settings of "
            "its own: the recipe's learning_rate, its scaling and schedule, momentum, nesterov and "
            "weight_decay cannot change them. Leave these out, or name an optimizer"
        )
    for key, value in given.items():
        if key == "weight_decay":
            inner.weight_decay = value or None
        elif isinstance(inner, keras.optimizers.SGD):
            setattr(inner, key, value)
    rate = keras_internals.learning_rate(inner)
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        if replaces:
            raise ModelError(
                "the compiled optimizer has a schedule of learning rates, which the recipe's "
                "learning_rate, warmup_epochs and decay cannot replace: leave them out, or name "
                "an optimizer"
            )
        if factor != 1.0:
            inner.learning_rate = _scale_schedule(rate, factor)
        return
    own = float(inner.learning_rate) if recipe.learning_rate is None else recipe.learning_rate
    inner.learning_rate = make_learning_rate(recipe, own * factor, updates_per_epoch)


def _scale_schedule(schedule: Any, factor: float) -> Any:
    """Return a schedule with the learning rates of `schedule` times a factor."""
    import keras

    class Scaled(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
        """The scaled schedule."""

        def __call__(self, step: Any) -> Any:
            """Return the scaled learning rate of update number `step`."""
            return schedule(step) * factor

    return Scaled()


def describe_training(model: Any, recipe: Recipe) -> str:
    """Return optimizer, loss, metrics and own methods of a model in words; "" for a classifier."""
    if not uses_own_loss(model, recipe):
        return ""
    methods = [f"its own {name}" for name in OWN_TRAINING if has_own_method(model, name)]
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    return _join_names(
        [f"optimizer {type(optimizer).__name__}", *_list_compiled_settings(model), *methods]
    )


def warnings_before_training(model: Any, recipe: Recipe) -> list[str]:
    """Return [warning] if the model is compiled, but is trained as a classifier; else []."""
    if uses_own_loss(model, recipe) or not model.compiled:
        return []
    names = [f"optimizer {type(model.optimizer).__name__}", *_list_compiled_settings(model)]
    return [
        f"the model's own compile() settings ({_join_names(names)}) are not used: the recipe's "
        "optimizer and the cross-entropy are"
    ]


def warnings_after_training(model: Any, recipe: Recipe, steps: int) -> Iterator[str]:
    """Yield warnings about the metrics and the learning-rate schedule of a model with its own loss.

    Args:
        model: The trained model.
        recipe: The recipe. If it makes the model a classifier, no warning is yielded.
        steps: Number of steps that the model was trained.
    """
    if not uses_own_loss(model, recipe):
        return
    if wide := [name for name, value in model.get_metrics_result().items() if np.size(value) != 1]:
        yield f"metrics with several values are not recorded: {_join_names(wide)}"
    if names := _find_non_additive_metrics(model):
        yield (
            f"the state of {_join_names(names)} is no sum over batches, and replicas' states are "
            "summed: the value depends on the number of replicas. Set another `aggregation` of its "
            "variables, or do not compare it"
        )
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    try:
        rate = optimizer.get_config().get("learning_rate")
    except (AttributeError, NotImplementedError):  # of a user's own
        return
    schedule = rate if isinstance(rate, dict) else {}
    settings = schedule.get("config", {})
    end = settings.get("decay_steps", 0) + (settings.get("warmup_steps") or 0)
    is_ending = schedule.get("class_name") in ("CosineDecay", "PolynomialDecay")
    if is_ending and abs(end - steps) > 0.01 * steps:
        yield (
            f"the compiled {schedule['class_name']} ends at step {end}, the training at step "
            f"{steps}: with other numbers of replicas the learning rate ends elsewhere, unless "
            "global_batch_size and steps_per_epoch are set"
        )


def _find_non_additive_metrics(model: Any) -> list[str]:
    """Return the names of custom metrics whose state is not a sum over batches.

    Such a state cannot be summed over replicas. A copy of each metric is tested with random
    numbers. Metrics that cannot be copied or take other arguments are not tested.
    """
    named = [part for each in model.metrics for part in getattr(each, "metrics", [each])]
    custom = [each for each in named if type(each).__module__.split(".")[0] != "keras"]
    return [each.name for each in custom if not _is_additive(each)]


def _is_additive(metric: Any) -> bool:
    """Return whether a metric's state after two batches is the sum of its states after each."""
    dice = np.random.default_rng(0)
    batches = [dice.random((4, 1), np.float32) for _ in range(4)]

    def states(*parts: Any) -> list[Any]:
        """Return the values of the copy's variables after it is reset and gets these batches."""
        copy.reset_state()
        for labels, outputs in parts:
            copy.update_state(labels, outputs)
        return [v.numpy() for v in copy.variables if v.aggregation == "sum"]

    try:
        copy = type(metric).from_config(metric.get_config())
        first, second = (batches[0], batches[1]), (batches[2], batches[3])
        sums = [a + b for a, b in zip(states(first), states(second), strict=True)]
        return all(map(np.allclose, states(first, second), sums))
    except Exception:  # raised by user code
        return True


def _list_compiled_settings(model: Any) -> list[str]:
    """Return the given arguments of the model's `compile()`, each as `name value` in words."""
    given = ((key, keras_internals.compile_settings(model).get(key)) for key in _LOSS_AND_METRICS)
    return [f"{key} {_describe_setting(value)}" for key, value in given if value is not None]


def _join_names(names: list[str]) -> str:
    """Return names as one text: `a, b, c`; a semicolon in a name becomes a comma."""
    return ", ".join(names).replace(";", ",")  # warnings are joined by a semicolon


def _describe_setting(value: Any) -> str:
    """Return a setting in a word: for an object its class, for a list its items."""
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_describe_setting(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return " and ".join(_describe_setting(item) for item in value)
    return str(getattr(value, "__name__", type(value).__name__))


def has_own_method(model: Any, name: str) -> bool:
    """Return whether the model or its class overrides a method of keras.Model.

    Args:
        model: The model.
        name: Name of the method.
    """
    if name in vars(model):
        return True
    owner = next((cls for cls in type(model).__mro__ if name in vars(cls)), None)
    return owner is not None and owner.__module__.split(".")[0] != "keras"


#: Layers that take inputs outside [0, 1].
_FOR_BYTES = ("Rescaling", "Normalization", "Embedding")


def scale_bytes(model: Any, x: Any) -> Any:
    """Return the inputs with images in bytes scaled to [0, 1]; other inputs are unchanged.

    Args:
        model: The classifier.
        x: Its inputs, nested tensors.
    """
    import tensorflow as tf

    def scaled(data: Any, symbol: Any) -> Any:
        """Return one input, scaled if it has bytes and the model takes floating-point numbers."""
        is_scaled = _is_scaled(data, symbol)
        return tf.cast(data, tf.float32) * (1.0 / 255.0) if is_scaled else data

    return tf.nest.map_structure(scaled, x, _symbolic_inputs(model, x))


def warn_of_scaled_bytes(model: Any, recipe: Recipe, x: Nest) -> list[str]:
    """Return [warning] if a classifier gets scaled bytes but may expect unscaled ones; else [].

    The training scales bytes to [0, 1]. The model may expect them unscaled if it has a layer in
    _FOR_BYTES.

    Args:
        model: The model.
        recipe: The recipe.
        x: The inputs in the data.
    """
    import keras
    import tensorflow as tf

    if uses_own_loss(model, recipe):
        return []
    if not all(map(_is_scaled, tf.nest.flatten(x), tf.nest.flatten(_symbolic_inputs(model, x)))):
        return []
    parts = tf.train.TrackableView(model).descendants()
    layers = [part for part in parts if isinstance(part, keras.layers.Layer)]
    kinds = ((layer.name, type(layer).__name__) for layer in layers)
    named = [f"{name} ({kind})" for name, kind in kinds if kind in _FOR_BYTES]
    if not named:
        return []
    return [
        f"the bytes of the inputs are scaled to 0 … 1, and the model has {', '.join(named)}. If "
        'such a layer is for bytes, compile the model, give keras.Input dtype="uint8", or return '
        "float32"
    ]


def _is_scaled(data: Any, symbol: Any) -> bool:
    """Return whether `scale_bytes` scales inputs: bytes that the model takes as floating-point.

    Args:
        data: The inputs.
        symbol: The model's symbolic input; None if it is unknown.
    """
    return data.dtype.name == "uint8" and (symbol is None or "float" in symbol.dtype)


def _symbolic_inputs(model: Any, x: Any) -> Any:
    """Return the symbolic Keras input of the model for each part of its inputs.

    Args:
        model: The model.
        x: The inputs, nested tensors.

    Returns:
        The same nesting as `x`; None in place of an input that the model does not declare.
    """
    inputs: Sequence[Any] = getattr(model, "inputs", None) or ()
    if isinstance(x, dict):
        by_name = {each.name: each for each in inputs}  # Keras requires these names of keys
        return {name: by_name.get(name) for name in x}
    if isinstance(x, tuple):
        return tuple(inputs) if len(inputs) == len(x) else (None,) * len(x)
    return inputs[0] if len(inputs) == 1 else None
