"""What holds a step back: its parts, from steps with and without input and synchronisation.

After the training each rank makes blocks of steps in four ways, in a random order that is the same
on all ranks, several rounds of them. Forward and backward pass of the median rank are computation,
of an even number of ranks that of the faster one in the middle; what the slowest rank takes above
that is waiting for it. Real input and synchronisation are left
out one after the other, in both orders: each part is the mean of what it adds in the two. Batches
are made while the ranks communicate, so what goes on at the same time is shared by both, and the
longer of the two has the larger part.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from tfscaling.record.rank_report import AttributionRound, RankReport, TrainingReport
from tfscaling.record.run_record import Attribution, StepParts


def attribution(reports: Sequence[RankReport]) -> Attribution | None:
    """The parts of a step from what all ranks measured; None if it was not asked for."""
    measured = {
        (report.rank, report.host): report.attribution
        for report in reports
        if isinstance(report, TrainingReport) and report.attribution
    }
    if not measured:
        return None
    # without synchronisation each rank's own input shows, and not that of the slowest
    inputs_s = {
        rank: statistics.median(each.real_alone_s - each.kept_alone_s for each in own)
        for rank, own in measured.items()
    }
    slowest = max(inputs_s, key=lambda rank: inputs_s[rank])
    parts = _of_one_replica if _is_one_replica(reports) else _parts
    return Attribution(
        rounds=tuple(parts(of_ranks) for of_ranks in zip(*measured.values(), strict=True)),
        input_rank=slowest[0],
        input_host=slowest[1],
    )


def _is_one_replica(reports: Sequence[RankReport]) -> bool:
    return all(r.replicas == 1 for r in reports if isinstance(r, TrainingReport))


def _of_one_replica(of_ranks: Sequence[AttributionRound]) -> StepParts:
    """Of a step of one replica, which waits for no other: all but its input is computation.

    The noise of the difference is the input's, also below 0.
    """
    (own,) = of_ranks
    return StepParts(
        input_s=own.real_s - own.kept_s,
        computation_s=own.kept_s,
        stragglers_s=0.0,
        communication_s=0.0,
    )


def _parts(of_ranks: Sequence[AttributionRound]) -> StepParts:
    """Of a step in one round; they sum to the step.

    The ranks of a step end together, so that of its duration their mean is taken. It has the wait
    for the slowest rank's input, which is input and no communication.
    """

    def mean(seconds: Callable[[AttributionRound], float]) -> float:
        return statistics.fmean(map(seconds, of_ranks))

    alone_s = [each.kept_alone_s for each in of_ranks]
    # a rank's own time: between two ranks lies a part of the wait for the slower one
    middle_s, slowest_s = statistics.median_low(alone_s), max(alone_s)
    fed_s = max(each.real_alone_s for each in of_ranks)
    real_s, kept_s = mean(lambda each: each.real_s), mean(lambda each: each.kept_s)
    return StepParts(
        input_s=((real_s - kept_s) + (fed_s - slowest_s)) / 2,
        computation_s=middle_s,
        stragglers_s=slowest_s - middle_s,
        communication_s=((kept_s - slowest_s) + (real_s - fed_s)) / 2,
    )
