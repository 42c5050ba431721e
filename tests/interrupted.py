"""Trainings that are interrupted at random moments and go on, on one rank or several.

Each attempt makes its model, optimizer and data anew, as a process of its own would.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tfscaling.launch import checkpoint_folder
from tfscaling.launch.checkpoint_folder import CheckpointState, InterruptedTrainingError
from tfscaling.record.attempts import Beginning
from tfscaling.record.events import EventLog, EventName
from tfscaling.study.config_types import Recipe
from tfscaling.train import checkpoints as module
from tfscaling.train.checkpoints import Checkpoints, Training
from tfscaling.train.loop import TrainingLoop, TrainingResult

#: From which the moments follow.
SEED = 20261122
#: Of an epoch.
STEPS = 6


class CrashError(Exception):
    """A rank dies without a word."""


class Moment(NamedTuple):
    """After so many steps of the training the last rank is told to end, or all ranks crash."""

    steps: int
    is_crash: bool


def moments(steps: int, count: int) -> list[Moment]:
    """Random ones in the order of time, every second one a crash."""
    drawn = sorted(random.Random(SEED).sample(range(2, steps), count))
    return [Moment(step, bool(number % 2)) for number, step in enumerate(drawn)]


class Interrupted(Checkpoints):
    """Checkpoints of a training that ends at a moment."""

    moment: Moment | None = None

    def after_step(
        self, training: Training, steps: int, state: Callable[[], CheckpointState]
    ) -> None:
        self._interrupt(steps)
        super().after_step(training, steps, state)

    def after_epoch(self, training: Training, state: CheckpointState) -> None:
        self._interrupt(state.steps)
        super().after_epoch(training, state)

    def _interrupt(self, steps: int) -> None:
        if self.moment is None or steps < self.moment.steps:
            return
        if self.moment.is_crash:
            raise CrashError
        if self._rank == self.ranks - 1:
            os.kill(os.getpid(), signal.SIGTERM)


class Trained(NamedTuple):
    """A training that was interrupted, and the steps from which its attempts went on."""

    trainer: TrainingLoop
    result: TrainingResult
    begun: list[int]


def train(
    make: Callable[[], TrainingLoop],
    folder: Path,
    recipe: Recipe,
    times: int = 3,
    place: tuple[int, int] = (0, 1),
) -> Trained:
    """Train with so many interruptions; `place` is this rank and the number of ranks.

    All ranks ask one another after each step.
    """
    rank, ranks = place
    module.AGREEMENT_INTERVAL_S = 0.0
    begun = []
    beginning = Beginning(folder=str(folder), attempt=1, first_attempt=1)
    steps = recipe.epochs * STEPS
    for number, moment in enumerate([*moments(steps, times), None], 1):
        trainer = make()
        attempt = folder / f"attempt={number}"
        attempt.mkdir(parents=True, exist_ok=True)
        checkpoints = Interrupted(attempt, beginning, rank, ranks, recipe)
        checkpoints.moment = moment
        begun.append(beginning.steps)
        events = EventLog(attempt / f"rank-{rank}.events.jsonl", rank)
        try:
            result = trainer.train(events, lambda _: None, checkpoints)
        except InterruptedTrainingError as error:
            while not (error.checkpoint and error.checkpoint.exists()):
                time.sleep(0.01)  # the first rank gives it its name
        except CrashError:
            pass
        else:
            trainer.evaluate(result, events, EventName.EVALUATED)
            return Trained(trainer, result, begun)
        found = checkpoint_folder.list_checkpoints(folder)
        left = found[-1] if found else (0, None)
        name = left[1].name if left[1] is not None else None
        beginning = Beginning(
            folder=str(folder), attempt=number + 1, first_attempt=1, checkpoint=name, steps=left[0]
        )
    raise AssertionError("interrupted to the end")


def outcome(trainer: TrainingLoop, result: TrainingResult) -> dict[str, Any]:
    """All that must not depend on interruptions."""
    return {
        "epochs": [[e.epoch, e.loss, e.accuracy, e.metrics] for e in result.epochs],
        "tests": [[e.test_accuracy, e.test_metrics] for e in result.epochs],
        "test": [result.test_loss, result.test_accuracy],
        "examples_trained": result.examples_trained,
        "weights": [np.asarray(weight).tolist() for weight in trainer.model.get_weights()],
        "state": [np.asarray(v).tolist() for v in trainer.model.non_trainable_variables],
    }
