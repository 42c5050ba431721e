"""The goals by which a question is answered, and the titles of recommendations by them."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tfscaling.record.metrics import FINISH_TIME, QUALITY, Metric
from tfscaling.study.config_types import Question
from tfscaling.tables.comparison import ALL_RUNS_METRICS
from tfscaling.tables.display import best_value_noun, disadvantage_noun, target_text
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import is_known, is_projected, qualities_by_metric

#: Goals that need a measurement of energy, and a queue.
ENERGY, WITH_QUEUE = "energy_kwh", "time_with_queue_s"
HOURS = {
    "node_hours": "Fewest node-hours",
    "core_hours": "Fewest core-hours",
    "gpu_hours": "Fewest GPU-hours",
}

TIME = "execution_time_s"

#: Metric → title of its recommendation. If a title ends with a space, the quality or the target of
#: the question follows it.
GOALS = {
    WITH_QUEUE: "Shortest time with the wait in the queue",
    TIME: "Shortest time",
    "cost_usd": "Lowest cost",
    **HOURS,
    ENERGY: "Lowest energy",
    QUALITY: "Best ",
    FINISH_TIME: "All trainings done first",
    "time_to_target_s": "Shortest time to ",
    "cost_to_target_usd": "Lowest cost to ",
}

#: Goal → key → words about the goal; goals without words use the words of TIME.
_WORDS = tomllib.loads(Path(__file__).with_name("goal_words.toml").read_text(encoding="utf-8"))


def goal_words(goal: str, title: str, metric: Metric) -> Mapping[str, str]:
    """Return the words in which sentences compare configurations by a goal.

    Args:
        goal: The metric to optimise.
        title: The goal's title, by `goal_title`: the best quality is named by it.
        metric: The goal's metric; for a quality the metric of the recipe.
    """
    words = _WORDS[TIME] | _WORDS.get("cost_usd" if goal.startswith("cost_") else goal, {})
    if goal == QUALITY:
        of_best = best_value_noun(metric)
        slower = f"worse than {of_best}" if metric.best is None else f"above {of_best}"
        words |= {"best": title, "as_long": disadvantage_noun(metric), "slower": slower}
    else:
        of_best = f"the {words['best'][0].lower()}{words['best'][1:]}"
    return words | {"of_best": of_best}


def answered_goals(
    question: Question, synchronous: Collection[str], rows: Sequence[PointRow]
) -> dict[str, str]:
    """Return goal → its title, for the goals by which a question is answered.

    The question is answered by its own goal, for the recommendation, and by other goals of GOALS,
    because the page names the best configuration by each of them. These goals are left out:

    - Time with the wait in the queue, HOURS and FINISH_TIME, unless one is the question's own goal.
    - QUALITY if all configurations train the same model (`can_quality_differ`), unless it is the
      question's own goal.
    - Goals that can have no answer (`goal_title`), even the question's own goal.

    Args:
        question: The configured question, with its goal and limits.
        synchronous: Names of the synchronous strategies. With the same recipe and global batch
            size, they train the same model on any number of nodes.
        rows: The configurations of the question.

    Returns:
        {} if no configuration has a valid run.
    """
    not_asked = {WITH_QUEUE, FINISH_TIME, *HOURS} - {question.goal}
    if not any(row.runs for row in rows):
        return {}
    if question.goal != QUALITY and not can_quality_differ(synchronous, rows):
        not_asked.add(QUALITY)
    titles = {goal: goal_title(goal, rows) for goal in GOALS if goal not in not_asked}
    return {goal: title for goal, title in titles.items() if title is not None}


def can_quality_differ(synchronous: Collection[str], rows: Sequence[PointRow]) -> bool:
    """Return whether configurations train differently, so that one may have the best quality.

    Synchronous strategies with the same recipe and global batch size train the same model on any
    number of nodes, except for rounding. Programs may do anything: their strategy, `own`, is not
    synchronous.
    """
    trainings = {(row.model, row.recipe, row.global_batch_size) for row in rows if row.runs}
    return len(trainings) > 1 or not {row.strategy for row in rows if row.runs} <= {*synchronous}


def goal_title(goal: str, rows: Sequence[PointRow]) -> str | None:
    """Return the title of a goal, such as "Shortest time"; None if the goal can have no answer.

    Energy has no answer if no configuration has one. Time or cost to a target has none without a
    target, or if short runs do not show when the complete training reaches the target.
    """
    if goal == QUALITY:
        (quality,) = qualities_by_metric(rows).values()
        return GOALS[goal] + quality.title
    if goal == ENERGY and not any(is_known(row.energy_kwh) for row in rows):
        return None
    if goal not in ALL_RUNS_METRICS:
        return GOALS[goal]
    if any(map(is_projected, rows)):
        return None
    target = next((target_text(row) for row in rows if is_known(row.target)), None)
    return None if target is None else GOALS[goal] + target
