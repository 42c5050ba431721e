"""Accuracy and cost over time, and the Pareto set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plotted import failed, legend_of, point, points_of, tables_of
from tfscaling.plots import plot_figure, plot_tradeoffs


def labels_in(figure: Any) -> dict[str, tuple[float, float]]:
    return {text.get_text(): text.xy for text in figure.axes[0].texts}


POINTS = [
    point(1, execution_time_s=60.0, test_accuracy=0.99, cost_usd=0.01),
    point(2, execution_time_s=40.0, test_accuracy=0.97, cost_usd=0.04),
    point(4, execution_time_s=50.0, test_accuracy=0.96, cost_usd=0.05),
]


def test_accuracy_is_drawn_over_time_and_points_are_labelled_with_their_nodes() -> None:
    figure = plot_tradeoffs.quality_time(tables_of(*POINTS), "My title")
    assert figure.axes[0].get_title() == "My title"
    assert points_of(figure)["cluster"] == [(60.0, 0.99), (40.0, 0.97), (50.0, 0.96)]
    labels = {text: tuple(map(float, at)) for text, at in labels_in(figure).items()}
    assert labels == {"1": (60.0, 0.99), "2": (40.0, 0.97), "4": (50.0, 0.96)}


def test_labels_name_the_gpus_where_they_vary() -> None:
    points = [point(2, gpus_per_node=gpus, cost_usd=1.0 + gpus) for gpus in (0, 4)]
    figure = plot_tradeoffs.cost_time(tables_of(*points), "T")
    assert set(labels_in(figure)) == {"2", "2×4"}
    assert "GPUs per node" in legend_of(figure)[-1]


@pytest.mark.parametrize(
    ("draw", "entries"),
    [
        (plot_tradeoffs.quality_time, ["2 cluster: 40.0 s, 0.9700", "1 cluster: 60.0 s, 0.9900"]),
        (plot_tradeoffs.cost_time, ["2 cluster: 40.0 s, $0.0400", "1 cluster: 60.0 s, $0.0100"]),
    ],
)
def test_the_pareto_set_is_joined_and_listed(draw: Any, entries: list[str]) -> None:
    figure = draw(tables_of(*POINTS), "T")
    (pareto,) = [label for label in points_of(figure) if label.startswith("Pareto set")]
    assert pareto.split("\n")[1:] == entries
    assert [x for x, _ in points_of(figure)[pareto]] == [40.0, 60.0]


def test_a_long_pareto_set_is_cut_with_a_word() -> None:
    points = [
        point(n, execution_time_s=100.0 / n, cost_usd=1.0 * n, gpus_per_node=1)
        for n in range(1, 21)
    ]
    (listed,) = [
        label
        for label in points_of(plot_tradeoffs.cost_time(tables_of(*points), "T"))
        if label.startswith("Pareto set")
    ]
    assert listed.endswith("\nand 8 more")
    assert len(listed.split("\n")) == 2 + plot_tradeoffs.LISTED


def test_intervals_are_drawn_in_both_directions() -> None:
    spreads = {"execution_time_s_min": 50.0, "execution_time_s_max": 90.0}
    spreads |= {"quality_min": 0.97, "quality_max": 0.99}
    (axes,) = plot_tradeoffs.quality_time(tables_of(point(1, runs=3, **spreads)), "T").axes
    across, upright = [bar.get_segments()[0] for bar in axes.collections]
    assert across[:, 0].tolist() == [50.0, 90.0] and upright[:, 1].tolist() == [0.97, 0.99]


@pytest.mark.parametrize("cost", [None, np.nan])
def test_without_prices_the_plot_says_so(cost: Any) -> None:
    (axes,) = plot_tradeoffs.cost_time(tables_of(point(cost_usd=cost)), "T").axes
    assert [text.get_text() for text in axes.texts] == ["no prices in config/platforms.yaml"]


def test_platforms_without_a_price_are_named() -> None:
    points = [point(cost_usd=0.1), point(platform="b", platform_title="Other")]
    assert "no price: Other" in legend_of(plot_tradeoffs.cost_time(tables_of(*points), "T"))[-1]


def test_a_price_of_nothing_is_drawn() -> None:
    figure = plot_tradeoffs.cost_time(
        tables_of(point(1, cost_usd=0.0), point(2, cost_usd=0.2)), "T"
    )
    assert points_of(figure)["cluster"] == [(60.0, 0.0), (30.0, 0.2)]


def test_points_without_a_run_are_counted_in_the_legend() -> None:
    figure = plot_tradeoffs.quality_time(tables_of(*POINTS, failed(6), failed(8)), "T")
    assert f"2 points {plot_figure.ABSENT}" in points_of(figure)


def test_labels_of_crowded_points_do_not_hide_each_other() -> None:
    points = [
        point(
            nodes, platform=name, execution_time_s=100.0 - nodes, test_accuracy=0.98 + nodes / 1e4
        )
        for nodes in range(1, 9)
        for name in ("a", "b")
    ]
    figure = plot_tradeoffs.quality_time(tables_of(*points), "T")
    figure.draw_without_rendering()
    texts = figure.axes[0].texts
    boxes = [text.get_window_extent() for text in texts]
    assert len(texts) == 16
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_a_point_of_other_work_is_shown_but_in_no_pareto_set() -> None:
    rows = [point(1, same_work=True), point(2, same_work=False, test_accuracy=0.99)]
    figure = plot_tradeoffs.quality_time(tables_of(*rows), "T")
    (pareto,) = [text for text in legend_of(figure) if text.startswith("Pareto set")]
    assert "60.0 s" in pareto and "30.0 s" not in pareto
    assert sum(len(found) for found in points_of(figure).values()) >= 2
