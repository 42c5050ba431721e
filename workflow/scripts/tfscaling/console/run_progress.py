"""How far a run is, from the events that its first rank writes as it goes."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfscaling.files import strict_json
from tfscaling.records.phases import PHASES, TRAINER_PHASES
from tfscaling.records.program_results import ENDED, STARTED
from tfscaling.study.run_spec import RunSpec

#: Event → the key of the phase that it begins, as that which it ends is followed by the next.
_PHASE_AFTER = {
    PHASES[name].event: after
    for name, after in itertools.pairwise(TRAINER_PHASES)
    if PHASES[name].event
}
#: The same of a user's program, of which a rank sees the start, and its steps if it tells them.
_PHASE_OF_PROGRAM_AFTER = {
    STARTED: "program_time_s",
    "steps": "train_time_s",
    ENDED: "teardown_time_s",
}
#: What a run does in a phase, where the phase's name alone does not say it.
_DOES = {
    "import_time_s": "importing TensorFlow",
    "rendezvous_time_s": "rendezvous of the ranks",
    "data_time_s": "reading the data",
    "build_time_s": "building the model",
    "first_step_time_s": "first step, with compilation",
    "program_time_s": "the program runs",
    "train_time_s": "training",
    "evaluation_time_s": "evaluation",
    "probe_time_s": "measuring computation alone",
    "teardown_time_s": "ranks are ending",
}


@dataclass
class _Lines:
    """The lines that a file has got since it was looked at last."""

    path: Path
    offset: int = 0

    def new(self) -> list[dict[str, Any]]:
        """Complete lines that are events; none if the file is not there, or not any more."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                text = file.read()
        except OSError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self.offset += len(whole)
        found = []
        for line in whole.splitlines():
            try:
                event = strict_json.loads(line.decode())
            except ValueError:
                continue
            if isinstance(event, dict) and {"event", "time_s"} <= event.keys():
                found.append(event)
        return found


@dataclass
class RunProgress:
    """What is known of a run in `folder` that is being made; `update` looks again.

    Times are seconds since the epoch by the clock of the rank's host.
    """

    spec: RunSpec
    folder: Path
    started_s: float | None = None
    #: The key of the phase in which the first rank is.
    phase: str = ""
    #: The epoch that is being trained.
    epoch: int = 0
    loss: float | None = None
    #: The part of the training that is done, from 0 to 1, and when this was so.
    done: float = 0.0
    done_s: float = math.nan
    _first_step_s: float | None = None
    _steps_per_epoch: int | None = None
    _earlier: frozenset[Path] = frozenset()
    _files: list[_Lines] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._earlier = frozenset(self.folder.glob("attempt=*"))
        self._steps_per_epoch = self.spec.recipe.steps_per_epoch

    @property
    def epochs(self) -> int:
        return self.spec.recipe.epochs

    @property
    def does(self) -> str:
        """What the first rank does, in words."""
        if self.phase == "train_time_s" and self.epoch:
            return f"epoch {self.epoch}/{self.epochs}"
        return _DOES.get(self.phase, "starting")

    def update(self) -> None:
        """Read what the run has written since the last time."""
        if not self._files:
            attempts = set(self.folder.glob("attempt=*")) - self._earlier
            if not attempts:
                return
            newest = max(attempts, key=lambda path: int(path.name.partition("=")[2]))
            # of a user's program the second says how far it is
            self._files = [
                _Lines(newest / "rank-0.events.jsonl"),
                _Lines(newest / "rank-0.observed.jsonl"),
            ]
        for file in self._files:
            for event in file.new():
                self._note(event)

    def _note(self, event: dict[str, Any]) -> None:
        kind, time_s = event["event"], float(event["time_s"])
        if self.started_s is None:
            self.started_s = time_s
        phase_after = _PHASE_OF_PROGRAM_AFTER if self.spec.recipe.program else _PHASE_AFTER
        self.phase = phase_after.get(kind, self.phase)
        if kind == "data" and event.get("train_examples"):
            examples = event["train_examples"]
            self._steps_per_epoch = math.ceil(examples / self.spec.global_batch_size)
        elif kind == "first_step":
            self._first_step_s = time_s
            self.epoch = 1
        elif kind == "progress" and "epoch" in event:
            self.epoch = event["epoch"]
            if self._steps_per_epoch:
                part = min(1.0, event.get("step", 0) / self._steps_per_epoch)
                self._set_done(self.epoch - 1 + part, time_s)
        elif kind == "epoch":
            self.epoch = min(event["epoch"] + 1, self.epochs)
            self.loss = event.get("loss", event.get("metrics", {}).get("loss", self.loss))
            self._set_done(event["epoch"], time_s)

    def _set_done(self, epochs: float, time_s: float) -> None:
        whole, stop = float(self.epochs), self.spec.recipe.stop_after_steps
        if stop is not None and self._steps_per_epoch:
            whole = min(whole, stop / self._steps_per_epoch)
        self.done, self.done_s = min(1.0, epochs / whole), time_s

    def end_s(self) -> float | None:
        """When the training is expected to end, from the pace since its first step."""
        begin_s = self.started_s if self._first_step_s is None else self._first_step_s
        if begin_s is None or not self.done > 0 or self.done_s <= begin_s:
            return None
        return begin_s + (self.done_s - begin_s) / self.done
