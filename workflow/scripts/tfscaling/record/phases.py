"""The phases of a run: one list, from which schema, metrics, tables and plots are derived.

A phase ends when the last rank has passed the phase's event, and the next one begins there. So the
phases of the wall time follow one another without a gap and add up to it.
"""

from __future__ import annotations

import functools
import typing
from dataclasses import dataclass
from typing import Annotated, Any

from tfscaling.record.events import EventName
from tfscaling.record.rank_report import Amount, Part


@dataclass(frozen=True)
class Phase:
    """Properties of a phase of a run. Its duration, in seconds, is a field of `Phases`.

    Attributes:
        label: The phase's name in legends.
        event: The event of a rank that ends the phase; None if no event does.
        digits: Decimals in tables.
        of_wall_time: Whether the phase is part of the run's wall time.
        of_execution_time: Whether the phase is part of the execution time.
        of_all_runs: False if only programs, or runs that write checkpoints, have the phase.
    """

    label: str
    event: EventName | None = None
    digits: int = 2
    of_wall_time: bool = True
    of_execution_time: bool = False
    of_all_runs: bool = True

    unit = "s"

    @property
    def title(self) -> str:
        """The phase's name in headings, such as `launch time`."""
        return f"{self.label} time"


#: A phase that is part of the execution time.
_execution_phase = functools.partial(Phase, of_execution_time=True)


class Phases(Part, frozen=True, kw_only=True):
    """Durations of a run's phases in seconds, each until the last rank ends the phase.

    Phases of programs that were not observed are null.
    """

    queue_time_s: Annotated[Amount | None, Phase("queue", digits=1, of_wall_time=False)]
    """From the submission of the Slurm job to the allocation of its nodes; to the start of the job
    if boot_time_s is null. Null without Slurm."""
    boot_time_s: Annotated[Amount | None, Phase("boot", digits=1, of_wall_time=False)]
    """From the allocation of the nodes to the start of the job; 0 if Slurm does not have to boot
    nodes. Null without Slurm, or if Slurm does not report these times."""
    launch_time_s: Annotated[Amount, Phase("launch", EventName.START)]
    """From the start of the launcher until the last rank runs its first line."""
    import_time_s: Annotated[Amount | None, _execution_phase("import", EventName.IMPORTED)]
    """From a rank's first line until TensorFlow is imported."""
    rendezvous_time_s: Annotated[
        Amount | None, _execution_phase("rendezvous", EventName.RENDEZVOUS)
    ]
    """From the import of TensorFlow until all ranks have created the strategy."""
    data_time_s: Annotated[Amount | None, _execution_phase("data", EventName.DATA)]
    """From the strategy's creation until the dataset is read."""
    build_time_s: Annotated[Amount | None, _execution_phase("build", EventName.BUILT)]
    """From the end of reading the dataset until the model is built and the data is on the
    devices."""
    preparation_time_s: Annotated[
        Amount | None, _execution_phase("preparation", of_all_runs=False)
    ] = None
    """From the imports of a user's program, or its start, until its first step has ended on all
    ranks; null for the workflow's own trainer and if no step was observed."""
    first_step_time_s: Annotated[
        Amount | None, _execution_phase("first step", EventName.FIRST_STEP)
    ]
    """The first execution of steps, with tracing and compilation."""
    train_time_s: Annotated[Amount | None, _execution_phase("train", EventName.TRAINED, digits=3)]
    """All further steps: the steady state."""
    program_time_s: Annotated[
        Amount | None, _execution_phase("program", digits=3, of_all_runs=False)
    ] = None
    """From the start of a user's program on the last rank to its end on the last rank, without the
    phases and evaluations that the program reports; null for the built-in trainer."""
    checkpoint_time_s: Annotated[
        Amount | None, _execution_phase("checkpoints", digits=3, of_all_runs=False)
    ] = None
    """Time to write checkpoints and, if the run resumed from one, to read it and find its place in
    the data; null for runs that write none."""
    evaluation_time_s: Annotated[Amount | None, Phase("evaluation", EventName.EVALUATED)]
    """Evaluation on held-out examples, after the training and between epochs. It is not part of
    execution_time_s."""
    probe_time_s: Annotated[Amount | None, Phase("probe", EventName.PROBED)]
    """Steps without communication, to measure the computation alone, after the training: at most
    5 % of the training, or 3 s. They are not part of execution_time_s."""
    teardown_time_s: Annotated[Amount, Phase("teardown")]
    """From the last event of the ranks until all ranks have ended and are checked."""
    execution_time_s: Annotated[Amount, Phase("execution", digits=3, of_wall_time=False)]
    """From the trainer's first line to the end of training, without evaluations. For a program:
    from its start on the first rank to its end on the last, without observed evaluations."""

    @property
    def wall_time_s(self) -> float:
        """Seconds from the launcher's start to the end of the teardown, just before the record."""
        return sum(getattr(self, name) or 0.0 for name in WALL_PHASES)

    def unknown_phases(self) -> list[str]:
        """Return the names of the built-in trainer's phases that have no duration."""
        return [name for name in TRAINER_PHASES if getattr(self, name) is None]


def _list_phases() -> dict[str, Phase]:
    """Return name → phase for each field of `Phases`, in their order."""
    hints: dict[str, Any] = typing.get_type_hints(Phases, include_extras=True)
    return {name: hint.__metadata__[-1] for name, hint in hints.items()}


#: Key in records and column in tables → phase, in the order of time.
PHASES: dict[str, Phase] = _list_phases()
#: Names of the phases that sum to the wall time of a run.
WALL_PHASES = tuple(name for name, phase in PHASES.items() if phase.of_wall_time)
#: Names of the phases that every run of the workflow's own trainer has.
TRAINER_PHASES = tuple(name for name in WALL_PHASES if PHASES[name].of_all_runs)
#: The events that end a phase, in the order in which a rank passes them.
EVENTS = tuple(phase.event for phase in PHASES.values() if phase.event)
