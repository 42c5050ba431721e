"""What a rank's program left of its own accord: steps, examples, epochs, quality; one type for all.

A program reports in one of several ways (docs/observe.md); each has a reader here, and all give
`Observed`. Times are seconds since the epoch by the clock of the rank's host; counts are totals
since the program's start, of this rank alone.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class ObservationError(ValueError):
    """What a program left cannot be read: the file, the line (from 1) and what is wrong."""

    def __init__(self, path: Path, message: str, line: int | None = None) -> None:
        place = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{place}: {message}")


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank had done at `time_s`, since its start."""

    time_s: float
    steps: int
    #: Of this rank alone; None if the program does not say.
    examples: int | None = None
    #: How long the program stood and waited for its next batch; likewise.
    input_wait_s: float | None = None


class ObservedEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch of training; its values were fetched from the device before `time_s`."""

    epoch: int
    #: When its last step had ended; None where the way has no times (patterns on the output).
    time_s: float | None
    #: By the names that the program gives them; None where not finite.
    metrics: dict[str, float | None]
    #: Totals at its end; None if the program does not say.
    steps: int | None = None
    examples: int | None = None


class ObservedEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation on held-out examples."""

    #: The epoch after which it took place; 0 before the first.
    epoch: int
    begin_s: float | None
    #: When it had ended; None as for an epoch.
    time_s: float | None
    #: By the program's names, without a prefix such as `val_`; None where not finite.
    metrics: dict[str, float | None]


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a rank's training; None or nothing where the program does not tell."""

    #: The packages were imported.
    imported_s: float | None = None
    #: The first step had ended.
    first_step_s: float | None = None
    #: The last step had ended.
    last_step_s: float | None = None
    steps: int | None = None
    #: Of this rank alone.
    examples: int | None = None
    #: Of all ranks together, where the program counts so (MLPerf's `samples_count`).
    examples_of_all_ranks: int | None = None
    input_wait_s: float | None = None
    epochs: tuple[ObservedEpoch, ...] = ()
    evaluations: tuple[ObservedEvaluation, ...] = ()
    #: Totals in the order of time, the first after the first step: what lies between two of them
    #: is a window. On GPUs only those at an epoch's `time_s` end in a value that was fetched.
    windows: tuple[Totals, ...] = ()
    #: Sentences for the record.
    warnings: tuple[str, ...] = ()


#: A metric with one of these before its name is of held-out examples.
_HELD_OUT = ("test_", "val_", "validation_", "eval_")


def is_held_out(metric: str) -> bool:
    """Whether a program's name of a metric says that it is of held-out examples."""
    return metric.startswith(_HELD_OUT)


def prefix_free(metric: str) -> str:
    """`accuracy` of `val_accuracy`; another name as it is."""
    prefix = next((prefix for prefix in _HELD_OUT if metric.startswith(prefix)), "")
    return metric.removeprefix(prefix)
