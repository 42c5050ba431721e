"""Lines of the console: how long they may be, how names, durations and moments are written."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable, Sequence

from tfscaling.study.config import AXES
from tfscaling.study.run_spec import JobSpec

#: No line of the console is longer.
WIDTH = 200
#: Axes that a name has even if they are equal in all runs.
_ALWAYS = ("platform", "nodes", "gpus_per_node")


def cut(line: str, width: int = WIDTH) -> str:
    """One line of at most `width` characters; what is lost is marked."""
    line = " ".join(line.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def clipped(line: str) -> str:
    """The line with its indentation, at most WIDTH characters of it."""
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def wrapped(text: str) -> list[str]:
    """All of the text in lines of at most WIDTH; lines that fit stay as they are."""
    lines: list[str] = []
    for line in text.splitlines():
        lines += [line] if len(line) <= WIDTH else textwrap.wrap(line, WIDTH)
    return lines


def shown_axes(specs: Iterable[JobSpec]) -> tuple[str, ...]:
    """The axes by which runs are told apart: those that every name has, and those that vary."""
    values: dict[str, set[str | int]] = {axis: set() for axis in AXES}
    for spec in specs:
        for axis, value in spec.axes.items():
            values[axis].add(value)
    return tuple(axis for axis in AXES if axis in _ALWAYS or len(values[axis]) > 1)


def name(spec: JobSpec, axes: Sequence[str]) -> str:
    """A run or benchmark in words: `gpu nodes=4 gpus_per_node=2 repeat=3`."""
    found = {axis: spec.axes[axis] for axis in axes if axis in spec.axes}
    platform = found.pop("platform")
    return " ".join([str(platform), *(f"{axis}={value}" for axis, value in found.items())])


def duration(seconds: float) -> str:
    """`42 s`, `3 min 20 s`, `5 h 12 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def clock(moment_s: float, now_s: float | None = None) -> str:
    """The local time of day of seconds since the epoch, or with its date if `now_s` has another."""
    moment = time.localtime(moment_s)
    today = time.localtime(moment_s if now_s is None else now_s)
    is_today = (moment.tm_year, moment.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M", moment)


def node_hours(value: float) -> str:
    """Three digits are enough: `0.0123`, `1.23`, `1234`."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def count(number: int, noun: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
