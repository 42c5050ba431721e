"""`observe: fit` on legacy Keras, in the environment of its example."""

from __future__ import annotations

from pathlib import Path

from fit_program import EVENTS, fitted
from project import REPOSITORY
from tfscaling.record.observers import OBSERVERS


def test_legacy_keras_is_observed_as_keras_3_is(tmp_path: Path) -> None:
    python = str(REPOSITORY / ".venv-tf_keras/bin/python")
    fitted(tmp_path, python=python, TF_USE_LEGACY_KERAS="1")
    seen = OBSERVERS["events"].read(tmp_path / EVENTS)
    assert [(e.epoch, e.steps, e.examples) for e in seen.epochs] == [
        (1, 5, 70),
        (2, 10, 140),
        (3, 13, 210),
    ]
    assert [e.metrics.keys() for e in seen.evaluations] == [{"accuracy", "loss"}] * 3
    assert seen.epochs[2].metrics["loss"] is None
