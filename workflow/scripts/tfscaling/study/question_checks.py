"""Checks of the configured baseline and question against the runs of the grid."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from itertools import chain

from tfscaling.study import recipes, variants
from tfscaling.study.config_types import (
    CAMPAIGN_METRICS,
    CAMPAIGN_TRAININGS_MAX,
    EFFICIENCIES,
    LIMITABLE_METRICS,
    PROJECTABLE_EPOCHS_MIN,
    SEARCH_GOALS,
    TASK_AXES,
    Config,
    Limit,
    Quality,
    Question,
    Recipe,
    parse_duration,
)
from tfscaling.study.config_validation import NotAllowed
from tfscaling.study.manifest import Manifest, PlannedRun

#: Longest duration in a campaign, 10,000 days.
DURATION_MAX_S = 8.64e8
FINISH_TIME, CAMPAIGN_COST = CAMPAIGN_METRICS
#: Metrics without a limit in a search, which are not of single runs.
NOT_SEARCHED = (*EFFICIENCIES, *CAMPAIGN_METRICS)
#: Part of messages: what CAMPAIGN_METRICS need.
NEEDS_CAMPAIGN = "needs question.campaign, which states how all trainings are run"
#: Part of messages: why short runs have no quality, and no time to a target.
NOT_PROJECTED = "quality is not projected"


def check_baseline(config: Config, planned: Manifest) -> None:
    """Check that the grid has a run with the axes of `comparison.baseline`.

    If the baseline's recipe has variants, each configuration is compared with the baseline that
    has the same variant. So all configurations must have that recipe, or the baseline names one
    variant.

    Args:
        config: The configuration.
        planned: Its manifest.

    Raises:
        NotAllowed: The grid has no such run, or configurations of other recipes need a baseline
            with one variant.
    """
    place = ["comparison", "baseline"]
    baseline = config.comparison.baseline.axes
    points = {run.spec.point for run in planned.runs}
    recipe = baseline.pop("recipe", None)
    of_recipe = {p for p in points if recipe in (None, p.recipe, variants.base_recipe(p.recipe))}
    if not any(all(getattr(p, axis) == v for axis, v in baseline.items()) for p in of_recipe):
        rule = "no run of the grid has these values, so there would be no speed-up"
        raise NotAllowed(place, config.comparison.baseline.axes, rule)
    names = sorted({point.recipe for point in of_recipe})
    if len(of_recipe) < len(points) and recipe not in (None, *names):
        rule = f"configurations of other recipes need the name of a variant: {', '.join(names)}"
        raise NotAllowed([*place, "recipe"], recipe, rule)


def check_question(config: Config, planned: Manifest) -> None:
    """Check that the runs of the grid can answer the question.

    Raises:
        NotAllowed: If they cannot; the error names the key of the question or of a recipe.
    """
    run_of_recipe = {run.spec.point.recipe: run for run in planned.runs}
    _check_whole_training(config, planned, run_of_recipe)
    _check_campaign(config.question)
    _check_goal(config, planned, run_of_recipe)
    _check_limits(config, planned, run_of_recipe)
    _check_choice(config, planned, run_of_recipe)


def _check_whole_training(
    config: Config, planned: Manifest, run_of_recipe: Mapping[str, PlannedRun]
) -> None:
    """Raise NotAllowed if the complete training cannot be projected from the runs of a recipe.

    Args:
        config: The configuration.
        planned: The manifest of its grid.
        run_of_recipe: Name of a recipe → one of its runs.
    """
    if (whole := config.question.whole_training) is None:
        return
    shorts = {each.short.recipe for s in planned.searches for each in s.points if each.short}
    for name, run in run_of_recipe.items():
        recipe = run.spec.recipe

        def wrong(key: str, rule: str, name: str = name, recipe: Recipe = recipe) -> NotAllowed:
            return NotAllowed(
                ["recipes", variants.base_recipe(name), key], getattr(recipe, key), rule
            )

        asked = f"the whole training has {whole.epochs} (question.whole_training.epochs)"
        if recipe.epochs > whole.epochs:
            raise wrong("epochs", f"{asked}; allowed: 1 to {whole.epochs}")
        if recipe.stop_after_steps is not None and recipe.epochs < whole.epochs:
            raise wrong("epochs", f"{asked}; allowed with stop_after_steps: {whole.epochs}")
        if run.whole_epochs is None or name in shorts:
            continue
        if planned.searches:
            rule = f"{asked}, and a search compares complete runs; allowed: {whole.epochs}, with"
            raise wrong("epochs", f"{rule} search.stop_after_steps for short runs")
        if recipe.epochs < PROJECTABLE_EPOCHS_MIN:
            rule = f"{asked}, and the first epoch has the start-up"
            allowed = f"{PROJECTABLE_EPOCHS_MIN} to {whole.epochs}, or stop_after_steps"
            raise wrong("epochs", f"{rule}; allowed: {allowed}")
        if recipe.program and recipe.observe in recipes.WITHOUT_TIMES:
            rule = f"{asked}, which needs times of epochs; allowed: fit, events"
            raise wrong("observe", f"{rule}, or {whole.epochs} epochs")
        for key in ("checkpoint_every_epochs", "checkpoint_every_s"):
            if getattr(recipe, key) is not None:
                raise wrong(key, "the time of checkpoints is not projected; allowed: null")


def _check_goal(config: Config, planned: Manifest, run_of_recipe: Mapping[str, PlannedRun]) -> None:
    """Raise NotAllowed if runs of the grid cannot have the metric that the goal compares.

    Args:
        config: The configuration.
        planned: The manifest of its grid.
        run_of_recipe: Name of a recipe → one of its runs.
    """
    goal = config.question.goal

    def wrong(rule: str) -> NotAllowed:
        return NotAllowed(["question", "goal"], goal, rule)

    if goal.startswith("cost_"):
        for run in planned.runs:
            if run.usd_per_node_hour is None:
                raise wrong(f"needs usd_per_node_hour of platform {run.spec.point.platform}")
    if goal == FINISH_TIME and config.question.campaign is None:
        raise wrong(f"{NEEDS_CAMPAIGN}; allowed: set it, or execution_time_s")
    if planned.searches and goal not in SEARCH_GOALS:
        raise wrong(f"no goal of a search; allowed: {', '.join(SEARCH_GOALS)}, or `search: null`")
    if goal in LIMITABLE_METRICS and (why := _unreported_reason(goal, planned)):
        raise wrong(f"{why}; allowed: execution_time_s, cost_usd, node_hours, core_hours")
    if goal == "quality" and not any(
        recipes.may_report_quality(r.spec.recipe) for r in run_of_recipe.values()
    ):
        raise wrong("no program reports the quality; allowed: `observe: fit`, events, or patterns")
    for name, run in run_of_recipe.items():
        recipe = run.spec.recipe
        if run.is_short and goal == "time_with_queue_s":
            rule = f"recipe {name} makes short runs, and short jobs wait for less time"
            raise wrong(f"{rule}; allowed: execution_time_s")
        if run.is_short and (goal == "quality" or "_to_target" in goal):
            raise wrong(f"recipe {name} makes short runs, and {NOT_PROJECTED}")
        if "_to_target" not in goal:
            continue
        if recipe.program and recipe.observe in recipes.WITHOUT_TIMES:
            rule = f"the program of recipe {name} reports no times of epochs"
            ways = "execution_time_s, cost_usd, or `observe: fit`, events"
            raise wrong(f"{rule} (observe: {recipe.observe}); allowed: {ways}")
        if (metric := recipe.quality.metric) not in config.question.limits_in_force:
            raise wrong(f"needs a target of recipe {name}, a limit of {metric} in question.limits")


def _unreported_reason(metric: str, planned: Manifest) -> str:
    """Return why no run of the grid can report a metric; "" if a run may report it."""
    runs = planned.runs
    if metric == "time_with_queue_s" and all(r.spec.measured.launcher == "local" for r in runs):
        return "runs on this machine wait in no queue"
    is_of_gpus = metric in ("gpu_memory_gb", "gpu_hours")
    if is_of_gpus and all(
        not run.spec.point.gpus_per_node or run.spec.measured.devices == "logical" for run in runs
    ):
        return "no configuration has GPUs"
    return ""


def _check_limits(
    config: Config, planned: Manifest, run_of_recipe: Mapping[str, PlannedRun]
) -> None:
    """Raise NotAllowed for the first limit of the question that is not allowed.

    Args:
        config: The configuration.
        planned: The manifest of its grid.
        run_of_recipe: Name of a recipe → one of its runs.
    """
    qualities = {run.spec.recipe.quality.metric for run in run_of_recipe.values()}
    for name in config.question.ignored_qualities - qualities:
        rule = "null is for the quality of recipes; allowed: a limit"
        raise NotAllowed(["question", "limits", name], None, rule)
    for name, limit in config.question.limits_in_force.items():
        given = config.question.limits[name] or limit
        of_campaign = _campaign_limit_problems(config.question, name, given, planned)
        for rule in chain(of_campaign, _limit_problems(name, limit, planned, run_of_recipe)):
            values = {"at_most": given.at_most, "at_least": given.at_least}
            shown = {key: value for key, value in values.items() if value is not None}
            raise NotAllowed(["question", "limits", name], shown, rule)


def _campaign_limit_problems(
    question: Question, name: str, limit: Limit, planned: Manifest
) -> Iterator[str]:
    """Yield why a limit of a campaign, or a date as limit of another metric, is not allowed.

    Args:
        question: The question.
        name: The metric.
        limit: Its limit as configured.
        planned: The manifest of the grid.
    """
    if limit.is_date and name != FINISH_TIME:
        yield f"a date is a limit of {FINISH_TIME}; allowed: a number, or a duration"
    if limit.is_date and not (question.campaign and question.campaign.start):
        yield "a date needs question.campaign.start; allowed: a duration since the start"
    if name not in CAMPAIGN_METRICS:
        return
    if question.campaign is None:
        yield f"{NEEDS_CAMPAIGN}; allowed: leave it out"
    if planned.searches:
        others = ", ".join(metric for metric in LIMITABLE_METRICS if metric not in NOT_SEARCHED)
        yield f"a search has no limit of a campaign; allowed: {others}, or `search: null`"
    if limit.is_date and question.campaign and question.campaign.start:
        since = limit.since(question.campaign.start)
        if since.is_date:
            yield "no date of the calendar; allowed: an existing day"
        elif since.value <= 0:
            yield f"the campaign starts on {question.campaign.start}; allowed: a later date"


def _limit_problems(
    name: str, limit: Limit, planned: Manifest, run_of_recipe: Mapping[str, PlannedRun]
) -> Iterator[str]:
    """Yield why the limit of a metric is not allowed, as sentences for the user.

    Use only the first sentence: each check assumes that all checks before it found no problem.

    Args:
        name: The metric.
        limit: Its limit.
        planned: The manifest of the grid.
        run_of_recipe: Name of a recipe → one of its runs.
    """
    if (limit.at_most is None) == (limit.at_least is None):
        yield "allowed: exactly one of at_most and at_least"
    if isinstance(limit.at_most, str) and not name.endswith("_s"):
        yield f"{name} is no time; allowed: a number"
    qualities = {run.spec.recipe.quality.metric for run in run_of_recipe.values()}
    runs = [run for run in run_of_recipe.values() if run.spec.recipe.quality.metric == name]
    if not runs and name not in LIMITABLE_METRICS:
        names = ", ".join([*LIMITABLE_METRICS, *sorted(qualities)])
        yield f"no metric that can have a limit; allowed: {names}"
    if name in LIMITABLE_METRICS and (why := _unreported_reason(name, planned)):
        yield f"{why}; allowed: leave it out"
    if runs and not any(recipes.may_report_quality(run.spec.recipe) for run in runs):
        yield "no program reports it; allowed: `observe: fit`, events, or patterns"
    if name in EFFICIENCIES:
        yield from _efficiency_limit_problems(name, limit, planned, run_of_recipe)
    better = runs[0].spec.recipe.quality.better if runs else LIMITABLE_METRICS[name]
    if (limit.at_most is None) == (better == "lower"):
        side = "at_most" if better == "lower" else "at_least"
        yield f"{better} values are better; allowed: {side}"
    if name in LIMITABLE_METRICS and limit.value <= 0:
        yield "allowed: more than 0"
    is_cost = name in ("cost_usd", CAMPAIGN_COST)
    if is_cost and any(run.usd_per_node_hour is None for run in planned.runs):
        yield "needs usd_per_node_hour of all platforms in the grid"
    if runs and all(run.is_short for run in runs):
        yield f"all recipes with it make short runs, and {NOT_PROJECTED}"
    if runs:
        yield from _quality_limit_problems(runs[0].spec.recipe.quality, limit)


def _efficiency_limit_problems(
    name: str, limit: Limit, planned: Manifest, run_of_recipe: Mapping[str, PlannedRun]
) -> Iterator[str]:
    """Yield why the limit of an efficiency, a ratio to the baseline, is not allowed.

    Args:
        name: The efficiency.
        limit: Its limit.
        planned: The manifest of the grid.
        run_of_recipe: Name of a recipe → one of its runs.
    """
    if planned.searches:
        others = ", ".join(metric for metric in LIMITABLE_METRICS if metric not in NOT_SEARCHED)
        yield f"a search has no limit of a ratio; allowed: {others}, or `search: null`"
    if name == "weak_scaling_efficiency":
        for recipe_name, run in run_of_recipe.items():
            if run.spec.recipe.batch_scaling == "strong":
                rule = f"recipe {recipe_name} has the same global batch on any number of nodes"
                yield f"{rule}; allowed: scaling_efficiency"
    if limit.at_least is not None and not 0 < limit.at_least <= 1:
        yield "the baseline has 1; allowed: at_least more than 0, at most 1"


def _quality_limit_problems(quality: Quality, limit: Limit) -> Iterator[str]:
    """Yield why a value cannot be the limit of a quality."""
    value, best = limit.value, quality.best_value
    if quality.is_accuracy and best == 1 and not 0 < value < 1:
        yield "allowed: more than 0 and less than 1, a fraction of the examples"
    if best is not None and (value >= best if quality.better == "higher" else value <= best):
        yield f"allowed: worse than {best:g}, the best possible"


def _check_choice(
    config: Config, planned: Manifest, run_of_recipe: Mapping[str, PlannedRun]
) -> None:
    """Raise NotAllowed if a question chooses among recipes that cannot be compared.

    Args:
        config: The configuration.
        planned: The manifest of its grid.
        run_of_recipe: Name of a recipe → one of its runs.
    """
    question = config.question
    shorts = {each.short for search in planned.searches for each in search.points}
    points = {run.spec.point for run in planned.runs} - shorts
    tasks = {(point.model, point.recipe) for point in points}
    run_of_recipe = {point.recipe: run_of_recipe[point.recipe] for point in points}

    def wrong(rule: str) -> NotAllowed:
        rule = f"{rule}; or choose without model and recipe"
        return NotAllowed(["question", "choose"], [*question.choose], rule)

    if not set(question.choose) & set(TASK_AXES) or len(tasks) < 2:
        return
    metrics = {run.spec.recipe.quality.metric: name for name, run in run_of_recipe.items()}
    if len(metrics) > 1:
        named = ", ".join(f"{name}: {metric}" for metric, name in metrics.items())
        raise wrong(f"recipes have different qualities ({named}); allowed: the same `quality`")
    (metric,) = metrics
    if metric not in question.limits:
        rule = "recipes train different amounts, so they are compared by what they reach"
        ways = f"a limit of {metric} in question.limits, or null if they are equally good"
        raise wrong(f"{rule}; allowed: {ways}")
    for name, run in run_of_recipe.items():
        if run.is_short and metric in question.limits_in_force:
            raise wrong(f"recipe {name} makes short runs, and {NOT_PROJECTED}")


def _check_campaign(question: Question) -> None:
    """Raise NotAllowed if the keys of the question's campaign contradict each other."""
    if (campaign := question.campaign) is None:
        return
    number = question.campaign_trainings

    def wrong(key: str, rule: str) -> NotAllowed:
        return NotAllowed(["question", "campaign", key], getattr(campaign, key), rule)

    if campaign.trainings is None and number > CAMPAIGN_TRAININGS_MAX:
        most = f"a campaign has at most {CAMPAIGN_TRAININGS_MAX:,}"
        raise NotAllowed(["question", "trainings"], number, f"{most}; allowed: fewer")
    if question.trainings not in (None, number):
        rule = f"question.trainings is {question.trainings}"
        raise wrong("trainings", f"{rule}; allowed: the same number in one of the two keys")
    if campaign.at_once > number:
        raise wrong("at_once", f"there are {number} trainings; allowed: 1 to {number}")
    for key in ("time_limit", "checkpoint_every"):
        value = getattr(campaign, key)
        if value is not None and not 0 < parse_duration(value) <= DURATION_MAX_S:
            raise wrong(key, "allowed: more than 0, at most 10000 d")
    every, limit = campaign.checkpoint_every, campaign.time_limit
    if every and limit and parse_duration(every) >= parse_duration(limit):
        rule = f"a job ends after {limit}, before its first checkpoint"
        raise wrong("checkpoint_every", f"{rule}; allowed: less than time_limit")
    if campaign.start is not None:
        try:
            datetime.datetime.fromisoformat(campaign.start)
        except ValueError:
            raise wrong("start", "no date of the calendar; allowed: an existing day") from None
