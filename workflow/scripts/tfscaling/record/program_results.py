"""What a run of a user's program measured: phases, metrics, epochs, from what was observed of it.

Start and end are known of every program. Observed times are those of the rank's host, and are put
on the launcher's clock here.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from tfscaling.record.events import Event, times
from tfscaling.record.phases import Phases
from tfscaling.record.rank_report import (
    Epoch,
    Observed,
    ObservedEpoch,
    ObservedEvaluation,
    ProgramReport,
    RankReport,
)
from tfscaling.record.run_record import HeldOut, Metrics, SlurmJob
from tfscaling.spec.run_spec import RunSpec

#: The events around a program, in their order; the first is the wrapper's own.
START, STARTED, ENDED = "start", "program_start", "program_end"
EVENTS = (START, STARTED, ENDED)
#: Names of the share of examples that a program classified rightly, the first one counts.
ACCURACIES = (
    "accuracy",
    "acc",
    "sparse_categorical_accuracy",
    "categorical_accuracy",
    "binary_accuracy",
)


def of_programs(reports: Sequence[RankReport]) -> list[ProgramReport]:
    """The reports of ranks on which a program ran."""
    return [report for report in reports if isinstance(report, ProgramReport)]


def chief(reports: Sequence[RankReport]) -> Observed:
    """What was observed on the first rank that told of steps or epochs; nothing if none did."""
    seen = (report.observed for report in of_programs(reports) if tells(report))
    return next((observed for observed in seen if observed is not None), Observed())


def tells(report: ProgramReport) -> bool:
    """Whether anything of the training was observed on the rank."""
    seen = report.observed
    return seen is not None and bool(seen.steps or seen.epochs or seen.evaluations)


def measured_phases(
    rank_events: Sequence[Sequence[Event]],
    reports: Sequence[RankReport],
    launch_s: float,
    end_s: float,
    slurm_job: SlurmJob | None,
) -> Phases:
    """Durations in seconds, on the launcher's clock; what nobody observed is null.

    `launch_s` is when the launcher began, `end_s` when all but the record was checked and written.
    """
    passed = [times(events) for events in rank_events]
    first_start_s = min(p[STARTED] for p in passed)
    started_s, ended_s = (max(p[name] for p in passed) for name in (STARTED, ENDED))
    last = _last(rank_events, of_programs(reports))
    import_time_s = None if last.imported_s is None else last.imported_s - started_s
    evaluations_s = list(_evaluations(chief(reports)))
    train_time_s = evaluation_time_s = None
    if evaluations_s:
        evaluation_time_s = sum(end - begin for begin, end in evaluations_s)
    if last.first_step_s is not None and last.last_step_s is not None:
        shift_s = last.shift_s
        between_s = sum(
            end - begin
            for begin, end in evaluations_s
            if last.first_step_s <= begin + shift_s and end + shift_s <= last.last_step_s
        )
        train_time_s = last.last_step_s - last.first_step_s - between_s
    known = (import_time_s, train_time_s, evaluation_time_s)
    job = slurm_job or SlurmJob()
    return Phases(
        queue_time_s=job.queue_time_s,
        boot_time_s=job.boot_time_s,
        launch_time_s=started_s - launch_s,
        import_time_s=import_time_s,
        rendezvous_time_s=None,
        data_time_s=None,
        build_time_s=None,
        first_step_time_s=None,
        train_time_s=train_time_s,
        program_time_s=ended_s - started_s - sum(value or 0.0 for value in known),
        evaluation_time_s=evaluation_time_s,
        probe_time_s=None,
        teardown_time_s=end_s - ended_s,
        execution_time_s=ended_s - first_start_s - (evaluation_time_s or 0.0),
    )


class _Last(NamedTuple):
    """When the last rank had passed something, on the launcher's clock.

    `shift_s` is what the clock of the chief's host is behind it.
    """

    imported_s: float | None
    first_step_s: float | None
    last_step_s: float | None
    shift_s: float


def _last(rank_events: Sequence[Sequence[Event]], reports: Sequence[ProgramReport]) -> _Last:
    found: dict[str, list[float]] = {name: [] for name in _Last._fields[:3]}
    shifts_s = []
    for events, report in zip(rank_events, reports, strict=True):
        started = next(event for event in events if event["event"] == STARTED)
        shift_s = started["time_s"] - started["host_time_s"]
        if tells(report):
            shifts_s.append(shift_s)
        for name, values in found.items():
            if (host_s := getattr(report.observed or Observed(), name)) is not None:
                values.append(host_s + shift_s)
    latest = {name: max(values, default=None) for name, values in found.items()}
    return _Last(**latest, shift_s=next(iter(shifts_s), 0.0))


def _evaluations(seen: Observed) -> Iterator[tuple[float, float]]:
    """(begin, end) of the evaluations whose times are known."""
    for each in seen.evaluations:
        if each.begin_s is not None and each.time_s is not None:
            yield each.begin_s, each.time_s


def metrics(reports: Sequence[RankReport]) -> Metrics:
    """Metrics of the run: quality and step time of the chief, examples and rates of all ranks."""
    seen = chief(reports)
    epochs = tuple(_epochs(seen))
    final = epochs[-1] if epochs else Epoch(epoch=1, loss=None, accuracy=None, duration_s=None)
    last = seen.evaluations[-1] if seen.evaluations else None
    held_out = last.metrics if last else {}
    return Metrics(
        loss=final.loss,
        accuracy=_fraction(final.accuracy),
        test_loss=held_out.get("loss"),
        test_accuracy=_fraction(_accuracy(held_out)),
        step_time_s=_step_time_s(seen),
        input_wait_s=_input_wait_s(reports),
        throughput_examples_per_s=_examples_per_s(reports),
        examples_trained=examples(reports) or None,
        epochs=epochs,
        compute_time_s=None,
        synchronisation_time_s=None,
        straggler_ratio=None,
        slowest_rank=None,
        slowest_host=None,
    )


def with_moments(
    measured: Metrics, rank_events: Sequence[Sequence[Event]], reports: Sequence[RankReport]
) -> Metrics:
    """The metrics with the moments at which epochs and evaluations ended.

    Seconds since the program of the first rank began, on the launcher's clock.
    """
    seen = chief(reports)
    begin_s = min(times(events)[STARTED] for events in rank_events)
    shift_s = _last(rank_events, of_programs(reports)).shift_s - begin_s
    evaluated = {each.epoch: each for each in seen.evaluations}
    ends = {each.epoch: each.time_s for each in seen.epochs}
    ends |= {number: each.time_s for number, each in evaluated.items()}
    within = [
        HeldOut(
            epoch=each.epoch,
            ended_s=None if each.time_s is None else max(0.0, each.time_s + shift_s),
            metrics=each.metrics,
        )
        for each in seen.evaluations
        if each.epoch > 0 and each is not evaluated[each.epoch]
    ]
    epochs = (
        each if (end_s := ends.get(each.epoch)) is None else replace(each, ended_s=end_s + shift_s)
        for each in measured.epochs
    )
    return replace(measured, epochs=tuple(epochs), evaluations=tuple(within))


def _input_wait_s(reports: Sequence[RankReport]) -> float | None:
    """Mean wait for input in a step of the rank that waits longest, as far as ranks report it."""
    seen = (report.observed for report in of_programs(reports))
    found = [
        each.input_wait_s / each.steps
        for each in seen
        if each is not None and each.steps and each.input_wait_s is not None
    ]
    return max(found, default=None)


def steps_per_epoch(reports: Sequence[RankReport]) -> int | None:
    """Steps of an epoch if all have as many; None if that is not known."""
    seen = chief(reports)
    if not seen.steps or not seen.epochs or seen.steps % len(seen.epochs):
        return None
    return seen.steps // len(seen.epochs)


def examples(reports: Sequence[RankReport]) -> int | None:
    """Examples that all ranks together report; None if none reports any."""
    if (of_all := chief(reports).examples_of_all_ranks) is not None:
        return of_all
    found = [
        r.observed.examples for r in of_programs(reports) if r.observed and r.observed.examples
    ]
    return sum(found) if found else None


def divergence(reports: Sequence[RankReport]) -> str:
    """How the training diverged, as far as it was observed, or an empty text."""
    for epoch in chief(reports).epochs:
        if epoch.metrics.get("loss", 0.0) is None:
            return f"diverged: loss is not finite from epoch {epoch.epoch}"
    return ""


def warnings(spec: RunSpec, reports: Sequence[RankReport]) -> tuple[str, ...]:
    """What a reader of the numbers has to know, one sentence each."""
    seen = chief(reports)
    found = [text for r in of_programs(reports) if r.observed for text in r.observed.warnings]
    if 0 < len(seen.epochs) < spec.recipe.epochs:
        found.append(f"The program reported {len(seen.epochs)} of {spec.recipe.epochs} epochs.")
    # those within an epoch come one after the other
    ends = {each.epoch: each.time_s for each in seen.epochs}
    last = [
        each
        for each in seen.evaluations
        if each.epoch == seen.evaluations[-1].epoch
        and (each.time_s is None or each.time_s >= (ends.get(each.epoch) or 0.0))
    ]
    if any(each.metrics != last[-1].metrics for each in last):
        found.append(
            f"The program made {len(last)} evaluations after epoch {last[-1].epoch}, with other "
            "results: test_loss and test_accuracy are those of the last one."
        )
    values = [each.metrics for each in seen.epochs]
    values += [each.metrics for each in seen.evaluations]
    shares = [_accuracy(each) for each in values]
    if any(share is not None and not 0.0 <= share <= 1.0 for share in shares):
        found.append("The program's accuracy is no fraction from 0 to 1: no column has it.")
    return tuple(dict.fromkeys(found))


def _epochs(seen: Observed) -> Iterator[Epoch]:
    """The epochs with the evaluation that followed each; evaluations may be all that is told."""
    evaluated = {each.epoch: each for each in seen.evaluations if each.epoch > 0}
    # an epoch that did not end, because its evaluation ended the training, is known by that
    ended = {each.epoch for each in seen.epochs}
    trained = (
        *seen.epochs,
        *(
            ObservedEpoch(epoch=number, time_s=None, metrics={})
            for number in evaluated
            if number > max(ended, default=0)
        ),
    )
    before_s = seen.first_step_s
    for epoch in trained:
        evaluation = evaluated.get(epoch.epoch)
        duration_s, ended_s = None, _ended_s(epoch, evaluation)
        if ended_s is not None and before_s is not None:
            duration_s = max(0.0, ended_s - before_s)
        yield _epoch(epoch, duration_s, evaluation)
        ends_s = (ended_s, evaluation.time_s if evaluation else None)
        before_s = max((each for each in ends_s if each is not None), default=None)


def _ended_s(epoch: ObservedEpoch, evaluation: ObservedEvaluation | None) -> float | None:
    """When an epoch had ended, with all until its evaluation began; if nobody saw that, with it.

    So the durations of epochs and evaluations leave no time out between the first and the last.
    """
    known = [] if epoch.time_s is None else [epoch.time_s]
    if evaluation is not None:
        times_s = (evaluation.begin_s, evaluation.time_s)
        known += [time_s for time_s in times_s if time_s is not None][:1]
    return max(known, default=None)


def _epoch(
    seen: ObservedEpoch, duration_s: float | None, evaluation: ObservedEvaluation | None
) -> Epoch:
    epoch = Epoch(
        epoch=seen.epoch,
        loss=seen.metrics.get("loss"),
        accuracy=_accuracy(seen.metrics),
        duration_s=duration_s,
        metrics=seen.metrics,
    )
    if evaluation is None:
        return epoch
    took_s = None
    if evaluation.begin_s is not None and evaluation.time_s is not None:
        took_s = evaluation.time_s - evaluation.begin_s
    return replace(
        epoch,
        test_metrics=evaluation.metrics,
        test_loss=evaluation.metrics.get("loss", UNSET),
        test_accuracy=_fraction(_accuracy(evaluation.metrics)),
        evaluation_time_s=took_s,
    )


def _accuracy(values: dict[str, float | None]) -> float | None:
    return next((values[name] for name in ACCURACIES if name in values), None)


def _fraction(value: float | None) -> float | None:
    return value if value is not None and 0.0 <= value <= 1.0 else None


def _step_time_s(seen: Observed) -> float | None:
    """The median over the windows of the time of a step, without evaluations between."""
    pairs = zip(seen.windows, seen.windows[1:], strict=False)
    evaluations = list(_evaluations(seen))
    per_step = [
        (later.time_s - before.time_s) / (later.steps - before.steps)
        for before, later in pairs
        if later.steps > before.steps
        and not any(before.time_s < end and begin < later.time_s for begin, end in evaluations)
    ]
    return statistics.median(per_step) if per_step else None


def _examples_per_s(reports: Sequence[RankReport]) -> float | None:
    """Examples of all ranks after their first step over the time of the chief's further steps."""
    total, chief_seen = 0, chief(reports)
    for report in of_programs(reports):
        windows = report.observed.windows if report.observed else ()
        if len(windows) > 1 and windows[0].examples is not None:
            total += (windows[-1].examples or 0) - windows[0].examples
    if not total or len(chief_seen.windows) < 2:
        return None
    begin_s, end_s = chief_seen.windows[0].time_s, chief_seen.windows[-1].time_s
    evaluated_s = sum(
        end - begin for begin, end in _evaluations(chief_seen) if begin_s <= begin and end <= end_s
    )
    span_s = end_s - begin_s - evaluated_s
    return total / span_s if span_s > 0 else None
