"""The times of a run, from the events and reports of its ranks, on the launcher's clock.

For a program, start and end are always known; other moments only if they were observed. Observed
times are by the clock of the rank's host and are converted here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from tfscaling.record import phases
from tfscaling.record.events import Event, EventName, first_times
from tfscaling.record.phases import Phases
from tfscaling.record.rank_report import (
    ObservedEpoch,
    ObservedEvaluation,
    ProgramReport,
    RankReport,
    ServerReport,
    TrainingReport,
    first_observed,
    program_reports,
)
from tfscaling.record.run_record import HeldOutEvaluation, Metrics, SlurmJob

#: Events of a rank after an epoch was trained, and after it was evaluated.
_EPOCH_EVENTS = (EventName.EPOCH, EventName.EPOCH_EVALUATED)
#: Kind of report → the events that its rank must have.
_REQUIRED_EVENTS: dict[type[RankReport], tuple[EventName, ...]] = {
    TrainingReport: phases.EVENTS,
    ServerReport: phases.EVENTS[: phases.EVENTS.index(EventName.RENDEZVOUS) + 1],
    ProgramReport: (EventName.START, EventName.PROGRAM_STARTED, EventName.PROGRAM_ENDED),
}
#: Seconds by which sums of rounded times may exceed a duration.
CLOCK_TOLERANCE_S = 1e-3


def compute_phases(
    rank_events: Sequence[Sequence[Event]],
    reports: Sequence[RankReport],
    launch_s: float,
    end_s: float,
    slurm_job: SlurmJob | None,
) -> Phases:
    """Compute the phases of a run from the events of all ranks, on the launcher's clock.

    Phases of a program that were not observed are None, and are part of `program_time_s`.
    Evaluations between epochs belong to `evaluation_time_s` and not to the training. Clocks that
    were wrong give impossible durations: see `find_impossible_durations`.

    Args:
        rank_events: Events of each rank.
        reports: Reports of the same ranks.
        launch_s: When the launcher began, in seconds since the epoch.
        end_s: When everything but the record was checked and written, in seconds since the epoch.
        slurm_job: Slurm's facts about the job; None without Slurm.
    """
    passed = [_event_times(*pair) for pair in zip(rank_events, reports, strict=True)]
    last = {name: max(p[name] for p in passed if name in p) for rank in passed for name in rank}
    durations: dict[str, Any] = {}
    begin_s: float | None = launch_s
    for name in phases.TRAINER_PHASES:
        event = phases.PHASES[name].event
        passed_s = end_s if event is None else last.get(event)
        durations[name] = None if begin_s is None or passed_s is None else passed_s - begin_s
        begin_s = passed_s
    first_line_s = min(p[EventName.START] for p in passed)
    if program_reports(reports):
        durations |= _program_phases(durations, rank_events, reports, last)
        durations["teardown_time_s"] = end_s - last[EventName.PROGRAM_ENDED]
        durations["execution_time_s"] = last[EventName.PROGRAM_ENDED] - first_line_s
        durations["execution_time_s"] -= durations["evaluation_time_s"] or 0.0
    else:
        # evaluations between epochs, with the same boundaries: from the last rank's end
        trained_s, evaluated_s = (_last_by_epoch(rank_events, e) for e in _EPOCH_EVENTS)
        between_s = sum(evaluated_s[epoch] - trained_s[epoch] for epoch in evaluated_s)
        durations["train_time_s"] -= between_s
        durations["evaluation_time_s"] += between_s
        every = [event.details for event in _events_named(rank_events, EventName.CHECKPOINTED)]
        if every:
            read_s, written_s = (max(e[key] for e in every) for key in ("read_s", "written_s"))
            durations["first_step_time_s"] -= read_s
            durations["train_time_s"] -= written_s
            durations["checkpoint_time_s"] = read_s + written_s
        durations["execution_time_s"] = last[EventName.TRAINED] - first_line_s - between_s
    job = slurm_job or SlurmJob()
    return Phases(queue_time_s=job.queue_time_s, boot_time_s=job.boot_time_s, **durations)


def _event_times(events: Sequence[Event], report: RankReport) -> dict[str, float]:
    """Return name of an event → when a rank passed it, on the launcher's clock.

    For a program, these are its start and end, and the observed moments.

    Args:
        events: The rank's events.
        report: The rank's report.
    """
    passed = first_times(events)
    if not isinstance(report, ProgramReport):
        return passed
    moments = ("imported_s", "first_step_s", "last_step_s")
    seen_s = (getattr(report.observed, name) for name in moments)
    names = (EventName.IMPORTED, EventName.FIRST_STEP, EventName.TRAINED)
    observed = zip(names, seen_s, strict=True)
    return {
        EventName.START: passed[EventName.PROGRAM_STARTED],
        EventName.PROGRAM_ENDED: passed[EventName.PROGRAM_ENDED],
        **{name: at_s + _clock_shift_s(events) for name, at_s in observed if at_s is not None},
    }


def _clock_shift_s(events: Sequence[Event]) -> float:
    """Return the seconds to add to the times of a program to get the launcher's time.

    A program reports its times by the clock of its host.

    Args:
        events: Events of the program's rank, on the launcher's clock.
    """
    started = next(event for event in events if event.name is EventName.PROGRAM_STARTED)
    return 0.0 if started.host_time_s is None else started.time_s - started.host_time_s


def _first_clock_shift_s(
    rank_events: Sequence[Sequence[Event]], reports: Sequence[RankReport]
) -> float:
    """Return `_clock_shift_s` of the first rank whose program reported its training.

    Such a program reported steps, epochs or evaluations. The result is 0.0 if no program did.

    Args:
        rank_events: Events of each rank.
        reports: Reports of the same ranks.
    """
    pairs = zip(rank_events, program_reports(reports), strict=True)
    return next((_clock_shift_s(events) for events, r in pairs if r.observed.has_training), 0.0)


def _program_phases(
    durations: dict[str, Any],
    rank_events: Sequence[Sequence[Event]],
    reports: Sequence[RankReport],
    last: dict[str, float],
) -> dict[str, float | None]:
    """Return the phases of a program: preparation, training, evaluations, and `program_time_s`.

    Args:
        durations: Phase → seconds, from the events of the ranks.
        rank_events: Events of each rank.
        reports: Reports of the same ranks.
        last: Event → when the last rank passed it.

    Returns:
        Phase → seconds; None if it was not observed.
    """
    shift_s = _first_clock_shift_s(rank_events, reports)
    spans_s = [
        (begin + shift_s, end + shift_s)
        for begin, end in first_observed(reports).evaluation_spans_s
    ]

    def subtract_evaluations(begin: EventName, end: EventName) -> float | None:
        """Return the seconds between two events, less the evaluations inside."""
        if begin not in last or end not in last:
            return None
        inside = (span for span in spans_s if last[begin] <= span[0] and span[1] <= last[end])
        return last[end] - last[begin] - sum(after - before for before, after in inside)

    start = EventName.IMPORTED if EventName.IMPORTED in last else EventName.START
    preparation_time_s = subtract_evaluations(start, EventName.FIRST_STEP)
    train_time_s = subtract_evaluations(EventName.FIRST_STEP, EventName.TRAINED)
    evaluation_time_s = sum(end - begin for begin, end in spans_s) if spans_s else None
    known = (durations["import_time_s"], preparation_time_s, train_time_s, evaluation_time_s)
    started_to_ended_s = last[EventName.PROGRAM_ENDED] - last[EventName.START]
    return {
        "preparation_time_s": preparation_time_s,
        "train_time_s": train_time_s,
        "evaluation_time_s": evaluation_time_s,
        "program_time_s": started_to_ended_s - sum(value or 0.0 for value in known),
    }


def add_end_times(
    measured: Metrics, rank_events: Sequence[Sequence[Event]], reports: Sequence[RankReport]
) -> Metrics:
    """Return the metrics with the times at which epochs and evaluations ended.

    Times are seconds since the first line of the first rank, or the start of its program, on the
    launcher's clock.

    Args:
        measured: The metrics without these times.
        rank_events: Events of each rank.
        reports: Reports of the same ranks.
    """
    pairs = zip(rank_events, reports, strict=True)
    begin_s = min(_event_times(*pair)[EventName.START] for pair in pairs)
    trained_s, evaluated_s = (_last_by_epoch(rank_events, e) for e in _EPOCH_EVENTS)
    ends_s = trained_s | _last_by_epoch(rank_events, EventName.EVALUATED) | evaluated_s
    within: list[HeldOutEvaluation] = []
    if program_reports(reports):
        seen, shift_s = first_observed(reports), _first_clock_shift_s(rank_events, reports)
        evaluated = {each.epoch: each for each in seen.evaluations}
        observed: list[ObservedEpoch | ObservedEvaluation] = [*seen.epochs, *evaluated.values()]
        times_s = {each.epoch: each.time_s for each in observed}
        ends_s = {epoch: t + shift_s for epoch, t in times_s.items() if t is not None}
        for each in seen.evaluations:
            if each.epoch > 0 and each is not evaluated[each.epoch]:
                at_s = None if each.time_s is None else max(0.0, each.time_s + shift_s - begin_s)
                within.append(
                    HeldOutEvaluation(epoch=each.epoch, ended_s=at_s, metrics=each.metrics)
                )
    ended_s = {epoch: end_s - begin_s for epoch, end_s in ends_s.items()}
    epochs = tuple(replace(epoch, ended_s=ended_s.get(epoch.epoch)) for epoch in measured.epochs)
    return replace(measured, epochs=epochs, evaluations=tuple(within))


def select_synchronised_ranks(
    rank_events: Sequence[Sequence[Event]], reports: Sequence[RankReport]
) -> tuple[list[Sequence[Event]], list[RankReport]]:
    """Return events and reports of only those ranks whose clock offset is known.

    They determine the times of the run. Without an offset to the launcher's clock, a rank's times
    may be seconds off and give impossible durations. If the first rank has no offset, all ranks are
    returned, because this rank reports the training.

    Args:
        rank_events: Events of each rank.
        reports: Reports of the same ranks.
    """
    pairs = list(zip(rank_events, reports, strict=True))
    known = [pair for pair in pairs if pair[1].clock.offset_s is not UNSET]
    if known and known[0] != pairs[0]:
        known = []
    events, of_ranks = zip(*(known or pairs), strict=True)
    return list(events), list(of_ranks)


def _events_named(rank_events: Sequence[Sequence[Event]], name: EventName) -> list[Event]:
    """Return the events with this name, of all ranks."""
    return [event for events in rank_events for event in events if event.name is name]


def _last_by_epoch(rank_events: Sequence[Sequence[Event]], name: EventName) -> dict[int, float]:
    """Return number of an epoch → when the last rank passed the event `name` for this epoch."""
    passed = [event for event in _events_named(rank_events, name) if "epoch" in event.details]
    passed.sort(key=lambda event: event.time_s)
    return {event.details["epoch"]: event.time_s for event in passed}


def find_missing_events(
    rank_events: Sequence[Sequence[Event]], reports: Sequence[RankReport]
) -> list[str]:
    """Return a message for each rank that lacks an event which ends a phase.

    Args:
        rank_events: Events of each rank.
        reports: Reports of the same ranks.
    """
    found = []
    for events, report in zip(rank_events, reports, strict=True):
        passed = first_times(events)
        if lost := [name for name in _REQUIRED_EVENTS[type(report)] if name not in passed]:
            found.append(f"rank {report.rank} has no event {', '.join(lost)}")
    return found


def find_impossible_durations(
    durations: Phases,
    rank_events: Sequence[Sequence[Event]],
    reports: Sequence[RankReport],
) -> list[str]:
    """Return messages about impossible durations, as wrong clocks or files of other runs cause.

    Args:
        durations: The phases of the run.
        rank_events: Events of each rank.
        reports: Reports of the same ranks.
    """
    wrong = [
        f"{name} is {value:.6f} s"
        for name in (*phases.WALL_PHASES, "execution_time_s")
        if (value := getattr(durations, name)) is not None and not 0.0 <= value < math.inf
    ]
    for events, report in zip(rank_events, reports, strict=True):
        if not isinstance(report, TrainingReport) or not report.steps:
            continue
        stepping_s = sum(execution.duration_s for execution in report.steps)
        passed = first_times(events)
        spans = {
            "execution_time_s": durations.execution_time_s,
            "from built to trained": passed[EventName.TRAINED] - passed[EventName.BUILT],
        }
        wrong += [
            f"rank {report.rank} measured steps of {stepping_s:.3f} s in all, "
            f"more than {name}, {span_s:.3f} s"
            for name, span_s in spans.items()
            if stepping_s > span_s + CLOCK_TOLERANCE_S
        ]
    return wrong
