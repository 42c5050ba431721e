"""Reader of a rank's output by patterns: regular expressions with one group, the value.

Output has no times: epochs and evaluations found here have none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from tfscaling.records.observations import (
    ObservationError,
    Observed,
    ObservedEpoch,
    ObservedEvaluation,
    is_held_out,
    prefix_free,
)

#: Names that are no metrics: totals of the rank, of which the last match counts.
_STEPS, _EXAMPLES = "steps", "examples"


def read(path: Path, patterns: Mapping[str, str]) -> Observed:
    """What a rank's log says by patterns, each with its metric's name; each line is searched.

    Successive matches are the values of successive epochs. `test_loss` and the like are of
    evaluations on held-out examples; `steps` and `examples` are totals of the rank. Raises
    ObservationError if there is no log, a pattern is none or has not one group, never matches, or
    gives no number.
    """
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise ObservationError(path, f"no output: {error.strerror}") from error
    found = {name: _values(path, lines, pattern) for name, pattern in patterns.items()}
    steps, examples = (_total(path, patterns, found, name) for name in (_STEPS, _EXAMPLES))
    held_out = {prefix_free(n): found[n] for n in found if is_held_out(n)}
    training = {n: v for n, v in found.items() if not is_held_out(n)}
    epochs, evaluations = _successive(training), _successive(held_out)
    return Observed(
        steps=steps,
        examples=examples,
        epochs=tuple(
            ObservedEpoch(epoch=number, time_s=None, metrics=metrics)
            for number, metrics in enumerate(epochs, 1)
        ),
        evaluations=tuple(
            ObservedEvaluation(epoch=number, begin_s=None, time_s=None, metrics=metrics)
            for number, metrics in _numbered(evaluations, len(epochs))
        ),
    )


def _values(path: Path, lines: list[str], pattern: str) -> list[float | None]:
    """The numbers that a pattern gives, in the order of the lines; None where not finite."""
    compiled = _compiled(path, pattern)
    found = []
    for number, line in enumerate(lines, 1):
        for match in compiled.finditer(line):
            try:
                value = float(match[1])
            except (ValueError, TypeError):
                raise ObservationError(
                    path, f"pattern {pattern!r} gives {match[1]!r}, expected a number", number
                ) from None
            found.append(value if math.isfinite(value) else None)
    if not found:
        raise ObservationError(path, f"pattern {pattern!r} never matched in {len(lines)} lines")
    return found


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
    path: Path, patterns: Mapping[str, str], found: dict[str, list[float | None]], name: str
) -> int | None:
    """The last value of a total, which is taken out of `found`; None if no pattern gives it."""
    if name not in found:
        return None
    value = found.pop(name)[-1]
    if value is None or value < 0 or not value.is_integer():
        message = f"pattern {patterns[name]!r} gives {value}, expected a number of {name}"
        raise ObservationError(path, message)
    return int(value)


def _successive(values: Mapping[str, list[float | None]]) -> list[dict[str, float | None]]:
    """The n-th values of all metrics together; metrics with fewer values are of the last ones.

    A metric that is printed once, at the end, belongs to the last epoch.
    """
    count = max(map(len, values.values()), default=0)
    return [
        {
            name: found[n - count + len(found)]
            for name, found in values.items()
            if n - count + len(found) >= 0
        }
        for n in range(count)
    ]


def _numbered(
    evaluations: list[dict[str, float | None]], epochs: int
) -> list[tuple[int, dict[str, float | None]]]:
    """Evaluations with their epochs: one after each, or else the last after the last epoch."""
    if not epochs:
        return list(enumerate(evaluations, 1))
    first = max(0, epochs - len(evaluations)) + 1
    return [(min(epochs, first + n), metrics) for n, metrics in enumerate(evaluations)]
