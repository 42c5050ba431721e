"""What a run shows in TensorBoard: values of its record, at the times of its events."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from builders import a_record
from generator import training_report
from tfscaling.record import events, run_record, run_results, tensorboard
from tfscaling.record.rank_report import Epoch
from tfscaling.record.run_record import RunRecord

EPOCHS = (
    Epoch(epoch=1, loss=0.5, accuracy=0.8, duration_s=2.0, metrics={"auc": 0.7}),
    Epoch(
        epoch=2,
        loss=0.25,
        accuracy=0.9,
        duration_s=0.5,
        metrics={"auc": None},
        test_loss=0.3,
        test_accuracy=0.88,
        test_metrics={"auc": 0.6},
        evaluation_time_s=0.25,
    ),
)


@pytest.fixture
def record() -> RunRecord:
    """Of two epochs with 384 examples each; a metric of the second one is not finite."""
    made = msgspec.convert(a_record(), RunRecord, strict=False)
    measured = msgspec.structs.replace(made.metrics, epochs=EPOCHS, examples_trained=768)
    return msgspec.structs.replace(made, metrics=measured)


def happened(rank: int, event: str, time_s: float, **details: int) -> events.Event:
    return {"time_s": time_s, "rank": rank, "event": event, **details}


def test_values_have_the_names_of_the_tables_and_the_times_of_rank_0(
    tmp_path: Path, record: RunRecord
) -> None:
    lines = [
        happened(1, "epoch", 11.5, epoch=1),
        happened(0, "epoch", 12.0, epoch=1),
        happened(0, "progress", 12.5, epoch=2),
        happened(0, "epoch", 13.0, epoch=2),
        happened(0, "evaluated", 14.0, epoch=2),
    ]
    events.write(tmp_path / run_record.EVENTS, lines)
    run_results.write_steps(tmp_path, [training_report(), training_report(1)])
    found = list(tensorboard.of_run("a/run", tmp_path, record))
    assert {scalar.run for scalar in found} == {"a/run"}
    by_epoch = {
        step: {s.tag: (s.time_s, s.value) for s in found if s.step == step} for step in (1, 2)
    }
    assert by_epoch[1] == {
        "loss": (12.0, 0.5),
        "accuracy": (12.0, 0.8),
        "auc": (12.0, 0.7),
        "duration_s": (12.0, 2.0),
        "step_time_s": (12.0, pytest.approx(0.15)),  # without the first execution, of 2 s
        "throughput_examples_per_s": (12.0, 192.0),
    }
    assert by_epoch[2] == {
        "loss": (13.0, 0.25),
        "accuracy": (13.0, 0.9),
        "duration_s": (13.0, 0.5),
        "step_time_s": (13.0, 0.1),
        "throughput_examples_per_s": (13.0, 768.0),
        "test_loss": (14.0, 0.3),
        "test_accuracy": (14.0, 0.88),
        "test_auc": (14.0, 0.6),
        "evaluation_time_s": (14.0, 0.25),
    }


def test_what_has_no_time_is_left_out(tmp_path: Path, record: RunRecord) -> None:
    assert list(tensorboard.of_run("a/run", tmp_path, record)) == []
    events.write(tmp_path / run_record.EVENTS, [happened(0, "evaluated", 14.0)])
    assert list(tensorboard.of_run("a/run", tmp_path, record)) == []
