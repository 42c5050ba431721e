"""How many further runs may settle what an answer leaves open."""

from __future__ import annotations

from collections import Counter

from tfscaling.conclusions.answers.answer_types import Answer, State
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.intervals import RUNS_FOR_INTERVAL
from tfscaling.estimation.run_counts import KEPT_RUNS
from tfscaling.estimation.samples import INCONCLUSIVE, TOO_FEW


def repeats_to_settle(study: Study, asked: Answer) -> int | None:
    """Return how many runs of each configuration may settle an open answer.

    Args:
        study: The evidence.
        asked: The answer.

    Returns:
        None if nothing is open, or more runs do not help.
    """
    if asked.support == TOO_FEW:
        return RUNS_FOR_INTERVAL
    if asked.support != INCONCLUSIVE:
        return None
    own = {each.point for each in asked.candidates}
    planned = Counter(
        run.spec.point
        for run in study.manifest.runs
        if not run.extra_repeat and run.spec.point in own
    )
    most = max(planned.values(), default=0)
    has_undecided = any(each.state == State.UNDECIDED for each in asked.candidates)
    if (asked.compared and not asked.is_near_best) or has_undecided:
        return max(
            2 * most, KEPT_RUNS * (asked.limits is not None and not asked.leader_keeps_limits)
        )
    return None if asked.leader_keeps_limits else max(KEPT_RUNS, most)
