"""Accuracy and cost over time, and the Pareto set."""

from __future__ import annotations

from typing import Any

import pytest
from plotted import legend_of, point, points_of, tables_of
from tfscaling.page import plot_quality


def labels_in(figure: Any) -> dict[str, tuple[float, float]]:
    return {text.get_text(): text.xy for text in figure.axes[0].texts}


POINTS = [
    point(1, execution_time_s=60.0, test_accuracy=0.99, cost_usd=0.01),
    point(2, execution_time_s=40.0, test_accuracy=0.97, cost_usd=0.04),
    point(4, execution_time_s=50.0, test_accuracy=0.96, cost_usd=0.05),
]


def test_accuracy_is_drawn_over_time_and_the_pareto_set_is_labelled_with_its_nodes() -> None:
    figure = plot_quality.quality_time(tables_of(*POINTS), "My title")
    assert figure.axes[0].get_title() == "My title"
    assert points_of(figure)["cluster"] == [(60.0, 0.99), (40.0, 0.97), (50.0, 0.96)]
    labels = {text: tuple(map(float, at)) for text, at in labels_in(figure).items()}
    assert labels == {"1": (60.0, 0.99), "2": (40.0, 0.97)}


@pytest.mark.parametrize("draw", [plot_quality.quality_time, plot_quality.cost_time])
def test_the_pareto_set_is_joined(draw: Any) -> None:
    found = points_of(draw(tables_of(*POINTS), "T"))
    (pareto,) = [label for label in found if label.startswith("none has less time")]
    assert [x for x, _ in found[pareto]] == [40.0, 60.0]


def test_intervals_are_drawn_in_both_directions() -> None:
    spreads = {"execution_time_s_min": 50.0, "execution_time_s_max": 90.0}
    spreads |= {"quality_min": 0.97, "quality_max": 0.99}
    (axes,) = plot_quality.quality_time(tables_of(point(1, runs=3, **spreads)), "T").axes
    across, upright = [bar.get_segments()[0] for bar in axes.collections]
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
