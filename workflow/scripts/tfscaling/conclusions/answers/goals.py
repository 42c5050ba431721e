"""The goals by which a question is answered, and their titles."""

from __future__ import annotations

from collections.abc import Sequence

from tfscaling.conclusions.evidence import Study, Task
from tfscaling.record.metrics import QUALITY
from tfscaling.tables.comparison import OF_ALL_RUNS
from tfscaling.tables.display import target_text
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import is_known, is_projected, qualities_of

#: A goal where it is measured, and goals where the configuration names them.
ENERGY, WITH_QUEUE = "energy_kwh", "time_with_queue_s"
HOURS = {
    "node_hours": "Fewest node-hours",
    "core_hours": "Fewest core-hours",
    "gpu_hours": "Fewest GPU-hours",
}

TIME = "execution_time_s"

#: Metric → what is taken for it; the quality or the target of the task follows what ends so.
GOALS = {
    WITH_QUEUE: "Shortest time with the wait in the queue",
    TIME: "Shortest time",
    "cost_usd": "Lowest cost",
    **HOURS,
    ENERGY: "Lowest energy",
    QUALITY: "Best ",
    "time_to_target_s": "Shortest time to ",
    "cost_to_target_usd": "Lowest cost to ",
}


def answered_goals(study: Study, task: Task) -> list[str]:
    """Return the goals that a question is answered by: none if no run is valid."""
    not_asked = {WITH_QUEUE, *HOURS} - {study.question.goal}
    if not any(row.runs for row in task.rows):
        return []
    if study.question.goal != QUALITY and not can_quality_differ(study, task.rows):
        not_asked.add(QUALITY)
    return [
        goal for goal in GOALS if goal not in not_asked and goal_title(goal, task.rows) is not None
    ]


def can_quality_differ(study: Study, rows: Sequence[PointRow]) -> bool:
    """Return whether configurations train differently, so that one may have the best quality.

    Synchronous strategies with the same recipe and global batch size train the same model on any
    number of nodes, except for rounding. Programs may do anything: their strategy, `own`, is not
    synchronous.
    """
    trainings = {(row.model, row.recipe, row.global_batch_size) for row in rows if row.runs}
    synchronous = study.manifest.synchronous_strategies
    return len(trainings) > 1 or not {row.strategy for row in rows if row.runs} <= {*synchronous}


def goal_title(goal: str, rows: Sequence[PointRow]) -> str | None:
    """Return what a recommendation by a goal is best for, in words.

    None if the goal has no answer: no configuration has energy, there is no target, or short runs
    do not show when the complete training reaches it.
    """
    if goal == QUALITY:
        (quality,) = qualities_of(rows).values()
        return GOALS[goal] + quality.title
    if goal == ENERGY and not any(is_known(row.energy_kwh) for row in rows):
        return None
    if goal not in OF_ALL_RUNS:
        return GOALS[goal]
    if any(map(is_projected, rows)):
        return None
    target = next((target_text(row) for row in rows if is_known(row.target)), None)
    return None if target is None else GOALS[goal] + target
