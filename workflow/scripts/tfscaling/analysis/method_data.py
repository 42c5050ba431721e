"""What the rules of sound benchmarking look at: runs, points, what was asked."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from tfscaling.analysis.evidence import Study
from tfscaling.study.grid import AXES, POINT_AXES
from tfscaling.tables.significance import Samples

Row = Mapping[Any, Any]
#: (whether it holds, None if it decides nothing; what it says, "" if nothing).
Part = tuple[bool | None, str]


def key_of(row: Row, axes: Iterable[str] = POINT_AXES) -> tuple[str, ...]:
    return tuple([str(row[axis]) for axis in axes])


def is_known(row: Row, *names: str) -> bool:
    for name in names:
        value = row[name]
        if value is None or value is pd.NA or value != value or value == "":
            return False
    return True


def is_close(value: Any, other: Any, tolerance: float = 1e-6) -> bool:
    return bool(pd.notna(value)) and math.isclose(value, other, rel_tol=tolerance)


class Data:
    """The tables and the content of manifest.json as the rules look at them."""

    def __init__(self, study: Study, communication: pd.DataFrame | None = None) -> None:
        comparison, expected, runs = study.comparison, study.manifest, study.runs
        runs = runs.where(runs.notna(), math.nan)  # None is no number to compare with
        self.runs, self.comparison, self.platforms = runs, comparison, expected["platforms"]
        self.samples = Samples(runs)
        self.valid: Sequence[Row] = runs[runs["status"] == "ok"].to_dict("records")
        self.points: Sequence[Row] = comparison[comparison["runs"] > 0].to_dict("records")
        out = (runs[runs["status"] != "ok"], comparison[comparison["status"] == "excluded"])
        self.left_out = [row for table in out for row in table.to_dict("records")]
        self.entries = {key_of(e["axes"], AXES): {**e["parameters"], **e} for e in expected["runs"]}
        self.places = {key_of(row): row for row in self.points}
        self.at: dict[tuple[str, ...], list[Row]] = {}
        for run in self.valid:
            self.at.setdefault(key_of(run), []).append(run)
        timed = pd.DataFrame() if communication is None else communication
        self.timed: Sequence[Row] = [row for row in timed.to_dict("records") if row["runs"] > 0]
        self.compared = [row for row in self.points if self.base(row) not in (None, row)]

    def asked_of(self, run: Row, name: str) -> Any:
        return self.entries[key_of(run, AXES)].get(name)

    def values(self, point: Row, *names: str) -> list[float]:
        """The product of these columns for every valid run of the point that has them."""
        runs = [run for run in self.at[key_of(point)] if is_known(run, *names)]
        return [math.prod(run[name] for name in names) for run in runs] or [math.nan]

    def base(self, row: Row) -> Row | None:
        """The measured point that this point's speed-up is relative to."""
        named = dict(re.findall(r"(\w+)=(\S+)", str(row["baseline"])))
        return self.places.get(key_of({**row, **named})) if named else None

    def where(self, rows: Iterable[Row]) -> str:
        counts = Counter(self.platforms[row["platform"]]["title"] for row in rows)
        return ", ".join(f"{title} ({count})" for title, count in counts.items())

    def share(self, rows: Sequence[Row], good: Callable[[Row], Any], text: str, lack: str) -> Part:
        """Whether all rows are good: `12 of 14 <text>; 2 <lack>: <platforms>`."""
        bad = [row for row in rows if not good(row)]
        said = f"{len(rows) - len(bad)} of {len(rows)} {text}"
        said += f"; {len(bad)} {lack}: {self.where(bad)}" if bad else ""
        return (not bad, said) if rows else (None, "")

    def facts(self, names: Iterable[str], rows: Sequence[Row]) -> Part:
        lacking = [name for name in names if not all(is_known(row, name) for row in rows)]
        text, lack = f"runs tell {', '.join(names)}", f"do not tell {' and '.join(lacking)}"
        return self.share(rows, lambda row: is_known(row, *names), text, lack)
