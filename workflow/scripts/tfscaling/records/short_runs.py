"""Short runs: what `stop_after_steps` ended, and the time of the whole training from it.

The whole takes what the short run took, the steps that are left at the mean of those after the
first execution, and as many turns of epochs and evaluations as are left. The steps are those that
the whole begins with: what changes later, such as a machine that gets hot, is not in them.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tfscaling.records.phases import Phases
from tfscaling.records.rank_report import Execution, TrainingReport
from tfscaling.records.run_record import RunRecord, ShortRun, StepBlock
from tfscaling.study.config import Recipe
from tfscaling.study.run_spec import RunSpec

#: The steps of a run are put into so many blocks, whose times scatter independently: a wait of some
#: steps is in one of them.
BLOCKS_MAX = 20


class Projected(NamedTuple):
    """The durations of the whole training, projected from those of a short run.

    `error_s` is the standard error of its time by the scatter of the steps within this run alone.
    """

    phases: Phases
    error_s: float


def of(spec: RunSpec, reports: Sequence[TrainingReport]) -> ShortRun | None:
    """What the short run did of the whole; None of a run that trained all epochs, or diverged."""
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
    """Those of the whole training: between epochs where the recipe asks for it, and the last."""
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


def projected(record: RunRecord) -> Projected | None:
    """The durations of the whole training; None of a record that is of the whole."""
    short = record.short_run
    if short is None:
        return None
    steady_steps = sum(block.steps for block in short.steady)
    step_s = sum(block.duration_s for block in short.steady) / steady_steps
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
    scatter_s = statistics.stdev(block.duration_s / block.steps for block in short.steady)
    return Projected(phases, left * scatter_s / math.sqrt(len(short.steady)))
