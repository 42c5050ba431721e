"""What holds a point back: input, computation, slower ranks or communication.

One row per point whose recipe asks for it, from the records of its valid runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import pandas as pd

from tfscaling.analysis.evidence import Study
from tfscaling.records import run_record
from tfscaling.records.run_record import Attribution, Share
from tfscaling.study.config import POINT_AXES
from tfscaling.study.run_spec import Point
from tfscaling.tables.display import TextTable, cell
from tfscaling.tables.table_rows import Row, points_of, rows_of

#: Parts of a step, in the order in which they are shown.
PARTS = ("input", "computation", "stragglers", "communication")
_ENDS = ("", "_low", "_high")
COLUMNS = (
    *POINT_AXES,
    *("runs", "step_time_s", *(f"{part}_share{end}" for part in PARTS for end in _ENDS)),
    *("input_rank", "input_host", "held_back_by", "text"),
)
#: What a part is called in a sentence.
_WORDS = {
    "input": "input",
    "computation": "computation",
    "stragglers": "waiting for slower ranks",
    "communication": "communication",
}
NOTES = (
    "Measured after the training, by blocks of steps on the same ranks in random order: with real "
    "input and on a batch that is there already, with all-reduce and update and without. Input is "
    "what real input adds to a step; computation is forward and backward pass of the median rank, "
    "stragglers what the slowest rank takes above that, communication the rest, with the update.",
    "In brackets the least and the greatest of all rounds of the point's runs; six rounds of a run "
    "make that a 97 % interval of the median. A part holds a step back if it is certainly the "
    "largest; a step that computes most of its time is held back by nothing else.",
    "A pipeline that keeps more than five batches ready of its own (prefetch) looks better here "
    "than in the training: `input_wait_s` is measured there.",
)


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: one row per point that was measured so; no rows if none was."""
    asked = {run.spec.point: run.spec for run in study.manifest.runs if run.spec.recipe.attribution}
    found: dict[Point, list[Attribution]] = {}
    if asked:
        valid = study.runs[study.runs["status"] == "ok"]
        for point, path in zip(points_of(valid), valid["record"], strict=True):
            if point in asked and (measured := _measured(Path(path))) is not None:
                found.setdefault(point, []).append(measured)
    rows = [_row(point, own, str(asked[point].dataset)) for point, own in found.items()]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _measured(path: Path) -> Attribution | None:
    """What a run measured; None if its record is not there any more."""
    try:
        record = run_record.read(path)
    except run_record.RecordError:
        return None
    return record.metrics.attribution if record else None


def _row(point: Point, measured: Sequence[Attribution], dataset: str) -> Row:
    shares = {part: _joined([getattr(each, part) for each in measured]) for part in PARTS}
    longest = max(measured, key=lambda each: each.input.median)
    row: Row = {**point.axes, "runs": len(measured)}
    row["step_time_s"] = median(each.step_time_s for each in measured)
    for part, share in shares.items():
        ends = (share.median, share.low, share.high)
        row |= {f"{part}_share{end}": value for end, value in zip(_ENDS, ends, strict=True)}
    row |= {"input_rank": longest.input_rank, "input_host": longest.input_host}
    largest = [*_largest(shares)]
    text = " or ".join(f"{_WORDS[part]} ({_percent(shares[part])})" for part in largest)
    if largest == ["computation"]:
        text = f"nothing but {text}"
    if "input" in largest:
        rank = f"rank {longest.input_rank} on {longest.input_host}"
        text += f"; the input is {dataset}, slowest on {rank}"
    return row | {"held_back_by": " or ".join(largest), "text": f"Held back by {text}."}


def _joined(shares: Sequence[Share]) -> Share:
    """That of a point: the median over its runs, and the range over all rounds."""
    return Share(
        median=median(share.median for share in shares),
        low=min(share.low for share in shares),
        high=max(share.high for share in shares),
    )


def _largest(shares: dict[str, Share]) -> Iterator[str]:
    """The parts that can be the largest of a step, the likeliest first."""
    for part in sorted(shares, key=lambda name: -shares[name].median):
        if all(shares[part].high >= other.low for other in shares.values()):
            yield part


def _percent(share: Share) -> str:
    return f"{share.median:.0%} of a step, {share.low:.0%} to {share.high:.0%}"


def as_text(table: pd.DataFrame) -> TextTable:
    """`table` for people: shares in percent with their ranges."""
    if table.empty:
        note = "Not measured: no recipe of the grid has `attribution: true`."
        return TextTable("What holds it back", pd.DataFrame(), (note,))
    axes = [axis for axis in POINT_AXES if axis == "nodes" or table[axis].astype(str).nunique() > 1]
    cells = pd.DataFrame([_cells(row, axes) for row in rows_of(table)], dtype=object)
    return TextTable("What holds it back", cells, NOTES)


def _cells(row: Row, axes: Sequence[str]) -> dict[str, str]:
    cells = {axis: cell(axis, row) for axis in axes} | {"runs": str(row["runs"])}
    cells["step_time_s"] = f"{row['step_time_s']:.5f}"
    for part in PARTS:
        value, low, high = (row[f"{part}_share{end}"] for end in _ENDS)
        cells[part] = f"{value:.0%} ({low:.0%}–{high:.0%})"
    return cells | {"what holds it back": row["text"]}
