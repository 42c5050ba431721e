"""Results for other programs: continuous integration and TensorBoard."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

import pandas as pd

from tfscaling.conclusions import two_sweeps
from tfscaling.console import text_lines
from tfscaling.record import run_record, run_states
from tfscaling.record import tensorboard as scalars_of
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.tables import display


def regressions(study: StudyFolder) -> None:
    """Print what is slower than in another study. Raises SystemExit with the reasons."""
    found = study.read("regressions")
    print(display.markdown(two_sweeps.as_text(found)))
    if reason := refusal(found):
        sys.exit(reason)


def refusal(found: pd.DataFrame) -> str:
    """Why a change should not be taken, or an empty text."""
    bad = int(found["verdict"].isin(two_sweeps.REGRESSIONS).sum())
    reasons = [f"{text_lines.count(bad, 'configuration')} slower, lost or failing"] * (bad > 0)
    if (failures := two_sweeps.failures(found)).are_more:
        reasons.append(failures.text)
    if reasons:
        return ". ".join(reasons)
    compared = found["verdict"].isin(two_sweeps.COMPARED).any()
    return "" if compared else "no configuration could be compared: this shows nothing"


def tensorboard(study: StudyFolder) -> None:
    """Write an event file per finished run below tensorboard/, and print how to show them."""
    folder = study.folder / "tensorboard"
    shutil.rmtree(folder, ignore_errors=True)
    written, specs = 0, [run.spec for run in study.manifest.runs]
    stale = run_states.stale(specs, study.runs_dir)
    for path in (spec.path for spec in specs if spec.path not in stale):
        run = study.runs_dir / path
        with contextlib.suppress(run_record.RecordError):
            record = run_record.read(run / run_record.RECORD)
            if record and (scalars := list(scalars_of.of_run(path, run, record))):
                write(folder / path, scalars)
                written += 1
    print(f"{text_lines.count(written, 'run')}: tensorboard --logdir {folder}")


def write(folder: Path, scalars: list[scalars_of.Scalar]) -> None:
    """Write one event file, each scalar with its own time."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    summary, start_s = tf.compat.v1.Summary, scalars[0].time_s
    folder.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(folder / f"events.out.tfevents.{int(start_s)}.run")) as file:
        head = tf.compat.v1.Event(wall_time=start_s, file_version="brain.Event:2")
        file.write(head.SerializeToString())
        for scalar in scalars:
            value = summary.Value(tag=scalar.tag, simple_value=scalar.value)
            event = tf.compat.v1.Event(
                wall_time=scalar.time_s, step=scalar.step, summary=summary(value=[value])
            )
            file.write(event.SerializeToString())
