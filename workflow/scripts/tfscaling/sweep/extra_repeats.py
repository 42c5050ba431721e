"""Further repeats of the points whose interval is still too wide.

Repeats are added in rounds: all runs of a round end, then the points are looked at again. A point
is repeated up to the next number of runs at which its interval can be narrower at all: that of the
median ends at order statistics, which move inwards at 9, 12, 15, ... runs only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tfscaling.records.run_states import FINISHED, RunState
from tfscaling.study.config import AXES, POINT_AXES
from tfscaling.tables import runs_table
from tfscaling.tables.intervals import RUNS_FOR_INTERVAL, median_interval, median_rank
from tfscaling.tables.table_rows import rows_of

Entry = Mapping[str, Any]

METRIC = "execution_time_s"
NARROW, WIDE, EXHAUSTED = "narrow enough", "too wide", "too wide at repeats_max"
HALF_DIVERGED = "at least half of the runs diverged"


def next_round(
    expected: Entry, runs_dir: Path, asked: Sequence[str], number: int
) -> dict[str, Any]:
    """What round `number` adds, after the runs of every block and those `asked` for since.

    `runs`: paths of all further runs asked for up to now, `added`: how many of them are new,
    `points`: axes, repeats, diverged, median_s, relative_interval (None below 6 valid runs) and
    verdict of every point that has an interval to reach and whose runs are all there and are no
    stale ones. Runs that diverged are done, but have no part in the interval; a point of which at
    least half diverged gets no further repeats.
    """
    points: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in expected["runs"]:
        if entry["relative_interval"] is not None:
            points.setdefault(tuple(entry["axes"][a] for a in POINT_AXES), []).append(entry)
    done = _done(expected, runs_dir)
    found, runs, before = [], list(asked), set(asked)
    for axes, entries in points.items():
        due = [entry for entry in entries if not entry["further"] or entry["path"] in before]
        made = [run for entry in due if (run := done.get(_key(entry["axes"]))) is not None]
        if len(made) < len(due):
            continue  # some are failed, stale, or on another cluster than the chosen one
        times = [run[METRIC] for run in made if run["status"] == RunState.OK]
        width, diverged = relative_interval(times), len(made) - len(times)
        wide = width is None or width > entries[0]["relative_interval"]
        more: list[Entry] = []
        if wide and 2 * diverged < len(made):
            more = entries[len(due) : len(due) + next_number(len(times)) - len(times)]
        runs += [entry["path"] for entry in more]
        verdict = (WIDE if more else EXHAUSTED) if wide else NARROW
        found.append(
            {
                **dict(zip(POINT_AXES, axes, strict=True)),
                "repeats": len(due),
                "diverged": diverged,
                "median_s": median(times) if times else None,
                "relative_interval": width,
                "verdict": HALF_DIVERGED if 2 * diverged >= len(made) else verdict,
            }
        )
    return {"round": number, "runs": runs, "added": len(runs) - len(asked), "points": found}


def relative_interval(times_s: Sequence[float]) -> float | None:
    """Width of the interval of the median over the median; None if there are too few runs."""
    interval = median_interval(times_s)
    middle = median(times_s) if interval else 0.0
    return (interval[1] - interval[0]) / middle if interval and middle else None


def next_number(runs: int) -> int:
    """The next number of runs whose interval ends further inside the sample than that of `runs`."""
    if runs < RUNS_FOR_INTERVAL:
        return RUNS_FOR_INTERVAL
    more = runs + 1
    while (median_rank(more) or 0) <= (median_rank(runs) or 0):
        more += 1
    return more


def _done(expected: Entry, runs_dir: Path) -> dict[tuple[str, ...], Mapping[Any, Any]]:
    """Axes → row of the runs that the tables count as results, valid or diverged."""
    runs, _ = runs_table.run_tables(expected["planned"], runs_dir)
    done = runs[runs["status"].isin([*FINISHED])]
    return {_key(run): run for run in rows_of(done)}


def _key(axes: Mapping[Any, Any]) -> tuple[str, ...]:
    return tuple(str(axes[axis]) for axis in AXES)
