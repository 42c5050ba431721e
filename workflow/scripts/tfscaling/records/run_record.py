"""Run records: their types, built from what the ranks left, checked, written at once.

The types are the one source of `workflow/schemas/run_record.schema.yaml`.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from tfscaling.files import atomic, strict_json
from tfscaling.records import phases
from tfscaling.records.events import Event, times
from tfscaling.records.phases import Phases
from tfscaling.records.rank_report import (
    Epoch,
    Fraction,
    Positive,
    Rank,
    RankReport,
    Sha256,
    TrainedRank,
    TrainingReport,
    summary,
)
from tfscaling.study.run_spec import JobSpec, Point, RunSpec, Value

SCHEMA_VERSION: Final = 3
RECORD, FAILURE, STEPS, EVENTS = "run.json", "failure.json", "steps.csv", "events.jsonl"
COMPUTE_STEPS = "compute_steps.csv"
#: Events' times are rounded to a millionth of a second.
CLOCK_TOLERANCE_S = 1e-3
_T = TypeVar("_T")
_R = TypeVar("_R", bound=msgspec.Struct)


class RecordError(ValueError):
    """A file is no record of this version."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a record: no other keys than these."""


class RunAxes(Point, frozen=True, kw_only=True):
    """The run's place in the grid."""

    repeat: Positive

    @property
    def axes(self) -> dict[str, str | int]:
        """Axis → value, in the order of the result folders; the last is the repeat."""
        return {**super().axes, "repeat": self.repeat}

    @property
    def point(self) -> Point:
        return summary(self, Point)


class Place(Part, frozen=True, kw_only=True):
    """What follows from axes and parameters about ranks and devices."""

    tasks: Positive
    gpus_per_task: Annotated[int, Meta(ge=0)]
    cpus_per_task: Positive
    replicas: Positive


class Derived(Place, frozen=True, kw_only=True):
    """What follows from axes and parameters."""

    per_replica_batch_size: Annotated[int, Meta(ge=1, extra_json_schema={"unit": "examples"})]
    global_batch_size: Annotated[int, Meta(ge=1, extra_json_schema={"unit": "examples"})]
    steps_per_epoch: Positive


class Computation(Part, frozen=True, kw_only=True):
    """A step's computation and the rest of it, and the slowest rank."""

    compute_time_s: Annotated[
        float | None,
        Meta(
            description="Median time of forward and backward pass alone of the median rank - "
            "measured without all-reduce and update on the same ranks at the same time; null with "
            "parameter servers."
        ),
    ]
    synchronisation_time_s: Annotated[
        float | None,
        Meta(
            description="step_time_s less compute_time_s - communication, waiting for slower "
            "ranks, and the update."
        ),
    ]
    straggler_ratio: Annotated[
        float | None,
        Meta(description="compute_time_s of the slowest rank over that of the median rank."),
    ]
    slowest_rank: Annotated[int | None, Meta(description="The rank with the longest computation.")]
    slowest_host: Annotated[str | None, Meta(description="Its host.")]


class Metrics(Computation, frozen=True, kw_only=True):
    """What the run measured besides its phases."""

    loss: Annotated[
        float | None,
        Meta(
            description="Mean over the last epoch's examples while they are trained - the total "
            "loss as Keras reports it, with the model's own losses such as regularisers; null only "
            "if the run diverged."
        ),
    ]
    accuracy: Annotated[
        Fraction | None,
        Meta(description="Likewise; null if a model of the user's measures no accuracy."),
    ]
    test_loss: Annotated[
        float | None,
        Meta(
            description="On held-out examples after training - the total loss likewise; null only "
            "if the run diverged."
        ),
    ]
    test_accuracy: Annotated[
        Fraction | None,
        Meta(
            description="On held-out examples after training; null if the run diverged, or as "
            "accuracy."
        ),
    ]
    step_time_s: Annotated[
        float | None,
        Meta(
            description="Median time of a step after the first execution on rank 0; null if there "
            "was no other."
        ),
    ]
    throughput_examples_per_s: Annotated[
        float | None,
        Meta(
            description="Examples of all steps after the first execution over train_time_s, "
            "without padding; null if there was no other."
        ),
    ]
    examples_trained: Annotated[
        int,
        Meta(
            ge=1,
            description="Examples really trained, over all epochs and replicas.",
            extra_json_schema={"unit": "examples"},
        ),
    ]
    epochs: Annotated[tuple[Epoch, ...], Meta(min_length=1)]


class PreparedData(Part, frozen=True, kw_only=True):
    """What the ranks read."""

    name: str
    source: Annotated[str, Meta(description="Where the data was fetched from.")]
    sha256: Annotated[
        Sha256,
        Meta(
            description="Of the whole prepared arrays; every rank that trained read a file with "
            "this checksum."
        ),
    ]
    train_examples: Annotated[int, Meta(ge=1, extra_json_schema={"unit": "examples"})]
    test_examples: Annotated[int, Meta(ge=1, extra_json_schema={"unit": "examples"})]


class SlurmJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What Slurm says of a job; what it does not say is None. Times are UTC."""

    id: str | None = None
    partition: str | None = None
    nodes: Annotated[str | None, Meta(description="As a node list, such as n[1-2].")] = None
    nodes_allocated: Annotated[str | None, Meta(description="Their number.")] = None
    cpus_allocated: Annotated[str | None, Meta(description="Likewise, on all nodes.")] = None
    submit: Annotated[str | None, Meta(description="When it was submitted.")] = None
    start: Annotated[str | None, Meta(description="When it started.")] = None
    tres: Annotated[str | None, Meta(description="What was allocated in all.")] = None
    tres_per_node: Annotated[str | None, Meta(description="What was requested per node.")] = None
    queue_time_s: Annotated[float | None, Meta(description="From submission to allocation.")] = None
    queue_time_reason: Annotated[str | None, Meta(description="Why queue_time_s is not known.")] = (
        None
    )
    boot_time_s: Annotated[
        float | None, Meta(description="From allocation to start, where Slurm boots nodes.")
    ] = None


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """On which host, when and from which code a job of ranks was made."""

    launcher_host: str
    git_commit: str | None
    slurm_job: SlurmJob | None
    slurm_settings: Annotated[
        dict[str, str] | None,
        Meta(description="Slurm's settings that place, bind and trace tasks."),
    ]
    started: str | None = None


class Environment(Origin, frozen=True, kw_only=True):
    """Where the run was made."""

    dataset: PreparedData
    unchecked: Annotated[
        tuple[str, ...],
        Meta(
            description="What could not be compared with the request - validity says nothing of it."
        ),
    ]


class Validity(Part, frozen=True, kw_only=True):
    """Whether the run counts.

    Records are written only for runs that passed every check, and for those that diverged and
    passed all others.
    """

    valid: bool
    status: Literal["ok", "diverged"]
    reason: Annotated[
        str,
        Meta(
            description="Empty, or how the run diverged, as in "
            '"diverged: loss is NaN from epoch 3".'
        ),
    ]
    checks: Annotated[
        tuple[str, ...], Meta(min_length=1, description="The checks that the run passed.")
    ]

    def __post_init__(self) -> None:
        is_ok = self.status == "ok"
        says_why = self.reason.startswith("diverged: ")
        if self.valid != is_ok or (bool(self.reason) if is_ok else not says_why):
            raise ValueError(
                f"valid {self.valid}, status {self.status} and reason {self.reason!r} contradict "
                "each other"
            )


class RunRecord(Part, frozen=True, kw_only=True):
    """run.json of one training run: how it was made, what it measured, whether it counts.

    A run whose loss is not finite diverged: it has a record, but counts in no median.
    """

    schema_version: Literal[3]
    trainer_version: int
    axes: RunAxes
    derived: Derived
    parameters: Annotated[
        dict[str, Value],
        Meta(
            description="Every parameter of the run (recipe, measured keys of the platform, seed, "
            "trainer_version)."
        ),
    ]
    parameters_hash: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    attempt: Annotated[
        int,
        Meta(
            ge=1,
            description="Which attempt at the run succeeded; folder attempt=N has its logs.",
        ),
    ]
    phases: Phases
    metrics: Metrics
    ranks: Annotated[tuple[Rank, ...], Meta(min_length=1, description="What each rank got.")]
    environment: Environment
    warnings: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(
            description="What a reader of the numbers has to know, one sentence each - such as "
            "settings of the user's model that the training does not use. Empty for most runs."
        ),
    ]
    validity: Validity

    def __post_init__(self) -> None:
        if self.validity.valid:
            learned = () if self.metrics.accuracy is None else ("test_accuracy",)
            for name in ("loss", "test_loss", *learned):
                if getattr(self.metrics, name) is None:
                    raise ValueError(f"metrics.{name}: null, but the run counts")
            if not all(epoch.is_finite for epoch in self.metrics.epochs):
                raise ValueError("metrics.epochs: a loss is null, but the run counts")

    @property
    def is_valid(self) -> bool:
        """Whether the run counts; else it diverged."""
        return self.validity.valid


def write_json(path: Path, content: object) -> None:
    """Write the whole file or nothing: readers never see half of it.

    Raises strict_json.NotFiniteError if a number is NaN or infinite: that is no JSON.
    """
    text = msgspec.json.format(strict_json.encode(content), indent=1).decode()
    atomic.write_text(path, text + "\n")


def read(path: Path) -> RunRecord | None:
    """A run record, or None if there is no file. Raises RecordError."""
    return decoded(path, _DECODER, SCHEMA_VERSION)


_DECODER = msgspec.json.Decoder(RunRecord)


def decoded(path: Path, decoder: msgspec.json.Decoder[_T], version: int) -> _T | None:
    """The record in a file, or None if there is no file.

    Raises RecordError with the file, the key and what is wrong.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    return parse(content, path, decoder, version)


def parse(
    content: bytes, where: object, decoder: msgspec.json.Decoder[_T], version: int = SCHEMA_VERSION
) -> _T:
    """The record in the content of a file, which errors call `where`. Raises RecordError."""
    try:
        return decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"{where}: {_problem(content, version, error)}") from error


def _problem(content: bytes, version: int, error: Exception) -> str:
    """`key: what is wrong`, from the message of msgspec; or that it is no JSON, or of a version."""
    try:
        plain = strict_json.loads(content.decode())
    except strict_json.NotFiniteError as not_finite:
        return (
            f"not JSON: {not_finite}; records made before schema_version 3 have it where a run "
            "diverged: run it again (docs/records.md)"
        )
    except ValueError as no_json:
        return f"not JSON: {no_json}"
    if not isinstance(plain, dict):
        return "not a JSON object"
    found = plain.get("schema_version")
    if isinstance(found, int) and found != version:
        age = "an earlier" if found < version else "a later"
        return (
            f"schema_version {found}, where {version} is read: made by {age} version of this "
            "workflow; run it again, or tabulate it with that version (docs/records.md)"
        )
    return _place(error)


def _place(error: Exception) -> str:
    """`key: what is wrong`, from the message of msgspec."""
    text, _, place = str(error).partition(" - at `$")
    place = place.rstrip("`").removeprefix(".")
    if named := re.fullmatch(r"Object (missing required|contains unknown) field `(.+)`", text):
        place = ".".join(filter(None, (place, named[2])))
        text = "missing" if named[1].startswith("missing") else "unknown key"
    return f"{place}: {text}" if place else text


def checked(record: _R, where: str) -> _R:
    """The record, if it is one that `read` would take. Raises RecordError with the key."""
    try:
        msgspec.json.decode(msgspec.json.encode(record), type=type(record))
    except msgspec.ValidationError as error:
        raise RecordError(f"{where}: {_place(error)}") from error
    return record


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
    trained_s, evaluated_s = (_last_by_epoch(rank_events, e) for e in ("epoch", "epoch_evaluated"))
    between_s = sum(evaluated_s[epoch] - trained_s[epoch] for epoch in evaluated_s)
    durations: dict[str, float] = {}
    begin_s = launch_s
    for name in phases.WALL_PHASES:
        event = phases.PHASES[name].event
        passed_s = end_s if event is None else last[event]
        durations[name] = passed_s - begin_s
        begin_s = passed_s
    durations["train_time_s"] -= between_s
    durations["evaluation_time_s"] += between_s
    job = slurm_job or SlurmJob()
    return Phases(
        queue_time_s=job.queue_time_s,
        boot_time_s=job.boot_time_s,
        **durations,
        execution_time_s=last["trained"] - first_line_s - between_s,
    )


def _last_by_epoch(rank_events: Sequence[Sequence[Event]], name: str) -> dict[int, float]:
    """Epoch → when the last rank passed the event `name` of that epoch."""
    last: dict[int, float] = {}
    for events in rank_events:
        for event in events:
            if event["event"] == name:
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
        if not 0.0 <= (value := getattr(durations, name)) < math.inf
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


def computation(reports: Sequence[RankReport], step_time_s: float | None) -> Computation:
    """A step's computation and the rest of it, and the slowest rank, from the ranks' own steps.

    `compute_time_s` is that of the median rank; the rest of a step is `synchronisation_time_s`:
    communication, waiting for slower ranks, the update. `straggler_ratio` is the slowest rank's
    computation over the median rank's.
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
    middle_s, slowest = statistics.median(medians.values()), max(medians, key=lambda k: medians[k])
    # the medians come from different samples, so the difference may be slightly negative
    rest_s = None if step_time_s is None else max(0.0, step_time_s - middle_s)
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


def metrics(reports: Sequence[RankReport], train_time_s: float) -> Metrics:
    """Metrics of a run: those of rank 0, the chief, and the computation of all ranks.

    Rates are totals over total time.
    """
    chief = trained(reports)[0]
    # the first execution compiles; if it was the only one, there is no steady state to report
    per_step = [execution.duration_s / execution.steps for execution in chief.steps[1:]]
    step_time_s = statistics.median(per_step) if per_step else None
    # an epoch's last step may be padded: no more examples than the epoch has
    of_epoch = chief.examples_trained / len(chief.epochs)
    first = min(chief.steps[0].steps * chief.examples_per_step, of_epoch)
    examples = chief.examples_trained - first if per_step else 0
    final = chief.epochs[-1]
    return Metrics(
        loss=final.loss,
        accuracy=final.accuracy,
        test_loss=chief.test_loss,
        test_accuracy=chief.test_accuracy,
        step_time_s=step_time_s,
        throughput_examples_per_s=examples / train_time_s if examples and train_time_s else None,
        examples_trained=chief.examples_trained,
        epochs=chief.epochs,
        **msgspec.structs.asdict(computation(reports, step_time_s)),
    )


def place_of(spec: JobSpec) -> Place:
    """What follows from the specification about ranks and devices."""
    return Place(
        tasks=spec.geometry.tasks,
        gpus_per_task=spec.geometry.gpus_per_task,
        cpus_per_task=spec.cpus_per_task,
        replicas=spec.replicas,
    )


def build(
    spec: RunSpec,
    attempt: int,
    reports: Sequence[RankReport],
    durations: Phases,
    environment: Environment,
    validity: Validity,
) -> RunRecord:
    """The record of a run whose ranks left these reports. Raises RecordError if it is none."""
    chief = trained(reports)[0]
    record = RunRecord(
        schema_version=SCHEMA_VERSION,
        trainer_version=spec.trainer_version,
        axes=RunAxes(**msgspec.structs.asdict(spec.point), repeat=spec.repeat),
        derived=Derived(
            **msgspec.structs.asdict(place_of(spec)),
            per_replica_batch_size=spec.per_replica_batch_size,
            global_batch_size=spec.global_batch_size,
            steps_per_epoch=sum(e.steps for e in chief.steps if e.epoch == 1),
        ),
        parameters=spec.parameters,
        parameters_hash=spec.parameters_hash,
        attempt=attempt,
        phases=durations,
        metrics=metrics(reports, durations.train_time_s),
        ranks=tuple(
            summary(r, TrainedRank if isinstance(r, TrainingReport) else Rank) for r in reports
        ),
        environment=environment,
        warnings=warnings(reports),
        validity=validity,
    )
    return checked(record, RECORD)


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


def warnings(reports: Sequence[RankReport]) -> tuple[str, ...]:
    """What the ranks warn of, each sentence once, in the order of the ranks."""
    return tuple(dict.fromkeys(w for report in trained(reports) for w in report.warnings))


def write_steps(folder: Path, reports: Sequence[RankReport]) -> None:
    """Raw step times of every rank as CSV, of the training and of computation alone."""
    steps = [
        f"{report.rank},{each.epoch},{each.first_step},{each.steps},{each.duration_s:.6f}"
        for report in trained(reports)
        for each in report.steps
    ]
    write_lines(folder / STEPS, ["rank,epoch,first_step,steps,duration_s", *steps])
    compute = [
        f"{report.rank},{number},{duration:.6f}"
        for report in trained(reports)
        for number, duration in enumerate(report.compute_steps, 1)
    ]
    write_lines(folder / COMPUTE_STEPS, ["rank,step,duration_s", *compute])


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write the whole text file or nothing."""
    atomic.write_text(path, "\n".join(lines) + "\n")
