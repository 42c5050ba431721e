"""The record of a run, built from the reports of its ranks: metrics, warnings, files.

The ranks ran the built-in trainer or a program, whose values are known only if they were observed.
`run_times` has the phases. The launcher calls `build_record`.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tfscaling.files import atomic
from tfscaling.record import energy, run_record, step_estimates
from tfscaling.record.phases import Phases
from tfscaling.record.rank_report import (
    Epoch,
    Observed,
    ObservedEpoch,
    ObservedEvaluation,
    ProgramRank,
    ProgramReport,
    Rank,
    RankReport,
    ServerReport,
    TrainedRank,
    TrainingReport,
    copy_fields,
    first_observed,
    program_reports,
    training_reports,
)
from tfscaling.record.run_record import (
    Computation,
    Derived,
    Environment,
    Metrics,
    PreparedData,
    RunAxes,
    RunRecord,
    Validity,
)
from tfscaling.study.run_spec import RunSpec

#: Kind of report → the type of the rank in the record.
_SUMMARIES: dict[type[RankReport], type[Rank]] = {
    TrainingReport: TrainedRank,
    ServerReport: Rank,
    ProgramReport: ProgramRank,
}
#: Fields of a `Computation` whose values are all unknown.
_NO_COMPUTATION: dict[str, Any] = dict.fromkeys(Computation.__struct_fields__)
#: Names of a program's metrics for the fraction of rightly classified examples; the first one that
#: is reported counts.
ACCURACIES = (
    "accuracy",
    "acc",
    "sparse_categorical_accuracy",
    "categorical_accuracy",
    "binary_accuracy",
)


def input_waits_s(reports: Sequence[RankReport]) -> list[float]:
    """Return the longest wait for input on any rank, for each call of the training function.

    The waits are in seconds per step. Ranks begin a step together, after the all-reduce of the
    previous step. So the longest wait is the time that input adds to the step.
    """
    of_ranks = [
        [e.input_wait_s / e.steps for e in report.steps] for report in training_reports(reports)
    ]
    return [max(of_step) for of_step in zip(*of_ranks, strict=True)]


def split_step_time(reports: Sequence[RankReport], fed_step_time_s: float | None) -> Computation:
    """Return how the time of a step splits into computation and the rest, and the slowest rank.

    Args:
        reports: Reports of all ranks, with separately measured steps of computation alone.
        fed_step_time_s: Median seconds of a step without the wait for input; None if unknown.

    Returns:
        The split; all values are None if no rank measured steps of computation.
    """
    medians = {
        (report.rank, report.host): statistics.median(report.compute_steps)
        for report in training_reports(reports)
        if report.compute_steps
    }
    if not medians:
        return Computation(**_NO_COMPUTATION)
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


def compute_metrics(reports: Sequence[RankReport], train_time_s: float | None = None) -> Metrics:
    """Compute the metrics of a run from the reports of its ranks.

    Waits for input, computation and the totals of programs are from all ranks, the other values
    from the chief: rank 0, or the first rank whose program was observed. Rates are totals divided
    by total time.

    Args:
        reports: Reports of all ranks.
        train_time_s: Time of the training in seconds; None if unknown.
    """
    if program_reports(reports):
        return _program_metrics(reports)
    chief = training_reports(reports)[0]
    # the first execution compiles; if it was the only one, there is no steady state to report
    per_step = [execution.duration_s / execution.steps for execution in chief.steps[1:]]
    step_time_s = statistics.median(per_step) if per_step else None
    waited = input_waits_s(reports)[1:]
    fed_s = [max(0.0, step_s - wait_s) for step_s, wait_s in zip(per_step, waited, strict=True)]
    # an epoch's last step may be padded: no more examples than the epoch has
    of_epoch = chief.examples_trained / len(chief.epochs)
    first = min(chief.steps[0].steps * chief.examples_per_step, of_epoch)
    before = chief.resumed_from.examples if chief.resumed_from else 0
    examples = chief.examples_trained - before - first if per_step else 0
    final = chief.epochs[-1]
    return Metrics(
        loss=final.loss,
        accuracy=final.accuracy,
        test_loss=chief.test_loss,
        test_accuracy=chief.test_accuracy,
        step_time_s=step_time_s,
        input_wait_s=statistics.fmean(waited) if any(waited) else None,
        throughput_examples_per_s=examples / train_time_s if examples and train_time_s else None,
        flops_per_example=chief.flops_per_example,
        examples_trained=chief.examples_trained,
        epochs=chief.epochs,
        **msgspec.structs.asdict(
            split_step_time(reports, statistics.median(fed_s) if fed_s else None)
        ),
    )


def _program_metrics(reports: Sequence[RankReport]) -> Metrics:
    """Return the metrics of a run from the reports of its programs."""
    seen = first_observed(reports)
    epochs = tuple(_program_epochs(seen))
    final = epochs[-1] if epochs else Epoch(epoch=1, loss=None, accuracy=None, duration_s=None)
    last = seen.evaluations[-1] if seen.evaluations else None
    held_out = last.metrics if last else {}
    flops = (epoch.metrics.get("flops_per_example") for epoch in epochs)
    # a rank's mean wait for input in a step, as far as it reports that
    waits_s = [
        report.observed.input_wait_s / report.observed.steps
        for report in program_reports(reports)
        if report.observed.steps and report.observed.input_wait_s is not None
    ]
    return Metrics(
        loss=final.loss,
        accuracy=_fraction_or_none(final.accuracy),
        test_loss=held_out.get("loss"),
        test_accuracy=_fraction_or_none(_first_accuracy(held_out)),
        step_time_s=_median_step_time_s(seen),
        input_wait_s=max(waits_s, default=None),
        throughput_examples_per_s=_examples_per_s(reports),
        flops_per_example=next(filter(None, flops), None),
        examples_trained=count_program_examples(reports) or None,
        epochs=epochs,
        **_NO_COMPUTATION,
    )


def count_program_examples(reports: Sequence[RankReport]) -> int | None:
    """Return the sum of the examples that the programs of all ranks report; None without any."""
    return sum(report.observed.examples or 0 for report in program_reports(reports)) or None


def _program_epochs(seen: Observed) -> Iterator[Epoch]:
    """Yield the epochs that a program reported, each with the last evaluation after it.

    An evaluation after an epoch that was not reported also yields this epoch.
    """
    evaluated = {each.epoch: each for each in seen.evaluations if each.epoch > 0}
    # an epoch that did not end, because its evaluation ended the training, is known by that
    last = max((each.epoch for each in seen.epochs), default=0)
    others = (ObservedEpoch(epoch=n, metrics={}) for n in evaluated if n > last)
    none = ObservedEvaluation(epoch=0, metrics={})
    before_s = seen.first_step_s
    for epoch in (*seen.epochs, *others):
        evaluation = evaluated.get(epoch.epoch, none)
        # all until the evaluation began belongs to the epoch: no time between them is left out
        begin_s = evaluation.time_s if evaluation.begin_s is None else evaluation.begin_s
        ended_s = _latest(epoch.time_s, begin_s)
        span_s = evaluation.span_s
        yield Epoch(
            epoch=epoch.epoch,
            loss=epoch.metrics.get("loss"),
            accuracy=_first_accuracy(epoch.metrics),
            duration_s=None
            if ended_s is None or before_s is None
            else max(0.0, ended_s - before_s),
            metrics=epoch.metrics,
            test_metrics=evaluation.metrics,
            test_loss=evaluation.metrics.get("loss", UNSET),
            test_accuracy=_fraction_or_none(_first_accuracy(evaluation.metrics)),
            evaluation_time_s=None if span_s is None else span_s[1] - span_s[0],
        )
        before_s = _latest(ended_s, evaluation.time_s)


def _latest(*times_s: float | None) -> float | None:
    """Return the latest of these times; None if all are None."""
    return max((time_s for time_s in times_s if time_s is not None), default=None)


def _first_accuracy(values: dict[str, float | None]) -> float | None:
    """Return the value of the first name in ACCURACIES that `values` has; None without one."""
    return next((values[name] for name in ACCURACIES if name in values), None)


def _fraction_or_none(value: float | None) -> float | None:
    """Return the value if it is between 0 and 1; None otherwise, as for a value in percent."""
    return value if value is not None and 0.0 <= value <= 1.0 else None


def _median_step_time_s(seen: Observed) -> float | None:
    """Return the median time of a program's step, in seconds, from windows without evaluations.

    None without such a window.
    """
    per_step = [
        (later.time_s - before.time_s) / (later.steps - before.steps)
        for before, later in itertools.pairwise(seen.windows)
        if later.steps > before.steps
        and not any(
            before.time_s < end and begin < later.time_s for begin, end in seen.evaluation_spans_s
        )
    ]
    return statistics.median(per_step) if per_step else None


def _examples_per_s(reports: Sequence[RankReport]) -> float | None:
    """Return the examples of all ranks' programs per second; None if unknown.

    The time before the chief's first step has ended does not count.
    """
    total, chief = 0, first_observed(reports)
    for report in program_reports(reports):
        windows = report.observed.windows
        if len(windows) > 1 and windows[0].examples is not None:
            total += (windows[-1].examples or 0) - windows[0].examples
    if not total or len(chief.windows) < 2:
        return None
    begin_s, end_s = chief.windows[0].time_s, chief.windows[-1].time_s
    evaluated_s = sum(
        end - begin for begin, end in chief.evaluation_spans_s if begin_s <= begin and end <= end_s
    )
    span_s = end_s - begin_s - evaluated_s
    return total / span_s if span_s > 0 else None


def fill_example_counts(data: PreparedData, reports: Sequence[RankReport]) -> PreparedData:
    """Return the data with missing numbers of examples filled in from the ranks' reports.

    They are from the first rank that trained. At least one rank must have trained.
    """
    chief = training_reports(reports)[0]
    return replace(
        data,
        train_examples=data.train_examples or chief.train_examples or None,
        test_examples=data.test_examples or chief.test_examples or None,
    )


def build_record(
    spec: RunSpec,
    attempt: int,
    reports: Sequence[RankReport],
    durations: Phases,
    environment: Environment,
    checks: Sequence[str],
    divergence: str,
) -> RunRecord:
    """Build the record of a run from the reports of its ranks.

    The caller adds whether the run resumed from a checkpoint.

    Args:
        spec: The specification of the run.
        attempt: Number of the attempt.
        reports: Reports of all ranks, in their order.
        durations: Phases of the run.
        environment: Host, job and code of the run.
        checks: Names of the checks that the run passed.
        divergence: How the run diverged; "" if it did not.

    Raises:
        RecordError: The result could not be read as a record.
    """
    record = RunRecord(
        schema_version=run_record.SCHEMA_VERSION,
        trainer_version=spec.trainer_version,
        axes=RunAxes(**msgspec.structs.asdict(spec.point), repeat=spec.repeat),
        derived=Derived(
            tasks=spec.geometry.tasks,
            gpus_per_task=spec.geometry.gpus_per_task,
            cpus_per_task=spec.cpus_per_task,
            replicas=spec.replicas,
            per_replica_batch_size=spec.per_replica_batch_size,
            global_batch_size=spec.global_batch_size,
            steps_per_epoch=steps_per_epoch(reports),
        ),
        parameters=spec.parameters,
        parameters_hash=spec.parameters_hash,
        attempt=attempt,
        phases=durations,
        metrics=compute_metrics(reports, durations.train_time_s),
        ranks=tuple(copy_fields(report, _SUMMARIES[type(report)]) for report in reports),
        environment=environment,
        trained_by=next((report.trained_by for report in training_reports(reports)), ""),
        warnings=collect_warnings(spec, reports),
        validity=Validity(
            valid=not divergence,
            status="diverged" if divergence else "ok",
            reason=divergence,
            checks=tuple(checks),
        ),
        short_run=step_estimates.describe_short_run(spec, training_reports(reports)),
        use=energy.sum_resource_use(reports, spec.geometry, spec.cpus_per_task),
    )
    return run_record.check_readable(record, run_record.RECORD)


def steps_per_epoch(reports: Sequence[RankReport]) -> int | None:
    """Return the number of steps in each epoch of the training.

    For a program it is the mean over its epochs; None if this is no whole number, or if the program
    has not reported steps and epochs.
    """
    if program_reports(reports):
        seen = first_observed(reports)
        if not seen.steps or not seen.epochs or seen.steps % len(seen.epochs):
            return None
        return seen.steps // len(seen.epochs)
    chief = training_reports(reports)[0]
    if chief.stopped is not None:
        return chief.stopped.steps_per_epoch
    # an earlier attempt may have made some of them, or all
    if chief.resumed_from is not None and chief.resumed_from.steps_per_epoch:
        return chief.resumed_from.steps_per_epoch
    return max(e.first_step + e.steps for e in chief.steps if e.epoch == 1)


def collect_warnings(spec: RunSpec, reports: Sequence[RankReport]) -> tuple[str, ...]:
    """Return the ranks' warnings for readers of the numbers, each once, in the order of ranks."""
    said = [w for report in training_reports(reports) for w in report.warnings]
    if program_reports(reports):
        said = _program_warnings(spec, reports)
    if off := [f"{r.rank} ({r.host})" for r in reports if r.clock.offset_s is UNSET]:
        times = "from the other ranks"
        if reports[0].clock.offset_s is UNSET:
            times = "right only as far as the clocks of the hosts agree"
        text = f"the launcher's clock did not answer rank {', '.join(off)}"
        said.append(f"{text}: the times of the run are {times}")
    if spanning := socket_warning(reports):
        said.append(spanning)
    return tuple(dict.fromkeys(said))


def socket_warning(reports: Sequence[RankReport]) -> str | None:
    """Return a warning if ranks run on several sockets although one has enough CPUs; else None."""
    found = [
        f"rank {report.rank} (CPUs {report.cpu_list})"
        for report in reports
        if len(report.sockets) > 1
        and report.cpus * (report.host_facts.sockets or 1) <= (report.host_facts.cpus_online or 0)
    ]
    if not found:
        return None
    return (
        f"{len(found)} of {len(reports)} ranks, such as {found[0]}, "
        "run on several sockets though one has enough CPUs: see `cpu_bind`."
    )


def _program_warnings(spec: RunSpec, reports: Sequence[RankReport]) -> list[str]:
    """Return warnings, for readers of the record, about what the programs reported."""
    seen = first_observed(reports)
    found = [text for report in program_reports(reports) for text in report.observed.warnings]
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
            "results: test_loss and test_accuracy are from the last one."
        )
    values = [each.metrics for each in seen.epochs]
    values += [each.metrics for each in seen.evaluations]
    shares = [_first_accuracy(each) for each in values]
    beyond = [share for share in shares if share is not None and not 0.0 <= share <= 1.0]
    if beyond:
        found.append(
            f"The program's accuracy {beyond[-1]:g} is no fraction from 0 to 1: no column has it. "
            "Report an accuracy in percent by another name, such as test_acc1, and compare it by "
            "`quality: {metric: test_acc1, direction: higher, best: 100}`."
        )
    return found


def write_steps(folder: Path, reports: Sequence[RankReport]) -> None:
    """Write the step times of every rank to CSV files in a folder.

    One file has the steps of the training, the other one the steps of computation alone.
    """
    steps = ["rank,epoch,first_step,steps,duration_s,input_wait_s"]
    steps += [
        f"{report.rank},{each.epoch},{each.first_step},{each.steps},{each.duration_s:.6f},"
        f"{each.input_wait_s:.6f}"
        for report in training_reports(reports)
        for each in report.steps
    ]
    compute = ["rank,step,duration_s"]
    compute += [
        f"{report.rank},{number},{duration:.6f}"
        for report in training_reports(reports)
        for number, duration in enumerate(report.compute_steps, 1)
    ]
    for name, lines in ((run_record.STEPS, steps), (run_record.COMPUTE_STEPS, compute)):
        atomic.write_text(folder / name, "\n".join(lines) + "\n")
