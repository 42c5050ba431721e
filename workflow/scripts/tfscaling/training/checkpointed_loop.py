"""Epochs of a training that writes checkpoints and goes on from them."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tfscaling.jobs.checkpoint_folder import State
from tfscaling.records.events import EventLog
from tfscaling.study.run_spec import RunSpec
from tfscaling.training.checkpoints import Checkpoints, Saved, went_on
from tfscaling.training.loop import TrainingLoop
from tfscaling.training.measured import Result


@dataclass
class Begun:
    """The epoch that is being trained: what of it an earlier attempt did.

    `step` steps with so many `examples`, in `before_s`; `steps` are those of the epochs before it,
    `steps_per_epoch` those of the first one, 0 while they are not known. `written_s` is what
    checkpoints had taken when this attempt began it.
    """

    step: int = 0
    steps: int = 0
    examples: int = 0
    before_s: float = 0.0
    steps_per_epoch: int = 0
    written_s: float = 0.0


class CheckpointedLoop(TrainingLoop):
    """One rank's epochs, of which an earlier attempt may have trained some."""

    def __init__(self, strategy: Any, replicas: int, spec: RunSpec) -> None:
        super().__init__(strategy, replicas, spec)
        self._checkpoints: Checkpoints | None = None
        self._begun = Begun()

    @abstractmethod
    def saved(self) -> Saved:
        """The variables that a checkpoint holds, in the same order in each attempt and rank."""

    @abstractmethod
    def agreed(self, values: Sequence[float]) -> list[float]:
        """The means of three values over the replicas; all ranks wait for one another."""

    @abstractmethod
    def _skip(self, state: State, events: EventLog) -> None:
        """Go to the place in the data that a checkpoint is of."""

    def train(
        self,
        events: EventLog,
        report: Callable[[str], None],
        checkpoints: Checkpoints | None = None,
    ) -> Result:
        """Train all epochs, or those that are left after the checkpoint to go on from.

        Raises InterruptedTrainingError if a signal asks `checkpoints` for the end.
        """
        self._checkpoints = checkpoints
        if checkpoints is None:
            return super().train(events, report)
        with checkpoints.listening():
            return super().train(events, report)

    def _epochs(self, result: Result, events: EventLog) -> Iterator[int]:
        """Those from the checkpoint on, with one written after each epoch where it is due."""
        last = self.recipe.epochs
        for epoch in range(self._go_on(result, events), last + 1):
            yield epoch
            if self._checkpoints is not None and epoch < last:
                self._after_epoch(self._checkpoints, result, epoch)

    def _go_on(self, result: Result, events: EventLog) -> int:
        """The epoch to begin with: where there is a checkpoint, that which it is of."""
        checkpoints = self._checkpoints
        self._begun = Begun()
        if checkpoints is None or (state := checkpoints.restore(self)) is None:
            return 1
        with checkpoints.reading():
            self._skip(state, events)
        result.epochs += state.epochs
        result.gradient_norms += state.gradient_norms
        result.examples_trained = state.examples_trained
        result.went_on = went_on(state)
        self._begun = Begun(
            step=state.step,
            steps=state.steps - state.step,
            examples=state.examples - state.examples_trained,
            before_s=state.epoch_time_s,
            steps_per_epoch=state.steps_per_epoch,
        )
        self.train_examples = self.train_examples or state.train_examples
        return state.epoch

    def _begin_epoch(self, epoch: int, result: Result) -> None:
        begun, since = self._begun, result.went_on
        if self._checkpoints is not None:
            begun.written_s = self._checkpoints.written_s
        if since is None or epoch > since.epoch:
            begun.step, begun.examples, begun.before_s = 0, 0, 0.0
        if begun.step:  # the sums are those of the epoch's first steps
            self._start_clock()
        else:
            super()._begin_epoch(epoch, result)

    def _epoch_s(self, now_s: float) -> float:
        """Duration of the epoch so far, in all attempts, without checkpoints."""
        begun = self._begun
        written_s = self._checkpoints.written_s - begun.written_s if self._checkpoints else 0.0
        return begun.before_s + super()._epoch_s(now_s) - written_s

    def _after_step(self, result: Result, epoch: int, step: int, examples: int) -> None:
        """To be called after `step` steps of an epoch that has more; they had so many examples."""
        if self._checkpoints is not None:
            self._checkpoints.after_step(
                self,
                self._begun.steps + step,
                lambda: self._state(result, epoch, step, examples),
            )

    def _after_epoch(self, checkpoints: Checkpoints, result: Result, epoch: int) -> None:
        last, begun = result.steps[-1], self._begun
        steps = last.first_step + last.steps
        begun.steps += steps
        begun.steps_per_epoch = begun.steps_per_epoch or steps
        checkpoints.after_epoch(self, self._state(result, epoch + 1, 0, 0))

    def _end(self, result: Result, events: EventLog) -> None:
        if self._checkpoints is not None:
            self._checkpoints.tell(events)
        super()._end(result, events)

    def _state(self, result: Result, epoch: int, step: int, examples: int) -> State:
        """What a checkpoint after `step` steps of an epoch has besides variables."""
        assert self._checkpoints is not None
        epoch_s = self._epoch_s(time.perf_counter()) if step else 0.0
        return State(
            ranks=self._checkpoints.ranks,
            epoch=epoch,
            step=step,
            steps=self._begun.steps + step,
            examples=result.examples_trained + examples,
            epoch_time_s=epoch_s,
            trained_s=epoch_s + sum(row.duration_s or 0.0 for row in result.epochs),
            train_examples=self.train_examples,
            steps_per_epoch=self._begun.steps_per_epoch,
            examples_trained=result.examples_trained,
            epochs=tuple(result.epochs),
            gradient_norms=tuple(result.gradient_norms),
        )
