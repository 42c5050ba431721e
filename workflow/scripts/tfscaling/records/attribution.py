"""What holds a step back: its parts, from steps with and without input and synchronisation.

After the training each rank makes blocks of steps in four ways, in a random order that is the same
on all ranks, several rounds of them. What real input adds to a step is input. Of a step on a batch
that is there, forward and backward pass of the median rank are computation; what the slowest rank
takes above that is waiting for it; the rest is communication, with the update of the weights.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from tfscaling.records.rank_report import AttributionRound, RankReport, TrainingReport
from tfscaling.records.run_record import Attribution, Share


def attribution(reports: Sequence[RankReport]) -> Attribution | None:
    """The parts of a step from what all ranks measured; None if it was not asked for."""
    measured = {
        (report.rank, report.host): report.attribution
        for report in reports
        if isinstance(report, TrainingReport) and report.attribution
    }
    if not measured:
        return None
    rounds = [_parts(of_ranks) for of_ranks in zip(*measured.values(), strict=True)]
    steps_s = [sum(parts.values()) for parts in rounds]
    shares = {
        name: _share([parts[name] / step_s for parts, step_s in zip(rounds, steps_s, strict=True)])
        for name in rounds[0]
    }
    # without synchronisation each rank's own input shows, and not that of the slowest
    inputs_s = {
        rank: statistics.median(each.real_alone_s - each.kept_alone_s for each in own)
        for rank, own in measured.items()
    }
    slowest = max(inputs_s, key=lambda rank: inputs_s[rank])
    return Attribution(
        rounds=len(rounds),
        step_time_s=statistics.median(steps_s),
        input_rank=slowest[0],
        input_host=slowest[1],
        **shares,
    )


def _parts(of_ranks: Sequence[AttributionRound]) -> dict[str, float]:
    """Seconds of a step in one round, by the names of Attribution's shares; they sum to the step.

    The ranks of a step end together, so that of its duration their mean is taken.
    """

    def mean(seconds: Callable[[AttributionRound], float]) -> float:
        return statistics.fmean(map(seconds, of_ranks))

    alone_s = [each.kept_alone_s for each in of_ranks]
    middle_s, slowest_s = statistics.median(alone_s), max(alone_s)
    real_s, kept_s = mean(lambda each: each.real_s), mean(lambda each: each.kept_s)
    return {
        "input": real_s - kept_s,
        "computation": middle_s,
        "stragglers": slowest_s - middle_s,
        "communication": kept_s - slowest_s,
    }


def _share(of_rounds: Sequence[float]) -> Share:
    return Share(median=statistics.median(of_rounds), low=min(of_rounds), high=max(of_rounds))
