"""Reader of the events that `workflow/observe` writes, or a program in any language.

One JSON object a line, with totals since the program's start: docs/observe.md has the format.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tfscaling.files import strict_json
from tfscaling.record.observations import (
    ObservationError,
    Observed,
    ObservedEpoch,
    ObservedEvaluation,
    Totals,
)

_Count = Annotated[int, Meta(ge=0)]
_Seconds = Annotated[float, Meta(ge=0)]
_Metrics = dict[str, float | None]


class _Line(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="event", forbid_unknown_fields=True
):
    time_s: _Seconds


class _Imported(_Line, frozen=True, kw_only=True, tag="imported"):
    pass


class _Totals(_Line, frozen=True, kw_only=True):
    steps: _Count
    examples: _Count | UnsetType = UNSET
    input_wait_s: _Seconds | UnsetType = UNSET

    @property
    def totals(self) -> Totals:
        return Totals(
            time_s=self.time_s,
            steps=self.steps,
            examples=None if self.examples is UNSET else self.examples,
            input_wait_s=None if self.input_wait_s is UNSET else self.input_wait_s,
        )


class _Steps(_Totals, frozen=True, kw_only=True, tag="steps"):
    pass


class _Epoch(_Totals, frozen=True, kw_only=True, tag="epoch"):
    epoch: Annotated[int, Meta(ge=1)]
    metrics: _Metrics = {}


class _Evaluation(_Line, frozen=True, kw_only=True, tag="evaluation"):
    epoch: _Count
    metrics: _Metrics = {}
    begin_s: _Seconds | UnsetType = UNSET


_DECODER: msgspec.json.Decoder[_Imported | _Steps | _Epoch | _Evaluation] = msgspec.json.Decoder(
    _Imported | _Steps | _Epoch | _Evaluation
)
#: Totals of a line that may not become less, with what is said if they do.
_TOTALS = ("steps", "examples", "input_wait_s")


def read(path: Path) -> Observed:
    """What a rank's program wrote. A half-written last line is left out: the program was killed.

    Raises ObservationError if there is no file or no step in it, for a line that is not of the
    format, and for totals or times that go back.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ObservationError(
            path,
            "the program wrote no events: expected a call of observe.steps, observe.step or, with "
            "`observe: fit`, of Model.fit (Python finds the observer of fit by PYTHONPATH, which "
            "its options -E, -I and -S switch off)",
        ) from None
    found = _Found(path)
    *lines, rest = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        if line.strip():
            found.add(number, line)
    if rest:
        found.warnings.append(f"{path.name} ends with half a line")
    return found.observed()


class _Found:
    """What the lines so far say."""

    def __init__(self, path: Path) -> None:
        self.warnings: list[str] = []
        self._path = path
        self._time_s = 0.0
        self._highest: dict[str, float] = {}
        self._imported_s: float | None = None
        self._windows: list[Totals] = []
        self._epochs: list[ObservedEpoch] = []
        self._evaluations: list[ObservedEvaluation] = []

    def add(self, number: int, text: bytes) -> None:
        line = self._decoded(number, text)
        if line.time_s < self._time_s:
            raise self._error(number, f"time_s goes back from {self._time_s} to {line.time_s}")
        if isinstance(line, _Totals):
            self._add_totals(number, line)
        if isinstance(line, _Imported) and not self._windows:
            self._imported_s = line.time_s
        if isinstance(line, _Epoch):
            self._add_epoch(number, line)
        if isinstance(line, _Evaluation):
            self._add_evaluation(number, line)
        self._time_s = line.time_s

    def _decoded(self, number: int, text: bytes) -> _Imported | _Steps | _Epoch | _Evaluation:
        try:
            return _DECODER.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            try:
                strict_json.loads(text.decode())
            except strict_json.NotFiniteError as no_number:
                raise self._error(number, f"{no_number}: expected null") from error
            except ValueError:
                pass
            raise self._error(number, f"no event: {error}") from error

    def _add_totals(self, number: int, line: _Totals) -> None:
        for name in _TOTALS:
            value, highest = getattr(line, name), self._highest.get(name, 0)
            if value is UNSET:
                continue
            if value < highest:
                raise self._error(
                    number,
                    f"{name} goes back from {highest} to {value}, but is a total since the "
                    "program's start; do two processes write this file?",
                )
            self._highest[name] = value
        if line.steps and (not self._windows or self._windows[-1] != line.totals):
            self._windows.append(line.totals)

    def _add_epoch(self, number: int, line: _Epoch) -> None:
        last = self._epochs[-1].epoch if self._epochs else 0
        if line.epoch != last + 1:
            raise self._error(number, f"epoch {line.epoch} after epoch {last}")
        totals = line.totals
        self._epochs.append(
            ObservedEpoch(
                epoch=line.epoch,
                time_s=line.time_s,
                metrics=line.metrics,
                steps=totals.steps,
                examples=totals.examples,
            )
        )

    def _add_evaluation(self, number: int, line: _Evaluation) -> None:
        begin_s = (self._time_s or line.time_s) if line.begin_s is UNSET else line.begin_s
        if begin_s > line.time_s:
            raise self._error(number, f"begin_s {begin_s} is after time_s {line.time_s}")
        self._evaluations.append(
            ObservedEvaluation(
                epoch=line.epoch, begin_s=begin_s, time_s=line.time_s, metrics=line.metrics
            )
        )

    def observed(self) -> Observed:
        if not self._windows:
            raise ObservationError(
                self._path, "no step has ended: expected an event `steps` with steps of at least 1"
            )
        last = self._windows[-1]
        return Observed(
            imported_s=self._imported_s,
            first_step_s=self._windows[0].time_s,
            last_step_s=self._last_step_s(last.steps),
            steps=last.steps,
            examples=last.examples,
            input_wait_s=last.input_wait_s,
            epochs=tuple(self._epochs),
            evaluations=tuple(self._evaluations),
            windows=tuple(self._windows),
            warnings=tuple(self.warnings),
        )

    def _last_step_s(self, steps: int) -> float:
        """When the last step had ended: by its epoch's values, which were fetched, if they came."""
        first_s = next(window.time_s for window in self._windows if window.steps == steps)
        return next((e.time_s for e in self._epochs if e.steps == steps and e.time_s), first_s)

    def _error(self, number: int, message: str) -> ObservationError:
        return ObservationError(self._path, message, number)
