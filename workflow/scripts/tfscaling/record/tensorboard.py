"""TensorBoard's scalars: read from a program's event files, and made from a finished run.

An event file is a sequence of records (TensorFlow's TFRecord: length, checksum, data, checksum),
each a protobuf message `Event`. Only scalars are decoded, so TensorFlow need not be loaded.
Source: tensorflow/core/util/event.proto, framework/summary.proto, framework/tensor.proto.
"""

from __future__ import annotations

import bisect
import csv
import functools
import math
import re
import statistics
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tfscaling.record import events, run_record
from tfscaling.record.rank_report import (
    Observed,
    ObservedEpoch,
    ObservedEvaluation,
    held_out_name,
)
from tfscaling.record.run_record import RunRecord

#: What Keras's TensorBoard callback writes after an epoch, in folders `train` and `validation`.
_OF_EPOCH = re.compile("^epoch_")
#: Parts of tags, or folders, that name the examples of the values.
_TRAINING = {"train", "training"}
_HELD_OUT = {"validation", "val", "valid", "test", "eval", "evaluation"}
#: Message → (field, number, type): all that scalars need.
_MESSAGES = {
    "Event": (("wall_time", 1, "double"), ("step", 2, "int64"), ("summary", 5, "Summary")),
    "Summary": (("value", 1, "*Value"),),
    "Value": (("tag", 1, "bytes"), ("simple_value", 2, "float"), ("tensor", 8, "Tensor")),
    "Tensor": (
        *(("dtype", 1, "int32"), ("shape", 2, "Shape"), ("content", 4, "bytes")),
        *(("of_1", 5, "*float"), ("of_2", 6, "*double"), ("of_3", 7, "*int32")),
        ("of_9", 10, "*int64"),
    ),
    "Shape": (("dim", 2, "*bytes"),),
}
#: TensorFlow's data type of a scalar → the form of its value in `content`.
_FORMS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}
#: The trainer's events after which the values of an epoch are known.
_TRAINED, _EVALUATED = "epoch", ("epoch_evaluated", "evaluated")


class Scalar(NamedTuple):
    """A value of a tag; `run` is the folder of its file, relative to the folder that was read."""

    run: str
    tag: str
    step: int
    time_s: float
    value: float


def observed(folder: Path) -> Observed:
    """Read the event files below a folder: the values of successive steps are epochs.

    A metric's name is its tag in lower case, with `_` for `/`, without parts that name the
    examples: `train`, `validation`, `val`, `test` or `eval` as a part of the tag or of its file's
    folder. If there are tags `epoch_…`, as Keras writes them, they alone count.
    Raises ValueError if there are no files, no scalars, or a file is broken.
    """
    found = list(scalars(folder))
    if of_epochs := [s for s in found if _OF_EPOCH.search(s.tag)]:
        found = of_epochs
    if not found:
        raise ValueError("event files of TensorBoard, but no scalar in them")
    values: dict[bool, dict[int, tuple[float, dict[str, float | None]]]] = {False: {}, True: {}}
    for scalar in found:
        name, held_out = _metric(scalar)
        by_step = values[held_out]
        time_s, metrics = by_step.setdefault(scalar.step, (scalar.time_s, {}))
        metrics[name] = scalar.value if math.isfinite(scalar.value) else None
        by_step[scalar.step] = (max(time_s, scalar.time_s), metrics)
    steps = sorted(values[False] or values[True])
    epochs = tuple(
        ObservedEpoch(epoch=number, time_s=time_s, metrics=metrics)
        for number, (_, (time_s, metrics)) in enumerate(sorted(values[False].items()), 1)
    )
    evaluations = tuple(
        ObservedEvaluation(
            epoch=bisect.bisect_right(steps, step), begin_s=None, time_s=time_s, metrics=metrics
        )
        for step, (time_s, metrics) in sorted(values[True].items())
    )
    return Observed(epochs=epochs, evaluations=evaluations)


def _metric(scalar: Scalar) -> tuple[str, bool]:
    """The metric's name, and whether it is of held-out examples."""
    tag = _OF_EPOCH.sub("", scalar.tag.lower())
    parts = tag.split("/")
    said = {*parts, *scalar.run.lower().split("/")[-1:]}
    words = [part for part in parts if part not in _TRAINING | _HELD_OUT]
    name = "_".join(words) or tag
    if (plain := held_out_name(name)) is not None and not said & _TRAINING:
        return plain, True
    return name, bool(said & _HELD_OUT)


def scalars(folder: Path) -> Iterator[Scalar]:
    """The scalars of all event files below a folder, in the order of their files and records.

    Raises ValueError if there are none, or one is broken.
    """
    from google.protobuf.message import DecodeError

    paths = sorted(folder.rglob("*tfevents*"))
    if not paths:
        raise ValueError("no event files of TensorBoard (*tfevents*)")
    for path in paths:
        run = "" if path.parent == folder else path.parent.relative_to(folder).as_posix()
        for number, record in enumerate(_records(path), 1):
            try:
                event = _event_type().FromString(record)
                values = [(each.tag.decode(), _value(each)) for each in event.summary.value]
            except (DecodeError, UnicodeDecodeError, struct.error) as error:
                raise ValueError(f"{path.name}: record {number} is broken: {error}") from error
            for tag, value in values:
                if value is not None:
                    yield Scalar(run, tag, event.step, event.wall_time, value)


def _records(path: Path) -> Iterator[bytes]:
    """The data of a file's records; one that is cut, from a killed program, is left out."""
    content = path.read_bytes()
    place = 0
    while place + 12 <= len(content):
        (size,) = struct.unpack_from("<Q", content, place)
        end = place + 12 + size
        if end + 4 > len(content):
            return
        yield content[place + 12 : end]
        place = end + 4


@functools.cache
def _event_type() -> Any:
    """The class of the message `Event`, with the fields of _MESSAGES."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="tfscaling/scalars.proto", package="tfscaling", syntax="proto2"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            is_message = kind.strip("*") in _MESSAGES
            message.field.add(
                name=field,
                number=number,
                label=kinds.LABEL_REPEATED if kind[0] == "*" else kinds.LABEL_OPTIONAL,
                type=kinds.Type.Value("TYPE_MESSAGE")
                if is_message
                else kinds.Type.Value(f"TYPE_{kind.strip('*').upper()}"),
                type_name=f".tfscaling.{kind.strip('*')}" if is_message else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tfscaling.Event"))


def _value(value: Any) -> float | None:
    """The number of a summary's value; None unless it is a scalar."""
    if not value.HasField("tensor"):
        return value.simple_value if value.HasField("simple_value") else None
    tensor = value.tensor
    if tensor.dtype not in _FORMS or tensor.shape.dim:
        return None
    if tensor.content:
        return float(struct.unpack(_FORMS[tensor.dtype], tensor.content)[0])
    found = getattr(tensor, f"of_{tensor.dtype}")
    return float(found[0]) if found else 0.0  # zero is left out


def of_run(run: str, folder: Path, record: RunRecord) -> Iterator[Scalar]:
    """The scalars of a finished run by epoch, in the order of their times.

    `folder` has its record. Tags are the names of the tables. A scalar's time is when rank 0
    knew it, by the launcher's clock. Values that are unknown or not finite are left out, and so are
    epochs without an event with their time, as in user programs.
    """
    from tfscaling.record import metrics  # ranks, which only read event files, start without it

    happened = {
        (event["epoch"], event["event"] in _EVALUATED): event["time_s"]
        for event in events.read(folder / run_record.EVENTS)
        if event.get("rank") == 0 and event["event"] in (_TRAINED, *_EVALUATED) and "epoch" in event
    }
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
        tested = {name: metrics.quality_of_epoch(epoch, name) for name in held_out}
        tested["evaluation_time_s"] = epoch.evaluation_time_s
        for is_tested, known in ((False, values), (True, tested)):
            if (time_s := happened.get((epoch.epoch, is_tested))) is not None:
                for name, value in known.items():
                    if value is not None:
                        yield Scalar(run, name, epoch.epoch, time_s, value)


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
