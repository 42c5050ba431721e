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

LIMITS = {"test_accuracy": {"at_least": 0.9}}
TARGET: Change = (("question",), {"limits": LIMITS})
PRICED: list[Change] = [
    (("platforms", "cluster", "usd_per_node_hour"), 1.0),
    (("platforms", "cluster", "price_date"), "2026"),
    (("platforms", "cluster", "price_source"), "a price list"),
]
CHOOSE: Change = (("question",), {"choose": ["nodes", "recipe"]})
CHOOSE_BY: Change = (("question",), {"choose": ["nodes", "recipe"], "limits": LIMITS})


def two_recipes(**strong: Any) -> list[Change]:
    """A second recipe in the grid."""
    recipe = {"global_batch_size": 64, "learning_rate": 0.1, "epochs": 2, **strong}
    return [(("recipes", "strong"), recipe), ((*BLOCK, "recipe"), ["weak", "strong"])]


def limited(metric: str, **limit: Any) -> Change:
    """A limit of the question."""
    return ("question",), {"limits": {metric: limit}}


def program(observe: str, **keys: Any) -> list[Change]:
    """A program with an observer."""
    recipe = {"program": ["true"], "observe": observe, "global_batch_size": 64, "epochs": 1, **keys}
    return [(RECIPE, recipe), ((*BLOCK, "strategy"), "own"), ((*BLOCK, "model"), "program")]


def whole(epochs: int, **question: Any) -> Change:
    """A question about a training with this many epochs."""
    return ("question",), {"whole_training": {"epochs": epochs}, **question}


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
        [SHORT, (("question",), {"goal": "time_with_queue_s"})],
        "question.goal",
    ),
    "target_of_short_runs": ([SHORT, TARGET], "question.limits.test_accuracy"),
    "goal_without_a_price": ([(("question",), {"goal": "cost_usd"})], "question.goal"),
    "goal_without_a_target": ([(("question",), {"goal": "time_to_target_s"})], "question.goal"),
    "quality_of_short_runs": ([SHORT, (("question",), {"goal": "quality"})], "question.goal"),
    "limit_of_both_kinds": (
        [limited("execution_time_s", at_most=1.0, at_least=0.5)],
        "question.limits.execution_time_s",
    ),
    "limit_of_the_wrong_side": (
        [limited("execution_time_s", at_least=1.0)],
        "question.limits.execution_time_s",
    ),
    "negative_limit_of_time": (
        [limited("execution_time_s", at_most=-1)],
        "question.limits.execution_time_s",
    ),
    "no_time_at_all": (
        [limited("execution_time_s", at_most="0 s")],
        "question.limits.execution_time_s",
    ),
    "memory_of_no_gpu": ([limited("gpu_memory_gb", at_most=4)], "question.limits.gpu_memory_gb"),
    "queue_of_this_machine": (
        [
            (("platforms", "cluster", "launcher"), "local"),
            (("question",), {"goal": "time_with_queue_s"}),
        ],
        "question.goal",
    ),
    "quality_that_nobody_reports": (
        [*program("nothing"), (("question",), {"goal": "quality"})],
        "question.goal",
    ),
    "quality_limit_that_nobody_reports": (
        [*program("output", patterns={"loss": "(.+)"}), TARGET],
        "question.limits.test_accuracy",
    ),
    "more_epochs_than_the_whole": ([whole(1)], "recipes.weak.epochs"),
    "too_few_epochs_to_project": ([((*RECIPE, "epochs"), 2), whole(90)], "recipes.weak.epochs"),
    "search_among_parts": ([SEARCH, ((*RECIPE, "epochs"), 3), whole(90)], "recipes.weak.epochs"),
    "short_run_of_another_whole": ([SHORT, whole(90)], "recipes.weak.epochs"),
    "checkpoints_of_a_part": (
        [((*RECIPE, "epochs"), 3), ((*RECIPE, "checkpoint_every_s"), 60), whole(90)],
        "recipes.weak.checkpoint_every_s",
    ),
    "program_without_times_of_epochs": (
        [*program("nothing", epochs=3), whole(90)],
        "recipes.weak.observe",
    ),
    "quality_of_a_part": (
        [((*RECIPE, "epochs"), 3), whole(90, goal="quality")],
        "question.goal",
    ),
    "limit_in_words": ([limited("cost_usd", at_most="1 h")], "question.limits.cost_usd"),
    "limit_of_an_unknown_unit": (
        [limited("execution_time_s", at_most="1 week")],
        "question.limits.execution_time_s.at_most",
    ),
    "limit_without_a_price": ([limited("cost_usd", at_most=1.0)], "question.limits.cost_usd"),
    "limit_of_what_nobody_reports": (
        [limited("perplexity", at_most=1.0)],
        "question.limits.perplexity",
    ),
    "quality_limit_of_the_wrong_side": (
        [limited("test_accuracy", at_most=0.9)],
        "question.limits.test_accuracy",
    ),
    **{
        f"no_accuracy_{value}": (
            [limited("test_accuracy", at_least=value)],
            "question.limits.test_accuracy",
        )
        for value in (0, 1, 97, -0.5, "0.97")
    },
    "recipes_without_a_target": ([*two_recipes(), CHOOSE], "question.choose"),
    "recipes_of_two_qualities": (
        [*two_recipes(quality={"metric": "test_loss"}), CHOOSE_BY],
        "question.choose",
    ),
    "recipes_of_short_runs": (
        [*two_recipes(stop_after_steps=100), CHOOSE_BY],
        "question.choose",
    ),
    "unknown_axis": ([(("question",), {"choose": ["batch"]})], "question.choose[0]"),
    "no_axis": ([(("question",), {"choose": []})], "question.choose"),
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
        [(("question",), {"goal": "time_with_queue_s", "limits": LIMITS})],
        [(("question",), {"goal": "time_to_target_s", "limits": LIMITS})],
        [limited("execution_time_s", at_most="90 min")],
        [limited("test_accuracy", at_least=0.97)],
        [*two_recipes(), CHOOSE_BY],
        [*two_recipes(), CHOOSE_BY, SEARCH],
        [SEARCH, limited("execution_time_s", at_most="90 min")],
        [CHOOSE],
    ],
    ids=[
        *(
            "search",
            "exclusion",
            "evaluations",
            "queue_and_target",
            "target",
            "deadline",
            "quality",
        ),
        *("recipes", "recipes_in_a_search", "deadline_in_a_search"),
        "one_recipe",
    ],
)
def test_what_means_something_is_accepted(changes: list[Change]) -> None:
    assert grid.accept(raw_config(*changes), REGISTRIES)[1].runs
