"""A user's model: what the training would not follow is refused, or a warning in the record."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from tfscaling.datasets.catalogue import Arrays
from tfscaling.study import user_code
from tfscaling.study.config_types import CROSS_ENTROPY, Recipe
from tfscaling.train import models, parameter_server, user_model
from tfscaling.train.user_model import ModelError

keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")


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


def compiled(model: Any, *args: Any, **settings: Any) -> Any:
    model.compile(*args, **settings)
    return model


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "fit": (lambda: made(own_class("fit")), "its own fit, which"),
    "train_step": (lambda: made(own_class("train_step")), "as a program"),
    "method_of_a_base": (
        lambda: made(own_class(base=own_class("fit"))), "its own fit, which"),
    "no_model": (lambda: "a model", "returns str"),
    "unbuilt": (lambda: keras.Sequential([keras.layers.Dense(3)]), "no weights"),
    "nothing_to_train": (frozen, "no weights"),
    "dtype_policy": (under_policy, "mixed_float16"),
    "random_seed": (with_seed, "sets the random seed"),
}  # fmt: skip


@pytest.mark.parametrize(("function", "wrong"), REFUSED.values(), ids=REFUSED)
def test_what_no_training_could_follow_is_refused(
    function: Callable[[], Any], wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_code, "load_function", lambda name: function)
    with pytest.raises(ModelError) as caught:
        models.find_model("mine:model").build()
    message = str(caught.value)
    assert message.startswith("model mine:model: ")
    assert wrong in message
    assert "\n" not in message


LABELS = np.zeros(2, np.int32)
DATA = Arrays(np.zeros((2, 4)), LABELS, np.zeros((2, 4)), LABELS)

NO_CLASSIFIER: dict[str, tuple[Callable[[], Any], Arrays, str]] = {
    "own_loss": (lambda: made(own_class("compute_loss")), DATA, "its own compute_loss, which"),
    "two_outputs": (lambda: functional(outputs=2), DATA, "2 outputs"),
    "two_inputs": (lambda: functional(inputs=2), DATA, "2 inputs"),
    "no_flat_output": (
        lambda: keras.Sequential([keras.Input((5, 4)), keras.layers.Dense(3)]), DATA,
        "(None, 5, 3)"),
    "softmax_in_the_layer": (
        lambda: keras.Sequential(layers(activation="softmax")), DATA, "with a softmax"),
    "softmax_layer": (
        lambda: keras.Sequential([*layers(), keras.layers.Softmax()]), DATA, "with a softmax"),
    "softmax_activation": (
        lambda: keras.Sequential([*layers(), keras.layers.Activation("softmax")]), DATA,
        "with a softmax"),
    "sigmoid": (
        lambda: keras.Sequential(layers(activation="sigmoid")), DATA, "with a sigmoid"),
    "weights_of_examples": (
        functional, dataclasses.replace(DATA, weights_train=LABELS, weights_test=LABELS),
        "weights of examples"),
    "answers_by_name": (
        functional, dataclasses.replace(DATA, y_test={"a": LABELS}), "have 1 arrays"),
    "answers_that_are_no_classes": (
        functional, dataclasses.replace(DATA, y_train=np.zeros(2)), "type float64"),
    "answers_one_hot": (
        functional, dataclasses.replace(DATA, y_train=np.eye(2, dtype=int)), "the shape (2, 2)"),
    "negative_class": (
        functional, dataclasses.replace(DATA, y_train=LABELS - 1), "a label -1"),
}  # fmt: skip


@pytest.mark.parametrize(("function", "arrays", "wrong"), NO_CLASSIFIER.values(), ids=NO_CLASSIFIER)
def test_what_the_cross_entropy_cannot_train_is_refused(
    function: Callable[[], Any], arrays: Arrays, wrong: str
) -> None:
    with pytest.raises(ModelError) as caught:
        user_model.check_classifier(function(), user_model.label_problem(arrays.train, arrays.test))
    assert wrong in str(caught.value)
    assert "ompile" in str(caught.value)


def recipe(**keys: Any) -> Recipe:
    return Recipe(**{"per_replica_batch_size": 1, "epochs": 1, "loss": "model", **keys})


TRAINS_ITSELF: dict[str, tuple[Callable[[], Any], bool]] = {
    "not_compiled": (functional, False),
    "compiled": (lambda: compiled(functional(), "sgd", "mse"), True),
    "own_loss": (lambda: made(own_class("compute_loss")), True),
    "other_methods": (lambda: made(own_class("summary")), False),
}


@pytest.mark.parametrize(("function", "expected"), TRAINS_ITSELF.values(), ids=TRAINS_ITSELF)
def test_models_with_a_loss_of_their_own_train_themselves_unless_the_recipe_says_otherwise(
    function: Callable[[], Any], expected: bool
) -> None:
    assert user_model.uses_own_loss(function(), recipe()) == expected
    assert not user_model.uses_own_loss(function(), recipe(loss=CROSS_ENTROPY))


#: In an epoch.
UPDATES = 4


def asked(model: Any, replicas: int = 1, **keys: Any) -> Any:
    user_model.apply_recipe_settings(model, recipe(**keys), replicas, UPDATES)
    return model.optimizer


@pytest.mark.parametrize("name", TRAINS_ITSELF)
def test_parameter_servers_refuse_what_trains_itself_unless_it_is_to_be_a_classifier(
    name: str,
) -> None:
    function, own = TRAINS_ITSELF[name]
    labels = np.zeros(4, np.int32)
    arrays = Arrays(np.zeros((4, 4), np.float32), labels, np.zeros((4, 4), np.float32), labels)
    refused = pytest.raises(ModelError, match="parameter servers") if own else nullcontext()
    with refused:
        parameter_server.check_model(function(), arrays, recipe())
    if name == "compiled":
        parameter_server.check_model(function(), arrays, recipe(loss=CROSS_ENTROPY))


def test_the_compiled_optimizer_is_used_where_the_recipe_gives_nothing() -> None:
    optimizer = keras.optimizers.SGD(0.3, momentum=0.8)
    assert asked(compiled(functional(), optimizer, "mse")) is optimizer
    assert float(optimizer.learning_rate) == pytest.approx(0.3)
    assert optimizer.momentum == 0.8


def test_keys_that_the_recipe_gives_win() -> None:
    def model() -> Any:
        return compiled(functional(), keras.optimizers.SGD(0.3, momentum=0.8), "mse")

    changed = asked(model(), learning_rate=0.1, momentum=0.5)
    assert (float(changed.learning_rate), changed.momentum) == (pytest.approx(0.1), 0.5)
    scaled = asked(model(), 4, learning_rate_scaling="linear")
    assert float(scaled.learning_rate) == pytest.approx(1.2)
    other = asked(model(), 4, optimizer="adam", learning_rate=0.1, learning_rate_scaling="sqrt")
    assert isinstance(other, keras.optimizers.Adam)
    assert float(other.learning_rate) == pytest.approx(0.2)


def test_a_schedule_and_weight_decay_of_the_recipe_are_those_of_the_compiled_optimizer() -> None:
    def model() -> Any:
        return compiled(functional(), keras.optimizers.SGD(0.3, 0.8, weight_decay=0.1), "mse")

    kept = asked(model())
    assert (kept.weight_decay, kept.nesterov) == (0.1, False)
    assert asked(model(), weight_decay=0.0, nesterov=True).weight_decay is None
    changed = asked(model(), 2, weight_decay=0.2, nesterov=True, decay="linear",
                    learning_rate_scaling="linear")  # fmt: skip
    assert (changed.weight_decay, changed.nesterov) == (0.2, True)
    assert float(changed.learning_rate) == pytest.approx(0.6)
    changed.build(model().trainable_variables)
    changed.iterations.assign(UPDATES // 2)
    assert float(changed.learning_rate) == pytest.approx(0.3)


def test_a_loss_of_the_models_own_has_its_own_labels() -> None:
    with pytest.raises(ModelError, match="label_smoothing"):
        asked(compiled(functional(), "sgd", "mse"), label_smoothing=0.1)


def test_a_schedule_of_learning_rates_is_scaled_but_not_replaced() -> None:
    def model() -> Any:
        schedule = keras.optimizers.schedules.ExponentialDecay(0.2, 1, 0.5)
        return compiled(functional(), keras.optimizers.Adam(schedule), "mse")

    assert float(asked(model(), 2, learning_rate_scaling="linear").learning_rate) == (
        pytest.approx(0.4)
    )
    with pytest.raises(ModelError, match="schedule of learning rates"):
        asked(model(), learning_rate=0.1)
    with pytest.raises(ModelError, match="schedule of learning rates"):
        asked(model(), decay="linear")


def test_settings_of_several_optimizers_are_theirs() -> None:
    def model() -> Any:
        optimizers = keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.2))
        return compiled(functional(), keras.optimizers.MultiOptimizer(optimizers), "mse")

    assert isinstance(asked(model()), keras.optimizers.MultiOptimizer)
    for keys in ({"learning_rate": 0.1}, {"momentum": 0.5}, {"learning_rate_scaling": "linear"}):
        with pytest.raises(ModelError, match="MultiOptimizer"):
            asked(model(), 2, **keys)


def test_a_model_with_a_loss_of_its_own_needs_no_compile() -> None:
    model = made(own_class("compute_loss"))
    assert isinstance(asked(model, learning_rate=0.1), keras.optimizers.SGD)
    assert model.compiled


def test_a_compiled_model_without_a_loss_or_an_optimizer_is_refused() -> None:
    with pytest.raises(ModelError, match="names no loss"):
        asked(compiled(functional(), "sgd"))
    with pytest.raises(ModelError, match="names no optimizer"):
        asked(compiled(functional(), None, "mse"))
    assert asked(compiled(functional(), None, "mse"), optimizer="sgd", learning_rate=0.1)


def built_subclass() -> Any:
    class Network(keras.Model):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, images: Any) -> Any:
            return self.dense(images)

    model = Network()
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


@pytest.mark.parametrize("function", GOOD.values(), ids=GOOD)
def test_what_the_training_follows_passes_without_a_warning(function: Callable[[], Any]) -> None:
    model = user_model.build_model("mine:model", function)
    user_model.check_classifier(model, None)
    assert user_model.warnings_before_training(model, recipe()) == []


@pytest.mark.parametrize("name", models.MODELS)
def test_the_workflows_own_models_pass(name: str) -> None:
    model = models.MODELS[name].build()
    assert user_model.find_problem(model) is None
    user_model.check_classifier(model, None)
    assert user_model.warnings_before_training(model, recipe()) == []


class Distance(keras.losses.Loss):  # type: ignore[name-defined]
    def call(self, answers: Any, logits: Any) -> Any:
        return answers - logits


COMPILED: dict[str, tuple[dict[str, Any], str]] = {
    "optimizer_and_loss": ({"optimizer": "adamw", "loss": "mse"}, "optimizer AdamW, loss mse"),
    "objects": (
        {"loss": Distance(), "metrics": [keras.metrics.MeanSquaredError(), "mae"]},
        "optimizer RMSprop, loss Distance, metrics MeanSquaredError and mae"),
    "function": ({"loss": keras.losses.mean_squared_error}, "loss mean_squared_error"),
    "weights_of_losses": ({"loss": "mse", "loss_weights": [0.5]}, "loss_weights 0.5"),
    "weighted_metrics": ({"weighted_metrics": ["mae"]}, "weighted_metrics mae"),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "named"), COMPILED.values(), ids=COMPILED)
def test_settings_of_compile_that_the_cross_entropy_replaces_are_a_warning(
    settings: dict[str, Any], named: str
) -> None:
    model = compiled(functional(), **settings)
    (warning,) = user_model.warnings_before_training(model, recipe(loss=CROSS_ENTROPY))
    assert named in warning
    assert "compile()" in warning
    assert "not used" in warning


def test_what_a_model_that_trains_itself_is_trained_by_is_said() -> None:
    model = compiled(functional(), "adamw", "mse", metrics=["mae"])
    trained_by = user_model.describe_training(model, recipe()).split(", ")
    assert trained_by == ["optimizer AdamW", "loss mse", "metrics mae"]
    own = compiled(made(own_class("compute_loss")), "sgd")
    assert user_model.describe_training(own, recipe()).startswith("optimizer SGD, ")
    assert user_model.warnings_before_training(own, recipe()) == []
    assert user_model.describe_training(model, recipe(loss=CROSS_ENTROPY)) == ""


@pytest.mark.parametrize(("steps", "is_said"), [(100, False), (50, True), (200, True)])
def test_a_compiled_schedule_that_ends_elsewhere_is_a_warning(steps: int, is_said: bool) -> None:
    rate = keras.optimizers.schedules.CosineDecay(0.1, 90, warmup_target=0.2, warmup_steps=10)
    model = compiled(functional(), keras.optimizers.SGD(rate), "mse")
    assert len([*user_model.warnings_after_training(model, recipe(), steps)]) == is_said
    assert not [
        *user_model.warnings_after_training(compiled(functional(), "sgd", "mse"), recipe(), steps)
    ]


def test_metrics_with_several_values_are_named() -> None:
    f1 = keras.metrics.F1Score(name="by_class")
    model = compiled(functional(), "sgd", "categorical_crossentropy", metrics=[f1, "mae"])
    inputs = np.zeros((1, *model.input_shape[1:]), np.float32)
    model.evaluate(inputs, np.eye(model.output_shape[1])[:1], verbose=0)
    (warning,) = user_model.warnings_after_training(model, recipe(), 10)
    assert "by_class" in warning and "mae" not in warning


class LargestError(keras.metrics.Metric):  # type: ignore[name-defined]
    """Its state is a maximum, or with `is_summed` a sum."""

    def __init__(self, is_summed: bool = False, **usual: Any) -> None:
        super().__init__(**usual)
        self.is_summed, self.state = is_summed, self.add_weight(initializer="zeros")

    def update_state(self, labels: Any, outputs: Any, sample_weight: Any = None) -> None:
        error = keras.ops.max(keras.ops.abs(labels - outputs))
        both = self.state + error if self.is_summed else keras.ops.maximum(self.state, error)
        self.state.assign(both)

    def result(self) -> Any:
        return self.state.value

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "is_summed": self.is_summed}


@pytest.mark.parametrize("is_summed", [True, False])
def test_a_metric_whose_state_is_no_sum_is_named(is_summed: bool) -> None:
    metrics = [LargestError(is_summed, name="largest"), "mae", keras.metrics.AUC()]
    model = compiled(functional(), "sgd", "mse", metrics=metrics)
    model.evaluate(
        np.zeros((1, *model.input_shape[1:]), np.float32),
        np.zeros((1, *model.output_shape[1:]), np.float32),
        verbose=0,
    )
    found = [*user_model.warnings_after_training(model, recipe(), 10)]
    assert ["largest" in warning for warning in found] == [True] * (not is_summed)
