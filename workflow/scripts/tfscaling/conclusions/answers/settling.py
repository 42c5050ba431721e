"""How many further runs may settle what an answer leaves open."""

from __future__ import annotations

from collections import Counter

from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.intervals import RUNS_FOR_INTERVAL
from tfscaling.estimation.run_counts import KEPT_RUNS
from tfscaling.estimation.samples import INCONCLUSIVE, TOO_FEW
from tfscaling.record.metrics import FINISH_TIME


def repeats_to_settle(study: Study, answer: Answer) -> int | None:
    """Return the total number of runs of each configuration that may decide an open answer.

    Args:
        study: The evidence.
        answer: The answer.

    Returns:
        The number of runs; None if nothing is open, or if more runs do not help.
    """
    is_unknown = answer.goal == FINISH_TIME and not answer.candidates_with_value
    if answer.support == TOO_FEW or is_unknown:
        return RUNS_FOR_INTERVAL
    if answer.support != INCONCLUSIVE:
        return None
    own = {each.point for each in answer.candidates}
    planned = Counter(
        run.spec.point
        for run in study.manifest.runs
        if not run.extra_repeat and run.spec.point in own
    )
    most = max(planned.values(), default=0)
    if (answer.candidates_with_value and not answer.is_near_best) or answer.has_undecided:
        return max(
            2 * most, KEPT_RUNS * (answer.limits is not None and not answer.leader_keeps_limits)
        )
    return None if answer.leader_keeps_limits else max(KEPT_RUNS, most)
