"""What a finished run shows in TensorBoard, from its record and the files beside it.

Nothing is written while a run trains: its times are those of a run without TensorBoard.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterator
from pathlib import Path

from tfscaling.record import events, quality, run_record
from tfscaling.record.observed_tensorboard import Scalar
from tfscaling.record.run_record import RunRecord

#: The events of the trainer after which an epoch's values are known.
_TRAINED, _EVALUATED = "epoch", ("epoch_evaluated", "evaluated")


def of_run(run: str, folder: Path, record: RunRecord) -> Iterator[Scalar]:
    """The scalars of a run by epoch, in the order of their times; `folder` is that of its record.

    Each has the name that tables have for it. Its time is when rank 0 knew it, by the launcher's
    clock. A value that is not known or not finite is left out, and so is an epoch without an event
    with its time, as of a user's program.
    """
    happened = _times(folder)
    step_times_s = _step_times_s(folder)
    examples = record.metrics.examples_trained
    for epoch in record.metrics.epochs:
        values: dict[str, float | None] = {
            "loss": epoch.loss,
            "accuracy": epoch.accuracy,
            **epoch.metrics,
            "duration_s": epoch.duration_s,
            "step_time_s": step_times_s.get(epoch.epoch),
        }
        if examples and epoch.duration_s:
            per_epoch = examples / len(record.metrics.epochs)
            values["throughput_examples_per_s"] = per_epoch / epoch.duration_s
        held_out = ("test_loss", "test_accuracy", *(f"test_{name}" for name in epoch.test_metrics))
        tested = {name: quality.of_epoch(epoch, name) for name in held_out}
        tested["evaluation_time_s"] = epoch.evaluation_time_s
        for is_tested, known in ((False, values), (True, tested)):
            if (time_s := happened.get((epoch.epoch, is_tested))) is not None:
                for name, value in known.items():
                    if value is not None:
                        yield Scalar(run, name, epoch.epoch, time_s, value)


def _times(folder: Path) -> dict[tuple[int, bool], float]:
    """(Epoch, whether it is its evaluation) → when it ended on rank 0."""
    return {
        (event["epoch"], event["event"] in _EVALUATED): event["time_s"]
        for event in events.read(folder / run_record.EVENTS)
        if event.get("rank") == 0 and event["event"] in (_TRAINED, *_EVALUATED) and "epoch" in event
    }


def _step_times_s(folder: Path) -> dict[int, float]:
    """Epoch → median time of its steps on rank 0, without the first execution of the run."""
    path = folder / run_record.STEPS
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["rank"] == "0"][1:]
    of_epoch: dict[int, list[float]] = {}
    for row in rows:
        steps = int(row["steps"])
        times_s = of_epoch.setdefault(int(row["epoch"]), [])
        times_s += [float(row["duration_s"]) / steps] * steps
    return {epoch: statistics.median(times_s) for epoch, times_s in of_epoch.items()}
