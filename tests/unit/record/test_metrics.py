"""Metrics are read from a record, and so is the quality of its recipe."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from builders import a_record, manifest_of, record_of, valid_config
from tfscaling.record import metrics
from tfscaling.record.metrics import METRICS
from tfscaling.record.phases import Phases
from tfscaling.record.rank_report import Epoch
from tfscaling.record.run_record import HeldOutEvaluation, Metrics, Resumption, RunRecord
from tfscaling.study.config_types import Quality

RECORD = msgspec.convert(a_record(), RunRecord)


def test_the_time_with_queue_is_that_from_the_submission() -> None:
    value = METRICS["time_with_queue_s"].value
    assert value is not None
    assert value(RECORD) is None  # nobody told of a queue
    waited = msgspec.structs.replace(RECORD.phases, queue_time_s=100.0, boot_time_s=30.0)
    record = msgspec.structs.replace(RECORD, phases=waited)
    assert value(record) == RECORD.phases.execution_time_s + 130.0


def test_every_number_of_a_record_is_a_metric() -> None:
    numbers = {*Phases.__struct_fields__, *Metrics.__struct_fields__}
    numbers -= {"epochs", "slowest_rank", "slowest_host"}  # a list, and names
    numbers -= {"evaluations"}  # a table
    numbers -= {"examples_trained", "flops_per_example"}  # the work that metrics are of
    assert numbers <= set(METRICS)


def test_each_metric_that_is_read_from_a_record_has_a_value_or_none() -> None:
    """A new metric, too: its function must do with a record that has only what each one has."""
    read = {name: metric.value for name, metric in METRICS.items() if metric.value is not None}
    values = {name: function(RECORD) for name, function in read.items()}
    numbers = {name: value for name, value in values.items() if value is not None}
    assert all(isinstance(value, int | float) for value in numbers.values()), values
    assert all(math.isfinite(value) for value in numbers.values()), values
    assert {"execution_time_s", "loss", "step_time_s"} <= numbers.keys()


def test_a_distance_from_the_best_value_is_that_of_accuracies() -> None:
    assert {name: each.best for name, each in METRICS.items() if each.best is not None} == {
        "accuracy": 1.0, "test_accuracy": 1.0
    }  # fmt: skip


EPOCHS = (
    Epoch(
        epoch=1, loss=0.5, accuracy=0.8, duration_s=5.0,
        metrics={"mae": 4.0, "f1": 0.4, "early": 1.0},
    ),
    Epoch(
        epoch=2, loss=0.3, accuracy=0.9, duration_s=4.0, metrics={"mae": 2.0, "f1": 0.6},
        test_loss=0.4, test_accuracy=0.85, test_metrics={"mae": 2.5}, evaluation_time_s=1.0,
    ),
    Epoch(epoch=3, loss=0.2, accuracy=0.95, duration_s=3.0, metrics={"mae": None, "f1": 0.7}),
)  # fmt: skip


def record(epochs: tuple[Epoch, ...] = EPOCHS) -> RunRecord:
    """A run of 20 s; after it, the held-out loss is 0.3 and the accuracy 0.88."""
    content = record_of(manifest_of(valid_config()).runs[0], 20.0, epochs=epochs)
    return msgspec.convert(content, RunRecord)


def compared(metric: str, **direction: Any) -> Quality:
    return Quality(metric=metric, **direction)


@pytest.mark.parametrize(
    ("metric", "value"),
    [("test_accuracy", 0.88), ("test_loss", 0.3), ("loss", 0.2), ("accuracy", 0.95), ("f1", 0.7),
     ("test_mae", 2.5)],
)  # fmt: skip
def test_the_quality_is_that_of_the_last_epoch_or_evaluation(metric: str, value: float) -> None:
    assert metrics.quality_of_run(record(), compared(metric)) == (value, "")


@pytest.mark.parametrize(
    ("metric", "reason"),
    [("mae", "not finite"), ("early", "epoch 1"), ("rmse", "f1, early, test_loss, test_accuracy")],
)
def test_without_a_value_the_reason_is_told(metric: str, reason: str) -> None:
    found = metrics.quality_of_run(record(), compared(metric))
    assert found.value is None and metric in found.reason and reason in found.reason


@pytest.mark.parametrize(
    ("metric", "direction", "target", "seconds"),
    [
        ("test_accuracy", "higher", 0.85, 20.0 - 3.0 + 1.0),
        ("test_accuracy", "higher", 0.86, None),
        ("loss", "lower", 0.5, 20.0 - 7.0),
        ("loss", "lower", 0.4, 20.0 - 3.0 + 1.0),
        ("mae", "lower", 2.0, 20.0 - 3.0 + 1.0),
        ("mae", "higher", 2.0, 20.0 - 7.0),
        ("mae", "lower", 1.9, None),
        ("f1", "higher", 0.7, 20.0 + 1.0),
    ],
)
def test_a_target_is_reached_from_the_worse_side(
    metric: str, direction: str, target: float, seconds: float | None
) -> None:
    found = metrics.find_target_time(record(), compared(metric, direction=direction), target)
    assert found.is_reached == (seconds is not None)
    assert found.time_s == (None if seconds is None else pytest.approx(seconds))
    assert found.reason == ""


@pytest.mark.parametrize(
    ("durations_s", "target", "seconds"),
    [
        ((None, None, None), 0.5, None),
        ((None, None, None), 0.3, None),
        ((None, None, None), 0.2, 20.0 + 1.0),  # the last epoch: the whole time
        ((None, 4.0, 3.0), 0.5, 20.0 - 7.0),
        ((5.0, 4.0, None), 0.5, None),
        ((5.0, None, 3.0), 0.3, 20.0 - 3.0 + 1.0),
    ],
)
def test_the_time_to_a_target_needs_the_times_of_all_later_epochs(
    durations_s: tuple[float | None, ...], target: float, seconds: float | None
) -> None:
    pairs = zip(EPOCHS, durations_s, strict=True)
    epochs = tuple(msgspec.structs.replace(epoch, duration_s=s) for epoch, s in pairs)
    found = metrics.find_target_time(record(epochs), compared("loss"), target)
    assert found.is_reached
    assert found.time_s == (None if seconds is None else pytest.approx(seconds))
    assert bool(found.reason) == (seconds is None)


@pytest.mark.parametrize(
    ("checkpoint_time_s", "target", "is_known"),
    [
        (15.0, 0.3, False),  # two checkpoints followed the target
        (15.0, 0.85, True),  # all were before it
        (None, 0.3, True),
    ],
)
def test_without_moments_nothing_unknown_counts_as_time_to_a_target(
    checkpoint_time_s: float | None, target: float, is_known: bool
) -> None:
    epochs = tuple(
        msgspec.structs.replace(EPOCHS[1], epoch=n, duration_s=5.0, test_accuracy=0.3 * n)
        for n in (1, 2, 3)
    )
    made = record(epochs)
    made = msgspec.structs.replace(
        made, phases=msgspec.structs.replace(made.phases, checkpoint_time_s=checkpoint_time_s)
    )
    found = metrics.find_target_time(made, compared("test_accuracy"), target)
    assert found.is_reached
    assert (found.time_s is not None) == is_known
    assert bool(found.reason) != is_known


def test_a_resumed_run_adds_the_training_before_to_the_moment_of_its_target() -> None:
    """Epoch 1 of 10 s and its evaluation of 1 s were trained before; epoch 2 ended after 13 s."""
    epochs = tuple(
        msgspec.structs.replace(
            EPOCHS[1], epoch=n, test_accuracy=0.3 * n, evaluation_time_s=1.0, ended_s=ended_s
        )
        for n, ended_s in ((1, None), (2, 13.0), (3, 30.0))
    )
    resumed = Resumption(epoch=2, step=0, steps_repeated=4, trained_before_s=10.0, attempts=())
    made = msgspec.structs.replace(record(epochs), resumed=resumed)
    made = msgspec.structs.replace(
        made, phases=msgspec.structs.replace(made.phases, checkpoint_time_s=9.0)
    )
    assert metrics.find_target_time(made, compared("test_accuracy"), 0.6).time_s == 10 + 1 + 13
    assert metrics.find_target_time(made, compared("test_accuracy"), 0.3).time_s is None


def test_an_evaluation_within_an_epoch_counts() -> None:
    made = record()
    held = [
        HeldOutEvaluation(epoch=2, ended_s=float(n), metrics={"accuracy": 0.1 * n})
        for n in (7, 8, 9)
    ]
    measured = msgspec.structs.replace(made.metrics, evaluations=tuple(held))
    made = msgspec.structs.replace(made, metrics=measured)
    assert metrics.find_target_time(made, compared("test_accuracy"), 0.8).time_s == 8.0
    # what was reached in an earlier epoch was reached sooner
    assert metrics.find_target_time(made, compared("loss"), 0.5).time_s == 13.0
