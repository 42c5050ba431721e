"""Tables as Markdown. Layer 4 (view)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from tfscaling.grid import POINT_AXES
from tfscaling.metrics import METRICS
from tfscaling.tables import RUNS_FOR_INTERVAL


def comparison(table: pd.DataFrame, title: str, columns: Sequence[str]) -> str:
    """The comparison as Markdown with the metrics `columns`, in this order.

    Axes that are the same everywhere stand above the table.
    """
    axes = [axis for axis in POINT_AXES if axis == "nodes" or table[axis].nunique() > 1]
    fixed = [f"{axis} {table[axis].iloc[0]}" for axis in POINT_AXES if axis not in axes]
    shown = [*axes, "status", "runs", "replicas", "global_batch_size"]
    shown += [column for column in columns if not table[column].isna().all()]
    if (table["reason"].fillna("") != "").any():
        shown.append("reason")
    rows = [[_cell(name, row) for name in shown] for _, row in table.iterrows()]
    lines = [f"# {title}", "", *([f"All points: {', '.join(fixed)}.", ""] if fixed else [])]
    text = {"platform", "model", "strategy", "recipe", "status", "reason"}
    align = ["left" if name in text else "right" for name in shown]
    lines += [
        pd.DataFrame(rows, columns=shown).to_markdown(
            index=False, disable_numparse=True, colalign=align
        )
    ]
    return "\n".join([*lines, "", *_notes(table, shown)]) + "\n"


def _cell(name: str, row: pd.Series) -> str:
    value = row[name]
    if name == "runs":
        asked = row["runs_asked"]
        return str(value) if pd.isna(asked) else f"{value} of {asked:.0f}"
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return "–"
    if name == "execution_time_s" and row["runs"] > 1:
        low, high = row["execution_time_s_min"], row["execution_time_s_max"]
        return f"{value:.1f} ({low:.1f}–{high:.1f})"
    if name in METRICS:
        return f"{value:.{METRICS[name].digits}f}"
    return f"{value:.0f}" if isinstance(value, float) else _one_line(str(value))


def _one_line(text: str) -> str:
    """Text that cannot break a row of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def _notes(table: pd.DataFrame, shown: Sequence[str]) -> list[str]:
    notes = []
    if "speedup" in shown:
        bases = table.dropna(subset=["baseline"]).drop_duplicates(
            ["platform", "recipe", "baseline"]
        )
        for _, row in bases.iterrows():
            time = row["baseline_execution_time_s"]
            text = "not measured: no speed-up" if pd.isna(time) else f"{time:.1f} s"
            notes.append(
                f"- Speed-up of {row['platform']}, recipe {row['recipe']}: relative to "
                f"{row['baseline']} ({text})."
            )
    if (table["runs"] < RUNS_FOR_INTERVAL).any():
        notes.append(
            f"- Values are medians over the valid runs (minimum–maximum in brackets); points with "
            f"fewer than {RUNS_FOR_INTERVAL} runs are too few for a confidence interval."
        )
    notes.append(
        "- loss and accuracy are means over the last epoch while it is trained; test_accuracy is "
        "of held-out examples after training; execution_time_s is the trainer's first line to the "
        "end of training. Raw data: results/tables/runs.csv and the records it names."
    )
    return notes


def platform(table: pd.DataFrame, name: str, title: str) -> str:
    """The published form: number of nodes, code execution time, loss, accuracy."""
    own = table[table["platform"] == name]
    lines = [f"# {title}", ""]
    for keys, group in own.groupby(
        ["model", "strategy", "recipe", "gpus_per_node", "tasks_per_node"], sort=False
    ):
        model, strategy, recipe = keys[:3]
        gpus, tasks = int(str(keys[3])), str(keys[4])
        devices = f"{gpus} GPUs per node" if gpus else "CPU"
        per_node = f", {tasks} tasks per node" if tasks != "1" else ""
        lines += [f"## {model}, {strategy}, {recipe}: {devices}{per_node}", ""]
        rows = [_published_row(row) for _, row in group.iterrows()]
        header = ["Number of nodes", "Code execution time", "Loss", "Accuracy"]
        lines += [
            pd.DataFrame(rows, columns=header).to_markdown(index=False, disable_numparse=True)
        ]
        lines += [""]
    return "\n".join(lines)


def _published_row(row: pd.Series) -> list[Any]:
    nodes = str(row["nodes"])
    if not row["runs"]:
        return [nodes, _one_line(f"{row['status']}: {row['reason']}"), "–", "–"]
    seconds = f"{row['execution_time_s']:.3f} seconds"
    return [nodes, seconds, f"{row['loss']:.4f}", f"{row['accuracy']:.4f}"]
