"""Projection of the complete training from the steps of a short run.

A short run has `stop_after_steps`, or fewer epochs than `question.whole_training`. The complete
training takes the time of the short run, the remaining steps at the mean of the steady ones after
the first execution, and the remaining turns of epochs and evaluations. If the steps change along
the short run (a warm-up, a cache that fills), only steps after the change are projected, and the
effect of the change on the mean is an error of the time. If they still change after it, nothing is
projected. One run shows this by many steps; a few epochs show it by all runs of a configuration
together.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tfscaling.record.phases import Phases
from tfscaling.record.rank_report import Execution, TrainingReport
from tfscaling.record.run_record import RunRecord, ShortRun, StepBlock
from tfscaling.study.config_types import PROJECTABLE_EPOCHS_MIN
from tfscaling.study.run_spec import RunSpec

#: Highest number of blocks into which the steps of a run are put. The times of blocks scatter
#: independently: a wait that lasts some steps is in one block.
BLOCKS_MAX = 20
#: Smallest change of the steps' time, as a fraction, that matters.
CHANGE_MIN = 0.02
#: Smallest change, in standard errors, that is no scatter: without a change 1 % of runs exceed it.
CHANGE_ERRORS_MIN = 5.0
#: Lowest number of blocks before a change, and after it.
_BLOCKS_MIN = 3
#: Steps are enough for a projection if they took this many seconds, and their mean has this
#: standard error as a fraction: half of the error of projections that a search assumes.
ENOUGH_S, ENOUGH_ERROR = 30.0, 0.01


class Trend(NamedTuple):
    """How the time of a step changed along the steady steps of a short run.

    Attributes:
        change: Fraction by which steps before block `place` are slower than later ones; negative if
            they are faster, 0 if the difference may be scatter.
        place: Index of the first block after the change; 0 without a change.
        is_over: Whether the times of the blocks from `place` on are stable.
    """

    change: float
    place: int = 0
    is_over: bool = True

    @property
    def warning(self) -> str:
        """A sentence about the change, for readers of the projection; "" without a change."""
        if not self.change:
            return ""
        text = f"the step time of the short run changed by {-self.change:+.0%} along its steps"
        return text if self.is_over else f"{text} and still changes: nothing is projected"


class ProjectedTraining(NamedTuple):
    """The durations of the complete training, projected from a short run.

    Attributes:
        phases: The projected durations of its phases.
        error_s: Standard error of the projected time in seconds, from scatter and trend of the
            steps.
        trend: How the time of a step changed along the short run.
    """

    phases: Phases
    error_s: float
    trend: Trend


def describe_short_run(spec: RunSpec, reports: Sequence[TrainingReport]) -> ShortRun | None:
    """Return how much of the complete training a short run trained, for its record.

    Args:
        spec: The specification of the run.
        reports: Reports of the ranks that trained.

    Returns:
        None for complete and diverged runs.
    """
    if not reports or (stopped := reports[0].stopped) is None:
        return None
    chief, epochs = reports[0], spec.recipe.epochs
    of_first = stopped.steps_per_epoch * (len(chief.epochs) - 1)
    last = chief.steps[-1]
    steps, whole = of_first + last.first_step + last.steps, stopped.steps_per_epoch * epochs
    examples = chief.train_examples * epochs or round(chief.examples_trained / steps * whole)
    interval = spec.recipe.evaluation_interval_epochs or epochs
    return ShortRun(
        steps=steps,
        steps_of_whole=whole,
        epochs=len(chief.epochs),
        epochs_of_whole=epochs,
        examples_of_whole=examples,
        evaluations=stopped.evaluations,
        evaluations_of_whole=(epochs - 1) // interval + 1,
        evaluation_time_s=chief.epochs[-1].evaluation_time_s or 0.0,
        epoch_turn_s=max(r.stopped.epoch_turn_s for r in reports if r.stopped is not None),
        steady=join_steps_to_blocks(chief.steps[1:]),
    )


def join_steps_to_blocks(executions: Sequence[Execution]) -> tuple[StepBlock, ...]:
    """Join consecutive executions of steps to at most BLOCKS_MAX blocks of about equal size."""
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


def treat_as_short_run(record: RunRecord, epochs: int) -> RunRecord:
    """Return a complete run's record as if it were the beginning of a longer training.

    The steps after the first epoch count as steady. The record is returned unchanged if it has too
    few epochs, if ends of epochs or numbers of steps or examples are unknown, or if the run was
    short or resumed.

    Args:
        record: The record of a complete run.
        epochs: Number of epochs of the longer training.
    """
    done, per_epoch = record.metrics.epochs, record.derived.steps_per_epoch
    ends_s = [epoch.ended_s for epoch in done if epoch.ended_s is not None]
    examples = record.metrics.examples_trained
    has_ends = PROJECTABLE_EPOCHS_MIN <= len(done) == len(ends_s)
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


def project_training(record: RunRecord, steady_from: int = 0) -> ProjectedTraining | None:
    """Return the projected durations of the complete training; None if the run was complete.

    Args:
        record: Record of a short run.
        steady_from: Index of the first block to use. Other runs of the configuration show that
            earlier blocks differ.
    """
    short = record.short_run
    if short is None:
        return None
    step_s, error_s, trend = estimate_step_after_change(short.steady, steady_from)
    left = short.steps_of_whole - short.steps
    later_s = left * step_s + (short.epochs_of_whole - short.epochs) * short.epoch_turn_s
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
    return ProjectedTraining(phases, left * error_s, trend)


def are_steps_enough(executions: Sequence[Execution]) -> bool:
    """Return whether a complete training can be projected from these steady steps."""
    step_s, error_s, trend = estimate_step_after_change(join_steps_to_blocks(executions))
    is_sure = trend.is_over and error_s <= ENOUGH_ERROR * step_s
    return is_sure and sum(each.duration_s for each in executions) >= ENOUGH_S


def estimate_step_after_change(
    steady: Sequence[StepBlock], steady_from: int = 0
) -> tuple[float, float, Trend]:
    """Estimate the time of a step from the blocks after a change, or from all blocks.

    Args:
        steady: Blocks of steady steps.
        steady_from: Index of the first block after a change that other runs show.

    Returns:
        Seconds of a step, their standard error in seconds, and the change.
    """
    values = [block.duration_s / block.steps for block in steady]
    change, place = _find_level_shift(values)
    later = values[place:]
    is_over = not change or (len(later) > _BLOCKS_MIN and not _find_level_shift(later)[0])
    if steady_from > place:
        place, later = steady_from, values[steady_from:]
        change = statistics.fmean(values[:place]) / statistics.fmean(later) - 1
        is_over = is_over and len(later) > 1
    step_s = _mean_step_time_s(steady[place:])
    scatter_s = statistics.stdev(later) / math.sqrt(len(later)) if len(later) > 1 else 0.0
    error_s = math.hypot(scatter_s, _mean_step_time_s(steady) - step_s)
    return step_s, error_s, Trend(change, place, is_over)


def _mean_step_time_s(blocks: Sequence[StepBlock]) -> float:
    """Return the mean duration of a step over these blocks, in seconds."""
    return sum(block.duration_s for block in blocks) / sum(block.steps for block in blocks)


def _find_level_shift(values: Sequence[float]) -> tuple[float, int]:
    """Find the block at which the level of the values changes most certainly.

    Args:
        values: Seconds per step, block by block.

    Returns:
        The median before the change divided by the median after it, minus 1; and the index of the
        first value after it. (0, 0) without a change beyond scatter, which is estimated from
        successive values.
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
