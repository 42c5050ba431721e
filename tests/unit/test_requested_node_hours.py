"""The node-hours that a proposal requests, by the question of the study."""

from __future__ import annotations

import pytest
from builders import raw_config
from tfscaling.conclusions.decision import DecisionRow
from tfscaling.spec import configuration
from tfscaling.spec.config import POINT_AXES
from tfscaling.stages.write_proposal import _requests

USUAL = {"platform": "east", "model": "m", "strategy": "single", "gpus_per_node": 0,
         "tasks_per_node": "1", "devices": "CPU", "projected_from_steps": None}  # fmt: skip
#: The second is the fastest, the third the choice.
ROWS = [
    {**USUAL, "recipe": recipe, "nodes": nodes, "execution_time_s": time_s}
    for recipe, nodes, time_s in (("a", 1, 900.0), ("a", 2, 600.0), ("b", 1, 720.0))
]


@pytest.mark.parametrize("goal", ["cost_to_target_usd", "time_to_target_s"])
def test_a_request_is_for_the_choice_by_the_goal_of_the_question(goal: str) -> None:
    raw = raw_config() | {"proposal": {"trainings": 10, "margin": 0.5}}
    raw["question"] = {"goal": "cost_to_target_usd", "choose": list(POINT_AXES),
                       "limits": {"test_accuracy": {"at_least": 0.9}}}  # fmt: skip
    config = configuration.validate(raw)
    point = {axis: ROWS[2][axis] for axis in POINT_AXES}
    choice = DecisionRow("all configurations", goal, "", "", "supported", **point)  # type: ignore[arg-type]
    (request,) = _requests(ROWS, [choice], config)
    is_asked = goal == config.question.goal
    assert request.is_supported == is_asked
    hours = 720 / 3600 if is_asked else 2 * 600 / 3600
    assert request.node_hours == pytest.approx(hours * 10 * 1.5)
