"""A user's model: what the training would not follow is refused, or a warning in the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tfscaling.study import user_code
from tfscaling.training import models, user_model
from tfscaling.training.user_model import ModelError

keras = pytest.importorskip("keras")


@pytest.fixture(autouse=True)
def policy() -> Iterator[None]:
    before = keras.config.dtype_policy().name
    yield
    keras.config.set_dtype_policy(before)


def layers(**last: Any) -> list[Any]:
    return [keras.Input((4,)), keras.layers.Dense(3, **last)]


def functional(outputs: int = 1, inputs: int = 1) -> Any:
    given = [keras.Input((4,)) for _ in range(inputs)]
    whole = given[0] if inputs == 1 else keras.layers.concatenate(given)
    return keras.Model(given, [keras.layers.Dense(3)(whole) for _ in range(outputs)])


def own_class(*names: str, base: Any = None) -> Any:
    """A subclass of Model whose instances override these methods as Keras's guides show it."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    return type("Own", (base or keras.Model,), dict.fromkeys(names, method))


def made(cls: Any) -> Any:
    given = keras.Input((4,))
    return cls(given, keras.layers.Dense(3)(given))


def with_method_of_the_instance() -> Any:
    model = functional()
    model.train_step = lambda data: {}
    return model


def unbuilt_subclass() -> Any:
    class Network(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, images: Any) -> Any:
            return self.dense(images)

    return Network()


def frozen() -> Any:
    model = functional()
    model.trainable = False
    return model


def under_policy() -> Any:
    keras.config.set_dtype_policy("mixed_float16")
    return functional()


def with_seed() -> Any:
    keras.utils.set_random_seed(987654321)
    return functional()


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "train_step": (lambda: made(own_class("train_step")), "its own train_step, which"),
    "test_step": (lambda: made(own_class("test_step")), "its own test_step, which"),
    "compute_loss": (lambda: made(own_class("compute_loss")), "its own compute_loss, which"),
    "compute_metrics": (lambda: made(own_class("compute_metrics")), "compute_metrics, which"),
    "fit": (lambda: made(own_class("fit")), "its own fit, which"),
    "several_methods": (
        lambda: made(own_class("compute_loss", "train_step")), "own train_step, compute_loss,"),
    "method_of_a_base": (
        lambda: made(own_class(base=own_class("train_step"))), "its own train_step, which"),
    "method_of_the_instance": (with_method_of_the_instance, "its own train_step, which"),
    "no_model": (lambda: "a model", "returns str; it must return a model of Keras"),
    "layers_alone": (lambda: [keras.layers.Dense(3)], "returns list; it must return a model"),
    "unbuilt": (lambda: keras.Sequential([keras.layers.Dense(3)]), "no weights to train yet"),
    "unbuilt_subclass": (unbuilt_subclass, "no weights to train yet"),
    "nothing_to_train": (frozen, "no weights to train yet"),
    "two_outputs": (lambda: functional(outputs=2), "1 inputs and 2 outputs"),
    "two_inputs": (lambda: functional(inputs=2), "2 inputs and 1 outputs"),
    "no_flat_output": (
        lambda: keras.Sequential([keras.Input((5, 4)), keras.layers.Dense(3)]),
        "the shape (None, 5, 3)"),
    "softmax_in_the_layer": (
        lambda: keras.Sequential(layers(activation="softmax")), "with a softmax"),
    "softmax_layer": (
        lambda: keras.Sequential([*layers(), keras.layers.Softmax()]), "with a softmax"),
    "softmax_activation": (
        lambda: keras.Sequential([*layers(), keras.layers.Activation("softmax")]),
        "with a softmax"),
    "sigmoid": (lambda: keras.Sequential(layers(activation="sigmoid")), "with a sigmoid"),
    "dtype_policy": (under_policy, "sets the dtype policy to mixed_float16"),
    "random_seed": (with_seed, "sets the random seed"),
}  # fmt: skip


@pytest.mark.parametrize(("function", "wrong"), REFUSED.values(), ids=list(REFUSED))
def test_what_the_training_would_ignore_is_refused(
    function: Callable[[], Any], wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_code, "load", lambda name: function)
    with pytest.raises(ModelError) as caught:
        models.get("mine:model").build()
    message = str(caught.value)
    assert message.startswith("model mine:model: ")
    assert wrong in message
    assert "\n" not in message


def built_subclass() -> Any:
    model = unbuilt_subclass()
    model(keras.ops.zeros((1, 4)))
    return model


GOOD: dict[str, Callable[[], Any]] = {
    "sequential": lambda: keras.Sequential(layers()),
    "functional": functional,
    "subclass_with_other_methods": lambda: made(own_class("summary", "get_config")),
    "built_subclass": built_subclass,
    "relu_at_the_end": lambda: keras.Sequential(layers(activation="relu")),
    "own_dtype_of_a_layer": lambda: keras.Sequential(layers(dtype="float64")),
    "softmax_inside": lambda: keras.Sequential([*layers(activation="softmax"), *layers()[1:]]),
}


@pytest.mark.parametrize("function", GOOD.values(), ids=list(GOOD))
def test_what_the_training_follows_passes_without_a_warning(function: Callable[[], Any]) -> None:
    model = user_model.build("mine:model", function)
    assert user_model.warnings(model) == []


@pytest.mark.parametrize("name", models.MODELS)
def test_the_workflows_own_models_pass(name: str) -> None:
    model = models.MODELS[name].build()
    assert user_model.problem(model) is None
    assert user_model.warnings(model) == []


class Distance(keras.losses.Loss):  # type: ignore[misc]
    def call(self, answers: Any, logits: Any) -> Any:
        return answers - logits


COMPILED: dict[str, tuple[dict[str, Any], str]] = {
    "optimizer_and_loss": ({"optimizer": "adamw", "loss": "mse"}, "optimizer AdamW, loss mse"),
    "optimizer_alone": ({"optimizer": "sgd"}, "optimizer SGD"),
    "objects": (
        {"loss": Distance(), "metrics": [keras.metrics.MeanSquaredError(), "mae"]},
        "optimizer RMSprop, loss Distance, metrics MeanSquaredError and mae"),
    "function": ({"loss": keras.losses.mean_squared_error}, "loss mean_squared_error"),
    "weights_of_losses": ({"loss": "mse", "loss_weights": [0.5]}, "loss_weights 0.5"),
    "weighted_metrics": ({"weighted_metrics": ["mae"]}, "weighted_metrics mae"),
    "how_it_runs": (
        {"run_eagerly": True, "steps_per_execution": 5},
        "run_eagerly True, steps_per_execution 5"),
    "compiled_by_xla": ({"jit_compile": True}, "jit_compile True"),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "named"), COMPILED.values(), ids=list(COMPILED))
def test_settings_of_compile_are_a_warning_that_names_them(
    settings: dict[str, Any], named: str
) -> None:
    model = functional()
    model.compile(**settings)
    assert user_model.problem(model) is None
    (warning,) = user_model.warnings(model)
    assert named in warning
    assert "compile()" in warning
    assert "not used" in warning
