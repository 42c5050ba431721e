"""Configurations that could only fail, or mislead, once runs are made are refused before."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pytest
from builders import REGISTRIES, raw_config, refused
from tfscaling.study import acceptance

Change = tuple[Sequence[str | int], Any]
RECIPE, BLOCK = ("recipes", "weak"), ("grid", 0)
SHORT: Change = ((*RECIPE, "stop_after_steps"), 100)
SEARCH: Change = (("search",), {})

LIMITS = {"test_accuracy": {"at_least": 0.9}}
TARGET: Change = (("question",), {"limits": LIMITS})
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


def goal(name: str, **question: Any) -> Change:
    """A question with this goal."""
    return ("question",), {"goal": name, **question}


def campaign(**keys: Any) -> Change:
    """A question about a campaign with these keys."""
    return ("question",), {"campaign": keys}


def finished(
    by: str, name: str = "finish_time_s", start: str | None = "2026-12-01T09:00"
) -> Change:
    """A question about a campaign with this start, and this limit of a metric."""
    limits = {name: {"at_most": by}}
    return ("question",), {"campaign": {"start": start}, "limits": limits}


def wide_jobs(value: Any) -> list[Change]:
    """A platform with this value of the key."""
    return [(("platforms", "cluster", "wide_jobs"), value)]


def paid(at_most: Any = None, **limit: Any) -> Change:
    """A question about a campaign with a limit of its cost."""
    given = limit or {"at_most": at_most}
    return ("question",), {"campaign": {}, "limits": {"campaign_cost_usd": given}}


#: A price of the grid's platform.
PRICED: list[Change] = [
    (("platforms", "cluster", key), value)
    for key, value in {"usd_per_node_hour": 2.0, "price_date": "2026", "price_source": "x"}.items()
]
LESS_THAN_A_WHOLE: Change = ((*RECIPE, "epochs"), 3)
#: Key that is refused → what asks for it, by a name.
REFUSED: dict[str, dict[str, list[Change]]] = {
    "comparison.title": {"zero_byte": [(("comparison",), {"title": "a\0b"})]},
    "platforms.cluster.title": {"bell": [(("platforms", "cluster", "title"), "\x07")]},
    "platforms.cluster.wide_jobs": {
        "wide_jobs_without_numbers": [*wide_jobs(16)],
        "wide_jobs_switched_on": [*wide_jobs(True)],
        "wide_jobs_without_minutes": [*wide_jobs({"nodes": 16})],
        "wide_jobs_without_nodes": [*wide_jobs({"minutes": 30})],
    },
    "platforms.cluster.wide_jobs.nodes": {
        "no_nodes": [*wide_jobs({"nodes": 0, "minutes": 30})],
        "half_a_node": [*wide_jobs({"nodes": 1.5, "minutes": 30})],
    },
    "platforms.cluster.wide_jobs.minutes": {
        "no_minutes": [*wide_jobs({"nodes": 16, "minutes": 0})],
        "minutes_in_words": [*wide_jobs({"nodes": 16, "minutes": "30 min"})],
    },
    "search": {"search_of_one": [SEARCH, ((*BLOCK, "nodes"), 1)]},
    "grid[0].exclude[0]": {
        "exclusion_without_axes": [((*BLOCK, "exclude"), [{}])],
        "exclusion_of_nothing": [((*BLOCK, "exclude"), [{"nodes": 7}])],
        "reason_without_axes": [((*BLOCK, "exclude"), [{"reason": "no licence"}])],
    },
    "recipes.weak.evaluation_interval_epochs": {
        "evaluations_after_the_end": [((*RECIPE, "evaluation_interval_epochs"), 50)],
    },
    "datasets.mnist.path": {
        "data_that_is_not_there": [(("datasets",), {"mnist": {"path": "nowhere/mnist"}})],
    },
    "question.goal": {
        "queue_of_short_jobs": [SHORT, goal("time_with_queue_s")],
        "goal_without_a_price": [goal("cost_usd")],
        "goal_without_a_target": [goal("time_to_target_s")],
        "quality_of_short_runs": [SHORT, goal("quality")],
        "queue_of_this_machine": [
            (("platforms", "cluster", "launcher"), "local"), goal("time_with_queue_s")],
        "quality_that_nobody_reports": [*program("nothing"), goal("quality")],
        "hours_of_no_gpu": [goal("gpu_hours")],
        "cores_of_a_search": [SEARCH, goal("core_hours")],
        "end_of_no_campaign": [goal("finish_time_s")],
        "cost_of_a_campaign": [*PRICED, goal("campaign_cost_usd", campaign={})],
        "campaign_of_a_search": [SEARCH, goal("finish_time_s", campaign={})],
        "quality_of_a_part": [LESS_THAN_A_WHOLE, whole(90, goal="quality")],
    },
    "question.limits.execution_time_s": {
        "no_limit_of_the_time": [(("question",), {"limits": {"execution_time_s": None}})],
        "limit_of_both_kinds": [limited("execution_time_s", at_most=1.0, at_least=0.5)],
        "limit_of_the_wrong_side": [limited("execution_time_s", at_least=1.0)],
        "negative_limit_of_time": [limited("execution_time_s", at_most=-1)],
        "no_time_at_all": [limited("execution_time_s", at_most="0 s")],
        "date_of_a_run": [finished("2026-12-05T18:00", "execution_time_s")],
    },
    "question.limits.finish_time_s": {
        "end_of_no_campaign": [limited("finish_time_s", at_most="3 d")],
        "date_without_a_start": [finished("2026-12-05T18:00", start=None)],
        "date_before_the_start": [finished("2026-12-01T08:59")],
        "no_day": [finished("2026-12-32T18:00")],
        "campaign_of_a_search": [SEARCH, finished("3 d")],
    },
    "question.limits.campaign_cost_usd": {
        "cost_of_no_campaign": [*PRICED, limited("campaign_cost_usd", at_most=400)],
        "cost_without_a_price": [paid(400)],
        "cost_in_words": [*PRICED, paid("3 d")],
        "cost_as_a_date": [*PRICED, finished("2026-12-05T18:00", "campaign_cost_usd")],
        "least_cost": [*PRICED, paid(at_least=400)],
        "no_cost": [*PRICED, paid(0)],
        "cost_of_a_search": [*PRICED, SEARCH, paid(400)],
    },
    "question.limits.execution_time_s.at_most": {
        "limit_of_an_unknown_unit": [limited("execution_time_s", at_most="1 week")],
    },
    "question.limits.test_accuracy": {
        "limit_without_a_value": [limited("test_accuracy")],
        "target_of_short_runs": [SHORT, TARGET],
        "target_of_another_quality": [((*RECIPE, "quality"), {"metric": "test_loss"}), TARGET],
        "quality_limit_that_nobody_reports": [
            *program("output", patterns={"loss": "(.+)"}), TARGET],
        "quality_limit_of_the_wrong_side": [limited("test_accuracy", at_most=0.9)],
        **{f"no_accuracy_{value}": [limited("test_accuracy", at_least=value)]
           for value in (0, 1, 97, -0.5, "0.97")},
    },
    "question.limits.gpu_hours": {"hours_of_no_gpu": [limited("gpu_hours", at_most=4)]},
    "question.limits.scaling_efficiency": {
        "efficiency_of_the_wrong_side": [limited("scaling_efficiency", at_most=0.7)],
        "efficiency_beyond_the_baseline": [limited("scaling_efficiency", at_least=1.1)],
        "no_efficiency": [limited("scaling_efficiency", at_least=0)],
        "efficiency_in_a_search": [SEARCH, limited("scaling_efficiency", at_least=0.7)],
    },
    "question.limits.weak_scaling_efficiency": {
        "weak_scaling_of_one_global_batch": [
            *two_recipes(), limited("weak_scaling_efficiency", at_least=0.7)],
    },
    "question.limits.gpu_memory_gb": {
        "memory_of_no_gpu": [limited("gpu_memory_gb", at_most=4)],
    },
    "question.limits.cost_usd": {
        "limit_in_words": [limited("cost_usd", at_most="1 h")],
        "limit_without_a_price": [limited("cost_usd", at_most=1.0)],
    },
    "question.limits.perplexity": {
        "limit_of_what_nobody_reports": [limited("perplexity", at_most=1.0)],
    },
    "question.choose": {
        "recipes_without_a_target": [*two_recipes(), CHOOSE],
        "recipes_of_two_qualities": [*two_recipes(quality={"metric": "test_loss"}), CHOOSE_BY],
        "recipes_of_short_runs": [*two_recipes(stop_after_steps=100), CHOOSE_BY],
        "no_axis": [(("question",), {"choose": []})],
    },
    "recipes.weak.quality": {
        "quality_without_a_direction": [((*RECIPE, "quality"), {"metric": "test_error"})],
    },
    "recipes.weak.quality.metric": {
        "unknown_quality": [
            ((*RECIPE, "quality"), {"metric": "test_acuracy", "direction": "higher"})],
    },
    "recipes.strong.quality.unit": {
        "two_units": [*two_recipes(), ((*RECIPE, "quality"), {"unit": "%"})],
    },
    "recipes.strong.quality.direction": {
        "two_directions": [*two_recipes(), ((*RECIPE, "quality"), {"direction": "lower"})],
    },
    "question.campaign.trainings": {
        "no_trainings": [campaign(trainings=0)],
        "more_trainings_than_are_simulated": [campaign(trainings=10_001)],
        "two_numbers_of_trainings": [
            (("question",), {"trainings": 20, "campaign": {"trainings": 30}})],
    },
    "question.trainings": {
        "too_many_for_a_campaign": [(("question",), {"trainings": 20_000, "campaign": {}})],
    },
    "question.campaign.at_once": {
        "more_at_once_than_all": [campaign(trainings=3, at_once=4)],
        "two_at_once_of_one": [campaign(at_once=2)],
        "none_at_once": [campaign(trainings=3, at_once=0)],
    },
    "question.campaign.time_limit": {
        "limit_without_a_unit": [campaign(time_limit=24)],
        "limit_of_no_time": [campaign(time_limit="0 h")],
        "limit_beyond_a_life": [campaign(time_limit="99999999999 d")],
        "limit_of_slurm": [campaign(time_limit="1-00:00:00")],
    },
    "question.campaign.checkpoint_every": {
        "checkpoint_after_the_end": [campaign(time_limit="1 h", checkpoint_every="60 min")],
        "checkpoint_at_no_interval": [campaign(checkpoint_every="0 s")],
    },
    "question.campaign.spot": {
        "interruptions_without_a_key": [campaign(spot=0.1)],
    },
    "question.campaign.spot.interruptions_per_hour": {
        **{f"interruptions_{value}": [campaign(spot={"interruptions_per_hour": value})]
           for value in (0, -1, 101, "often", float("nan"))},
    },
    "question.campaign.start": {
        "start_that_is_no_day": [campaign(start="2026-02-30T09:00")],
        "start_in_words": [campaign(start="tomorrow")],
        "start_without_a_time": [campaign(start="2026-12-01")],
        "start_of_yaml": [campaign(start=datetime.datetime(2026, 12, 1, 9))],
        "start_of_an_unknown_zone": [campaign(start="2026-12-01T09:00+99:00")],
    },
    "question.campaign.end": {"unknown_key": [campaign(end="2026-12-01T09:00")]},
    "question.choose[0]": {"unknown_axis": [(("question",), {"choose": ["batch"]})]},
    "recipes.weak.epochs": {
        "more_epochs_than_the_whole": [whole(1)],
        "too_few_epochs_to_project": [((*RECIPE, "epochs"), 2), whole(90)],
        "search_among_parts": [SEARCH, LESS_THAN_A_WHOLE, whole(90)],
        "short_run_of_another_whole": [SHORT, whole(90)],
    },
    "recipes.weak.checkpoint_every_s": {
        "checkpoints_of_a_part": [
            LESS_THAN_A_WHOLE, ((*RECIPE, "checkpoint_every_s"), 60), whole(90)],
    },
    "recipes.weak.observe": {
        "program_without_times_of_epochs": [*program("nothing", epochs=3), whole(90)],
    },
    "recipes.weak.learning": {
        "learning_rate_beyond_floats": [((*RECIPE, "learning_rate"), 1e300)],
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "name"), [(key, name) for key, named in REFUSED.items() for name in named]
)
def test_what_could_only_fail_later_is_refused(key: str, name: str) -> None:
    message = refused(acceptance.validate_and_plan, raw_config(*REFUSED[key][name]), REGISTRIES)
    assert message.startswith(f"configuration: {key}")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cost_of_no_campaign", "question.campaign"),
        ("cost_without_a_price", "usd_per_node_hour"),
        ("cost_of_a_search", "search"),
        ("cost_as_a_date", "a date is a limit of finish_time_s"),
        ("cost_in_words", "no time"),
    ],
)
def test_a_limit_of_the_cost_of_a_campaign_is_refused_with_the_reason(
    name: str, words: str
) -> None:
    config = raw_config(*REFUSED["question.limits.campaign_cost_usd"][name])
    message = refused(acceptance.validate_and_plan, config, REGISTRIES)
    assert words in message.partition("campaign_cost_usd")[2]


@pytest.mark.parametrize("value", [1.5, 97])
def test_a_limit_of_accuracy_in_percent_is_refused_with_the_hint(value: float) -> None:
    config = raw_config(limited("test_accuracy", at_least=value))
    assert "a fraction" in refused(acceptance.validate_and_plan, config, REGISTRIES)


ACCEPTED: dict[str, list[Change]] = {
    "search": [SEARCH],
    "exclusion": [((*BLOCK, "exclude"), [{"nodes": 2}])],
    "evaluations": [((*RECIPE, "evaluation_interval_epochs"), 2)],
    "queue_and_target": [goal("time_with_queue_s", limits=LIMITS)],
    "target": [goal("time_to_target_s", limits=LIMITS)],
    "deadline": [limited("execution_time_s", at_most="90 min")],
    "quality": [limited("test_accuracy", at_least=0.97)],
    "quality_in_percent": [
        ((*RECIPE, "quality"), {"metric": "test_accuracy", "best": 100}),
        limited("test_accuracy", at_least=97),
    ],
    "recipes": [*two_recipes(), CHOOSE_BY],
    "recipes_in_a_search": [*two_recipes(), CHOOSE_BY, SEARCH],
    "deadline_in_a_search": [SEARCH, limited("execution_time_s", at_most="90 min")],
    "one_recipe": [CHOOSE],
    "whole_training": [LESS_THAN_A_WHOLE, whole(90)],
    "campaign": [
        campaign(
            trainings=30,
            at_once=30,
            time_limit="24 h",
            checkpoint_every="30 min",
            spot={"interruptions_per_hour": 0.02},
            start="2026-12-01T09:00+01:00",
        )
    ],
    "campaign_by_default": [campaign()],
    "cost_of_a_campaign": [*PRICED, paid(400)],
    "campaign_of_all_trainings": [(("question",), {"trainings": 30, "campaign": {"at_once": 30}})],
    "as_many_epochs_as_the_whole": [LESS_THAN_A_WHOLE, whole(3)],
    "short_run_of_the_whole": [SHORT, LESS_THAN_A_WHOLE, whole(3)],
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_means_something_is_accepted(name: str) -> None:
    assert acceptance.validate_and_plan(raw_config(*ACCEPTED[name]), REGISTRIES)[1].runs
