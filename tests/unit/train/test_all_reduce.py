"""The training loop: the same model wherever the replicas run, every example counted once."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import keras
import msgspec
import numpy as np
import pytest
import tensorflow as tf
from strategy_rank import (
    GLOBAL_BATCH,
    PARAMETERS,
    TRAIN_EXAMPLES,
    functions_for_xla,
    small_model,
    synthetic_arrays,
    training_spec,
)
from tfscaling.datasets.catalogue import Arrays
from tfscaling.record import events, step_estimates
from tfscaling.record.events import EventLog, EventName
from tfscaling.record.rank_report import Epoch
from tfscaling.train import all_reduce, loop, optimizers, pipeline
from tfscaling.train.all_reduce import ArrayTrainer
from tfscaling.train.all_reduce_loop import COMPUTE_STEPS, COMPUTE_STEPS_MIN
from tfscaling.train.loop import TrainingResult
from tfscaling.train.pipeline import Datasets, PipelineTrainer

#: The last one is incomplete.
STEPS = -(-TRAIN_EXAMPLES // GLOBAL_BATCH)


def make_trainer(
    arrays: Arrays | None = None, batch: int = GLOBAL_BATCH, **changes: Any
) -> ArrayTrainer:
    return ArrayTrainer(
        tf.distribute.OneDeviceStrategy("CPU:0"),
        small_model,
        arrays or synthetic_arrays(),
        training_spec(batch, **changes),
    )


def train(folder: Path, report: Callable[[str], None] = print, **changes: Any) -> tuple[Any, Any]:
    folder.mkdir(exist_ok=True)
    trainer = make_trainer(**changes)
    return trainer, trainer.train(EventLog(folder / "events", 0), report)


#: What an evaluation adds to its epoch.
EVALUATED = {"test_loss", "test_accuracy", "evaluation_time_s"}


def curve(result: TrainingResult) -> list[tuple[float, float]]:
    return [(epoch.loss, epoch.accuracy) for epoch in result.epochs]


def rows_of(result: TrainingResult) -> list[dict[str, Any]]:
    """The epochs with what is known of them."""
    return [msgspec.to_builtins(epoch) for epoch in result.epochs]


def executed(result: TrainingResult) -> list[tuple[int, int, int]]:
    """Epoch, first step and number of steps of each execution."""
    return [(row.epoch, row.first_step, row.steps) for row in result.steps]


class Trained(NamedTuple):
    """A training that tests look at and do not change."""

    trainer: ArrayTrainer
    result: TrainingResult
    #: Its folder, with `events`.
    folder: Path
    #: What it reported.
    lines: list[str]


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return the training without changes."""
    folder, lines = tmp_path_factory.mktemp("usual"), list[str]()
    return Trained(*train(folder, lines.append), folder, lines)


@pytest.fixture(scope="module")
def evaluated_each_epoch(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return a training with an evaluation after each epoch, also after the last."""
    folder, lines = tmp_path_factory.mktemp("each-evaluated"), list[str]()
    trainer, result = train(folder, lines.append, evaluation_interval_epochs=1)
    # the last epoch is left to the caller
    assert [row.keys() >= EVALUATED for row in rows_of(result)] == [True, True, False]
    trainer.evaluate(result, EventLog(folder / "last", 0), EventName.EVALUATED)
    return Trained(trainer, result, folder, lines)


@pytest.fixture(scope="module")
def fifty_epochs(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """Return what a complete training of fifty epochs found."""
    return train(tmp_path_factory.mktemp("fifty"), epochs=50)[1]


@pytest.fixture
def in_bfloat16() -> Iterator[None]:
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize("steps_per_execution", [1, 2])
@pytest.mark.usefixtures("in_bfloat16")
def test_gradients_of_bfloat16_are_cast_in_the_update_of_large_variables(
    steps_per_execution: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    width = 64  # of the first layer, which has 64 times as many weights

    def large_model() -> Any:
        layers = [keras.layers.Flatten(), keras.layers.Dense(width, activation="relu")]
        return keras.Sequential([keras.Input((8, 8)), *layers, keras.layers.Dense(10)])

    losses, weights, compiled = [], [], []
    for elements_min in (64 * width, 64 * width + 1):
        monkeypatch.setattr(optimizers, "COMPILED_ELEMENTS_MIN", elements_min)
        trainer = ArrayTrainer(
            tf.distribute.OneDeviceStrategy("CPU:0"),
            large_model,
            synthetic_arrays(),
            training_spec(
                GLOBAL_BATCH,
                precision="mixed_bfloat16",
                steps_per_execution=steps_per_execution,
                learning_rate=0.01,
            ),
        )
        result = trainer.train(EventLog(tmp_path / "events", 0), print)
        losses.append([epoch.loss for epoch in result.epochs])
        weights.append(trainer.model.get_weights())
        assert {weight.dtype.name for weight in weights[-1]} == {"float32"}
        step = trainer._execute.get_concrete_function(
            trainer.order.epoch_indices(1, 1), tf.constant(0), tf.constant(1), *trainer.train_data
        )
        compiled.append(functions_for_xla(step.graph))
    assert compiled == [1, 0]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-2)  # a few bits of bfloat16
    for fused, apart in zip(*weights, strict=True):
        np.testing.assert_allclose(fused, apart, atol=1e-3)
    assert losses[0][-1] < losses[0][0]


def test_a_short_run_makes_the_first_steps_of_the_whole(tmp_path: Path) -> None:
    five: dict[str, Any] = {"epochs": 5, "evaluation_interval_epochs": 4}
    _, whole = train(tmp_path / "whole", **five)
    trainer, short = train(tmp_path / "short", stop_after_steps=20, **five)
    assert short.is_short and not whole.is_short
    assert executed(short) == executed(whole)[:10]
    assert curve(short)[:3] == curve(whole)[:3]
    assert short.examples_trained == 3 * TRAIN_EXAMPLES + 2 * GLOBAL_BATCH
    # one evaluation as those between epochs, and the last: that compiles nothing
    assert short.evaluations == 1
    trainer.evaluate(short, EventLog(tmp_path / "events", 0), EventName.EVALUATED)
    assert short.evaluations == 2
    assert trainer.measure_time_between_epochs_s() > 0
    _, complete = train(tmp_path / "complete", stop_after_steps=30, **five)
    assert not complete.is_short and curve(complete) == curve(whole)


@pytest.mark.parametrize(("enough", "steps"), [(9, 16), (5, 8), (99, 30)])
def test_a_short_run_ends_itself_after_its_steps_are_enough_or_a_tenth_of_the_training(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fifty_epochs: TrainingResult,
    enough: int,
    steps: int,
) -> None:
    """Looked at after 4, 8, 16 and 30 of 300 steps; two are executed at once, six are an epoch."""
    monkeypatch.setattr(loop, "AUTO_STEPS", 4)
    monkeypatch.setattr(
        step_estimates,
        "are_steps_enough",
        lambda later: sum(each.steps for each in later) >= enough,
    )
    _, short = train(tmp_path / "short", stop_after_steps="auto", epochs=50)
    assert short.is_short and executed(short) == executed(fifty_epochs)[: steps // 2]
    full, rest = divmod(steps, STEPS)
    assert curve(short)[:full] == curve(fifty_epochs)[:full]
    assert short.examples_trained == full * TRAIN_EXAMPLES + rest * GLOBAL_BATCH


def test_a_training_of_as_many_steps_as_a_short_run_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "AUTO_STEPS", STEPS)
    monkeypatch.setattr(step_estimates, "are_steps_enough", lambda later: True)
    assert not train(tmp_path, stop_after_steps="auto", epochs=1)[1].is_short


@pytest.mark.parametrize("is_auto", [False, True])
@pytest.mark.parametrize(("stop", "epochs", "examples"), [(20, 1, 0), (40, 2, 24 * GLOBAL_BATCH)])
def test_a_short_run_of_a_pipeline_knows_its_epochs_by_their_steps(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop: int,
    epochs: int,
    examples: int,
    is_auto: bool,
) -> None:
    monkeypatch.setattr(loop, "AUTO_STEPS", stop)  # a tenth of 192 steps is enough
    arrays: Any = synthetic_arrays(4 * GLOBAL_BATCH)
    images = (arrays.x_train / np.float32(255), arrays.y_train.astype(np.int32))
    batches = tf.data.Dataset.from_tensor_slices(images).batch(GLOBAL_BATCH)
    recipe = {"epochs": 8, "steps_per_epoch": 24, "steps_per_execution": 1}
    trainer = PipelineTrainer(
        tf.distribute.OneDeviceStrategy("CPU:0"),
        small_model,
        Datasets(batches, batches.take(1)),
        training_spec(GLOBAL_BATCH, **recipe, stop_after_steps="auto" if is_auto else stop),
    )
    result = trainer.train(EventLog(tmp_path / "events", 0), print)
    assert result.is_short and len(result.steps) == stop and len(result.epochs) == epochs
    assert result.examples_trained == stop * GLOBAL_BATCH
    assert trainer.train_examples == examples  # of the first epoch, if it was whole
    assert trainer.measure_time_between_epochs_s() > 0


def test_data_as_they_lie_on_a_gpu_give_the_same_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usual: Trained
) -> None:
    trainer, result, *_ = usual
    monkeypatch.setattr(all_reduce, "is_gpu", lambda device: True)
    on_gpu, found = train(tmp_path)
    assert [part.dtype.name for part in on_gpu.train_data] == ["float16"] * 2
    assert curve(found) == curve(result)
    assert found.epochs[1].test_loss == result.epochs[1].test_loss
    for own, other in zip(on_gpu.model.get_weights(), trainer.model.get_weights(), strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("training", ["mirrored", "one_worker_with_two_devices", "two_workers"])
def test_the_same_global_batch_gives_the_same_model_wherever_it_is_trained(
    trainings: dict[str, list[dict[str, Any]]], training: str
) -> None:
    (alone,) = trainings["single"]
    for rank in trainings[training]:
        assert rank["replicas"] == 2
        np.testing.assert_allclose(rank["epochs"], alone["epochs"], rtol=1e-5)
        np.testing.assert_allclose(rank["test"], alone["test"], rtol=1e-5)
        for own, other in zip(rank["weights"], alone["weights"], strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


#: One worker with two devices, and two workers by TensorFlow's all-reduce and by MPI.
OF_TWO_REPLICAS = ["mirrored", "two_workers", "two_mpi_workers"]


@pytest.mark.parametrize("name", OF_TWO_REPLICAS)
def test_replicas_are_evaluated_with_the_mean_of_their_moments(
    trainings: dict[str, list[dict[str, Any]]],
    mpi_trainings: dict[str, list[dict[str, Any]]],
    name: str,
) -> None:
    ranks = {**trainings, **mpi_trainings}[name]
    for number in range(2):  # mean and variance, each of 16 features
        before, after = (
            np.concatenate([np.array(rank["moments"][when][number]) for rank in ranks])
            for when in ("trained", "evaluated")
        )
        assert before.shape == after.shape == (2, 16)
        assert not np.allclose(before[0], before[1])
        np.testing.assert_allclose(after, np.broadcast_to(before.mean(axis=0), (2, 16)), rtol=1e-5)


def test_the_same_replicas_give_the_same_numbers_on_one_worker_and_on_two(
    trainings: dict[str, list[dict[str, Any]]], two_ranks: list[dict[str, Any]]
) -> None:
    (alone,), (first, second) = trainings["mirrored"], two_ranks
    for key in ("epochs", "tests", "test"):
        assert first["uninterrupted"][key] == second["uninterrupted"][key]
    for own, other in zip(
        first["uninterrupted"]["weights"], alone["uninterrupted"]["weights"], strict=True
    ):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        first["uninterrupted"]["test"], alone["uninterrupted"]["test"], rtol=1e-5
    )


def test_an_incomplete_batch_is_trained_by_the_same_compiled_function(usual: Trained) -> None:
    assert usual.trainer._execute.experimental_get_tracing_count() == 1


def test_labels_may_be_rows_of_one(tmp_path: Path, usual: Trained) -> None:
    arrays: Any = synthetic_arrays()
    rows = dataclasses.replace(
        arrays, y_train=arrays.y_train[:, None].astype(np.int64), y_test=arrays.y_test[:, None]
    )
    found = make_trainer(rows).train(EventLog(tmp_path / "rows", 0), print)
    assert curve(found) == curve(usual.result)


def test_steps_per_execution_change_nothing_but_the_number_of_executions(tmp_path: Path) -> None:
    results = {count: train(tmp_path, steps_per_execution=count)[1] for count in (1, 3, 100)}
    for result in results.values():
        np.testing.assert_allclose(curve(result), curve(results[1]), rtol=1e-6)
    executions = {count: executed(result) for count, result in results.items()}
    epochs = range(1, PARAMETERS["epochs"] + 1)
    assert executions[1] == [(epoch, step, 1) for epoch in epochs for step in range(STEPS)]
    assert executions[3] == [(epoch, *part) for epoch in epochs for part in ((0, 3), (3, 3))]
    assert executions[100] == [(epoch, 0, STEPS) for epoch in epochs]
    assert all(row.duration_s > 0 for result in results.values() for row in result.steps)


@pytest.mark.parametrize(
    "name", ["mirrored", "one_worker_with_two_devices", "two_workers", "two_mpi_workers"]
)
def test_computation_alone_is_measured_without_a_trace_and_changes_nothing(
    trainings: dict[str, list[dict[str, Any]]],
    mpi_trainings: dict[str, list[dict[str, Any]]],
    name: str,
) -> None:
    for rank in {**trainings, **mpi_trainings}[name]:
        found = rank["computation"]
        before, after = found["traced"]
        assert before == after > 0, "the measurement traces nothing"
        assert found["steps"] == COMPUTE_STEPS
        assert found["fewest_s"] > 0
        assert found["are_weights_unchanged"]
        assert found["test"] == rank["test"], "no example of it is counted"


def test_computation_alone_is_as_long_as_the_work_and_its_steps_have_a_limit(
    trainings: dict[str, list[dict[str, Any]]],
) -> None:
    (rank,) = trainings["mirrored"]
    found = rank["computations"]
    assert found["durations_s"] == [2 * 50] * COMPUTE_STEPS
    assert (found["enough"], found["too_few"]) == (COMPUTE_STEPS_MIN, 0)
    assert found["off"] == [0, 0]
    assert found["together"] == [0, 0], "a second trace would be needed"


def test_one_replica_measures_no_computation_alone(usual: Trained) -> None:
    assert usual.trainer.compute_steps(usual.result) == []
    assert usual.trainer.traced_differentiations == 0


def test_each_step_has_the_wait_for_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_s = 0.0

    class SlowPipeline(PipelineTrainer):
        """Each batch comes after 50 s of the clock."""

        @contextlib.contextmanager
        def _open_steps(self, dataset: Any) -> Iterator[Iterator[Any]]:
            def wait(batch: Any) -> Any:
                nonlocal passed_s
                passed_s += 50
                return batch

            with super()._open_steps(dataset) as batches:
                yield map(wait, batches)

    monkeypatch.setattr(pipeline, "time", SimpleNamespace(perf_counter=lambda: passed_s))
    arrays: Any = synthetic_arrays(4 * GLOBAL_BATCH)
    images = (arrays.x_train / np.float32(255), arrays.y_train.astype(np.int32))
    batches = tf.data.Dataset.from_tensor_slices(images).batch(GLOBAL_BATCH)
    trainer = SlowPipeline(
        tf.distribute.OneDeviceStrategy("CPU:0"),
        small_model,
        Datasets(batches, batches.take(1)),
        training_spec(GLOBAL_BATCH),
    )
    result = trainer.train(EventLog(tmp_path / "events", 0), print)
    assert result.steps
    assert {(step.input_wait_s, step.duration_s) for step in result.steps} == {(50, 50)}
    assert result.input_wait_s == 50


def test_phases_and_epochs_are_told_as_they_pass(usual: Trained) -> None:
    _, result, folder, lines = usual
    passed = events.read_events(folder / "events")
    names = [event.name for event in passed if event.name is not EventName.PROGRESS]
    assert names == ["first_step", "epoch", "epoch", "epoch_evaluated", "epoch", "trained"]
    epochs = [event.details for event in passed if event.name is EventName.EPOCH]
    told = [(epoch["loss"], epoch["accuracy"]) for epoch in epochs]
    assert told == curve(result)
    titles = [line.split(":")[0] for line in lines]
    assert titles == ["epoch 1/3", "epoch 2/3", "held-out", "epoch 3/3"]
    assert f"loss {result.epochs[2].loss:.4f}" in lines[3]


@pytest.mark.parametrize("examples", [1, 500, 1203])
def test_each_held_out_example_is_counted_exactly_once(examples: int, tmp_path: Path) -> None:
    whole: Any = synthetic_arrays()
    arrays: Any = Arrays(
        whole.x_train, whole.y_train, whole.x_test[:examples], whole.y_test[:examples]
    )
    trainer, log = make_trainer(arrays), EventLog(tmp_path / "events", 0)

    def evaluated() -> TrainingResult:
        result = TrainingResult(epochs=[Epoch(epoch=1, loss=1.0, accuracy=0.5, duration_s=1.0)])
        trainer.evaluate(result, log, EventName.EVALUATED)
        return result

    result = evaluated()
    logits = np.asarray(trainer.model(arrays.x_test / np.float32(255)))
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    assert result.test_loss == pytest.approx(float(cross_entropy(arrays.y_test, logits)), rel=1e-4)
    correct = int((np.argmax(logits, axis=1) == arrays.y_test).sum())
    assert result.test_accuracy == correct / examples
    assert evaluated().test_accuracy == result.test_accuracy


def test_evaluations_between_epochs_change_nothing_of_the_training(
    tmp_path: Path, evaluated_each_epoch: Trained
) -> None:
    """The model is evaluated after every epoch or never: the same curve, the same weights."""
    trainer, result, folder, _ = evaluated_each_epoch
    other, without = train(tmp_path, evaluation_interval_epochs=None)
    assert curve(result) == curve(without)
    for weights, same in zip(trainer.model.get_weights(), other.model.get_weights(), strict=True):
        np.testing.assert_array_equal(weights, same)
    assert [EVALUATED & row.keys() for row in rows_of(without)] == [set(), set(), set()]

    assert rows_of(result)[-1].keys() >= EVALUATED
    told = events.read_events(folder / "events") + events.read_events(folder / "last")
    evaluations = [event.details for event in told if event.name.endswith("evaluated")]
    assert [event["epoch"] for event in evaluations] == [1, 2, 3]
    for event, epoch in zip(evaluations, rows_of(result), strict=True):
        assert {key: event[key] for key in EVALUATED} == {key: epoch[key] for key in EVALUATED}
        assert event["evaluation_time_s"] > 0


def test_a_model_is_evaluated_between_epochs_as_it_would_be_after_them(
    tmp_path: Path, evaluated_each_epoch: Trained
) -> None:
    result = evaluated_each_epoch.result
    trainer, short = train(tmp_path / "two", epochs=2, evaluation_interval_epochs=None)
    trainer.evaluate(short, EventLog(tmp_path / "last", 0), EventName.EVALUATED)
    assert short.test_loss == pytest.approx(result.epochs[1].test_loss, rel=1e-6)
    assert short.test_accuracy == result.epochs[1].test_accuracy


def test_a_dataset_smaller_than_the_global_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="87 .* batch of 88"):
        make_trainer(batch=88)


@pytest.mark.parametrize(("replicas", "size"), [(1, 3), (2, None)])
def test_lookups_know_the_number_of_examples_only_on_one_replica(
    replicas: int, size: int | None
) -> None:
    """On several, lookups of equal examples must not pass for lookups of positions."""
    seen: list[int | None] = []

    class Words(keras.layers.Embedding):
        def call(self, words: Any) -> Any:
            seen.append(words.shape[0])
            return super().call(words)

    def build() -> Any:
        layers = [keras.Input((8, 8), dtype="uint8"), Words(256, 2), keras.layers.Flatten()]
        return keras.Sequential([*layers, keras.layers.Dense(10)])

    trainer = ArrayTrainer(
        tf.distribute.OneDeviceStrategy("CPU:0"), build, synthetic_arrays(), training_spec(3)
    )
    trainer.replicas = replicas
    seen.clear()
    batch = tf.TensorSpec((3, 8, 8), tf.uint8), tf.TensorSpec((3,), tf.uint8)
    tf.function(trainer.compute_on).get_concrete_function(batch, None)
    assert seen and {*seen} == {size}
