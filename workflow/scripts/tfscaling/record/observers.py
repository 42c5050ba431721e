"""Readers of what a program reported about its training, one for each way to observe it.

docs/programs.md has the ways and their formats. Ranks of programs use OBSERVERS.
"""

from __future__ import annotations

import contextlib
import math
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from tfscaling.files import strict_json
from tfscaling.record.rank_report import (
    Amount,
    FromZero,
    Observed,
    ObservedEpoch,
    ObservedEvaluation,
    Positive,
    Totals,
    copy_fields,
    held_out_name,
)


class ObservationError(ValueError):
    """A program's report cannot be read; the message has file, line (from 1) and problem."""

    def __init__(self, path: Path, message: object, line: int | None = None) -> None:
        place = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{place}: {message}")


class Observer(NamedTuple):
    """A way to observe a program.

    Attributes:
        reader: Reads the report of one rank's program by the recipe's patterns. It raises
            ObservationError for a wrong line, or ValueError for a problem without a line.
        source: Where the report is: `events`, a file that every rank's program writes, or `output`,
            a copy of its output.
    """

    reader: Callable[[Path, Mapping[str, str]], Observed]
    source: Literal["events", "output"]

    def read(self, path: Path, patterns: Mapping[str, str] | None = None) -> Observed:
        """Read what one rank's program reported.

        Args:
            path: The file with the events, or the copy of the output.
            patterns: Name of a metric → regular expression, for a report in the output.

        Raises:
            ObservationError: If the report cannot be read.
        """
        try:
            return self.reader(path, patterns or {})
        except ObservationError:
            raise
        except OSError as error:
            raise ObservationError(path, f"cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise ObservationError(path, error) from error


# Events: one JSON object a line, with totals since the program's start, from `workflow/observe` or
# a program in any language.


class _Event(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="event", forbid_unknown_fields=True
):
    """An event of a program: one line of the file.

    Attributes:
        time_s: When it was written, in seconds since the epoch.
    """

    time_s: Amount


class _Imported(_Event, frozen=True, kw_only=True, tag="imported"):
    """The event `imported`: the program has imported its packages."""

    pass


class _Steps(_Event, frozen=True, kw_only=True, tag="steps"):
    """The event `steps`: totals of the rank since the program's start.

    Attributes:
        steps: Number of steps.
        examples: Number of examples; None if not reported.
        input_wait_s: Seconds of waiting for input; None if not reported.
    """

    steps: FromZero
    examples: FromZero | None = None
    input_wait_s: Amount | None = None


class _Epoch(_Steps, frozen=True, kw_only=True, tag="epoch"):
    """The event `epoch`: totals and metrics at the end of an epoch.

    Attributes:
        epoch: Number of the epoch, from 1.
        metrics: Name → value; None for a value that is not finite.
    """

    epoch: Positive
    metrics: dict[str, float | None] = {}


class _Evaluation(_Event, frozen=True, kw_only=True, tag="evaluation"):
    """The event `evaluation`: the end of an evaluation on held-out examples.

    Attributes:
        epoch: The epoch after which it took place; 0 before the first.
        metrics: Name → value; None for a value that is not finite.
        begin_s: Start of the evaluation, in seconds since the epoch. If it is missing, the
            evaluation began at the time of the previous event.
    """

    epoch: FromZero
    metrics: dict[str, float | None] = {}
    begin_s: Amount | UnsetType = UNSET


_EPOCH_EVENT = re.compile(rb'"event":\s*"epoch"')
_EVENT_DECODER = msgspec.json.Decoder(_Imported | _Steps | _Epoch | _Evaluation)


def _read_events(path: Path, _: Mapping[str, str]) -> Observed:
    """Read a file of events; a half-written last line of a killed program is ignored.

    Raises:
        ObservationError: A line is no event, or contradicts the lines before it.
        ValueError: The file is missing, or no step has ended.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(
            "the program wrote no events: expected a call of observe.steps, observe.step or, with "
            "`observe: fit`, of Model.fit (Python finds the observer of fit by PYTHONPATH, which "
            "its options -E, -I and -S switch off)"
        ) from None
    found = _EventReader()
    *lines, rest = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                found.add_line(line)
        except ValueError as error:
            raise ObservationError(path, error, number) from error
    return found.to_observed((f"{path.name} ends with half a line",) if rest else ())


class _EventReader:
    """Reads the events of one file line by line, and checks each against earlier ones."""

    def __init__(self) -> None:
        self._time_s = 0.0
        self._highest: dict[str, float] = {}
        self._imported_s: float | None = None
        self._windows: list[Totals] = []
        self._epochs: list[ObservedEpoch] = []
        self._evaluations: list[ObservedEvaluation] = []

    def add_line(self, text: bytes) -> None:
        """Add the event that a line of the file contains.

        Raises:
            ValueError: The line is no event, or contradicts an earlier one.
        """
        try:
            line = _EVENT_DECODER.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            try:
                strict_json.loads(text.decode())
            except strict_json.NotFiniteError as no_number:
                raise ValueError(f"{no_number}: expected null") from error
            except ValueError:
                pass
            raise ValueError(f"no event: {error}") from error
        if line.time_s < self._time_s:
            raise ValueError(f"time_s goes back from {self._time_s} to {line.time_s}")
        if isinstance(line, _Steps):
            totals = copy_fields(line, Totals)
            for name in ("steps", "examples", "input_wait_s"):
                value, highest = getattr(totals, name), self._highest.get(name, 0)
                if value is not None and value < highest:
                    raise ValueError(
                        f"{name} goes back from {highest} to {value}, but is a total since the "
                        "program's start; do two processes write this file?"
                    )
                self._highest[name] = highest if value is None else value
            if line.steps and (not self._windows or self._windows[-1] != totals):
                self._windows.append(totals)
        if isinstance(line, _Imported) and not self._windows:
            self._imported_s = line.time_s
        if isinstance(line, _Epoch):
            last = self._epochs[-1].epoch if self._epochs else 0
            if line.epoch != last + 1:
                raise ValueError(f"epoch {line.epoch} after epoch {last}")
            self._epochs.append(copy_fields(line, ObservedEpoch))
        if isinstance(line, _Evaluation):
            begin_s = (self._time_s or line.time_s) if line.begin_s is UNSET else line.begin_s
            if begin_s > line.time_s:
                raise ValueError(f"begin_s {begin_s} is after time_s {line.time_s}")
            whole = msgspec.structs.replace(line, begin_s=begin_s)
            self._evaluations.append(copy_fields(whole, ObservedEvaluation))
        self._time_s = line.time_s

    def to_observed(self, warnings: tuple[str, ...]) -> Observed:
        """Return the report that results from the events read so far.

        Args:
            warnings: Warnings to include.

        Raises:
            ValueError: If no step has ended.
        """
        if not self._windows:
            raise ValueError(
                "no step has ended: expected an event `steps` with steps above 0; `observe: fit` "
                "sees calls of Model.fit only, so observe train_on_batch and other loops by "
                "`observe: events`"
            )
        last = self._windows[-1]
        # the last step has ended for sure once the values of its epoch were fetched
        ends_s = [e.time_s for e in self._epochs if e.steps == last.steps]
        ends_s += [window.time_s for window in self._windows if window.steps == last.steps]
        return Observed(
            imported_s=self._imported_s,
            first_step_s=self._windows[0].time_s,
            last_step_s=ends_s[0],
            steps=last.steps,
            examples=last.examples,
            input_wait_s=last.input_wait_s,
            epochs=tuple(self._epochs),
            evaluations=tuple(self._evaluations),
            windows=tuple(self._windows),
            warnings=warnings,
        )


# Output, searched for patterns: regular expressions with one group, the value. It has no times.

#: Seconds that a pattern may take for all lines of a log.
_PATTERN_S = 60.0
#: What a program prints for a value that is not finite.
_NOT_FINITE = re.compile(r"(?<![\w.])[-+]?(?:nan|inf(?:inity)?)(?!\w)", re.IGNORECASE)
#: Minus signs: of keyboards, of Unicode, and a dash, which some libraries print for it.
_MINUS_SIGNS = "\u2212\u2013-"
#: Text right after or before a group that belongs to its number; the second only after whole
#: numbers: thousands separators, an ordinary space only if a fraction follows.
_REST = re.compile(r"\.?\d|_\d|[eEdD][-+]?\d|[kKMGT]\b")
_REST_OF_WHOLE = re.compile(
    r",\d{3}(?!\d)|,\d+(?![\d.])|[\u00a0\u2009\u202f'\u2019\u02bc\u066c]\d{3}(?!\d)| \d{3}[.,]\d"
)
_BEFORE = re.compile(rf"\d\.?$|(?<![\w){_MINUS_SIGNS}])[{_MINUS_SIGNS}]$")


class _NumberFound(NamedTuple):
    """A number that a pattern has found in a log.

    Attributes:
        line: Number of the line, from 1.
        value: The number; None if it is not finite.
    """

    line: int
    value: float | None


class _ValuesOfEpoch(NamedTuple):
    """The values of an epoch or an evaluation in a log.

    Attributes:
        line: Number of the first line that has one of them.
        metrics: Name of a metric → its value; None if it is not finite.
    """

    line: int
    metrics: dict[str, float | None]


def _read_output(path: Path, patterns: Mapping[str, str]) -> Observed:
    """Read a program's output by the pattern of each metric.

    Successive matches are the values of successive epochs. `test_loss` and the like are from
    evaluations on held-out examples; `steps` and `examples` are totals of the rank.

    Args:
        path: The copy of the output.
        patterns: Name of a metric, `steps` or `examples` → regular expression with one group.

    Raises:
        ObservationError: A pattern matches something that is no number.
        ValueError: A pattern is invalid, never matches, or does not match once per epoch.
    """
    lines = path.read_text(errors="replace").splitlines()
    found = {name: _find_matches(path, lines, name, pattern) for name, pattern in patterns.items()}
    steps, examples = (_pop_last_total(patterns, found, name) for name in ("steps", "examples"))
    epochs = _values_by_epoch({n: v for n, v in found.items() if held_out_name(n) is None})
    evaluations = _values_by_epoch({n: v for n, v in found.items() if held_out_name(n) is not None})
    # one evaluation after each epoch, or else after the epochs whose values are printed before it
    numbers = list(range(1, len(evaluations) + 1))
    if epochs and len(evaluations) != len(epochs):
        numbers = [sum(epoch.line <= each.line for epoch in epochs) for each in evaluations]
    warnings = [
        f"The last evaluation that the program printed is of epoch {last} of {len(epochs)}; "
        "test_loss and test_accuracy are from that epoch."
        for last in numbers[-1:]
        if last < len(epochs)
    ]
    return Observed(
        steps=steps,
        examples=examples,
        epochs=tuple(
            ObservedEpoch(epoch=number, metrics=epoch.metrics)
            for number, epoch in enumerate(epochs, 1)
        ),
        evaluations=tuple(
            ObservedEvaluation(
                epoch=number,
                metrics={held_out_name(name) or name: v for name, v in each.metrics.items()},
            )
            for number, each in zip(numbers, evaluations, strict=True)
        ),
        warnings=tuple(warnings),
    )


def _find_matches(path: Path, lines: list[str], name: str, pattern: str) -> list[_NumberFound]:
    """Return the numbers that a pattern finds in lines of output, in their order.

    Args:
        path: File of the output, for messages.
        lines: The lines.
        name: Name of the metric, for messages.
        pattern: Regular expression with one group, the number.

    Raises:
        ObservationError: The group is no number.
        ValueError: The pattern is invalid, never matches, or takes longer than _PATTERN_S seconds,
            as nested repetitions can.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from error
    if compiled.groups != 1:
        text = f"pattern {pattern!r} has {compiled.groups} groups, expected one: the value"
        raise ValueError(text)

    def stop(*_: object) -> None:
        """Raise ValueError because the pattern takes too long: a signal handler."""
        raise ValueError(f"{name}: pattern {pattern!r} takes longer than {_PATTERN_S:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _PATTERN_S)
    try:
        return _search_lines(path, lines, name, compiled)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _search_lines(
    path: Path, lines: list[str], name: str, compiled: re.Pattern[str]
) -> list[_NumberFound]:
    """Return the numbers that a compiled pattern finds, without the time limit of `_find_matches`.

    The arguments and errors are the same.
    """
    pattern, found = compiled.pattern, []
    for number, line in enumerate(lines, 1):
        # a pattern of digits would not see that the value became NaN
        filled = _NOT_FINITE.sub(lambda lost: "0.0".ljust(len(lost[0]), "0"), line)
        for match in list(compiled.finditer(filled)) or compiled.finditer(line):
            try:
                value = _number_in_group(line, match)
            except ValueError as error:
                message = f"{name}: pattern {pattern!r} gives {error}"
                raise ObservationError(path, message, number) from None
            found.append(_NumberFound(number, value if math.isfinite(value) else None))
    if not found:
        raise ValueError(f"{name}: pattern {pattern!r} never matched in {len(lines)} lines")
    return found


def _number_in_group(line: str, match: re.Match[str]) -> float:
    """Return the number in a match's group; NaN for text such as `nan` or `inf`.

    Args:
        line: The complete line.
        match: A match in the line.

    Raises:
        ValueError: If the text is no number, or a part of a longer one.
    """
    begin, end = match.span(1)
    if any(lost.start() < end and begin < lost.end() for lost in _NOT_FINITE.finditer(line)):
        return math.nan
    text = match[1]
    try:
        value = float(re.sub(rf"^\s*[{_MINUS_SIGNS}]", "-", text))
    except (ValueError, TypeError):
        raise ValueError(f"{text!r}, expected a number") from None
    has_rest = _REST.match(line, end) or (text.isdecimal() and _REST_OF_WHOLE.match(line, end))
    if text == text.strip() and (has_rest or _BEFORE.search(line[:begin])):
        raise ValueError(f"{text!r}, a part of a number in '{line.strip()[:200]}'")
    return value


def _pop_last_total(
    patterns: Mapping[str, str], found: dict[str, list[_NumberFound]], name: str
) -> int | None:
    """Remove the numbers of a total from `found`; return the last one.

    Args:
        patterns: Name → regular expression, for messages.
        found: Name → numbers that the pattern found.
        name: Name of the total: `steps` or `examples`.

    Returns:
        None if no pattern gives this total.

    Raises:
        ValueError: The number is no whole number from 0.
    """
    if name not in found:
        return None
    value = found.pop(name)[-1].value
    if value is None or value < 0 or not value.is_integer():
        raise ValueError(f"pattern {patterns[name]!r} gives {value}, expected a number of {name}")
    return int(value)


def _values_by_epoch(found: Mapping[str, list[_NumberFound]]) -> list[_ValuesOfEpoch]:
    """Return the values of each epoch: the n-th numbers of all metrics belong to epoch n.

    There is one exception: a metric may have a single number at the end of the output, which
    belongs to the last epoch. This number must not come before the last number of the metric with
    the most numbers.

    Args:
        found: Name of a metric → the numbers that its pattern found.

    Raises:
        ValueError: Two metrics have different numbers of matches, and the exception does not apply.
    """
    longest = max(found.values(), key=len, default=[])
    count = len(longest)
    once = {n for n, v in found.items() if len(v) == 1 and v[0].line >= longest[-1].line}
    if any(len(matches) != count for name, matches in found.items() if name not in once):
        counts = ", ".join(f"{name} {len(matches)}" for name, matches in found.items())
        raise ValueError(
            f"the patterns match differently often ({counts} times): the epochs of values are "
            "unknown; expected are as many of each, or one at the end"
        )
    together = []
    for n in range(count):
        is_last = n == count - 1
        have = {name: v for name, v in found.items() if is_last or len(v) == count}
        of_n = {name: v[-1 if is_last else n] for name, v in have.items()}
        metrics = {name: match.value for name, match in of_n.items()}
        together.append(_ValuesOfEpoch(min(match.line for match in of_n.values()), metrics))
    return together


def explain_extra_epochs(
    way: str, patterns: Mapping[str, str], requested: int, counts: Mapping[str, int]
) -> str:
    """Return why a program reported more epochs than requested, and what to do, as a sentence.

    Args:
        way: The recipe's `observe`, a name in OBSERVERS.
        patterns: The recipe's patterns.
        requested: Number of requested epochs.
        counts: Name of a pattern, or another source → number of epochs that it reported.
    """
    name, count = max(counts.items(), key=lambda each: each[1])
    text = f"requested {requested} epochs, reported {count} or more"
    if way == "output":
        return (
            f"{text}: the pattern of `{name}`, {patterns[name]!r}, matched {count} times, and each "
            "match is an epoch; let it match one line of each epoch, no progress lines"
        )
    calls = "all calls of `fit`" if way == "fit" else "all calls of observe.epoch"
    return f"{text}: `epochs` of the recipe is the total of {calls}"


def count_epochs(way: str, path: Path, patterns: Mapping[str, str]) -> dict[str, int]:
    """Return how many epochs a running program has reported so far; {} before its first report.

    Args:
        way: The recipe's `observe`, a name in OBSERVERS.
        path: The file with the events, or the copy of the output.
        patterns: The recipe's patterns.

    Returns:
        Name of a pattern, or `events` → number of epochs.
    """
    if not path.exists():
        return {}
    if OBSERVERS[way].source == "events":
        return {"events": len(_EPOCH_EVENT.findall(path.read_bytes()))}
    lines = path.read_text(errors="replace").splitlines()
    counts = {}
    for name, pattern in patterns.items():
        if held_out_name(name) is None and name not in ("steps", "examples"):
            with contextlib.suppress(ValueError):  # it never matched, or gives no number
                counts[name] = len(_find_matches(path, lines, name, pattern))
    return counts


#: Every way to observe a program, by its name in a recipe; `nothing` has no observer.
OBSERVERS: dict[str, Observer] = {
    "fit": Observer(_read_events, "events"),
    "events": Observer(_read_events, "events"),
    "output": Observer(_read_output, "output"),
}
