"""Reader of MLPerf's log lines (`:::MLLOG {…}`) in a rank's output, as MLPerf's rules have them.

Source: MLCommons' training rules and the package mlperf-logging, from which the keys are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tfscaling.record.observations import (
    ObservationError,
    Observed,
    ObservedEpoch,
    ObservedEvaluation,
)

_MARK = ":::MLLOG"
#: Keys that tell sizes, not quality.
_NO_METRICS = {"eval_samples", "eval_start", "eval_stop", "train_samples"}
#: Beside `loss`, metrics are the keys with these prefixes.
_TRAINING, _HELD_OUT = "train_", "eval_"


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """A log line; further fields (namespace, event_type) are not needed."""

    time_ms: float
    key: str
    value: Any = None
    metadata: dict[str, Any] = {}

    @property
    def time_s(self) -> float:
        return self.time_ms / 1000

    @property
    def number(self) -> float | None:
        """The value; None if it is not finite."""
        return float(self.value) if math.isfinite(self.value) else None

    def count(self, key: str) -> int | None:
        """A whole number of the metadata; None if it is not there."""
        found = self.metadata.get(key)
        return (
            int(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
        )


def read(path: Path) -> Observed:
    """What MLPerf's lines of a rank's log say.

    `epoch_stop`, or else `block_stop`, ends an epoch; `eval_start` and `eval_stop` enclose an
    evaluation; `train_…` and `loss` are metrics of the epoch in which they stand, `eval_…` of the
    evaluation. `samples_count` counts the examples of all ranks, `step_num` steps. `init_stop` is
    where the packages are imported. Raises ObservationError if there is no log, no such line in
    it, one is broken, or times go back.
    """
    found = _Found()
    time_s = 0.0
    for number, line in _lines(path):
        if line.time_s < time_s:
            message = f"time_ms goes back from {time_s * 1000:.0f} to {line.time_ms:.0f}"
            raise ObservationError(path, message, number)
        time_s = line.time_s
        found.add(line)
    if not time_s:
        raise ObservationError(path, f"no line with {_MARK}")
    return found.observed()


def find(folder: Path) -> Path:
    """The one file below a folder with MLPerf's lines. Raises ObservationError if it is not one."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    found = [path for path in files if _MARK.encode() in path.read_bytes()]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ObservationError(folder, f"files with {_MARK}: {names}, expected one")
    return found[0]


def _lines(path: Path) -> Iterator[tuple[int, _Line]]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise ObservationError(path, f"no output: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        _, mark, text = line.partition(_MARK)
        if not mark:
            continue
        try:
            # Python's json, with which programs write these lines, takes NaN as a number
            yield number, msgspec.convert(json.loads(text), _Line)
        except (ValueError, msgspec.ValidationError) as error:
            raise ObservationError(path, f"no {_MARK} line: {error}", number) from error


class _Found:
    """What the lines so far say."""

    def __init__(self) -> None:
        self._imported_s: float | None = None
        self._ended_s: float | None = None
        self._steps: int | None = None
        self._samples: int | None = None
        self._metrics: dict[str, float | None] = {}
        self._epochs: list[ObservedEpoch] = []
        self._blocks: list[ObservedEpoch] = []
        self._evaluations: list[ObservedEvaluation] = []
        self._open = False
        #: Whether an epoch has begun that has not ended.
        self._begun = False

    def add(self, line: _Line) -> None:
        self._steps = _higher(self._steps, line.count("step_num"))
        self._samples = _higher(self._samples, line.count("samples_count"))
        if line.key == "init_stop":
            self._imported_s = line.time_s
        elif line.key == "epoch_stop":
            self._end_epoch(self._epochs, line.count("epoch_num"), line.time_s)
        elif line.key == "block_stop":
            first, count = line.count("first_epoch_num"), line.count("epoch_count")
            last = None if first is None or count is None else first + count - 1
            self._end_epoch(self._blocks, last, line.time_s)
        elif line.key in ("epoch_start", "block_start"):
            self._begun = True
        elif line.key == "eval_start":
            self._evaluate(line)
            self._open = True
        elif line.key == "eval_stop":
            self._end_evaluation(line.time_s)
        elif _is_number(line.value) and line.key not in _NO_METRICS:
            self._measure(line)

    def _measure(self, line: _Line) -> None:
        if line.key == "loss" or line.key.startswith(_TRAINING):
            self._metrics[line.key.removeprefix(_TRAINING)] = line.number
        elif line.key.startswith(_HELD_OUT):
            name = line.key.removeprefix(_HELD_OUT)
            last = self._evaluations[-1] if self._evaluations else None
            # the value may come after `eval_stop`
            if last is None or (
                not self._open and (last.epoch < self._ended or name in last.metrics)
            ):
                self._evaluate(line)
            self._evaluations[-1].metrics[name] = line.number

    @property
    def _ended(self) -> int:
        """The last epoch that has ended, 0 before the first."""
        ends = self._epochs or self._blocks
        return ends[-1].epoch if ends else 0

    def _end_epoch(self, ends: list[ObservedEpoch], number: int | None, time_s: float) -> None:
        following = ends[-1].epoch + 1 if ends else 1
        # some programs number from 0, or count examples: then it is the order that counts
        epoch = number if number is not None and number >= following else following
        metrics = dict(self._metrics)
        ends.append(ObservedEpoch(epoch=epoch, time_s=time_s, metrics=metrics, steps=self._steps))
        self._ended_s, self._begun = time_s, False

    def _evaluate(self, line: _Line) -> None:
        """Begin an evaluation: of the epoch that the line names, else of the one under way."""
        epoch = self._ended + self._begun
        named = line.metadata.get("epoch_num")
        number = math.ceil(named) if isinstance(named, int | float) else 0
        if max(1, self._ended) <= number <= self._ended + 1:
            epoch = number
        self._evaluations.append(
            ObservedEvaluation(epoch=epoch, begin_s=line.time_s, time_s=line.time_s, metrics={})
        )

    def _end_evaluation(self, time_s: float) -> None:
        if self._open:
            ended = msgspec.structs.replace(self._evaluations[-1], time_s=time_s)
            self._evaluations[-1] = ended
        self._open = False

    def observed(self) -> Observed:
        return Observed(
            imported_s=self._imported_s,
            last_step_s=self._ended_s,
            steps=self._steps,
            examples_of_all_ranks=self._samples,
            epochs=tuple(self._epochs or self._blocks),
            evaluations=tuple(self._evaluations),
        )


def _higher(highest: int | None, value: int | None) -> int | None:
    return highest if value is None else max(value, highest or 0)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
