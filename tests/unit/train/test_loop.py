"""What all ways of training share: epochs, evaluations, divergence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from strategy_rank import GLOBAL_BATCH, TRAIN_EXAMPLES, synthetic_arrays, training_spec
from tfscaling.record import events
from tfscaling.record.events import EventLog, EventName
from tfscaling.record.rank_report import Execution
from tfscaling.train import loop
from tfscaling.train.loop import (
    Means,
    TrainingLoop,
    TrainingResult,
    means_from_metrics,
    means_from_sums,
)


class Scripted(TrainingLoop):
    """A loop whose sums over all replicas are given: one per epoch, one per evaluation."""

    def __init__(self, losses: Sequence[float], held_out: Sequence[float], **changes: Any) -> None:
        super().__init__(None, 1, training_spec(GLOBAL_BATCH, **changes))
        arrays = synthetic_arrays()
        self.train_examples, self.test_examples = arrays.train_examples, arrays.test_examples
        self.found = {"train": iter(losses), "evaluate": iter(held_out)}
        self.now = ""

    def _reset_sums(self) -> None:
        pass

    def _compute_means(self) -> Means:
        examples = self.train_examples if self.now == "train" else self.test_examples
        return means_from_sums(next(self.found[self.now]), 8.0, float(examples))

    def _train_epoch(self, epoch: int, result: TrainingResult, events: EventLog) -> None:
        self.now = "train"
        result.steps.append(Execution(epoch, 0, -(-TRAIN_EXAMPLES // GLOBAL_BATCH), 0.1))

    def _evaluate(self) -> None:
        self.now = "evaluate"


@pytest.mark.parametrize(
    ("losses", "held_out", "epochs", "diverged"),
    [
        ([8.0, math.nan, 8.0], [1.0], 2, "loss is NaN from epoch 2"),
        ([math.inf, 8.0, 8.0], [], 1, "loss is infinite from epoch 1"),
        ([8.0, 8.0, 8.0], [math.nan], 2, "held-out loss is NaN from epoch 2"),
        ([8.0, 8.0, 8.0], [1.0], 3, ""),
    ],
)  # the model is evaluated after the second of three epochs
def test_a_loss_that_is_not_finite_ends_the_training_after_its_epoch(
    tmp_path: Path, losses: list[float], held_out: list[float], epochs: int, diverged: str
) -> None:
    lines: list[str] = []
    loop = Scripted(losses, held_out)
    result = loop.train(EventLog(tmp_path / "e", 0), lines.append)
    assert (len(result.epochs), result.diverged) == (epochs, diverged)
    assert result.examples_trained == TRAIN_EXAMPLES * epochs
    told = [event for event in events.read_events(tmp_path / "e") if event.name is EventName.EPOCH]
    assert [event.details["loss"] for event in told] == [epoch.loss for epoch in result.epochs]
    rows = [msgspec.to_builtins(epoch) for epoch in result.epochs]
    values = [value for row in rows for value in row.values() if value is not None]
    assert all(math.isfinite(value) for value in values)
    assert events.read_events(tmp_path / "e")[-1].name is EventName.TRAINED
    if diverged:
        assert (result.test_loss, result.test_accuracy) == (None, None)
        name = "test_loss" if "held-out" in diverged else "loss"
        assert getattr(result.epochs[-1], name) is None


def test_a_held_out_loss_that_is_not_finite_after_the_last_epoch_is_a_divergence(
    tmp_path: Path,
) -> None:
    loop, log = Scripted([8.0], [math.nan], epochs=1), EventLog(tmp_path / "e", 0)
    result = loop.train(log, lambda line: None)
    assert result.diverged == ""
    loop.evaluate(result, log, EventName.EVALUATED)
    assert result.diverged.startswith("held-out loss is NaN")
    assert result.test_loss is None and result.epochs[-1].test_loss is None


@pytest.mark.parametrize(
    ("metrics", "accuracy"),
    [
        ({"accuracy": 0.5, "top_accuracy": 0.9}, 0.5),
        ({"sparse_categorical_accuracy": 0.25, "mae": 3.0}, 0.25),
        ({"left_accuracy": 0.5, "right_accuracy": 0.9}, None),
        ({"mae": 0.5}, None),
        ({"accuracy": 3.0}, None),
        ({}, None),
    ],
)
def test_accuracy_of_a_model_that_trains_itself_is_its_metric(
    metrics: dict[str, float], accuracy: float | None
) -> None:
    found = means_from_metrics(8.0, {"loss": 2.0, **metrics})
    assert (found.loss, found.accuracy, found.examples) == (2.0, accuracy, 8.0)
    assert found.metrics == metrics


class Timed(Scripted):
    """A loop whose epochs of six steps take these seconds, the first one with a slow start."""

    def __init__(self, later_s: Sequence[float], **changes: Any) -> None:
        super().__init__([8.0] * 200, [1.0] * 200, evaluation_interval_epochs=None, **changes)
        self.later_s = later_s

    def _train_epoch(self, epoch: int, result: TrainingResult, events: EventLog) -> None:
        self.now = "train"
        duration_s = 100.0 if epoch == 1 else self.later_s[(epoch - 2) % len(self.later_s)]
        steps = self._steps_of_epoch(self.updates_per_epoch or 0)
        result.steps.append(Execution(epoch, 0, steps, duration_s))


@pytest.mark.parametrize(
    ("later_s", "epochs", "trained"),
    [
        ([30.0], 200, 2), ([29.0], 200, 4), ([10.0], 200, 4), ([9.9], 200, 8), ([0.1], 200, 20),
        ([0.1], 100, 10), ([0.1], 15, 2),
        # the error of the mean is a hundredth of it, or more
        ([20.0, 20.3, 20.6], 200, 4), ([20.0, 20.5, 21.0], 200, 8),
    ],
)  # fmt: skip
def test_a_short_run_doubles_its_steps_until_they_are_enough_or_a_tenth(
    later_s: list[float], epochs: int, trained: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(loop, "AUTO_STEPS", 12)
    made = Timed(later_s, epochs=epochs, stop_after_steps="auto")
    result = made.train(EventLog(tmp_path / "e", 0), lambda line: None)
    assert (len(result.epochs), result.is_short) == (trained, True)


@pytest.mark.parametrize(
    ("stop", "epochs", "steps"),
    [
        (None, 3, [6] * 3),
        (25, 9, [6, 6, 6, 6, 1]),
        (24, 9, [6] * 4),
        (24, 4, [6] * 4),
        (23, 4, [6, 6, 6, 5]),
        (20, 3, [6] * 3),
    ],
)
def test_a_run_stops_after_the_steps_that_were_asked(
    stop: int | None, epochs: int, steps: list[int], tmp_path: Path
) -> None:
    made = Timed([1.0], epochs=epochs, stop_after_steps=stop)
    result = made.train(EventLog(tmp_path / "e", 0), lambda line: None)
    assert [each.steps for each in result.steps] == steps
    assert result.is_short is (sum(steps) < 6 * epochs)
