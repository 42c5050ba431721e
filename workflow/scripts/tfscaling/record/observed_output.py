"""Reader of a rank's output by patterns: regular expressions with one group, the value.

Output has no times: epochs and evaluations found here have none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
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

#: Names that are no metrics: totals of the rank, of which the last match counts.
_STEPS, _EXAMPLES = "steps", "examples"
#: What a program prints for a value that is not finite.
_NOT_FINITE = re.compile(r"(?<![\w.])[-+]?(?:nan|inf(?:inity)?)(?!\w)", re.IGNORECASE)
#: What, right after a group or before it, is of the same number; commas only after whole numbers.
_GOES_ON = re.compile(r"\.?\d|_\d|[eEdD][-+]?\d|[kKMGT]\b")
_GOES_ON_AFTER_COMMA = re.compile(r",\d{3}(?!\d)|,\d+(?![\d.])")
_WENT_BEFORE = re.compile(r"\d\.?$|(?<![\w)-])-$")
#: A word of a line, with thousands that are set apart by a space.
_WORD = re.compile(r"\d{1,3}(?:[ \u00a0\u2009\u202f]\d{3}(?:[.,]\d+)?)+(?!\S)|\S+")
#: Thousands that are set apart by a space, of which an ordinary one needs a fraction after them.
_GOES_ON_AFTER_SPACE = re.compile(r"[\u00a0\u2009\u202f]\d{3}(?!\d)| \d{3}[.,]\d")


class _Match(NamedTuple):
    """A value, None if not finite, and its line from 1."""

    line: int
    value: float | None


class _Together(NamedTuple):
    """The values of an epoch or an evaluation, and the first line that has one of them."""

    line: int
    metrics: dict[str, float | None]


def read(path: Path, patterns: Mapping[str, str]) -> Observed:
    """What a rank's log says by patterns, each with its metric's name; each line is searched.

    Successive matches are the values of successive epochs. `test_loss` and the like are of
    evaluations on held-out examples; `steps` and `examples` are totals of the rank. Raises
    ObservationError if there is no log, a pattern is none or has not one group, never matches,
    gives no number or a part of one, or metrics match so often that nobody can tell their epochs.
    """
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise ObservationError(path, f"no output: {error.strerror}") from error
    found = {name: _matches(path, lines, name, pattern) for name, pattern in patterns.items()}
    steps, examples = (_total(path, patterns, found, name) for name in (_STEPS, _EXAMPLES))
    epochs = _successive(path, {n: v for n, v in found.items() if not is_held_out(n)})
    evaluations = _successive(path, {n: v for n, v in found.items() if is_held_out(n)})
    numbers = _numbers(evaluations, epochs)
    return Observed(
        steps=steps,
        examples=examples,
        epochs=tuple(
            ObservedEpoch(epoch=number, time_s=None, metrics=epoch.metrics)
            for number, epoch in enumerate(epochs, 1)
        ),
        evaluations=tuple(
            ObservedEvaluation(
                epoch=number,
                begin_s=None,
                time_s=None,
                metrics={prefix_free(name): value for name, value in each.metrics.items()},
            )
            for number, each in zip(numbers, evaluations, strict=True)
        ),
        warnings=_warnings(numbers, len(epochs)),
    )


def _matches(path: Path, lines: list[str], name: str, pattern: str) -> list[_Match]:
    """The numbers that a pattern gives, in the order of the lines."""
    compiled = _compiled(path, pattern)
    found = []
    for number, line in enumerate(lines, 1):
        # a pattern of digits would not see that the value became NaN
        filled = _NOT_FINITE.sub(lambda lost: "0.0".ljust(len(lost[0]), "0"), line)
        for match in list(compiled.finditer(filled)) or compiled.finditer(line):
            try:
                value = _value(line, match)
            except ValueError as error:
                message = f"{name}: pattern {pattern!r} gives {error}"
                raise ObservationError(path, message, number) from None
            found.append(_Match(number, value if math.isfinite(value) else None))
    if not found:
        message = f"{name}: pattern {pattern!r} never matched in {len(lines)} lines"
        raise ObservationError(path, message)
    return found


def _value(line: str, match: re.Match[str]) -> float:
    """The number in the group. Raises ValueError if it is none, or a part of a longer one."""
    begin, end = match.span(1)
    if any(lost.start() < end and begin < lost.end() for lost in _NOT_FINITE.finditer(line)):
        return math.nan
    text = match[1]
    try:
        value = float(text)
    except (ValueError, TypeError):
        raise ValueError(f"{text!r}, expected a number") from None
    goes_on = _GOES_ON.match(line, end) or (
        text.isdecimal()
        and (_GOES_ON_AFTER_COMMA.match(line, end) or _GOES_ON_AFTER_SPACE.match(line, end))
    )
    if text == text.strip() and (goes_on or _WENT_BEFORE.search(line[:begin])):
        (whole,) = (m[0] for m in _WORD.finditer(line) if m.start() <= begin < m.end())
        raise ValueError(f"{text!r} of {whole!r}, expected the whole number")
    return value


def _compiled(path: Path, pattern: str) -> re.Pattern[str]:
    """The regular expression. Raises ObservationError if it is none or has not one group."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        message = f"pattern {pattern!r} is no regular expression: {error}"
        raise ObservationError(path, message) from error
    if compiled.groups != 1:
        message = f"pattern {pattern!r} has {compiled.groups} groups, expected one: the value"
        raise ObservationError(path, message)
    return compiled


def _total(
    path: Path, patterns: Mapping[str, str], found: dict[str, list[_Match]], name: str
) -> int | None:
    """The last value of a total, which is taken out of `found`; None if no pattern gives it."""
    if name not in found:
        return None
    value = found.pop(name)[-1].value
    if value is None or value < 0 or not value.is_integer():
        message = f"pattern {patterns[name]!r} gives {value}, expected a number of {name}"
        raise ObservationError(path, message)
    return int(value)


def _successive(path: Path, found: Mapping[str, list[_Match]]) -> list[_Together]:
    """The n-th values of all metrics together.

    A metric that is printed once, at the end, is of the last. Raises ObservationError if metrics
    match differently often otherwise.
    """
    longest = max(found.values(), key=len, default=[])
    count = len(longest)
    once = {n for n, v in found.items() if len(v) == 1 and v[0].line >= longest[-1].line}
    if any(len(matches) != count for name, matches in found.items() if name not in once):
        counts = ", ".join(f"{name} {len(matches)}" for name, matches in found.items())
        message = (
            f"the patterns match differently often ({counts} times), so that nobody can tell the "
            "epochs of their values: expected as many of each, or one at the end"
        )
        raise ObservationError(path, message)
    together = []
    for n in range(count):
        of_n = {
            name: matches[-1] if n == count - 1 else matches[n]
            for name, matches in found.items()
            if n == count - 1 or len(matches) == count
        }
        metrics = {name: match.value for name, match in of_n.items()}
        together.append(_Together(min(match.line for match in of_n.values()), metrics))
    return together


def _numbers(evaluations: list[_Together], epochs: list[_Together]) -> list[int]:
    """The epoch of each evaluation: one after each, or else those whose values stand before it."""
    if not epochs or len(evaluations) == len(epochs):
        return list(range(1, len(evaluations) + 1))
    return [sum(epoch.line <= each.line for epoch in epochs) for each in evaluations]


def _warnings(numbers: list[int], epochs: int) -> tuple[str, ...]:
    if not numbers or numbers[-1] >= epochs:
        return ()
    return (
        f"The last evaluation that the program printed is of epoch {numbers[-1]} of {epochs}; "
        "test_loss and test_accuracy are those of that epoch.",
    )
