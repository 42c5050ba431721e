"""A user's Keras model: what the training would not follow is refused or said.

The training takes the layers, the weights, the losses that layers add, and the model's `call`. It
takes loss, optimizer and step from the recipe, for every strategy alike. What a model has of its
own in their place would be ignored: an overridden method is refused, settings of `compile()` are a
warning in the run's record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

#: Methods of keras.Model that say how it trains.
TRAINING_METHODS = (
    *("train_step", "test_step", "compute_loss", "stateless_compute_loss", "compute_metrics"),
    *("make_train_function", "make_test_function", "fit", "evaluate"),
)
#: Activations whose result is no logit: the loss would apply a softmax to it once more.
PROBABILITIES = ("softmax", "sigmoid")
#: Settings of `compile()` and their defaults; the optimizer always has a value.
_DEFAULTS = {
    "loss": None,
    "loss_weights": None,
    "metrics": None,
    "weighted_metrics": None,
    "run_eagerly": False,
    "steps_per_execution": 1,
    "jit_compile": False,
}


class ModelError(ValueError):
    """The training could not follow the model; names what, and the way out."""


def build(name: str, function: Callable[[], Any]) -> Any:
    """The model that the user's function makes. Raises ModelError if it could not be followed."""
    before = _global_settings()
    model = function()
    if (wrong := _changed(before, _global_settings()) or problem(model)) is not None:
        raise ModelError(f"model {name}: {wrong}")
    return model


def problem(model: Any) -> str | None:
    """Why the training cannot follow the model, or None."""
    import keras

    if not isinstance(model, keras.Model):
        return f"the function returns {type(model).__name__}; it must return a model of Keras 3"
    if overridden := [name for name in TRAINING_METHODS if _is_own(model, name)]:
        return (
            f"the model has its own {', '.join(overridden)}, which would not be called: the recipe "
            "gives the optimizer, the loss is the cross-entropy. Return a model without them; a "
            "term of the loss can be added in a layer with add_loss"
        )
    if not model.built or not model.trainable_variables:
        return (
            "the model has no weights to train yet; begin it with keras.Input, or call it once on "
            "an example, as in model(keras.ops.zeros((1, 28, 28)))"
        )
    return _problem_of_shape(model)


def _problem_of_shape(model: Any) -> str | None:
    """One input, one output of logits; a subclass of keras.Model does not say what it has."""
    inputs, outputs = getattr(model, "inputs", None), getattr(model, "outputs", None)
    if not inputs or not outputs:
        return None
    if len(inputs) > 1 or len(outputs) > 1:
        return (
            f"the model has {len(inputs)} inputs and {len(outputs)} outputs; it must have one "
            "input, the images, and one output, the logits of the classes"
        )
    shape = tuple(outputs[0].shape)
    if len(shape) != 2:
        return f"the output has the shape {shape}; it must have one logit for each class"
    last = outputs[0]._keras_history.operation
    kind = getattr(getattr(last, "activation", None), "__name__", type(last).__name__).lower()
    if kind in PROBABILITIES:
        return (
            f"layer {last.name} ends the model with a {kind}; the loss takes logits and applies "
            "the softmax itself. Leave it out"
        )
    return None


def warnings(model: Any) -> list[str]:
    """What of the model is not used, one sentence each; goes into the run's record."""
    if not getattr(model, "compiled", False):
        return []
    found = [f"optimizer {type(model.optimizer).__name__}"]
    settings: Mapping[str, Any] = getattr(model._compile_config, "config", {})
    for key, default in _DEFAULTS.items():
        value = settings.get(key, default)
        if value != default:
            found.append(f"{key} {_named(value)}")
    named = ", ".join(found).replace(";", ",")  # warnings are joined by a semicolon
    return [
        f"the model's own compile() settings ({named}) are not used: the recipe's optimizer and "
        "the cross-entropy are"
    ]


def _named(value: Any) -> str:
    """A setting in a word: of an object its class, of a list those of its items."""
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_named(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return " and ".join(_named(item) for item in value)
    return str(getattr(value, "__name__", type(value).__name__))


def _is_own(model: Any, name: str) -> bool:
    """Whether the method is not Keras's, but of the model's class, one of its bases, or its own."""
    if name in vars(model):
        return True
    owner = next((cls for cls in type(model).__mro__ if name in vars(cls)), None)
    return owner is not None and owner.__module__.split(".")[0] != "keras"


def _global_settings() -> tuple[str, Any]:
    """(dtype policy, seed of Keras), which belong to the recipe and the run."""
    import keras
    from keras.src.utils import rng_utils  # keras.utils sets the seed, but does not tell it

    return keras.config.dtype_policy().name, rng_utils.get_random_seed()


def _changed(before: tuple[str, Any], after: tuple[str, Any]) -> str | None:
    if before[0] != after[0]:
        return (
            f"the function sets the dtype policy to {after[0]}; the recipe has the key precision, "
            "and a layer may have a dtype of its own"
        )
    if before[1] != after[1]:
        return "the function sets the random seed; the run's seed gives each repeat its own weights"
    return None
