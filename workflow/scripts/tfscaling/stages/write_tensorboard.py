"""Write the scalars of finished runs as TensorBoard reads them; starts no training.

INPUTS   manifest.json, the run records with the files in their folders
OUTPUTS  one event file per finished run, in the run's folder below tensorboard/; earlier files
         are removed
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tfscaling.console import text_lines
from tfscaling.record import run_record, run_states, tensorboard
from tfscaling.record.tensorboard import Scalar
from tfscaling.spec.manifest import Manifest
from tfscaling.stages.study_folder import StudyFolder


def run(study: StudyFolder) -> None:
    """Write the event files and print how to show them."""
    folder = study.folder / "tensorboard"
    shutil.rmtree(folder, ignore_errors=True)
    written = 0
    for path, scalars in finished(study.manifest, study.runs_dir):
        if scalars:
            write(folder / path, scalars)
            written += 1
    print(f"{text_lines.count(written, 'run')}: tensorboard --logdir {folder}")


def finished(manifest: Manifest, runs_dir: Path) -> Iterator[tuple[str, list[Scalar]]]:
    """Folder and scalars of each planned run that has a record; of stale and broken ones none."""
    specs = [run.spec for run in manifest.runs]
    stale = run_states.stale(specs, runs_dir)
    for path in (spec.path for spec in specs if spec.path not in stale):
        with contextlib.suppress(run_record.RecordError):
            if record := run_record.read(runs_dir / path / run_record.RECORD):
                yield path, list(tensorboard.of_run(path, runs_dir / path, record))


def write(folder: Path, scalars: list[Scalar]) -> None:
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
