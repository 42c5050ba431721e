"""Reader of TensorBoard's scalars, from event files as Keras, TensorFlow or PyTorch write them.

An event file is a sequence of records (TensorFlow's TFRecord: length, checksum, data, checksum),
each a protobuf message `Event`. Only scalars are decoded, so TensorFlow need not be loaded.
Source: tensorflow/core/util/event.proto, framework/summary.proto, framework/tensor.proto.
"""

from __future__ import annotations

import bisect
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tfscaling.record.observations import (
    ObservationError,
    Observed,
    ObservedEpoch,
    ObservedEvaluation,
    is_held_out,
    prefix_free,
)

#: What Keras's TensorBoard callback writes after an epoch, in folders `train` and `validation`.
_OF_EPOCH = re.compile("^epoch_")
#: Parts of tags, or folders, that say of which examples the values are.
_TRAINING = {"train", "training"}
_HELD_OUT = {"validation", "val", "valid", "test", "eval", "evaluation"}
#: The scalar types of TensorFlow: data type → form of one value in `tensor_content`.
_FORMS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}
#: Data type → number of the field with the value, if it is not in `tensor_content`.
_VALUE_FIELDS = {1: 5, 2: 6, 3: 7, 9: 10}


class Scalar(NamedTuple):
    """A value of a tag; `run` is the folder of its file, below that of all."""

    run: str
    tag: str
    step: int
    time_s: float
    value: float


def read(folder: Path) -> Observed:
    """What the event files below a folder say: the values of successive steps are epochs.

    A metric's name is its tag in lower case, with `_` for `/`, without what says whether it is of
    the training or of held-out examples: `train`, `validation`, `val`, `test` or `eval` as a part
    of the tag or of its file's folder. If there are tags `epoch_…`, as Keras writes them, they
    alone count. Raises ObservationError if there are no files, no scalars, or a file is broken.
    """
    found = list(scalars(folder))
    if of_epochs := [s for s in found if _OF_EPOCH.search(s.tag)]:
        found = of_epochs
    if not found:
        raise ObservationError(folder, "event files of TensorBoard, but no scalar in them")
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
    if is_held_out(name) and not said & _TRAINING:
        return prefix_free(name), True
    return name, bool(said & _HELD_OUT)


def scalars(folder: Path) -> Iterator[Scalar]:
    """The scalars of all event files below a folder, in the order of their files and records."""
    paths = sorted(folder.rglob("*tfevents*"))
    if not paths:
        raise ObservationError(folder, "no event files of TensorBoard (*tfevents*)")
    for path in paths:
        run = "" if path.parent == folder else path.parent.relative_to(folder).as_posix()
        for number, record in enumerate(_records(path), 1):
            try:
                yield from _scalars(run, record)
            except (ValueError, IndexError, struct.error) as error:
                raise ObservationError(path, f"record {number} is broken: {error}") from error


def _records(path: Path) -> Iterator[bytes]:
    """The data of a file's records; one that is cut, of a program that was killed, is left out."""
    content = path.read_bytes()
    place = 0
    while place + 12 <= len(content):
        (size,) = struct.unpack_from("<Q", content, place)
        end = place + 12 + size
        if end + 4 > len(content):
            return
        yield content[place + 12 : end]
        place = end + 4


def _scalars(run: str, event: bytes) -> Iterator[Scalar]:
    time_s, step, values = 0.0, 0, []
    for field, value in _fields(event):
        if field == 1:
            (time_s,) = struct.unpack("<d", _bytes(value))
        elif field == 2:
            step = _integer(value)
        elif field == 5:
            values += [v for f, v in _fields(_bytes(value)) if f == 1]
    for value in values:
        tag, number = "", None
        for field, part in _fields(_bytes(value)):
            if field == 1:
                tag = _bytes(part).decode()
            elif field == 2:
                (number,) = struct.unpack("<f", _bytes(part))
            elif field == 8:
                number = _scalar_of_tensor(_bytes(part))
        if number is not None:
            yield Scalar(run, tag, step, time_s, number)


def _scalar_of_tensor(tensor: bytes) -> float | None:
    """The value of a tensor without dimensions; None of any other."""
    fields = dict(_fields(tensor))
    kind = _integer(fields.get(1, 0))
    if kind not in _FORMS or _fields_of_shape(fields.get(2, b"")):
        return None
    form, content = _FORMS[kind], fields.get(4)
    if content:
        (value,) = struct.unpack(form, _bytes(content))
        return float(value)
    packed = fields.get(_VALUE_FIELDS[kind])
    if packed is None:  # zero is left out
        return 0.0
    if kind in (1, 2):
        (value,) = struct.unpack(form, _bytes(packed))
        return float(value)
    return float(packed if isinstance(packed, int) else _varint(packed, 0)[0])


def _fields_of_shape(shape: int | bytes) -> bool:
    return any(field == 2 for field, _ in _fields(_bytes(shape)))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a protobuf message: a number, or bytes of any other."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        if kind == 2:
            size, place = _varint(message, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if place + size > len(message):
            raise ValueError("a field is cut")
        yield key >> 3, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """A number of variable length as a signed 64-bit one, and the place after it."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value - (1 << 64) if value >= 1 << 63 else value, place


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where bytes were expected")
    return value


def _integer(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("bytes where a number was expected")
    return value
