"""What people see of the tables: chosen columns, rounded values, notes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple, Self

import pandas as pd

from tfscaling.record.metrics import METRICS, QUALITY
from tfscaling.spec.config import LINE_AXES, POINT_AXES
from tfscaling.spec.platforms import CPU, LOGICAL
from tfscaling.tables.intervals import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.tables.rows import PointRow
from tfscaling.tables.table_rows import (
    QUALITY_COLUMNS,
    QUALITY_TEXTS,
    Row,
    counted_by,
    is_known,
    is_projected,
    metric_of,
    qualities_of,
    rows_of,
)

MISSING = "–"
#: The column that says of which steps times and costs are projected.
PROJECTED = "projected_from_steps"
#: Of a ratio to a value of 0; the reason is in a column of its own.
NO_RATIO = "no ratio"

#: What names a point: its axes, of which `devices` says the GPUs or logical devices per node.
NAMING = tuple("devices" if axis == "gpus_per_node" else axis for axis in POINT_AXES)


class Number(str):
    """A number as people read it, such as `358.1 (346.1–371.0)`: `value` is what it sorts by."""

    value: float

    def __new__(cls, text: str, value: float) -> Self:
        number = super().__new__(cls, text)
        number.value = value
        return number


@dataclass(frozen=True)
class TextTable:
    """A table as people read it: the texts of `cells`, of which those of numbers are `Number`s.

    `above` is a sentence before the table, `notes` come after it.
    """

    title: str
    cells: pd.DataFrame
    notes: tuple[str, ...] = ()
    above: str = ""

    @classmethod
    def of(
        cls,
        title: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        notes: Iterable[str] = (),
        above: str = "",
    ) -> Self:
        """The table of these rows, each with a text for every one of `columns`."""
        cells = pd.DataFrame([list(row) for row in rows], columns=list(columns), dtype=object)
        return cls(title, cells, tuple(notes), above)

    def is_number(self, column: Hashable) -> bool:
        """Whether the column has a number: it is aligned to the right and sorts by value."""
        return any(isinstance(text, Number) for text in self.cells[column])


def quality_name(table: pd.DataFrame) -> str:
    """What all points or runs of the table are compared by, or `quality` where that differs."""
    found = qualities_of(rows_of(table, QUALITY_COLUMNS))
    return next(iter(found.values())).title if len(found) == 1 else QUALITY


def headed(table: pd.DataFrame, names: Sequence[str]) -> dict[str, str]:
    """Column to show → its heading, for these columns of a table of points or runs.

    The quality is headed by its metric and unit where that is one for all, and is left out where a
    column of that name is shown as well; where it differs, columns beside it say what it is.
    """
    found = qualities_of(rows_of(table, QUALITY_COLUMNS)) if QUALITY in names else {}
    heads: dict[str, str] = {}
    for name in names:
        if name != QUALITY:
            heads[name] = name
        elif len(found) == 1:
            (quality,) = found.values()
            if quality.metric not in names:
                unit = f" ({quality.unit})" if quality.unit else ""
                heads[name] = quality.metric + unit
        else:
            heads[name] = name
            heads |= {column: column for column in QUALITY_TEXTS if table[column].notna().any()}
    return heads


def comparison(table: pd.DataFrame, title: str, columns: Sequence[str]) -> TextTable:
    """The comparison with the metrics `columns`, in this order.

    Axes that are the same in all rows are named above the table; columns without any value are
    left out.
    """
    axes, fixed = naming(table)
    names = [*axes, *(column for column in columns if not table[column].isna().all())]
    has_reasons = (table["reason"].fillna("") != "").any()
    names += ["status", "runs", *[PROJECTED] * any(map(is_projected, rows_of(table)))]
    names += ["replicas", "global_batch_size", *["reason"] * bool(has_reasons)]
    heads = headed(table, names)
    rows = [[cell(name, row) for name in heads] for row in rows_of(table)]
    above = f"All points: {fixed}." if fixed else ""
    notes = [*_target_notes(table, axes, columns), *_notes(table, list(heads))]
    return TextTable.of(title, list(heads.values()), rows, notes, above)


def three_digits(value: float) -> str:
    """The value to three digits, or to whole numbers: 26.6, 0.979, 1234; never 1e-05."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def naming(frame: pd.DataFrame, names: Sequence[str] = NAMING) -> tuple[list[str], str]:
    """(those of `names` that differ between rows, and nodes; what all rows share, in words).

    `names` are of NAMING, and other columns of texts.
    """
    differs = {name for name in names if frame[_axis(name)].astype(str).nunique() > 1}
    differs.add("nodes")
    if frame["devices"].nunique() > 1:
        differs.add("devices")
    shown = [name for name in names if name in differs]
    if frame.empty:
        return shown, ""
    fixed = (_said(name, frame.iloc[0]) for name in names if name not in differs)
    return shown, ", ".join(fixed)


def _said(name: str, row: pd.Series) -> str:
    """What a column of names says of a row, such as "recipe small" or "1 task per node"."""
    if name in NAMING:
        return "recipe " * (name == "recipe") + axis_text(_axis(name), row)
    if name == "batch_scaling":
        return f"{row[name]} scaling"
    return f"{name.replace('_', ' ')} {row[name]}"


def _axis(name: str) -> str:
    """The axis that a column of names shows."""
    return "gpus_per_node" if name == "devices" else name


def rounded(
    value: float | None, digits: int, low: float | None = None, high: float | None = None
) -> str:
    """A value rounded to `digits`, with its interval or range in brackets; `MISSING` for none."""
    if not is_known(value):
        return MISSING
    spread = f" ({low:.{digits}f}–{high:.{digits}f})" if is_known(low) else ""
    return Number(f"{value:.{digits}f}{spread}", value)


def devices(row: Row | pd.Series | PointRow) -> str:
    """What each node of a point trains on: `CPU`, `2 GPUs` or `2 logical devices`."""
    if isinstance(row, PointRow):
        return _devices(row.gpus_per_node, row.devices)
    return _devices(int(row["gpus_per_node"]), row["devices"])


def _devices(number: int, kind: str) -> str:
    if not number:
        return CPU
    noun = "logical device" if kind == LOGICAL else "GPU"
    return f"{number} {noun}{'s' if number > 1 else ''}"


def axis_text(axis: str, point: Row | pd.Series | PointRow) -> str:
    """An axis of a point as people say it: "4 nodes", "2 logical devices per node", "CPU"."""
    value = getattr(point, axis) if isinstance(point, PointRow) else point[axis]
    if axis in ("platform", "model", "strategy", "recipe"):
        return str(value)
    if axis == "gpus_per_node":
        return devices(point) + " per node" * (int(value) > 0)
    plural = "" if str(value) == "1" else "s"
    return f"{value} node{plural}" if axis == "nodes" else f"{value} task{plural} per node"


def cell(name: str, row: Row) -> str:
    """The value of a column: rounded as its metric says, with its interval or else its range.

    A value without either has three digits.
    """
    if name == "devices":
        return devices(row)
    value = row[name]
    if name == PROJECTED and is_known(value):
        return Number(f"{value:,.0f} of {row['projected_to_steps']:,.0f}", value)
    if name == "runs":
        planned = row["runs_asked"]
        return Number(f"{value} of {planned:.0f}" if is_known(planned) else str(value), value)
    if not is_known(value):
        undefined = row.get("undefined_ratios")
        is_undefined = isinstance(undefined, str) and name in undefined.split("; ")
        return NO_RATIO if is_undefined else MISSING
    if name in METRICS:
        digits = metric_of(name, row).digits
        low, high = _spread(name, row)
        if low is None or high is None:
            return Number(three_digits(row[name]), row[name])
        if name == "execution_time_s":
            digits = min(digits, 1)
        return rounded(value, max(digits, _digits_of_spread(value, low, high)), low, high)
    if isinstance(value, Real):
        return Number(f"{value:.0f}" if isinstance(value, float) else str(value), float(value))
    return one_line(str(value))


def _spread(name: str, row: Row) -> tuple[float | None, float | None]:
    """The interval of the median or the ratio; of fewer runs the range; of one run nothing."""
    column = counted_by(name)
    runs = row[column if column in row else "runs"]
    for low, high in ((f"{name}_low", f"{name}_high"), (f"{name}_min", f"{name}_max")):
        if runs > 1 and low in row and is_known(row[low]):
            return row[low], row[high]
    return None, None


def _digits_of_spread(value: float, low: float, high: float) -> int:
    """The decimals that tell the ends from each other: at most three digits of the value."""
    if not 0 < high - low < math.inf:
        return 0
    needed = math.ceil(-math.log10((high - low) / 2))
    return min(needed, 2 - math.floor(math.log10(max(abs(value), high - low))))


def one_line(text: str) -> str:
    """Text without line breaks."""
    return " ".join(text.split())


def _target_notes(
    table: pd.DataFrame, axes: Sequence[str], columns: Sequence[str]
) -> Iterator[str]:
    """What the targets are, and the points of which not all runs reached theirs."""
    if not {"time_to_target_s", "cost_to_target_usd"} & set(columns):
        return
    known = table[table["target"].notna() & (table["runs"] > 0)]
    for _, points in known.groupby("quality_metric", sort=False):
        rows = rows_of(points)
        target = target_text(rows[0])
        bound = "least" if metric_of(QUALITY, rows[0]).is_higher_better else "most"
        yield (
            "time_to_target_s is the trainer's first line to the end of the first evaluation whose "
            f"{target.name} is at {bound} {target.value}; it has a value only where all runs "
            "reached it and tell when."
        )
        short = [
            f"{', '.join(axis_text(_axis(name), row) for name in axes)}: reached by "
            f"{row['runs_at_target']:.0f} of {done} run{'s' if done > 1 else ''}"
            for row in rows
            if row["runs_at_target"] < (done := int(row["runs"] + row["runs_diverged"]))
        ]
        if short:
            yield f"{target.sentence} was not reached by every run: {'; '.join(short)}."


class Target(NamedTuple):
    """A target in words: `test accuracy` and `0.97`, or `2.5 min`."""

    name: str
    value: str

    @property
    def sentence(self) -> str:
        """Both, as a sentence begins."""
        return f"{self.name[0].upper()}{self.name[1:]} {self.value}"


def target_text(row: Row) -> Target:
    """The target of a point that has one."""
    metric = metric_of(QUALITY, row)
    return Target(metric.title, f"{row['target']:g}{f' {metric.unit}' * bool(metric.unit)}")


def _notes(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    notes = []
    if "speedup" in names:
        bases = table.dropna(subset=["baseline"]).drop_duplicates(
            ["platform", "model", "strategy", "recipe", "baseline"]
        )
        for _, row in bases.iterrows():
            time = row["baseline_execution_time_s"]
            text = f"{time:.1f} s" if is_known(time) else "not measured: no speed-up"
            notes.append(
                f"Speed-up of {row['platform']}, {row['model']}, {row['strategy']}, recipe "
                f"{row['recipe']}: relative to {row['baseline']} ({text})."
            )
    if (table["runs_diverged"].fillna(0) > 0).any():
        notes.append(
            "diverged: the loss became NaN or infinite; such runs are results, but take part in no "
            "median, interval or speed-up."
        )
    if (table["runs"] >= RUNS_FOR_INTERVAL).any():
        notes.append(
            f"In brackets: the {CONFIDENCE:.0%} interval of the median (order statistics) or of "
            f"the ratio of medians (bootstrap) where there are at least {RUNS_FOR_INTERVAL} runs."
        )
    fewest = table[["runs", "runs_timed"]].min(axis=1)
    if ((table["runs"] > 0) & (fewest < RUNS_FOR_INTERVAL)).any():
        notes.append(
            f"Values are medians over the valid runs (minimum–maximum in brackets); points with "
            f"fewer than {RUNS_FOR_INTERVAL} runs are too few for a confidence interval."
        )
    defined = "; ".join(_definitions(names))
    source = "Raw data: tables/runs.csv and the records it names."
    notes.append(f"{defined}. {source}" if defined else source)
    if "quality_metric" in names:
        notes.append(
            "quality is what each recipe is compared by, its quality_metric after training: values "
            "of different metrics are not compared with each other."
        )
    return notes


def _definitions(names: Sequence[str]) -> Iterator[str]:
    """What the values in these columns are."""
    if trained := [name for name in ("loss", "accuracy") if name in names]:
        are = "are means" if len(trained) > 1 else "is a mean"
        yield f"{' and '.join(trained)} {are} over the last epoch while it is trained"
    if held_out := [name for name in ("test_loss", "test_accuracy") if name in names]:
        are = "are" if len(held_out) > 1 else "is"
        yield f"{' and '.join(held_out)} {are} of held-out examples after training"
    if "execution_time_s" in names:
        yield "execution_time_s is the trainer's first line to the end of training"


def platform(table: pd.DataFrame, name: str) -> list[TextTable]:
    """The published form, one table per series: nodes, code execution time, loss, accuracy.

    A series that is compared by a metric other than an accuracy has that in the last column.
    """
    series: dict[tuple[str, ...], list[Row]] = {}
    for row in rows_of(table[table["platform"] == name]):
        series.setdefault(tuple(str(row[axis]) for axis in LINE_AXES[1:]), []).append(row)
    tables = []
    for (model, strategy, recipe, gpus, tasks), points in series.items():
        trained_on = devices(points[0]) + " per node" * (gpus != "0")
        per_node = f", {tasks} tasks per node" if tasks != "1" else ""
        title = f"{model}, {strategy}, {recipe}: {trained_on}{per_node}"
        learned, heading = _learned(points)
        rows = [_published_form(row, learned) for row in points]
        header = ["Number of nodes", "Code execution time", "Loss", heading]
        notes = [
            f"{row['nodes']} node{'s' if row['nodes'] > 1 else ''}: {one_line(row['reason'])}."
            for row in points
            if row["runs"] and row["reason"]
        ]
        tables.append(TextTable.of(title, header, rows, notes))
    return tables


def _learned(rows: Sequence[Row]) -> tuple[str, str]:
    """(the column that says what a series learned, its heading)."""
    for quality in qualities_of(rows).values():
        if not quality.is_accuracy and quality.in_training != "loss":
            unit = f" ({quality.unit})" if quality.unit else ""
            return QUALITY, f"{quality.title[0].upper()}{quality.title[1:]}{unit}"
    return "accuracy", "Accuracy"


def _published_form(row: Row, learned: str) -> list[str]:
    nodes = Number(str(row["nodes"]), row["nodes"])
    if not row["runs"]:
        return [nodes, one_line(f"{row['status']}: {row['reason']}"), MISSING, MISSING]
    time_s = row["execution_time_s"]
    seconds = MISSING
    if is_known(time_s):
        seconds = f"{time_s:.3f} seconds{', projected' * is_projected(row)}"
    if row["runs_diverged"] > 0:
        seconds += f" ({row['runs_diverged']:.0f} of {row['runs_asked']:.0f} diverged)"
    values = (rounded(row[name], 4) for name in ("loss", learned))
    return [nodes, Number(seconds, time_s) if is_known(time_s) else seconds, *values]
