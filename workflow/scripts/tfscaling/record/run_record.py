"""Run records: their types, and how they are read, checked and written.

The launcher writes them, and tables, plan and search read them. The types are the source of
`workflow/schemas/run_record.schema.yaml`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from tfscaling.files import atomic, outside_text, strict_json
from tfscaling.files.program_errors import InputError
from tfscaling.record.phases import Phases
from tfscaling.record.rank_report import (
    Amount,
    Epoch,
    Examples,
    FromZero,
    Part,
    Positive,
    Rank,
    Sha256,
    Share,
    copy_fields,
)
from tfscaling.study.run_spec import Point, RunSpec, Value

SCHEMA_VERSION: Final = 3
RECORD, FAILURE, STEPS, EVENTS = "run.json", "failure.json", "steps.csv", "events.jsonl"
COMPUTE_STEPS = "compute_steps.csv"
#: In the folder of a run: the output of the launcher.
LAUNCH_LOG = "launch.log"
_T = TypeVar("_T")
_R = TypeVar("_R", bound=msgspec.Struct)
#: Fields of a rank that are objects: the file omits each of their keys by itself.
_PARTS_OF_RANK = ("host_facts", "use")


class RecordError(InputError):
    """A file is no record of this schema version; the message has file, key and problem."""


class RunAxes(Point, frozen=True, kw_only=True):
    """The axes of a run: its configuration's axes and its repeat."""

    repeat: Positive

    @property
    def axes(self) -> dict[str, str | int]:
        """Axis → value, in the order of the result folders; the last one is the repeat."""
        return {**super().axes, "repeat": self.repeat}

    @property
    def point(self) -> Point:
        """The configuration of the run."""
        return copy_fields(self, Point)


class Derived(Part, frozen=True, kw_only=True):
    """Numbers that are computed from the axes and parameters of a run."""

    tasks: Positive
    gpus_per_task: FromZero
    cpus_per_task: Positive
    replicas: Positive
    per_replica_batch_size: Examples
    global_batch_size: Examples
    steps_per_epoch: Positive | None
    """Number of steps in an epoch; null if a user's program does not report steps and epochs, or if
    its epochs have no whole number of steps on average."""


class Use(Part, frozen=True, kw_only=True):
    """Energy and utilisation of a run, from the start of its ranks to their end."""

    energy_kwh: Amount | None = None
    """Energy of the parts that `energy_of` names, from their counters. Null if the counters of the
    GPUs could not be read; for a run without GPUs, the counters of the processors."""
    energy_of: str = ""
    """The parts that energy_kwh includes: GPUs, processors (with memory), or both. Only energies of
    the same parts can be compared."""
    energy_unknown: tuple[str, ...] = ()
    """The counters that could not be read, and why."""
    gpu_busy_share: Share | None = None
    """Share of the time in which a kernel ran, mean over the GPUs; null without NVML."""
    gpu_memory_gb: Amount | None = None
    """Highest memory in use on any GPU, sampled once a second; null without NVML."""
    rank_memory_gb: Amount | None = None
    """Highest resident memory of any rank's largest process; null if it was not measured."""
    cpu_busy_share: Share | None = None
    """CPU time of the ranks / (duration × number of their CPUs); null if it was not measured."""


class Computation(Part, frozen=True, kw_only=True):
    """How the time of a step splits into computation and the rest, and the slowest rank."""

    compute_time_s: float | None
    """Seconds of a forward and backward pass, without all-reduce and update: median of the steps on
    the median rank. With an even number of ranks, the faster one of the two in the middle counts.
    Null with parameter servers, on one replica, and if the trainer measured no such steps."""
    synchronisation_time_s: float | None
    """step_time_s without input_wait_s and compute_time_s: communication, waiting for slower ranks,
    and the update. The wait for input is subtracted from each step separately."""
    straggler_ratio: float | None
    """Compute time of the slowest rank divided by compute_time_s of the median rank."""
    slowest_rank: int | None
    """The rank with the longest computation."""
    slowest_host: str | None
    """Host of the slowest rank."""


class HeldOutEvaluation(Part, frozen=True, kw_only=True):
    """An evaluation on held-out examples within an epoch."""

    epoch: Positive
    ended_s: float | None
    """Seconds from the first line of the first rank to the end of the evaluation; null if
    unknown."""
    metrics: dict[str, float | None]


class Metrics(Computation, frozen=True, kw_only=True):
    """Measurements of the run other than the durations of its phases."""

    loss: float | None
    """Training loss: mean over the examples of the last epoch, each measured while its batch is
    trained. It includes the model's own losses, as in Keras. Null if the run diverged, or if a
    program does not report it."""
    accuracy: Share | None
    """Training accuracy: mean over the examples of the last epoch; null if a custom model or a
    program measures none."""
    test_loss: float | None
    """Total loss on held-out examples after training; null if the run diverged, or if a program
    does not report it."""
    test_accuracy: Share | None
    """Accuracy on held-out examples after training; null if the run diverged, or if a custom model
    or a program measures none."""
    step_time_s: float | None
    """Median time of a step on rank 0, without the first call of the training function; null if
    there was only one call. For a program, it is computed from the reported totals of steps."""
    input_wait_s: float | None = None
    """Time of a step during which the rank waits for its pipeline, on the rank that waits longest:
    mean over the steps after the first call of the training function. Null for arrays, which are in
    memory."""
    throughput_examples_per_s: float | None
    """Examples of all steps after the first call of the training function, without padding, divided
    by train_time_s; null if there was only one call."""
    flops_per_example: Amount | None = None
    """FLOPs of a training step per example: three times the forward pass, as TensorFlow's profiler
    counts it, or the metric of this name that a program reports; null if they are not known."""
    examples_trained: Examples | None
    """Number of trained examples over all epochs and replicas; null if a user's program does not
    report it."""
    evaluations: tuple[HeldOutEvaluation, ...] = ()
    """Evaluations of a program within epochs. `epochs` has the last evaluation of each epoch."""
    epochs: tuple[Epoch, ...]
    """The epochs of the training; empty if a user's program reports none."""


#: File of user code → SHA-256, or installed package → version, as `user_code.Checksums`.
UserCode = dict[str, str]


class PreparedData(Part, frozen=True, kw_only=True):
    """The prepared data that the ranks of a run read."""

    # without a slash: a record from outside must not lead to a file in another folder
    name: Annotated[str, Meta(pattern="^[^/]+$")]
    """Name of the prepared file, without its folder and ending."""
    source: str
    """Name of the source from which the data was fetched."""
    sha256: Sha256
    """Checksum of the prepared arrays, or of a pipeline's code and its files' names and sizes.
    Every rank that trained found this checksum."""
    train_examples: Examples | None
    """Number of training examples; for a pipeline, the number in its first epoch. null if
    unknown."""
    test_examples: Examples | None
    """Number of held-out examples; for a pipeline, the number that was evaluated. null if unknown,
    for example if the run diverged before its first evaluation."""
    user_code: UserCode = {}
    """File of user code, relative to the project folder → SHA-256 of its code without comments;
    installed package → its version. Empty for the workflow's own models and datasets."""


class SlurmJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Slurm's facts about a job; None if unknown. Times are UTC."""

    id: str | None = None
    partition: str | None = None
    nodes: str | None = None
    """Node list, such as n[1-2]."""
    nodes_allocated: str | None = None
    """Number of allocated nodes."""
    cpus_allocated: str | None = None
    """Number of allocated CPUs on all nodes."""
    submit: str | None = None
    """Time of submission."""
    start: str | None = None
    """Time of the start."""
    tres: str | None = None
    """All allocated resources (TRES)."""
    tres_per_node: str | None = None
    """Requested resources per node."""
    queue_time_s: float | None = None
    """Seconds from submission to allocation."""
    queue_time_reason: str | None = None
    """Why queue_time_s is not known."""
    boot_time_s: float | None = None
    """Seconds from allocation to start, if Slurm boots nodes."""
    consumed_energy_j: float | None = None
    """Energy in joules of the job's ended steps, by the plugin AcctGatherEnergyType in
    slurm_settings; null without such a plugin."""
    restarts: int = 0
    """How often Slurm had restarted the job when these facts were read."""


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Host, time, code and data of the run."""

    launcher_host: str
    git_commit: str | None
    slurm_job: SlurmJob | None
    slurm_settings: dict[str, str] | None
    """Name → value of the Slurm settings for placing, binding and tracking tasks."""
    started: str | None = None
    user_code: UserCode = {}
    """File of user code, relative to the project folder → SHA-256 of its code without comments;
    installed package → its version. Empty for the workflow's own models and datasets."""
    dataset: PreparedData | None
    """The prepared data that the ranks read; null for a user's program that has its own data."""
    unchecked: tuple[str, ...]
    """Sentences on what the checks could not compare with the request. `validity` is unaffected."""
    container_sha256: Sha256 | None = None
    """Checksum of the container's image file; if the image is a folder, of the names, sizes and
    times of its files. Null without a container, or if the image is not a path on the launcher's
    host."""


class Validity(Part, frozen=True, kw_only=True):
    """Whether the run counts.

    Records are written only for runs that passed every check, and for diverged runs, which failed
    only the check of finite values.
    """

    valid: bool
    status: Literal["ok", "diverged"]
    reason: str
    """How the run diverged, as in "diverged: loss is NaN from epoch 3"; empty if the run counts."""
    checks: Annotated[tuple[str, ...], Meta(min_length=1)]
    """The checks that the run passed."""

    def __post_init__(self) -> None:
        """Check that `valid`, `status` and `reason` agree.

        Raises:
            ValueError: They contradict each other.
        """
        is_ok = self.status == "ok"
        says_why = self.reason.startswith("diverged: ")
        if self.valid != is_ok or (bool(self.reason) if is_ok else not says_why):
            raise ValueError(
                f"valid {self.valid}, status {self.status} and reason {self.reason!r} contradict "
                "each other"
            )


class StepBlock(Part, frozen=True, kw_only=True):
    """Consecutive steps of a training, with their total time."""

    steps: Positive
    """Number of steps."""
    duration_s: Amount
    """Seconds of all these steps together."""


class EarlierAttempt(Part, frozen=True, kw_only=True):
    """An interrupted attempt whose training the run continued."""

    attempt: Positive
    duration_s: float | None
    """Seconds from the first event of its ranks to the last; null without events."""
    steps: FromZero | None
    """Number of steps that it trained; null if that is not known."""
    cause: str
    """Why the attempt ended."""


class Resumption(Part, frozen=True, kw_only=True):
    """How an interrupted run resumed; step times and rates are from its last attempt.

    For a program only the attempts are known.
    """

    epoch: Positive | None
    """Number of the epoch with which the last attempt began."""
    step: FromZero | None
    """Number of steps of this epoch that were done before."""
    steps_repeated: int | None
    """Number of steps that were trained more than once; null if that is not known."""
    trained_before_s: float | None
    """Seconds of training in earlier attempts that were not repeated."""
    attempts: tuple[EarlierAttempt, ...]
    """The interrupted attempts, in their order."""

    @property
    def sentence(self) -> str:
        """A sentence for tables on how the run was interrupted and resumed."""
        numbers = ", ".join(str(each.attempt) for each in self.attempts)
        place = f" of epoch {self.epoch}, step {self.step}" if self.epoch is not None else ""
        known = self.steps_repeated is not None
        repeated = f" and repeated {self.steps_repeated} steps" if known else ""
        resumed_from = f"resumed from a checkpoint{place}{repeated}"
        return f"it was interrupted (attempt {numbers}) and {resumed_from}"


class ShortRun(Part, frozen=True, kw_only=True):
    """Steps of a run that ended early, and steps of the complete training.

    Phases and metrics of the record are measured values of the short run; the tables project the
    complete training from them.
    """

    steps: Positive
    """Number of trained steps."""
    steps_of_whole: Positive
    epochs: Positive
    """Number of epochs that were begun."""
    epochs_of_whole: Positive
    examples_of_whole: Examples
    """Number of examples of the complete training; for a custom input pipeline, extrapolated from
    the trained steps."""
    evaluations: Positive
    """Number of evaluations that were made."""
    evaluations_of_whole: Positive
    evaluation_time_s: Amount
    """Seconds of the last evaluation. Earlier evaluations may include compilation."""
    epoch_turn_s: Amount
    """Seconds from the last step of an epoch to the first step of the next one, without an
    evaluation, on the slowest rank."""
    steady: Annotated[tuple[StepBlock, ...], Meta(min_length=2)]
    """Blocks of the steps after the first execution, in their order, on the chief."""


class RunRecord(Part, frozen=True, kw_only=True):
    """run.json of one training run: how it was made, what it measured, whether it counts.

    A run whose loss is not finite diverged: it has a record, but is in no median.
    """

    schema_version: Literal[3]
    trainer_version: int
    axes: RunAxes
    derived: Derived
    parameters: dict[str, Value]
    """Every parameter of the run (recipe, measured keys of the platform, seed, trainer_version)."""
    parameters_hash: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    attempt: Positive
    """Number of the attempt that succeeded; the folder attempt=N has its logs."""
    phases: Phases
    metrics: Metrics
    ranks: Annotated[tuple[Rank, ...], Meta(min_length=1)]
    """Resources that each rank got and used. In the file, a rank omits keys whose values equal the
    previous rank's, also in `host_facts` and `use`; a rank with `cluster_hash` is complete."""
    environment: Environment
    warnings: tuple[Annotated[str, Meta(min_length=1)], ...]
    """Warnings for readers of the numbers, one sentence each - such as settings of a custom
    model that the training does not use. Empty for most runs."""
    validity: Validity
    trained_by: str = ""
    """How a custom model with its own compile() settings was trained: its optimizer, loss, metrics
    and methods, in words. Empty if the recipe's optimizer and the cross-entropy trained it."""
    resumed: Resumption | None = None
    """How the run resumed from a checkpoint; null if it did not."""
    short_run: ShortRun | None = None
    """How much of the complete training the run trained, if `stop_after_steps` ended it; else
    null."""
    use: Use = Use()

    def __post_init__(self) -> None:
        """Check that a run of the built-in trainer has all values that it must have.

        Raises:
            ValueError: A value is missing.
        """
        if self.is_of_program:
            return  # it need not report anything
        if unknown := self.phases.unknown_phases():
            raise ValueError(f"phases.{unknown[0]}: null")
        for name, known in (
            ("metrics.examples_trained", self.metrics.examples_trained),
            ("metrics.epochs", self.metrics.epochs),
            ("derived.steps_per_epoch", self.derived.steps_per_epoch),
            ("environment.dataset", self.environment.dataset),
        ):
            if not known:
                raise ValueError(f"{name}: missing")
        if self.validity.valid:
            learned = () if self.metrics.accuracy is None else ("test_accuracy",)
            for name in ("loss", "test_loss", *learned):
                if getattr(self.metrics, name) is None:
                    raise ValueError(f"metrics.{name}: null, but the run counts")
            if not all(epoch.is_finite for epoch in self.metrics.epochs):
                raise ValueError("metrics.epochs: a loss is null, but the run counts")

    @property
    def is_of_program(self) -> bool:
        """Whether a program trained, not the built-in trainer."""
        return bool(self.parameters.get("program"))

    @property
    def is_valid(self) -> bool:
        """Whether the run counts; False for a diverged run."""
        return self.validity.valid


class DoesNotFit(Part, frozen=True, kw_only=True):
    """run.json of a run that ran out of memory: a result without times and metrics."""

    schema_version: Literal[3] = SCHEMA_VERSION
    status: Literal["does_not_fit"] = "does_not_fit"
    axes: RunAxes
    parameters: dict[str, Value]
    parameters_hash: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    attempt: Positive
    reason: Annotated[str, Meta(min_length=1)]
    """Which rank ran out of memory, with its message, and its log."""
    environment: Environment
    wall_time_s: Amount | None = None
    """Seconds from the start of the launcher to this record; null if Slurm ended the launcher,
    too."""
    rank_memory_gb: Amount | None = None
    """Highest resident memory in GB of a rank that reported it before it ended; else null."""
    gpu_memory_gb: Amount | None = None
    """Highest memory in use on a rank's GPU, in GB, of the ranks that reported it before they
    ended; null if none did."""
    memory_limit_gb: Amount | None = None
    """Memory in GB of the GPU if a GPU ran out of memory, else of the job on a node; null if
    unknown."""

    @classmethod
    def from_spec(
        cls, spec: RunSpec, attempt: int, reason: str, environment: Environment, **memory: Any
    ) -> DoesNotFit:
        """Return the record of a run that ran out of memory.

        Args:
            spec: What was run.
            attempt: Number of the attempt.
            reason: Which rank ran out of memory, with its message.
            environment: Host, job and code of the run.
            **memory: The other keys: peaks of memory, the limit and the wall time.
        """
        return cls(
            axes=RunAxes(**msgspec.structs.asdict(spec.point), repeat=spec.repeat),
            parameters=spec.parameters,
            parameters_hash=spec.parameters_hash,
            attempt=attempt,
            reason=reason,
            environment=environment,
            **memory,
        )


def write_json(path: Path, content: object) -> None:
    """Write an object that msgspec supports as an indented JSON file, completely or not at all.

    Raises:
        strict_json.NotFiniteError: If a number is NaN or infinite.
    """
    text = msgspec.json.format(strict_json.encode(content), indent=1).decode()
    atomic.write_text(path, text + "\n")


def write_record(path: Path, record: RunRecord) -> None:
    """Write the record of a run; of each rank only changed keys, see `RunRecord.ranks`.

    Raises:
        strict_json.NotFiniteError: If a number is NaN or infinite.
    """
    plain = msgspec.json.decode(strict_json.encode(record))
    first, *_ = ranks = plain["ranks"]
    plain["ranks"] = [first, *(_omit_repeated_values(*both) for both in itertools.pairwise(ranks))]
    write_json(path, plain)


def _omit_repeated_values(before: dict[str, Any], rank: dict[str, Any]) -> dict[str, Any]:
    """Return a rank without the values that equal the previous rank's values.

    Args:
        before: All values of the previous rank.
        rank: All values of the rank.
    """
    if before.keys() != rank.keys() or before["cluster_hash"] != rank["cluster_hash"]:
        return rank
    found = {k: v for k, v in rank.items() if k in ("rank", "host") or v != before[k]}
    for part in _PARTS_OF_RANK:
        if found.get(part) and before[part]:
            found[part] = {k: v for k, v in rank[part].items() if v != before[part][k]}
    return found


def restore_omitted_keys(ranks: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the ranks of a record's file with the keys that `write_record` has omitted."""
    before: dict[str, Any] = {}
    for rank in ranks:
        if "cluster_hash" in rank:
            before = rank
        else:
            parts = [key for key in _PARTS_OF_RANK if rank.get(key) and before.get(key)]
            before = before | rank | {key: before[key] | rank[key] for key in parts}
        yield before


def read_record(path: Path) -> RunRecord | None:
    """Read the record of a run that trained; None without a file, or if it ran out of memory.

    Raises:
        RecordError: If the file cannot be read.
    """
    found = read_outcome(path)
    return found if isinstance(found, RunRecord) else None


def read_outcome(path: Path) -> RunRecord | DoesNotFit | None:
    """Read the record of a run that trained or that ran out of memory; None without a file.

    Raises:
        RecordError: If the file cannot be read.
    """
    try:
        return read_as(path, RunRecord, SCHEMA_VERSION)
    except RecordError:
        with contextlib.suppress(RecordError):
            return read_as(path, DoesNotFit, SCHEMA_VERSION)
        raise


def node_hours(record: RunRecord | DoesNotFit) -> float:
    """Return the node-hours of the attempt that made the record; 0 if its time is unknown."""
    wall_time_s = record.phases.wall_time_s if isinstance(record, RunRecord) else record.wall_time_s
    return record.axes.nodes * (wall_time_s or 0.0) / 3600


def read_as(path: Path, kind: type[_T], version: int = 0) -> _T | None:
    """Read a JSON file as an object of type `kind`; None if the file does not exist.

    Args:
        path: The file.
        kind: Type of the record.
        version: Schema version that it must have; 0 for any.

    Raises:
        RecordError: With the file, the key and the problem.
    """
    try:
        content = _read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_record(content, path, kind, version)


def _read_file(path: Path) -> bytes:
    """Return the content of a regular file.

    Pipes and devices are rejected, because reading them might never end.

    Raises:
        OSError: If the file cannot be read.
        RecordError: If it is no regular file.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise RecordError(f"{path}: no regular file, but a folder, pipe or device")
    with os.fdopen(number, "rb") as file:
        return file.read()


def parse_record(content: bytes, where: object, kind: type[_T], version: int = 0) -> _T:
    """Return the object in the content of a record's file.

    The file may come from somebody else. So control characters in all texts but `parameters` are
    replaced by visible escapes, and every text can be printed.

    Args:
        content: The content.
        where: Name of the file for messages.
        kind: Type of the record.
        version: Schema version that it must have; 0 for any.

    Raises:
        RecordError: With the key and the problem.
    """
    try:
        if not outside_text.may_have_hidden_characters(content):
            with contextlib.suppress(msgspec.ValidationError):
                return msgspec.json.decode(content, type=kind)
        return msgspec.convert(_decode_complete(content), kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = outside_text.make_visible(_describe_decode_error(content, version, error))
        raise RecordError(f"{where}: {outside_text.shorten(text, 'this file')}") from error


def _decode_complete(content: bytes) -> Any:
    """Return a record's content as plain objects, with the keys that `write_record` has omitted.

    Control characters in texts are replaced by visible escapes. The parameters stay unchanged,
    because they are compared with the parameters in the configuration.
    """
    plain = msgspec.json.decode(content)
    with contextlib.suppress(AttributeError, KeyError, TypeError):  # no record
        plain["ranks"] = [*restore_omitted_keys(plain["ranks"])]
    # most records of several ranks have only visible characters, and a walk through them takes long
    if not isinstance(plain, dict) or not outside_text.may_have_hidden_characters(content):
        return plain
    exact = {key: value for key, value in plain.items() if key == "parameters"}
    return outside_text.make_texts_visible(plain) | exact


def _describe_decode_error(content: bytes, version: int, error: Exception) -> str:
    """Return why a record cannot be decoded: no JSON, another version, or `key: what is wrong`.

    Args:
        content: The content of the file.
        version: The schema version that is read.
        error: The error of the decoder.
    """
    try:
        plain = strict_json.loads(content.decode())
    except strict_json.NotFiniteError as not_finite:
        return f"not JSON: {not_finite}"
    except ValueError as no_json:
        return f"not JSON: {no_json}"
    if not isinstance(plain, dict):
        return "not a JSON object"
    found = plain.get("schema_version")
    if isinstance(found, int) and found != version:
        age = "an earlier" if found < version else "a later"
        return (
            f"schema_version {found}, where {version} is read: made by {age} version of this "
            "workflow; run it again, or tabulate it with that version (docs/reference-record.md)"
        )
    return _describe_msgspec_error(error)


def _describe_msgspec_error(error: Exception) -> str:
    """Return `key: what is wrong` from an error of msgspec."""
    text, _, place = str(error).partition(" - at `$")
    place = place.rstrip("`").removeprefix(".")
    if named := re.fullmatch(r"Object (missing required|contains unknown) field `(.+)`", text):
        place = ".".join(filter(None, (place, named[2])))
        text = "missing" if named[1].startswith("missing") else "unknown key"
    return f"{place}: {text}" if place else text


def check_readable(record: _R, where: str) -> _R:
    """Check that a record, once written to a file, could be read again; return it unchanged.

    Args:
        record: The record.
        where: Name of the file for messages.

    Raises:
        RecordError: A value is not allowed in the file; the message has its key.
    """
    try:
        msgspec.json.decode(msgspec.json.encode(record), type=type(record))
    except msgspec.ValidationError as error:
        raise RecordError(f"{where}: {_describe_msgspec_error(error)}") from error
    return record
