"""Configurations that could only fail, or mislead, once runs are made are refused before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from builders import REGISTRIES, raw_config
from tfscaling.spec import grid
from tfscaling.spec.configuration import ConfigError

Change = tuple[Sequence[str | int], Any]
RECIPE, BLOCK = ("recipes", "weak"), ("grid", 0)
SHORT: Change = ((*RECIPE, "stop_after_steps"), 100)
SEARCH: Change = (("search",), {})

REFUSED: dict[str, tuple[list[Change], str]] = {
    "zero_byte": ([(("comparison",), {"title": "a\0b"})], "comparison.title"),
    "bell": ([(("platforms", "cluster", "title"), "\x07")], "platforms.cluster.title"),
    "search_of_one": ([SEARCH, ((*BLOCK, "nodes"), 1)], "search"),
    "exclusion_without_axes": ([((*BLOCK, "exclude"), [{}])], "grid[0].exclude[0]"),
    "exclusion_of_nothing": ([((*BLOCK, "exclude"), [{"nodes": 7}])], "grid[0].exclude[0]"),
    "evaluations_after_the_end": (
        [((*RECIPE, "evaluation_interval_epochs"), 50)],
        "recipes.weak.evaluation_interval_epochs",
    ),
    "data_that_is_not_there": (
        [(("datasets",), {"mnist": {"path": "nowhere/mnist"}})],
        "datasets.mnist.path",
    ),
    "queue_of_short_jobs": (
        [SHORT, (("comparison",), {"time": "time_with_queue_s"})],
        "comparison.time",
    ),
    "target_of_short_runs": (
        [SHORT, (("comparison",), {"targets": {"test_accuracy": 0.9}})],
        "comparison.targets.test_accuracy",
    ),
    "learning_rate_beyond_floats": ([((*RECIPE, "learning_rate"), 1e300)], "recipes.weak.learning"),
}


@pytest.mark.parametrize(("changes", "key"), REFUSED.values(), ids=list(REFUSED))
def test_what_could_only_fail_later_is_refused(changes: list[Change], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        grid.accept(raw_config(*changes), REGISTRIES)
    assert str(caught.value).startswith(f"configuration: {key}")


@pytest.mark.parametrize(
    "changes",
    [
        [SEARCH],
        [((*BLOCK, "exclude"), [{"nodes": 2}])],
        [((*RECIPE, "evaluation_interval_epochs"), 2)],
        [(("comparison",), {"time": "time_with_queue_s", "targets": {"test_accuracy": 0.9}})],
    ],
    ids=["search", "exclusion", "evaluations", "queue_and_target"],
)
def test_what_means_something_is_accepted(changes: list[Change]) -> None:
    assert grid.accept(raw_config(*changes), REGISTRIES).grid.runs
