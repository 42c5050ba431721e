"""What people see of the tables: chosen columns, rounded values, notes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Self

import pandas as pd

from tfscaling.records.metrics import METRICS
from tfscaling.study.config import POINT_AXES
from tfscaling.study.platforms import CPU, LOGICAL
from tfscaling.tables.intervals import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.tables.table_rows import Row, rows_of

MISSING = "–"
#: Of a ratio to a value of 0; the reason is in a column of its own.
NO_RATIO = "no ratio"

#: What names a point: its axes, and the kind of its devices after their number.
_AFTER = POINT_AXES.index("gpus_per_node") + 1
NAMING = (*POINT_AXES[:_AFTER], "devices", *POINT_AXES[_AFTER:])


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


def constant(frame: pd.DataFrame, names: Sequence[str]) -> tuple[list[str], str]:
    """(those of `names` that vary, and nodes; what all rows share as a sentence)."""
    fixed = [n for n in names if n != "nodes" and frame[n].astype(str).nunique() == 1]
    words = ", ".join(f"{name} {frame[name].iloc[0]}" for name in fixed)
    return [n for n in names if n not in fixed], f"All rows: {words}." if fixed else ""


def comparison(table: pd.DataFrame, title: str, columns: Sequence[str]) -> TextTable:
    """The comparison with the metrics `columns`, in this order.

    Axes that are the same in all rows are named above the table; columns without any value are
    left out.
    """
    axes = [axis for axis in NAMING if axis == "nodes" or table[axis].nunique() > 1]
    fixed = [f"{axis} {table[axis].iloc[0]}" for axis in NAMING if axis not in axes]
    names = [*axes, "status", "runs", "replicas", "global_batch_size"]
    names += [column for column in columns if not table[column].isna().all()]
    if (table["reason"].fillna("") != "").any():
        names.append("reason")
    rows = [[cell(name, row) for name in names] for row in rows_of(table)]
    above = f"All points: {', '.join(fixed)}." if fixed else ""
    notes = [*_target_notes(table, axes, columns), *_notes(table, names)]
    return TextTable.of(title, names, rows, notes, above)


def rounded(
    value: float | None, digits: int, low: float | None = None, high: float | None = None
) -> str:
    """A value rounded to `digits`, with its interval or range in brackets; `MISSING` for none."""
    if pd.isna(value):
        return MISSING
    spread = "" if pd.isna(low) else f" ({low:.{digits}f}–{high:.{digits}f})"
    return Number(f"{value:.{digits}f}{spread}", value)


def devices(row: Row | pd.Series) -> str:
    """What each node of a point trains on: `CPU`, `2 GPUs` or `2 logical devices`."""
    number = int(row["gpus_per_node"])
    if not number:
        return CPU
    noun = "logical device" if row["devices"] == LOGICAL else "GPU"
    return f"{number} {noun}{'s' if number > 1 else ''}"


def cell(name: str, row: Row) -> str:
    """The value of a column: rounded as its metric says, with its interval or else its range."""
    value = row[name]
    if name == "runs":
        planned = row["runs_asked"]
        return Number(str(value) if pd.isna(planned) else f"{value} of {planned:.0f}", value)
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        undefined = row.get("undefined_ratios")
        is_undefined = isinstance(undefined, str) and name in undefined.split("; ")
        return NO_RATIO if is_undefined else MISSING
    if name in METRICS:
        digits = METRICS[name].digits
        low, high = _spread(name, row)
        if low is not None and name == "execution_time_s":
            digits = min(digits, 1)
        return rounded(row[name], digits, low, high)
    if isinstance(value, Real):
        return Number(f"{value:.0f}" if isinstance(value, float) else str(value), float(value))
    return one_line(str(value))


def _spread(name: str, row: Row) -> tuple[float | None, float | None]:
    """The interval of the median or the ratio; of fewer runs the range; of one run nothing."""
    for low, high in ((f"{name}_low", f"{name}_high"), (f"{name}_min", f"{name}_max")):
        if row["runs"] > 1 and low in row and pd.notna(row[low]):
            return row[low], row[high]
    return None, None


def one_line(text: str) -> str:
    """Text without line breaks."""
    return " ".join(text.split())


def _target_notes(
    table: pd.DataFrame, axes: Sequence[str], columns: Sequence[str]
) -> Iterator[str]:
    """What the target accuracy is, and the points of which not all runs reached it."""
    if not {"time_to_accuracy_s", "cost_to_accuracy_usd"} & set(columns):
        return
    known = table[table["target_accuracy"].notna() & (table["runs"] > 0)]
    if known.empty:
        return
    target = f"{known['target_accuracy'].iloc[0]:g}"
    yield (
        f"time_to_accuracy_s is the trainer's first line to the end of the first evaluation whose "
        f"accuracy on held-out examples is at least {target}; it has a value only where all runs "
        "reached it."
    )
    short = [
        f"{', '.join(f'{axis} {row[axis]}' for axis in axes)}: reached by "
        f"{row['runs_at_target']:.0f} of {done} run{'s' if done > 1 else ''}"
        for row in rows_of(known)
        if row["runs_at_target"] < (done := int(row["runs"] + row["runs_diverged"]))
    ]
    if short:
        yield f"Accuracy {target} was not reached by every run: {'; '.join(short)}."


def _notes(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    notes = []
    if "speedup" in names:
        bases = table.dropna(subset=["baseline"]).drop_duplicates(
            ["platform", "model", "strategy", "recipe", "baseline"]
        )
        for _, row in bases.iterrows():
            time = row["baseline_execution_time_s"]
            text = "not measured: no speed-up" if pd.isna(time) else f"{time:.1f} s"
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
    if ((table["runs"] > 0) & (table["runs"] < RUNS_FOR_INTERVAL)).any():
        notes.append(
            f"Values are medians over the valid runs (minimum–maximum in brackets); points with "
            f"fewer than {RUNS_FOR_INTERVAL} runs are too few for a confidence interval."
        )
    notes.append(
        "loss and accuracy are means over the last epoch while it is trained; test_accuracy is "
        "of held-out examples after training; execution_time_s is the trainer's first line to the "
        "end of training. Raw data: tables/runs.csv and the records it names."
    )
    return notes


def platform(table: pd.DataFrame, name: str) -> list[TextTable]:
    """The published form, one table per series: nodes, code execution time, loss, accuracy."""
    own = table[table["platform"] == name]
    tables = []
    for keys, group in own.groupby(
        ["model", "strategy", "recipe", "gpus_per_node", "tasks_per_node"], sort=False
    ):
        model, strategy, recipe, gpus, tasks = map(str, keys)
        trained_on = devices(group.iloc[0]) + " per node" * (gpus != "0")
        per_node = f", {tasks} tasks per node" if tasks != "1" else ""
        title = f"{model}, {strategy}, {recipe}: {trained_on}{per_node}"
        rows = [_published_form(row) for row in rows_of(group)]
        header = ["Number of nodes", "Code execution time", "Loss", "Accuracy"]
        notes = [
            f"{row['nodes']} node{'s' if row['nodes'] > 1 else ''}: {one_line(row['reason'])}."
            for row in rows_of(group)
            if row["runs"] and row["reason"]
        ]
        tables.append(TextTable.of(title, header, rows, notes))
    return tables


def _published_form(row: Row) -> list[str]:
    nodes = Number(str(row["nodes"]), row["nodes"])
    if not row["runs"]:
        return [nodes, one_line(f"{row['status']}: {row['reason']}"), MISSING, MISSING]
    seconds = f"{row['execution_time_s']:.3f} seconds"
    if row["runs_diverged"] > 0:
        seconds += f" ({row['runs_diverged']:.0f} of {row['runs_asked']:.0f} diverged)"
    quality = (
        MISSING if row[name] is None else Number(f"{row[name]:.4f}", row[name])
        for name in ("loss", "accuracy")
    )
    return [nodes, Number(seconds, row["execution_time_s"]), *quality]
