"""How far a run is, from the events that its first rank writes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfscaling.record import events
from tfscaling.spec.run_spec import RunSpec

#: Event → what the run does next.
_DOES_AFTER = {
    "start": "importing TensorFlow",
    "imported": "connecting the ranks",
    "rendezvous": "reading the data",
    "data": "building the model",
    "built": "first step, with compilation",
    "first_step": "training",
    "trained": "evaluation",
    "evaluated": "timing the computation alone",
}


@dataclass
class RunProgress:
    """Progress of one attempt at a run, in the attempt's folder; `update` reads what is new.

    Times are seconds since the epoch by the clock of the first rank's host. `limit_s` is the time
    that Slurm allows the attempt.
    """

    spec: RunSpec
    scratch: Path
    limit_s: float | None = None
    started_s: float | None = None
    #: What the first rank does.
    does: str = "starting"
    epoch: int = 0
    loss: float | None = None
    #: When the training will end at the pace since its first step; None while unknown.
    end_s: float | None = None
    _steps_per_epoch: int | None = None
    _read: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._steps_per_epoch = self.spec.recipe.steps_per_epoch
        self._trains_s = math.nan

    def update(self) -> None:
        """Read the events that were written since the last call."""
        for name in ("rank-0.events.jsonl", "rank-0.observed.jsonl"):
            found, self._read[name] = events.new(self.scratch / name, self._read.get(name, 0))
            for event in found:
                self._note(event["event"], float(event["time_s"]), event)

    def _note(self, kind: str, time_s: float, event: dict[str, Any]) -> None:
        if self.started_s is None:
            self.started_s = self._trains_s = time_s
        if self.spec.recipe.program:
            self.does = "the program runs"
        else:
            self.does = _DOES_AFTER.get(kind, self.does)
        if kind == "data" and event.get("train_examples"):
            examples = event["train_examples"]
            self._steps_per_epoch = math.ceil(examples / self.spec.global_batch_size)
        elif kind == "first_step":
            self._trains_s = time_s
        elif kind == "progress" and "epoch" in event and self._steps_per_epoch:
            part = min(1.0, event.get("step", 0) / self._steps_per_epoch)
            self._reach(event["epoch"] - 1 + part, time_s)
        elif kind == "epoch":
            self.loss = event.get("loss", event.get("metrics", {}).get("loss", self.loss))
            self._reach(event["epoch"], time_s)

    def _reach(self, epochs: float, time_s: float) -> None:
        """Note how many epochs were trained at a moment."""
        planned, stop = float(self.spec.recipe.epochs), self.spec.recipe.stop_after_steps
        self.epoch = min(int(epochs) + 1, self.spec.recipe.epochs)
        self.does = f"epoch {self.epoch}/{self.spec.recipe.epochs}"
        if stop is not None and self._steps_per_epoch:
            planned = min(planned, stop / self._steps_per_epoch)
        if epochs > 0 and time_s > self._trains_s:
            self.end_s = self._trains_s + (time_s - self._trains_s) * max(1.0, planned / epochs)

    @property
    def limit_end_s(self) -> float:
        """When Slurm ends this attempt; infinite without a limit."""
        return (self.started_s or math.inf) + (self.limit_s or math.inf)
