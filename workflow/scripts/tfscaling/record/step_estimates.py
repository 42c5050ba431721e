"""Estimates from the steps of a run: their parts, the whole training.

Parts of a step: after the training each rank makes blocks of steps in four ways, in a random order
that is the same on all ranks, in several rounds. Forward and backward pass of the median rank are
computation (with an even number of ranks, the faster one in the middle); the extra time of the
slowest rank is waiting for it. Real input and synchronisation are left out one after the other, in
both orders: each part is the mean of what it adds in the two. Batches are made while the ranks
communicate, so simultaneous work is shared by both parts, and the longer one has the larger part.

Short runs, with `stop_after_steps` or fewer epochs than `question.whole_training`: the whole
training takes what the short run took, the remaining steps at the mean of those after the first
execution, and the remaining turns of epochs and evaluations. Later changes, such as a machine that
gets hot, are not in these steps. Where the steps change along the short run itself (a warm-up, a
cache that fills), those after the change are projected, and the effect of the change on the mean is
an error of the time. Where the steps still change after it, nothing is projected.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from tfscaling.record.phases import Phases
from tfscaling.record.rank_report import (
    AttributionRound,
    Execution,
    RankReport,
    TrainingReport,
)
from tfscaling.record.run_record import Attribution, RunRecord, ShortRun, StepBlock, StepParts
from tfscaling.spec.config import WHOLE_FROM_EPOCHS, Recipe
from tfscaling.spec.run_spec import RunSpec

#: Blocks into which the steps of a run are put. Their times scatter independently: a wait of some
#: steps is in one of them.
BLOCKS_MAX = 20
#: A smaller change of the steps, as a fraction, does not matter.
CHANGE_MIN = 0.02
#: A change in standard errors from which on it is no scatter: without a change 1 % exceed it.
CHANGE_ERRORS_MIN = 5.0
#: Blocks before and after a change, at least.
_BLOCKS_MIN = 3


def attribution(reports: Sequence[RankReport]) -> Attribution | None:
    """The parts of a step from what all ranks measured; None if it was not asked for."""
    measured = {
        (report.rank, report.host): report.attribution
        for report in reports
        if isinstance(report, TrainingReport) and report.attribution
    }
    if not measured:
        return None
    # without synchronisation each rank's own input shows, not the slowest rank's
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
    """The parts of a step of one replica: all but its input is computation.

    The noise of the difference belongs to the input, also below 0.
    """
    (own,) = of_ranks
    return StepParts(
        input_s=own.real_s - own.kept_s,
        computation_s=own.kept_s,
        stragglers_s=0.0,
        communication_s=0.0,
    )


def _parts(of_ranks: Sequence[AttributionRound]) -> StepParts:
    """The parts of a step in one round; they sum to the step.

    The ranks end a step together, so the mean of their durations is taken. It includes the wait for
    the slowest rank's input, which is input and not communication.
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


class Trend(NamedTuple):
    """How the time of a step changed along the steady steps of a short run.

    `change` is by what fraction the steps before block `place` are slower than those from it on, 0
    where scatter explains it; `is_over`: those from it on do not change any more.
    """

    change: float
    place: int = 0
    is_over: bool = True

    @property
    def warning(self) -> str:
        if not self.change:
            return ""
        text = f"the step time of the short run changed by {-self.change:+.0%} along its steps"
        return text if self.is_over else f"{text} and still changes: nothing is projected"


class Projected(NamedTuple):
    """The durations of the whole training, projected from a short run.

    `error_s` is the standard error of its time by the scatter of the steps within this run, and by
    their `trend`.
    """

    phases: Phases
    error_s: float
    trend: Trend


def short_run(spec: RunSpec, reports: Sequence[TrainingReport]) -> ShortRun | None:
    """The short run's part of the whole; None if a run trained all epochs, or diverged."""
    if not reports or (stopped := reports[0].stopped) is None:
        return None
    chief, epochs = reports[0], spec.recipe.epochs
    of_first = stopped.steps_per_epoch * (len(chief.epochs) - 1)
    last = chief.steps[-1]
    steps, whole = of_first + last.first_step + last.steps, stopped.steps_per_epoch * epochs
    examples = chief.train_examples * epochs or round(chief.examples_trained / steps * whole)
    return ShortRun(
        steps=steps,
        steps_of_whole=whole,
        epochs=len(chief.epochs),
        epochs_of_whole=epochs,
        examples_of_whole=examples,
        evaluations=stopped.evaluations,
        evaluations_of_whole=_evaluations(spec.recipe),
        evaluation_time_s=chief.epochs[-1].evaluation_time_s or 0.0,
        epoch_turn_s=max(r.stopped.epoch_turn_s for r in reports if r.stopped is not None),
        steady=blocks(chief.steps[1:]),
    )


def _evaluations(recipe: Recipe) -> int:
    """Evaluations of the whole training: between epochs if the recipe requests it, and the last."""
    interval = recipe.evaluation_interval_epochs or recipe.epochs
    return (recipe.epochs - 1) // interval + 1


def blocks(executions: Sequence[Execution]) -> tuple[StepBlock, ...]:
    """The executions in order, in at most BLOCKS_MAX blocks of about as many steps."""
    number = min(BLOCKS_MAX, len(executions))
    ends = [len(executions) * place // number for place in range(number + 1)]
    parts = [executions[a:b] for a, b in itertools.pairwise(ends)]
    return tuple(
        StepBlock(
            steps=sum(each.steps for each in part),
            duration_s=sum(each.duration_s for each in part),
        )
        for part in parts
    )


def as_short(record: RunRecord, epochs: int) -> RunRecord:
    """The record of a complete run as the part of a training with this many `epochs`.

    Its steady steps are those of the epochs after the first. The record stays as it is if an end of
    an epoch, or the steps and examples, are not known.
    """
    done, per_epoch = record.metrics.epochs, record.derived.steps_per_epoch
    ends_s = [epoch.ended_s for epoch in done if epoch.ended_s is not None]
    examples = record.metrics.examples_trained
    has_ends = WHOLE_FROM_EPOCHS <= len(done) == len(ends_s)
    if not (has_ends and per_epoch and examples) or record.short_run or record.resumed:
        return record
    evaluated = [epoch.epoch for epoch in done if epoch.evaluation_time_s]
    spans_s = [end_s - start_s for start_s, end_s in itertools.pairwise(ends_s)]
    short = ShortRun(
        steps=per_epoch * len(done),
        steps_of_whole=per_epoch * epochs,
        epochs=len(done),
        epochs_of_whole=epochs,
        examples_of_whole=examples * epochs // len(done),
        evaluations=max(1, len(evaluated)),
        evaluations_of_whole=(epochs - 1) // evaluated[0] + 1 if len(evaluated) > 1 else 1,
        evaluation_time_s=done[-1].evaluation_time_s or 0.0,
        epoch_turn_s=0.0,  # the steps have their part of it
        steady=tuple(
            StepBlock(
                steps=per_epoch, duration_s=max(0.0, span_s - (epoch.evaluation_time_s or 0.0))
            )
            for span_s, epoch in zip(spans_s, done[1:], strict=True)
        ),
    )
    return msgspec.structs.replace(record, short_run=short)


def projected(record: RunRecord) -> Projected | None:
    """The durations of the whole training; None if the record is of the whole."""
    short = record.short_run
    if short is None:
        return None
    trend = _trend(short.steady)
    steady = short.steady[trend.place :]
    step_s = _step_s(steady)
    left = short.steps_of_whole - short.steps
    turns_s = (short.epochs_of_whole - short.epochs) * short.epoch_turn_s
    later_s = left * step_s + turns_s
    evaluations = short.evaluations_of_whole - short.evaluations
    found = record.phases
    phases = msgspec.structs.replace(
        found,
        train_time_s=(found.train_time_s or 0.0) + later_s,
        execution_time_s=found.execution_time_s + later_s,
        evaluation_time_s=max(
            0.0, (found.evaluation_time_s or 0.0) + evaluations * short.evaluation_time_s
        ),
    )
    scatter_s = statistics.stdev(_per_step(steady)) / math.sqrt(len(steady))
    error_s = math.hypot(scatter_s, _step_s(short.steady) - step_s)
    return Projected(phases, left * error_s, trend)


def _per_step(blocks: Sequence[StepBlock]) -> list[float]:
    return [block.duration_s / block.steps for block in blocks]


def _step_s(blocks: Sequence[StepBlock]) -> float:
    """The mean duration of a step."""
    return sum(block.duration_s for block in blocks) / sum(block.steps for block in blocks)


def _trend(steady: Sequence[StepBlock]) -> Trend:
    values = _per_step(steady)
    change, place = _change(values)
    later = values[place:]
    return Trend(change, place, not change or (len(later) > _BLOCKS_MIN and not _change(later)[0]))


def _change(values: Sequence[float]) -> tuple[float, int]:
    """By how much the values before a place are larger than those after it, and the place.

    At the place where this is surest; (0, 0) if it may be scatter, estimated by successive values.
    """
    count = len(values)
    if count < 2 * _BLOCKS_MIN:
        return 0.0, 0
    differences = (abs(b - a) for a, b in itertools.pairwise(values))
    # medians, for which disturbed blocks are no change; their error is 1.25 times the means' error
    noise = 1.25 * 1.4826 * statistics.median(differences) / math.sqrt(2)
    surest, found = 0.0, (0.0, 0)
    for place in range(_BLOCKS_MIN, count - _BLOCKS_MIN + 1):
        before, after = statistics.median(values[:place]), statistics.median(values[place:])
        error = noise * math.sqrt(1 / place + 1 / (count - place))
        size = abs(before - after)
        sure = size / max(error, 1e-9 * after)
        if size > CHANGE_MIN * after and sure > max(CHANGE_ERRORS_MIN, surest):
            surest, found = sure, (before / after - 1, place)
    return found
