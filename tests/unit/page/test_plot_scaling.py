"""Plots over nodes, and of the phases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plotted import crosses, failed, legend_of, point, points_of, tables_of
from tfscaling.estimation.samples import NOT_MEASURED
from tfscaling.page import plot_figure, plot_scaling
from tfscaling.page.plot_registry import PLOTS
from tfscaling.study.config_types import POINT_AXES
from tfscaling.tables.display import axis_text

BASE = {"baseline": "nodes=1", "baseline_execution_time_s": 60.0}


def compared(nodes: int, speedup: float, **changes: Any) -> dict[str, Any]:
    """A point with its speed-up over one replica."""
    row = point(nodes, speedup=speedup, **{**BASE, **changes})
    return {"scaling_efficiency": speedup / row["replicas"], **row}


def thin_lines(axes: Any) -> list[list[tuple[float, float]]]:
    """The points of lines without markers: ideals."""
    lines = [
        line for line in axes.lines if line.get_marker() == "none" and line.get_linewidth() < 1
    ]
    found = [list(zip(*line.get_data(), strict=True)) for line in lines]
    return [[(float(x), round(float(y), 6)) for x, y in line] for line in found if line]


def test_execution_times_are_drawn_over_the_nodes_with_the_ideal_of_the_first() -> None:
    points = [point(4, execution_time_s=20.0), point(2, execution_time_s=40.0)]
    figure = plot_scaling.execution_time(tables_of(*points), "My title")
    (axes,) = figure.axes
    assert axes.get_title() == "My title"
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert points_of(figure)["cluster"] == [(2, 40.0), (4, 20.0)]
    assert thin_lines(axes) == [[(2, 40.0), (4, 20.0)]]
    assert "(s)" in axes.get_ylabel() and "log" in axes.get_ylabel()
    assert [text.get_text() for text in axes.get_xticklabels()] == ["2", "4"]


def test_the_ideal_divides_the_training_time_alone() -> None:
    """The first configuration's start-up of 20 s stays."""
    points = [
        point(2, execution_time_s=50.0, train_time_s=30.0),
        point(4, execution_time_s=37.0, train_time_s=16.0),
        point(6, execution_time_s=34.0, train_time_s=12.0),
    ]
    (axes,) = plot_scaling.execution_time(tables_of(*points), "T").axes
    assert thin_lines(axes) == [[(2, 50.0), (4, 35.0), (6, 30.0)]]


def test_published_times_are_hollow_in_the_same_colour_even_where_nothing_was_measured() -> None:
    points = [point(1, published_execution_time_s=50.0), failed(2, published_execution_time_s=30.0)]
    figure = plot_scaling.execution_time(tables_of(*points), "T")
    (hollow,) = [
        line
        for line in figure.axes[0].lines
        if line.get_markerfacecolor() == "none" and len(np.asarray(line.get_xdata()))
    ]
    assert [*np.asarray(hollow.get_ydata())] == [50.0, 30.0]
    assert hollow.get_color() == plot_figure.COLOURS[0] and hollow.get_linestyle() == ":"
    notes = {note.replace("\n    ", " ") for note in legend_of(figure)}
    assert "published" in notes and not notes & {plot_figure.NO_TIMES, plot_figure.NOTHING}
    alone = plot_scaling.execution_time(tables_of(failed(2, published_execution_time_s=3.0)), "T")
    assert plot_figure.NOTHING in legend_of(alone)


def test_speedups_have_a_line_at_one_and_the_ideal_of_the_baseline() -> None:
    figure = plot_scaling.ratio(tables_of(compared(1, 1.0), compared(4, 3.0)), "T", "speedup")
    found = points_of(figure)
    assert found["cluster"] == [(1, 1.0), (4, 3.0)]
    assert [1.0, 1.0] in [[y for _, y in points] for points in found.values()]
    assert thin_lines(figure.axes[0]) == [[(1, 1.0), (4, 4.0)]]
    assert figure.axes[0].get_yscale() == "log"


def test_efficiency_starts_at_zero_and_has_intervals() -> None:
    interval = {"scaling_efficiency_low": 0.4, "scaling_efficiency_high": 0.6, "runs": 6}
    tables = tables_of(compared(1, 1.0), compared(2, 1.0, **interval))
    figure = plot_scaling.ratio(tables, "T", "scaling_efficiency")
    (axes,) = figure.axes
    assert points_of(figure)["cluster"] == [(1, 1.0), (2, 0.5)]
    assert axes.get_ylim()[0] == 0 and axes.get_ylim()[1] >= 1
    paths = [
        np.asarray(path.vertices)[:, 1] for bars in axes.collections for path in bars.get_paths()
    ]
    drawn = [ends.round(9).tolist() for ends in paths if np.isfinite(ends).all() and len(ends)]
    assert drawn == [[0.4, 0.6]]


@pytest.mark.parametrize("name", ["execution_time", "speedup", "scaling_efficiency"])
def test_points_that_failed_are_crosses_and_no_points(name: str) -> None:
    figure = PLOTS[name].draw(tables_of(compared(1, 1.0), failed(8)), "T")
    assert [x for x, _ in points_of(figure)["cluster"]] == [1]
    assert [x for x, _, _ in crosses(figure.axes[0])] == [8]
    assert any(plot_figure.ABSENT in text.replace("\n    ", " ") for text in legend_of(figure))
    low, high = figure.axes[0].get_xlim()
    assert low < 1 and high > 8


TIMES = {column: 1.0 + number for number, column in enumerate(plot_scaling.PHASE_STYLES)}


def test_the_phases_stack_in_their_order_and_the_queue_is_none_of_them() -> None:
    (axes,) = plot_scaling.time_split(tables_of(point(1, queue_time_s=500.0, **TIMES)), "T").axes
    patches: Any = axes.patches
    bars = [(patch.get_x(), patch.get_width()) for patch in patches]
    assert bars == [(sum(range(1, n)), float(n)) for n in range(1, 1 + len(TIMES))]
    assert axes.get_xlim()[1] < 100


@pytest.mark.parametrize("length", [10, 45, 90, 200])
def test_names_of_bars_leave_room_for_the_bars(
    length: int, recwarn: pytest.WarningsRecorder
) -> None:
    """Matplotlib warns where names take the whole width."""
    names = ["m" * length, "other"]  # of the widest letter
    rows = [point(n, model=name, import_time_s=1.0) for n in (1, 2, 4, 8, 16) for name in names]
    text = plot_figure.to_svg(plot_scaling.time_split(tables_of(*rows), "Phases"))
    assert [str(warning.message) for warning in recwarn] == []
    assert text.count("<title>") == len(rows)


@pytest.mark.parametrize("axis", POINT_AXES[1:])
def test_a_bar_is_named_by_its_nodes_and_the_axes_that_differ(axis: str) -> None:
    others = {"nodes": (1, 4), "gpus_per_node": (1, 2), "tasks_per_node": ("1", "2")}
    rows = [
        {**point(1, import_time_s=1.0, gpus_per_node=1), axis: value}
        for value in others.get(axis, ("a", "b"))
    ]
    (axes,) = plot_scaling.time_split(tables_of(*rows), "T").axes
    names = [text.get_text().replace("\n", " ") for text in axes.get_yticklabels()]
    shown = [name for name in POINT_AXES[1:] if name in ("nodes", axis)]
    cells = [{**row, "devices": "GPU"} for row in rows]
    assert names == [", ".join(axis_text(name, row) for name in shown) for row in cells]
    assert len({*names}) == 2


def test_a_line_of_other_work_says_why_it_has_no_speedup() -> None:
    base = point(1, speedup=1.0, scaling_efficiency=1.0, same_work=True, baseline="nodes=1")
    other = point(2, recipe="other", same_work=False)
    texts = legend_of(plot_scaling.ratio(tables_of(base, other), "T", "speedup"))
    assert any("other work" in text for text in texts)


@pytest.mark.parametrize(("time_s", "text"), [(60.0, "60.0 s"), (float("nan"), NOT_MEASURED)])
def test_a_note_has_the_time_of_the_baseline(time_s: float, text: str) -> None:
    points = [compared(nodes, 1.0, baseline_execution_time_s=time_s) for nodes in (1, 2)]
    notes = legend_of(plot_scaling.ratio(tables_of(*points), "T", "speedup"))
    assert [note.endswith(f" {text}") for note in notes if note.startswith("baseline ")] == [True]
