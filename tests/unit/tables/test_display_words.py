"""Points, values and differences in words."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from tfscaling.estimation.samples import SUPPORTED, Difference
from tfscaling.record.metrics import METRICS, Metric, quality_metric
from tfscaling.study.config_types import Quality
from tfscaling.tables.display import (
    axis_text,
    format_disadvantage,
    format_metric,
    join_names,
    percent_rounded_up,
    point_name,
    varying_axes,
)

ROW: dict[str, Any] = {
    "nodes": 1, "gpus_per_node": 0, "devices": "GPU", "platform": "a-cluster",
    "model": "mnist_cnn", "recipe": "weak", "strategy": "single", "tasks_per_node": "2+1",
    "runs": 6, "execution_time_s": 21.26, "execution_time_s_low": 20.94,
    "execution_time_s_high": 22.18, "test_accuracy": 0.98,
}  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "gpus", "start"),
    [
        (1, 0, "1 node"), (2, 0, "2 nodes"), (1, 1, "1 node with 1 GPU"),
        (2, 1, "2 nodes with 1 GPU each"), (2, 4, "2 nodes with 4 GPUs each"),
    ],
)  # fmt: skip
def test_a_point_is_named_by_nodes_gpus_and_platform(nodes: int, gpus: int, start: str) -> None:
    row = {**ROW, "nodes": nodes, "gpus_per_node": gpus}
    assert point_name(row) == start
    assert point_name(row, ["platform"]) == f"{start} on a-cluster"


@pytest.mark.parametrize(
    ("gpus", "name"),
    [
        ({"west": (0,), "east": (2,)}, "1 node on west"),
        ({"west": (0,), "east": (0,)}, "1 node on west"),
        ({"west": (0, 2), "east": (2,)}, "1 node with CPU only on west"),
        ({"west": (0, 2)}, "1 node with CPU only"),
        ({"west": (0,)}, "1 node"),
    ],
)
def test_devices_that_platforms_distinguish_are_not_in_names(
    gpus: dict[str, tuple[int, ...]], name: str
) -> None:
    rows = [
        {**ROW, "platform": platform, "gpus_per_node": number}
        for platform, numbers in gpus.items()
        for number in numbers
    ]
    names = [point_name(row, varying_axes(rows)) for row in rows]
    assert names[0] == name
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("axis", "changes", "text"),
    [
        ("nodes", {}, "1 node"), ("nodes", {"nodes": 4}, "4 nodes"), ("recipe", {}, "weak"),
        ("gpus_per_node", {}, "CPU"), ("tasks_per_node", {}, "2+1 tasks per node"),
        ("gpus_per_node", {"gpus_per_node": 2}, "2 GPUs per node"),
        ("gpus_per_node", {"gpus_per_node": 1, "devices": "logical"}, "1 logical device per node"),
    ],
)  # fmt: skip
def test_an_axis_of_a_point_is_said_in_words(axis: str, changes: Any, text: str) -> None:
    assert axis_text(axis, {**ROW, **changes}) == text


@pytest.mark.parametrize(
    ("names", "text"), [("a", "a"), ("abc", "a; b; c"), ("abcde", "a; b; c and 2 more")]
)
def test_long_lists_end_with_a_count(names: str, text: str) -> None:
    assert join_names(list(names)) == text


def test_values_have_their_unit_if_there_is_one() -> None:
    assert format_metric("execution_time_s", ROW) == "21.3 (20.9–22.2) s"
    assert format_metric("test_accuracy", ROW) == "0.980"


def test_without_a_ratio_the_difference_is_told() -> None:
    gap = Difference(None, (0.09, 0.11), SUPPORTED, 0.1)
    assert format_disadvantage(gap, METRICS["accuracy"]) == "0.1000 (0.0900–0.1100) more error"
    assert format_disadvantage(gap, METRICS["loss"]) == "0.1000 (0.0900–0.1100) more loss"
    assert format_disadvantage(gap, named("score", "higher")) == "0.1000 (0.0900–0.1100) less"


def test_how_much_worse_a_value_is_depends_on_what_is_better() -> None:
    half_more = Difference(1.5, None, SUPPORTED)
    assert format_disadvantage(half_more, METRICS["accuracy"]) == "1.50 times the error"
    assert (
        format_disadvantage(half_more, named("test_error", "lower")) == "1.50 times the test error"
    )
    assert format_disadvantage(half_more, named("score", "higher")) == "1.50 times less"


def named(metric: str, direction: Literal["lower", "higher"]) -> Metric:
    return quality_metric(Quality(metric=metric, direction=direction))


@pytest.mark.parametrize(("fraction", "text"), [(0.0, "0.0%"), (0.0201, "2.1%"), (0.05, "5.0%")])
def test_bounds_are_rounded_up(fraction: float, text: str) -> None:
    assert percent_rounded_up(fraction) == text
