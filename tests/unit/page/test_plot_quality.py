"""Accuracy and cost over time, the Pareto set; loss and accuracy over batch and epochs."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from measured import around, measured
from plotted import legend_of, point, points_of, tables_of, visible_lines
from tfscaling.conclusions.evidence import Study
from tfscaling.page import plot_figure, plot_quality, plot_scaling
from tfscaling.page.plot_figure import Tables
from tfscaling.study.config_types import POINT_AXES
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.row_values import point_of
from tfscaling.tables.runs_table import EPOCH_COLUMNS

POINTS = [
    point(1, execution_time_s=60.0, test_accuracy=0.99, cost_usd=0.01),
    point(2, execution_time_s=40.0, test_accuracy=0.97, cost_usd=0.04),
    point(4, execution_time_s=50.0, test_accuracy=0.96, cost_usd=0.05),
]


def test_accuracy_is_drawn_over_time_and_the_pareto_set_is_labelled_with_its_nodes() -> None:
    figure = plot_quality.quality_time(tables_of(*POINTS), "My title")
    assert figure.axes[0].get_title() == "My title"
    assert points_of(figure)["cluster"] == [(60.0, 0.99), (40.0, 0.97), (50.0, 0.96)]
    texts: Any = figure.axes[0].texts
    labels = {text.get_text(): tuple(map(float, text.xy)) for text in texts}
    assert labels == {"1": (60.0, 0.99), "2": (40.0, 0.97)}


@pytest.mark.parametrize("draw", [plot_quality.quality_time, plot_quality.cost_time])
def test_the_pareto_set_is_joined(draw: Any) -> None:
    found = points_of(draw(tables_of(*POINTS), "T"))
    (pareto,) = [label for label in found if label.startswith("none has less time")]
    assert [x for x, _ in found[pareto]] == [40.0, 60.0]
    better = "more accuracy" if draw is plot_quality.quality_time else "less cost"
    assert pareto == f"none has less time and {better}"  # not test accuracy: the axis has the name


def test_intervals_are_drawn_in_both_directions() -> None:
    spreads = {"execution_time_s_min": 50.0, "execution_time_s_max": 90.0}
    spreads |= {"quality_min": 0.97, "quality_max": 0.99}
    (axes,) = plot_quality.quality_time(tables_of(point(1, runs=3, **spreads)), "T").axes
    bars: Any = axes.collections
    across, upright = [bar.get_segments()[0] for bar in bars]
    assert across[:, 0].tolist() == [50.0, 90.0] and upright[:, 1].tolist() == [0.97, 0.99]


def pareto_lines(figure: Any) -> list[list[float]]:
    """The times of each line through a Pareto set."""
    return [
        line.get_xdata()
        for line in figure.axes[0].lines
        if str(line.get_label()).startswith("none has less time")
    ]


def test_a_point_of_other_work_is_shown_but_in_no_pareto_set() -> None:
    less = {"same_work": False, "examples_trained": 30_000, "test_accuracy": 0.99}
    rows = [point(1, same_work=True, examples_trained=60_000), point(2, **less)]
    figure = plot_quality.quality_time(tables_of(*rows), "T")
    assert [list(times) for times in pareto_lines(figure)] == [[60.0]]
    assert points_of(figure)["cluster"] == [(60.0, 0.98), (30.0, 0.99)]


@pytest.mark.parametrize("axis", ["model", "recipe"])
def test_each_work_has_a_pareto_set_of_its_own(axis: str) -> None:
    other: dict[str, Any] = {axis: "long"}
    long = [
        point(1, execution_time_s=400.0, test_accuracy=0.95, **other),
        point(2, execution_time_s=300.0, test_accuracy=0.94, **other),
    ]
    figure = plot_quality.quality_time(tables_of(*POINTS, *long), "T")
    assert [list(times) for times in pareto_lines(figure)] == [[40.0, 60.0], [300.0, 400.0]]
    (pareto,) = [text for text in legend_of(figure) if text.startswith("none has less time")]
    assert "recipe" in pareto


def test_a_point_that_did_the_whole_work_is_in_the_pareto_set_though_its_baseline_did_not() -> None:
    rows = [
        point(1, same_work=True, examples_trained=30_000),
        point(2, same_work=False, examples_trained=60_000),
    ]
    figure = plot_quality.quality_time(tables_of(*rows), "T")
    assert [list(times) for times in pareto_lines(figure)] == [[30.0]]


@pytest.mark.parametrize("status", ["does_not_fit", "diverged", "ok"])
@pytest.mark.parametrize("draw", [plot_quality.quality_time, plot_quality.cost_time])
def test_a_configuration_that_runs_rule_out_is_in_no_pareto_set(status: str, draw: Any) -> None:
    times = {("east", 1): around(100.0), ("east", 2): around(40.0)}
    _, runs, planned = measured(times, {("east", 1): [0.9] * 6, ("east", 2): [0.95] * 6})
    gone = (runs["nodes"] == 2) & (runs["repeat"] <= 3)
    runs.loc[gone, "status"] = status
    made = Study(comparison_table(runs, planned), runs, planned)
    empty = pd.DataFrame(columns=list(EPOCH_COLUMNS))
    tables = Tables(made.comparison, empty, pd.DataFrame(), excluded=made.excluded)
    figure = draw(tables, "T")
    sets = [[round(x) for x in times] for times in pareto_lines(figure)]
    assert sets == [[40 if status == "ok" else 100]]


AXES = POINT_AXES
PUBLISHED = [
    {"global_batch_size": 64, "published_loss": 0.08, "published_accuracy": 0.97},
    {"global_batch_size": 640, "published_loss": 0.2, "published_accuracy": None},
]


def epochs_of(
    row: dict[str, Any], *losses: float, repeat: int = 1, status: str = "ok"
) -> list[dict[str, Any]]:
    axes = {axis: row[axis] for axis in AXES} | {"repeat": repeat, "status": status}
    return [
        {**axes, "epoch": number, "loss": loss, "accuracy": 1 - loss}
        for number, loss in enumerate(losses, 1)
    ]


def test_loss_and_accuracy_are_drawn_over_the_global_batch() -> None:
    rows = [point(4, loss=0.4, accuracy=0.8), point(1, loss=0.1, accuracy=0.9)]
    figure = plot_quality.loss_quality(tables_of(*rows), "My title")
    assert figure.axes[0].get_title() == "My title"
    assert points_of(figure, 0)["cluster"] == [(64, 0.1), (256, 0.4)]
    assert points_of(figure, 1)["cluster"] == [(64, 0.9), (256, 0.8)]
    lower = figure.axes[1]
    assert lower.get_xlabel() == "global batch (examples)" and lower.get_xscale() == "log"
    assert [text.get_text() for text in lower.get_xticklabels()] == ["64", "256"]


def test_one_recipe_for_each_batch_is_one_line_with_all_batches() -> None:
    number = plot_figure.LINES_DRAWN_MAX + random.randint(1, 9)
    rows = [point(1, recipe=f"r{n}", global_batch_size=64 * n + 64) for n in range(number)]
    figure = plot_quality.loss_quality(tables_of(*rows), "T")
    assert len(points_of(figure)["cluster"]) == number
    assert not [note for note in legend_of(figure) if "in the tables alone" in note]
    times = plot_scaling.execution_time(tables_of(*rows), "T")
    assert [note for note in legend_of(times) if "in the tables alone" in note]


def test_lines_over_the_batch_beyond_the_limit_are_in_the_tables_alone() -> None:
    """The best configuration is drawn, also where recipes do not tell lines apart."""
    count = plot_figure.LINES_DRAWN_MAX + random.randint(1, 5)
    rows = [point(1, model=f"m{n}", recipe=f"r{n}") for n in range(count)]
    best = point_of({**rows[-1], "tasks_per_node": "1"})
    figure = plot_quality.loss_quality(replace(tables_of(*rows), first=[best]), "T")
    drawn = {
        label for label in points_of(figure) if re.match(r"m\d", label)
    }  # the others are hidden
    assert len(drawn) == plot_figure.LINES_MAX and f"m{count - 1}" in drawn
    (note,) = [note for note in legend_of(figure) if "in the tables alone" in note]
    assert note.startswith(f"{count - plot_figure.LINES_DRAWN_MAX} other line")


def test_published_values_are_hollow_markers_of_their_own() -> None:
    figure = plot_quality.loss_quality(tables_of(point(1), published=PUBLISHED), "T")
    assert points_of(figure, 0)["published"] == [(64, 0.08), (640, 0.2)]
    assert points_of(figure, 1)["published"] == [(64, 0.97)]
    (line,) = [line for line in figure.axes[0].lines if line.get_label() == "published"]
    assert line.get_markerfacecolor() == "none" and line.get_color() == "black"
    assert [text.get_text() for text in figure.axes[1].get_xticklabels()] == ["64", "640"]


def test_each_point_is_a_line_over_the_epochs() -> None:
    one, two = point(1), point(2)
    epochs = [*epochs_of(one, 0.5, 0.3), *epochs_of(two, 0.6, 0.4)]
    figure = plot_quality.epochs(tables_of(one, two, epochs=epochs), "T")
    assert points_of(figure, 0) == {"1 node": [(1, 0.5), (2, 0.3)], "2 nodes": [(1, 0.6), (2, 0.4)]}
    assert points_of(figure, 1)["1 node"] == [(1, 0.5), (2, 0.7)]
    first, second = visible_lines(figure.axes[0])
    assert first.get_color() != second.get_color()
    assert first.get_linestyle() != second.get_linestyle()
    assert len(figure.axes[0].collections) == 0  # no band: one run


def test_repeats_are_a_median_with_a_band() -> None:
    row = point(1)
    epochs = [
        run
        for repeat, loss in enumerate((0.5, 0.4, 0.1), 1)
        for run in epochs_of(row, loss, loss / 2, repeat=repeat)
    ]
    figure = plot_quality.epochs(tables_of(row, epochs=epochs), "T")
    assert points_of(figure)["cluster"] == [(1, 0.4), (2, 0.2)]
    (band,) = figure.axes[0].collections
    low, high = band.get_datalim(figure.axes[0].transData).intervaly
    assert (low, high) == (0.05, 0.5)
    assert "range" in legend_of(figure)[-1]


def test_what_was_held_out_is_a_hollow_mark_where_it_was_evaluated() -> None:
    row = point(1)
    epochs = epochs_of(row, 0.5, 0.3, 0.2)
    for number, loss in ((1, 0.6), (2, 0.4)):
        epochs[number] |= {"test_loss": loss, "test_accuracy": 1 - loss}
    figure = plot_quality.epochs(tables_of(row, epochs=epochs), "T")
    for panel, values in ((0, [0.6, 0.4]), (1, [0.4, 0.6])):
        line, marks = visible_lines(figure.axes[panel])
        drawn = [list(np.asarray(data)) for data in marks.get_data()]
        assert drawn == [[2, 3], pytest.approx(values)]
        assert (marks.get_markerfacecolor(), marks.get_linestyle()) == ("none", "None")
        assert marks.get_color() == line.get_color()
    assert list(points_of(figure)) == ["cluster"]  # no line of its own in the legend
    assert any("held-out" in text.get_text() for text in figure.findobj(Text))
    alone = plot_quality.epochs(tables_of(row, epochs=epochs_of(row, 0.5, 0.3)), "T")
    assert not any("held-out" in text.get_text() for text in alone.findobj(Text))


def test_epochs_of_runs_that_diverged_are_in_no_line() -> None:
    row = point(1)
    epochs = [*epochs_of(row, 0.5, 0.3), *epochs_of(row, 9.0, repeat=2, status="diverged")]
    figure = plot_quality.epochs(tables_of({**row, "runs_diverged": 1}, epochs=epochs), "T")
    assert points_of(figure)["cluster"] == [(1, 0.5), (2, 0.3)]
