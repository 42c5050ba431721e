"""Parts of the console's lines: width, names of runs, durations, times, tables."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence

from tfscaling.study.config_types import AXES

#: Highest number of columns of a line.
WIDTH = 100
#: Highest number of records that are listed.
_KEPT_MAX = 40
#: Parts of a reason by which runs with the same cause differ: a rank with its host, its log, and
#: numbers of jobs, processes, ports, addresses and measured times. A code of an error is a cause.
_OF_ONE_RUN = re.compile(
    r"rank \d+(?: on \S+)?: |; log: \S+|\b(?:job|pid|process|port)[ :=]?\d+|\b0x[0-9a-f]+"
    r"|\d+(?:\.\d+)?(?= ?(?:s|ms|bytes|[kMG]i?B)\b)|:\d{4,5}\b"
)
#: Axes that the name of a run has even if they are equal in all runs.
_ALWAYS = ("platform", "nodes")


def axes_to_show(runs: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """Return the axes that the names of runs need: platform, nodes, and every axis that varies.

    Args:
        runs: Axis → value, for each run.
    """
    values = {axis: {run[axis] for run in runs if axis in run} for axis in AXES}
    return tuple(axis for axis in AXES if axis in _ALWAYS or len(values[axis]) > 1)


def run_name(axes: Mapping[str, object], shown: Iterable[str]) -> str:
    """Return the name of a run in words: `gpu nodes=4 gpus_per_node=2 repeat=3`.

    Args:
        axes: Axis → value.
        shown: The axes that the name has.
    """
    found = {axis: axes[axis] for axis in shown if axis in axes}
    platform = found.pop("platform")
    return " ".join([str(platform), *(f"{axis}={value}" for axis, value in found.items())])


def cause_key(reason: str) -> str:
    """Return a reason without the rank, host, log and numbers of one run.

    Runs that ended for the same cause have equal keys.
    """
    return _OF_ONE_RUN.sub("", reason)


def format_duration(seconds: float) -> str:
    """Return a duration as text: `42 s`, `3 min 20 s`, `5 h 12 min`."""
    total = max(0, round(seconds))
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60} s"
    return f"{total // 3600} h {total % 3600 // 60} min"


def format_time(moment_s: float, now_s: float) -> str:
    """Return a moment as local time of day, with the date unless it is today.

    Args:
        moment_s: The moment, in seconds since the epoch.
        now_s: Present time in seconds since the epoch.
    """
    moment, now = time.localtime(moment_s), time.localtime(now_s)
    is_today = (moment.tm_year, moment.tm_yday) == (now.tm_year, now.tm_yday)
    return time.strftime("%H:%M" if is_today else "%Y-%m-%d %H:%M", moment)


def format_node_hours(value: float) -> str:
    """Return node-hours with three significant digits: `0.0123 node-hours`."""
    return f"{value:.0f} node-hours" if value >= 100 else f"{value:.3g} node-hours"


def count_text(number: int, noun: str) -> str:
    """Return a number with a noun in singular or plural: `1 run`, `3 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def align_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of an indented table with aligned columns; numbers are right-aligned.

    Args:
        names: Headings of the columns.
        rows: Cells of each row.
    """
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    is_number = [all(text.isdigit() for text in column) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, is_number, strict=True)
        ).rstrip()
        for row in (names, *rows)
    ]


def list_kept_records(kept: Sequence[tuple[object, float]], verb: str) -> list[str]:
    """Return lines about records that are deleted or replaced, with the files that still keep them.

    Args:
        kept: (file of an attempt that keeps the record, node-hours) for each record.
        verb: What happens to the records: `deleted` or `to be replaced`.
    """
    if not kept:
        return []
    total = format_node_hours(sum(hours for _, hours in kept))
    rows = [f"  {format_node_hours(hours)}: {file}" for file, hours in kept[:_KEPT_MAX]]
    rest = len(kept) - len(rows)
    more = [f"  and {rest} more"] if rest else []
    return [f"{count_text(len(kept), 'record')} {verb} ({total}); attempts keep:", *rows, *more]
