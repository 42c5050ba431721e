"""The record of a run from what its ranks left: their events and their reports."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET

from tfscaling.record import (
    attribution,
    gradient_noise,
    phases,
    program_results,
    run_record,
    short_runs,
)
from tfscaling.record.events import Event, times
from tfscaling.record.phases import Phases
from tfscaling.record.rank_report import (
    Epoch,
    ProgramRank,
    ProgramReport,
    Rank,
    RankReport,
    ServerReport,
    TrainedRank,
    TrainingReport,
    summary,
)
from tfscaling.record.run_record import (
    Computation,
    Derived,
    Environment,
    Metrics,
    PreparedData,
    RunAxes,
    RunRecord,
    SlurmJob,
    Validity,
)
from tfscaling.spec.run_spec import RunSpec

#: The event that tells how long checkpoints took a rank, `read_s` and `written_s`.
CHECKPOINTED = "checkpointed"
#: Events of a rank after an epoch: trained, evaluated, probed.
_OF_EPOCHS = ("epoch", "epoch_evaluated", "epoch_probed")
#: Events' times are rounded to a millionth of a second.
CLOCK_TOLERANCE_S = 1e-3


def measured_phases(
    rank_events: Sequence[Sequence[Event]],
    launch_s: float,
    end_s: float,
    slurm_job: SlurmJob | None,
) -> Phases:
    """Durations in seconds from the events of all ranks, by the launcher's clock.

    A boundary between two phases is when the last rank passes it, so the phases follow one another
    without gap and their sum from launch to teardown is the wall time; evaluations between epochs
    belong to `evaluation_time_s` and not to the training. `launch_s` is when the
    launcher began, `end_s` when all but the record was checked and written.
    Clocks that were wrong give impossible durations: see `impossible`.
    """
    passed = [times(events) for events in rank_events]
    last = {name: max(p[name] for p in passed if name in p) for name in passed[0]}
    first_line_s = min(p["start"] for p in passed)
    # evaluations between epochs, with the same boundaries: from the last rank's end of the epoch
    trained_s, evaluated_s, probed_s = (_last_by_epoch(rank_events, e) for e in _OF_EPOCHS)
    between_s = sum(evaluated_s[epoch] - trained_s[epoch] for epoch in evaluated_s)
    probes_s = sum(probed_s[epoch] - evaluated_s[epoch] for epoch in probed_s)
    durations: dict[str, float] = {}
    begin_s = launch_s
    for name in phases.TRAINER_PHASES:
        event = phases.PHASES[name].event
        passed_s = end_s if event is None else last[event]
        durations[name] = passed_s - begin_s
        begin_s = passed_s
    durations["train_time_s"] -= between_s + probes_s
    durations["evaluation_time_s"] += between_s
    durations["probe_time_s"] += probes_s
    written = [e for events in rank_events for e in events if e["event"] == CHECKPOINTED]
    if written:
        read_s, written_s = (max(e[key] for e in written) for key in ("read_s", "written_s"))
        durations["first_step_time_s"] -= read_s
        durations["train_time_s"] -= written_s
        durations["checkpoint_time_s"] = read_s + written_s
    job = slurm_job or SlurmJob()
    return Phases(
        queue_time_s=job.queue_time_s,
        boot_time_s=job.boot_time_s,
        **durations,
        execution_time_s=last["trained"] - first_line_s - between_s - probes_s,
    )


def with_moments(
    record: RunRecord, rank_events: Sequence[Sequence[Event]], reports: Sequence[RankReport]
) -> RunRecord:
    """The record with the moments at which epochs and evaluations ended (launcher's clock)."""
    if record.is_of_program:
        metrics = program_results.with_moments(record.metrics, rank_events, reports)
    else:
        epochs = _with_ends(record.metrics.epochs, rank_events)
        metrics = msgspec.structs.replace(record.metrics, epochs=epochs)
    return msgspec.structs.replace(record, metrics=metrics)


def _with_ends(
    epochs: Sequence[Epoch], rank_events: Sequence[Sequence[Event]]
) -> tuple[Epoch, ...]:
    """The trainer's epochs with the moments at which all ranks had ended them."""
    first_line_s = min(times(events)["start"] for events in rank_events)
    trained_s, evaluated_s, probed_s = (_last_by_epoch(rank_events, e) for e in _OF_EPOCHS)
    evaluated_s = {**_last_by_epoch(rank_events, "evaluated"), **evaluated_s}
    probes_s, found = 0.0, []
    for epoch in epochs:
        end_s = evaluated_s.get(epoch.epoch, trained_s.get(epoch.epoch))
        ended_s = None if end_s is None else end_s - first_line_s - probes_s
        found.append(msgspec.structs.replace(epoch, ended_s=ended_s))
        if epoch.epoch in probed_s:
            probes_s += probed_s[epoch.epoch] - evaluated_s[epoch.epoch]
    return tuple(found)


def on_one_clock(
    rank_events: Sequence[Sequence[Event]], reports: Sequence[RankReport]
) -> tuple[list[Sequence[Event]], list[RankReport]]:
    """The events and reports of the ranks that make the times of the run.

    A rank that the launcher's clock did not answer has the times of its host, which may be seconds
    off and then give impossible durations beside those of the others: it is left out. If that is
    the first rank, which runs beside the launcher and tells of the training, none is.
    """
    pairs = list(zip(rank_events, reports, strict=True))
    known = [pair for pair in pairs if pair[1].clock.offset_s is not UNSET]
    if known and known[0] != pairs[0]:
        known = []
    events, of_ranks = zip(*(known or pairs), strict=True)
    return list(events), list(of_ranks)


def without_clock(reports: Sequence[RankReport]) -> str | None:
    """A warning of the ranks that could not ask for the launcher's time; None if all could."""
    off = [f"{r.rank} ({r.host})" for r in reports if r.clock.offset_s is UNSET]
    if not off:
        return None
    text = f"the launcher's clock did not answer rank {', '.join(off)}: the times of the run "
    if reports[0].clock.offset_s is UNSET:
        return text + "are right only as far as the clocks of the hosts agree"
    return text + "are those of the other ranks"


def _last_by_epoch(rank_events: Sequence[Sequence[Event]], name: str) -> dict[int, float]:
    """Epoch → when the last rank passed the event `name` of that epoch."""
    last: dict[int, float] = {}
    for events in rank_events:
        for event in events:
            if event["event"] == name and "epoch" in event:
                last[event["epoch"]] = max(last.get(event["epoch"], -math.inf), event["time_s"])
    return last


def missing_phases(
    rank_events: Sequence[Sequence[Event]], reports: Sequence[RankReport]
) -> list[str]:
    """Ranks whose events do not have all their phases; both in the order of ranks."""
    found = []
    for events, report in zip(rank_events, reports, strict=True):
        of_server = phases.EVENTS[: phases.EVENTS.index("rendezvous") + 1]
        expected = phases.EVENTS if isinstance(report, TrainingReport) else of_server
        if isinstance(report, ProgramReport):
            expected = program_results.EVENTS
        if lost := [name for name in expected if name not in times(events)]:
            found.append(f"rank {report.rank} has no event {', '.join(lost)}")
    return found


def impossible(
    durations: Phases,
    rank_events: Sequence[Sequence[Event]],
    reports: Sequence[RankReport],
) -> list[str]:
    """What cannot be of these durations: a clock was wrong, or files are of different runs."""
    wrong = [
        f"{name} is {value:.6f} s"
        for name in (*phases.WALL_PHASES, "execution_time_s")
        if (value := getattr(durations, name)) is not None and not 0.0 <= value < math.inf
    ]
    for events, report in zip(rank_events, reports, strict=True):
        if not isinstance(report, TrainingReport) or not report.steps:
            continue
        stepping_s = sum(execution.duration_s for execution in report.steps)
        passed = times(events)
        spans = {
            "execution_time_s": durations.execution_time_s,
            "from built to trained": passed["trained"] - passed["built"],
        }
        wrong += [
            f"rank {report.rank} measured steps of {stepping_s:.3f} s in all, "
            f"more than {name}, {span_s:.3f} s"
            for name, span_s in spans.items()
            if stepping_s > span_s + CLOCK_TOLERANCE_S
        ]
    return wrong


def waits(reports: Sequence[RankReport]) -> list[float]:
    """The longest wait of any rank for its pipeline, in seconds a step, for each execution.

    Ranks begin a step together, where the one before it ended with the all-reduce: so this is what
    input adds to the step.
    """
    of_ranks = [[e.input_wait_s / e.steps for e in report.steps] for report in trained(reports)]
    return [max(of_step) for of_step in zip(*of_ranks, strict=True)]


def computation(reports: Sequence[RankReport], fed_step_time_s: float | None) -> Computation:
    """A step's computation and the rest of it, and the slowest rank, from the ranks' own steps.

    `fed_step_time_s` is the duration of a step without the wait for input. `compute_time_s` is that
    of the median rank, of an even number of ranks the faster one in the middle; the rest of a step
    is `synchronisation_time_s`: communication, waiting for slower ranks, the update.
    `straggler_ratio` is the slowest rank's computation over the median rank's.
    """
    medians = {
        (report.rank, report.host): statistics.median(report.compute_steps)
        for report in trained(reports)
        if report.compute_steps
    }
    if not medians:
        return Computation(
            compute_time_s=None,
            synchronisation_time_s=None,
            straggler_ratio=None,
            slowest_rank=None,
            slowest_host=None,
        )
    # a rank's own time: between two ranks lies a part of the wait for the slower one
    middle_s = statistics.median_low(medians.values())
    slowest = max(medians, key=lambda rank: medians[rank])
    # the medians come from different samples, so the difference may be slightly negative
    rest_s = None if fed_step_time_s is None else max(0.0, fed_step_time_s - middle_s)
    return Computation(
        compute_time_s=middle_s,
        synchronisation_time_s=rest_s,
        straggler_ratio=medians[slowest] / middle_s if middle_s else None,
        slowest_rank=slowest[0],
        slowest_host=slowest[1],
    )


def trained(reports: Sequence[RankReport]) -> list[TrainingReport]:
    """The ranks that ran the training loop: all, or with parameter servers the coordinator."""
    return [report for report in reports if isinstance(report, TrainingReport)]


def metrics(reports: Sequence[RankReport], train_time_s: float | None) -> Metrics:
    """Metrics of a run: those of rank 0, the chief, and the computation of all ranks.

    Rates are totals over total time.
    """
    chief = trained(reports)[0]
    # the first execution compiles; if it was the only one, there is no steady state to report
    per_step = [execution.duration_s / execution.steps for execution in chief.steps[1:]]
    step_time_s = statistics.median(per_step) if per_step else None
    waited = waits(reports)[1:]
    fed_s = [max(0.0, step_s - wait_s) for step_s, wait_s in zip(per_step, waited, strict=True)]
    # an epoch's last step may be padded: no more examples than the epoch has
    of_epoch = chief.examples_trained / len(chief.epochs)
    first = min(chief.steps[0].steps * chief.examples_per_step, of_epoch)
    before = chief.went_on.examples if chief.went_on else 0
    examples = chief.examples_trained - before - first if per_step else 0
    final = chief.epochs[-1]
    return Metrics(
        loss=final.loss,
        accuracy=final.accuracy,
        test_loss=chief.test_loss,
        test_accuracy=chief.test_accuracy,
        step_time_s=step_time_s,
        input_wait_s=statistics.fmean(waited) if any(waited) else None,
        attribution=attribution.attribution(reports),
        gradient_noise_scale=gradient_noise.scale(chief.gradient_norms),
        gradient_norms=chief.gradient_norms,
        throughput_examples_per_s=examples / train_time_s if examples and train_time_s else None,
        examples_trained=chief.examples_trained,
        epochs=chief.epochs,
        **msgspec.structs.asdict(computation(reports, statistics.median(fed_s) if fed_s else None)),
    )


def counted(data: PreparedData, reports: Sequence[RankReport]) -> PreparedData:
    """The data with the numbers of examples; a pipeline's are those that the ranks found."""
    chief = trained(reports)[0]
    return msgspec.structs.replace(
        data,
        train_examples=data.train_examples or chief.train_examples or None,
        test_examples=data.test_examples or chief.test_examples or None,
    )


def build(
    spec: RunSpec,
    attempt: int,
    reports: Sequence[RankReport],
    durations: Phases,
    environment: Environment,
    validity: Validity,
) -> RunRecord:
    """The record of a run whose ranks left these reports. Raises RecordError if it is none.

    That it went on from a checkpoint is the caller's to add.
    """
    if spec.recipe.program:
        measured, steps = program_results.metrics(reports), program_results.steps_per_epoch(reports)
    else:
        measured = metrics(reports, durations.train_time_s)
        steps = _steps_per_epoch(trained(reports)[0])
    record = RunRecord(
        schema_version=run_record.SCHEMA_VERSION,
        trainer_version=spec.trainer_version,
        axes=RunAxes(**msgspec.structs.asdict(spec.point), repeat=spec.repeat),
        derived=Derived(
            **msgspec.structs.asdict(run_record.place_of(spec)),
            per_replica_batch_size=spec.per_replica_batch_size,
            global_batch_size=spec.global_batch_size,
            steps_per_epoch=steps,
            synchronisations_per_epoch=_synchronisations(spec, steps),
        ),
        parameters=spec.parameters,
        parameters_hash=spec.parameters_hash,
        attempt=attempt,
        phases=durations,
        metrics=measured,
        ranks=tuple(summary(report, _SUMMARIES[type(report)]) for report in reports),
        environment=environment,
        trained_by=next((report.trained_by for report in trained(reports)), ""),
        warnings=warnings(spec, reports),
        validity=validity,
        short_run=short_runs.of(spec, trained(reports)),
    )
    return run_record.checked(record, run_record.RECORD)


def _steps_per_epoch(chief: TrainingReport) -> int:
    """Steps of the first epoch, also where an earlier attempt made some of them, or all."""
    if chief.stopped is not None:
        return chief.stopped.steps_per_epoch
    if chief.went_on is not None and chief.went_on.steps_per_epoch:
        return chief.went_on.steps_per_epoch
    return max(e.first_step + e.steps for e in chief.steps if e.epoch == 1)


def _synchronisations(spec: RunSpec, steps: int | None) -> int | None:
    """Exchanges between the replicas in an epoch of so many steps."""
    if spec.recipe.program or steps is None or len(spec.jobs) > 1:
        return None
    return -(-steps // spec.recipe.steps_per_synchronisation) if spec.replicas > 1 else 0


#: What of a report is in the record.
_SUMMARIES: dict[type[RankReport], type[Rank]] = {
    TrainingReport: TrainedRank,
    ServerReport: Rank,
    ProgramReport: ProgramRank,
}


def validity(checks: Sequence[str], divergence: str = "") -> Validity:
    """That of a run that passed `checks`; `divergence` says how the training diverged, or nothing.

    A run that diverged is a result, but counts in no median.
    """
    return Validity(
        valid=not divergence,
        status="diverged" if divergence else "ok",
        reason=divergence,
        checks=tuple(checks),
    )


def warnings(spec: RunSpec, reports: Sequence[RankReport]) -> tuple[str, ...]:
    """What the ranks warn of, each sentence once, in the order of the ranks."""
    clock = without_clock(reports)
    of_clock = () if clock is None else (clock,)
    if spec.recipe.program:
        return (*program_results.warnings(spec, reports), *of_clock)
    said = dict.fromkeys(w for report in trained(reports) for w in report.warnings)
    return (*said, *of_clock)


def write_steps(folder: Path, reports: Sequence[RankReport]) -> None:
    """Raw step times of every rank as CSV, of the training and of computation alone."""
    steps = [
        f"{report.rank},{each.epoch},{each.first_step},{each.steps},{each.duration_s:.6f},"
        f"{each.input_wait_s:.6f}"
        for report in trained(reports)
        for each in report.steps
    ]
    run_record.write_lines(
        folder / run_record.STEPS, ["rank,epoch,first_step,steps,duration_s,input_wait_s", *steps]
    )
    compute = [
        f"{report.rank},{number},{duration:.6f}"
        for report in trained(reports)
        for number, duration in enumerate(report.compute_steps, 1)
    ]
    run_record.write_lines(folder / run_record.COMPUTE_STEPS, ["rank,step,duration_s", *compute])
