"""The figure around the lines: panels, legend, notes, what was not measured, the file."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfscaling.files import atomic
from tfscaling.plots.plot_axes import AXES_WIDTH
from tfscaling.plots.plot_series import COLOURS, Style, Tables, absent, colour_numbers, values
from tfscaling.tables.intervals import CONFIDENCE, RUNS_FOR_INTERVAL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ABSENT = "without a valid run: see the table"
NOTHING = "nothing measured yet"
INTERVAL_OF_MEDIAN = (
    f"bars: {CONFIDENCE:.0%} interval of the median; of fewer than {RUNS_FOR_INTERVAL} runs the "
    "range; of one run none"
)
_LEGEND: Style = {"fontsize": "small", "frameon": False}


def panels(title: str, x: str, ys: Sequence[str]) -> tuple[Figure, list[Any]]:
    """A figure with one panel per entry of `ys`, above each other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(AXES_WIDTH, 4.5 if len(ys) == 1 else 3.3 * len(ys)))
    figure.set_layout_engine("constrained", h_pad=0.08)
    every_axes = figure.subplots(len(ys), 1, squeeze=False)[:, 0].tolist()
    for axes, y in zip(every_axes, ys, strict=True):
        axes.set_ylabel(y)
        axes.grid(alpha=0.3)
    every_axes[0].set_title(title)
    every_axes[-1].set_xlabel(x)
    return figure, every_axes


def mark_absent(axes: Any, table: pd.DataFrame, x: str | None = None) -> bool:
    """A cross at the foot of the axes for each point without a valid run, at its value of `x`.

    Without an `x` the cross is in the legend only. Returns whether there is any such point.
    """
    rows, colours = absent(table), colour_numbers(table)
    where = values(rows, x) if x else np.full(len(rows), np.nan)
    heights: dict[float, int] = {}
    usual: Style = {"marker": "x", "linestyle": "none", "markersize": 6, "zorder": 4}
    for value, name in dict.fromkeys(zip(where, map(str, rows["platform"]), strict=True)):
        if not np.isnan(value):
            height = heights[value] = heights.get(value, -1) + 1
            colour = COLOURS[colours[name] % len(COLOURS)]
            at = axes.get_xaxis_transform()
            axes.plot([value], [0.03 + 0.04 * height], color=colour, transform=at, **usual)
    if len(rows):
        number = f"{len(rows)} point{'s' if len(rows) > 1 else ''} "
        axes.plot([], [], color="0.3", label=number + ABSENT, **usual)
    return len(rows) > 0


def say(axes: Any, text: str = NOTHING) -> None:
    """A text in the middle of empty axes, without ticks at their y axis."""
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)
    axes.yaxis.set_ticks([])
    axes.minorticks_off()


def finish(
    figure: Figure, axes: Any, tables: Tables, notes: Sequence[str] = (), rows: float = 0.0
) -> None:
    """Legend at the right, the footnotes of `tables` and these notes below.

    The figure becomes as large as they need. The legend has what is labelled in `axes`, or in each
    of several, each label once; `rows` is the least height in inches.
    """
    from matplotlib.lines import Line2D

    labelled: dict[str, Any] = {}
    for one in axes if isinstance(axes, list) else [axes]:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            labelled.setdefault(label, handle)
    entries = [(handle, label) for label, handle in labelled.items()]
    # points with error bars and bars are tuples of artists: these first, explanations after them
    entries.sort(key=lambda entry: not isinstance(entry[0], tuple))
    handles, labels = [handle for handle, _ in entries], [wrapped(text, 60) for _, text in entries]
    lines = [line for label in labels for line in label.split("\n")]
    legend_inches = 0.6 + 0.066 * max(map(len, lines), default=0) if lines else 0.0
    columns = int((AXES_WIDTH + legend_inches) / 0.068)
    below = [
        line for note in [*tables.footnotes, *notes] for line in wrapped(note, columns).split("\n")
    ]
    height = max(figure.get_figheight(), rows, 0.5 + 0.18 * len(lines))
    figure.set_size_inches(AXES_WIDTH + legend_inches, height + 0.16 * len(below))
    if handles:
        figure.legend(handles, labels, loc="outside right upper", **_LEGEND)
    if below:
        style = {"loc": "outside lower left", "handlelength": 0, "handletextpad": 0, **_LEGEND}
        figure.legend([Line2D([], [], linestyle="none")], ["\n".join(below)], **style)


def wrapped(text: str, width: int) -> str:
    """Text in lines of at most `width` characters; its own line breaks stay."""
    return "\n".join(
        part
        for line in text.split("\n")
        for part in textwrap.wrap(line, width, subsequent_indent="    ") or [""]
    )


def save(figure: Figure, path: Path) -> None:
    """Write the figure as a whole; the same figure gives the same SVG, whose text is text."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tfscaling"}):
        metadata = {"Date": None} if path.suffix == ".svg" else None
        with atomic.whole(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:], metadata=metadata)
