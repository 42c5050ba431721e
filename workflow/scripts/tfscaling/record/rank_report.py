"""What the ranks of a run or a benchmark report, each in a file of its own.

`Rank` is what any rank got; the classes below it add what its kind of work gave. Records keep the
ranks without their raw measurements (`summary`), which stand in files of their own.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tfscaling.record.clock import Offset

Positive = Annotated[int, Meta(ge=1)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_K = TypeVar("_K")
_S = TypeVar("_S", bound=msgspec.Struct)

#: Packages whose version can change a measurement.
PACKAGES = ("tensorflow", "keras", "numpy")
#: Likewise for programs that run in a separate environment.
PROGRAM_PACKAGES = (*PACKAGES, "tf_keras", "torch", "jax", "jaxlib")


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's host; facts that the system does not give are None, never guessed."""

    machine: Annotated[str | None, Meta(description="The same for all hosts on one kernel.")]
    packages: Annotated[dict[str, str | None], Meta(description="Package: its version.")]
    cpu_model: str | None = None
    cpu_mhz: float | None = None
    cpus_online: int | None = None
    memory_gb: float | None = None
    network_mbit_per_s: Annotated[
        dict[str, float | None], Meta(description="Interface: its speed.")
    ] = msgspec.field(default_factory=dict)
    gpus: Annotated[tuple[str, ...], Meta(description="Names, in the driver's order.")] = ()
    gpu_uuids: Annotated[tuple[str, ...], Meta(description="Likewise.")] = ()
    gpu_driver: str | None = None
    kernel: str | None = None
    python: str | None = None
    modules: Annotated[
        tuple[str, ...], Meta(description="Environment modules that the rank had loaded.")
    ] = ()


#: Facts that should be the same on all hosts of a comparison; the others may differ.
COMPARED = (
    *("cpu_model", "memory_gb", "network_mbit_per_s", "gpus", "gpu_driver", "kernel", "modules"),
)


class RankClock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far the clock of a rank is off, as far as that is known."""

    offset_s: Annotated[
        float | UnsetType, Meta(description="Added to the rank's time it gives the launcher's.")
    ] = UNSET
    uncertainty_s: Annotated[
        float | UnsetType, Meta(description="The offset is right within this.")
    ] = UNSET

    @classmethod
    def of(cls, offset: Offset | None) -> RankClock:
        """Of an offset that was measured, or could not be."""
        return cls() if offset is None else cls(offset.offset_s, offset.uncertainty_s)


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank got. A server or worker of a coordinator reports no more."""

    rank: Annotated[int, Meta(ge=0)]
    job: Annotated[str, Meta(description="Its job in the cluster, such as worker.")]
    host: str
    devices: Annotated[tuple[str, ...], Meta(description="What TensorFlow computes on.")]
    cpus: Annotated[int, Meta(description="CPUs on which the process may run.")]
    cluster_hash: Annotated[str, Meta(description="Of the addresses of all tasks.")]
    tensorflow_version: Annotated[
        str | None, Meta(description="Null for a rank of a program, which need not use it.")
    ]
    clock: Annotated[
        RankClock, Meta(description="Against the launcher's clock; empty if it did not answer.")
    ]
    host_facts: HostFacts
    start_s: Annotated[
        float | None, Meta(description="First line of the process, in seconds since the epoch.")
    ] = None
    cluster_source: Annotated[
        str | None, Meta(description="What told the cluster: TF_CONFIG, slurm or single.")
    ] = None
    gpus_given: Annotated[
        int | None, Meta(description="GPUs that Slurm lets the task see; null: it does not say.")
    ] = None
    gpus_visible: Annotated[str | None, Meta(description="CUDA_VISIBLE_DEVICES.")] = None
    gpu_names: Annotated[
        tuple[str | None, ...], Meta(description="The driver's names of the task's GPUs.")
    ] = ()
    cpu_quota: Annotated[
        float | None, Meta(description="CPUs' worth of time that control groups leave.")
    ] = None
    intra_op_threads: Annotated[int | None, Meta(description="Threads of one operation.")] = None
    mpi_library: Annotated[
        str | None, Meta(description="The MPI library, if the strategy sums gradients by one.")
    ] = None


class NodeRate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one rank measured of its host while all others measured theirs."""

    rank: Annotated[int, Meta(ge=0)]
    host: str
    gflop_per_s: Annotated[
        float, Meta(gt=0, description="Of products of matrices in float32, on its CPUs.")
    ]
    cpu_mhz: Annotated[
        float | None, Meta(description="Clock of the processor then; null: the system tells none.")
    ] = None
    to_host: Annotated[str | None, Meta(description="Host of the next rank; null: none.")] = None
    mb_per_s: Annotated[
        float | None, Meta(description="Received by that host; 1 MB is 1,000,000 bytes.")
    ] = None


class SlowLink(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pair of neighbours; the first sends much more slowly than others do."""

    host: str
    to_host: str


class NodeCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The check of a run's nodes: what was measured, and what is much slower than its like."""

    duration_s: Annotated[float, Meta(ge=0, description="It is a part of launch_time_s.")]
    rates: tuple[NodeRate, ...]
    slow_hosts: Annotated[tuple[str, ...], Meta(description="The slowest first.")] = ()
    slow_links: tuple[SlowLink, ...] = ()

    @property
    def sentence(self) -> str:
        """What is slow, for the reader of the run's numbers; "" if nothing is."""
        links = ", ".join(f"{link.host} to {link.to_host}" for link in self.slow_links)
        parts = [f"nodes much slower than the others of the job: {', '.join(self.slow_hosts)}"]
        parts = parts if self.slow_hosts else []
        parts += [f"connections much slower than the others of the job: {links}"] if links else []
        return "; ".join(parts)


def judge_nodes(rates: Sequence[NodeRate], factor: float, duration_s: float) -> NodeCheck:
    """Compare each node with the others of its job.

    A node is slow if the median of the others is `factor` times its own value; a single node has no
    others. A host both of whose connections are slow is itself slow.
    """
    of_hosts: dict[str, list[float]] = {}
    of_links: dict[tuple[str, str], float] = {}
    for rate in rates:
        of_hosts.setdefault(rate.host, []).append(rate.gflop_per_s)
        if rate.to_host not in (None, rate.host) and rate.mb_per_s is not None:
            of_links[rate.host, str(rate.to_host)] = rate.mb_per_s
    computing = _slow({host: statistics.fmean(found) for host, found in of_hosts.items()}, factor)
    links = _slow(of_links, factor)
    both_ways = {a for a, _ in links} & {b for _, b in links}
    # the connections between two hosts do not show which of the two is slow
    cut_off = sorted(both_ways - set(computing)) if len(of_hosts) > 2 else []
    return NodeCheck(
        duration_s=round(duration_s, 3),
        rates=tuple(rates),
        slow_hosts=(*computing, *cut_off),
        slow_links=tuple(SlowLink(host=a, to_host=b) for a, b in links),
    )


def _slow(values: Mapping[_K, float], factor: float) -> list[_K]:
    """Keys whose others have a median of `factor` times their value, the slowest first."""
    found = []
    for key, value in values.items():
        others = [other for name, other in values.items() if name != key]
        if others and value * factor < statistics.median(others):
            found.append(key)
    return sorted(found, key=values.__getitem__)


class CheckedRank(Rank, frozen=True, kw_only=True):
    """A rank of the check before a run."""

    rate: NodeRate


class TrainedRank(Rank, frozen=True, kw_only=True):
    """A rank that ran the training loop: all ranks, or the coordinator of parameter servers."""

    replicas: Annotated[int, Meta(description="Of the strategy, over all ranks.")]
    worker_devices: Annotated[
        tuple[tuple[str, ...], ...] | None,
        Meta(description="A coordinator's workers and what they compute on."),
    ]
    global_batch_size: int
    per_replica_batch_size: int
    examples_per_step: Annotated[int, Meta(description="Of one update of the variables.")]
    model_parameters: int
    data_sha256: Annotated[
        str | None, Meta(description="Checksum of the arrays that were read, if the file has one.")
    ]
    train_examples: int
    test_examples: int
    examples_trained: Annotated[
        int, Meta(description="Over all epochs and replicas, without padding.")
    ]
    input_wait_s: Annotated[
        float | None,
        Meta(
            description="Mean wait of this rank for its pipeline in a step after the first; null "
            "for arrays."
        ),
    ] = None
    diverged: Annotated[str, Meta(description="How the loss is not finite, or empty.")]
    test_loss: float | None
    test_accuracy: float | None


class Epoch(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One epoch of a training; held-out values only where the model was evaluated after it."""

    epoch: Positive
    loss: Annotated[
        float | None,
        Meta(
            description="Null if it was NaN or infinite - the run diverged and this is its last "
            "epoch."
        ),
    ]
    accuracy: Annotated[
        float | None, Meta(description="Null if a model or a program of the user's measures none.")
    ]
    duration_s: Annotated[
        float | None,
        Meta(
            description="The training of the epoch; of a user's program all from the epoch or "
            "evaluation before it to the evaluation after it, with that where its beginning is not "
            "told; null if the program tells no times."
        ),
    ]
    metrics: Annotated[
        dict[str, float | None],
        Meta(description="Metrics of a model that trains itself; null where not finite."),
    ] = msgspec.field(default_factory=dict)
    test_loss: Annotated[
        float | UnsetType | None,
        Meta(
            description="On held-out examples after this epoch; only where the model was evaluated "
            "then; null as loss."
        ),
    ] = UNSET
    test_accuracy: Annotated[Fraction | None, Meta(description="Likewise.")] = None
    test_metrics: Annotated[
        dict[str, float | None], Meta(description="Likewise, on held-out examples.")
    ] = msgspec.field(default_factory=dict)
    ended_s: Annotated[
        float | None,
        Meta(
            description="From the first line of the first rank to the end of the epoch and of its "
            "evaluation, without probes; null where it was not observed, as in older records."
        ),
    ] = None
    evaluation_time_s: Annotated[
        float | None, Meta(description="The evaluation after this epoch.")
    ] = None

    @property
    def is_finite(self) -> bool:
        """Whether its losses are numbers."""
        return self.loss is not None and self.test_loss is not None


class Execution(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive steps of an epoch in one call of a compiled function.

    Where replicas average their weights every few steps, all steps up to and with an average; only
    the very first call is separate.

    `duration_s` includes `input_wait_s`, how long this rank waited for a pipeline's batch.
    """

    epoch: int
    first_step: int
    steps: int
    duration_s: float
    input_wait_s: float = 0.0


class AttributionRound(msgspec.Struct, frozen=True, array_like=True):
    """Mean seconds of a step in each of four ways.

    Real input is the training's input; kept is a batch that is on the devices already. Alone is
    forward and backward pass without all-reduce and update.
    """

    real_s: float
    kept_s: float
    real_alone_s: float
    kept_alone_s: float


class GradientNorms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Squared norms of gradients of parts of a batch and of the whole, in steps after an epoch.

    The weights do not change from one step to the next.
    """

    epoch: Positive
    part_examples: Annotated[int, Meta(ge=1, description="Examples of a part.")]
    whole_examples: Annotated[int, Meta(ge=2, description="Examples of all parts of a step.")]
    parts: Annotated[
        tuple[float, ...], Meta(description="Mean squared norm over the parts of each step.")
    ]
    whole: Annotated[
        tuple[float, ...],
        Meta(description="Squared norm of the mean of the parts' gradients of each step."),
    ]


class WentOn(msgspec.Struct, frozen=True, kw_only=True):
    """Where a training was when a rank resumed it."""

    epoch: Positive
    step: Annotated[int, Meta(ge=0, description="Steps of the epoch that were done.")]
    examples: Annotated[int, Meta(description="Examples of all replicas that were trained.")]
    trained_s: Annotated[float, Meta(description="Duration of that training.")]
    steps_per_epoch: Annotated[int, Meta(description="0 if the first epoch was not done.")]


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """How a training was ended by `stop_after_steps`."""

    steps_per_epoch: Annotated[int, Meta(ge=1, description="Of an epoch of the whole training.")]
    evaluations: Annotated[int, Meta(ge=1, description="Evaluations that the rank made.")]
    epoch_turn_s: Annotated[
        float,
        Meta(
            description="From the last step of an epoch to the first of the next without an "
            "evaluation, measured once more at the end."
        ),
    ]


class TrainingReport(TrainedRank, frozen=True, kw_only=True, tag="training", tag_field="kind"):
    """The report of a rank that trained."""

    epochs: tuple[Epoch, ...]
    steps: tuple[Execution, ...]
    compute_steps: Annotated[
        tuple[float, ...], Meta(description="Seconds of steps of computation alone.")
    ] = ()
    attribution: Annotated[
        tuple[AttributionRound, ...], Meta(description="Empty unless the recipe asks for it.")
    ] = ()
    gradient_norms: Annotated[tuple[GradientNorms, ...], Meta(description="Likewise.")] = ()
    weights_sha256: Annotated[
        str, Meta(description="Checksum of the trained weights; empty if the training diverged.")
    ] = ""
    trained_by: str = ""
    warnings: tuple[str, ...] = ()
    went_on: Annotated[
        WentOn | None, Meta(description="Null if the training began with its first step.")
    ] = None
    stopped: Annotated[
        Stopped | None, Meta(description="Null if the rank trained all epochs, or diverged.")
    ] = None


class ServerReport(Rank, frozen=True, kw_only=True, tag="server", tag_field="kind"):
    """The report of a parameter server, or of a worker that a coordinator drives."""


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

    @property
    def span_s(self) -> tuple[float, float] | None:
        """Begin and end; None if one is unknown."""
        if self.begin_s is None or self.time_s is None:
            return None
        return self.begin_s, self.time_s


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank's program reported of its training; None or nothing where it did not.

    Times are seconds since the epoch by the clock of the rank's host; counts are totals since the
    program's start.
    """

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

    @property
    def has_training(self) -> bool:
        """Whether anything of the training was observed."""
        return bool(self.steps or self.epochs or self.evaluations)

    @property
    def evaluation_spans_s(self) -> list[tuple[float, float]]:
        """(begin, end) of the evaluations whose times are known."""
        return [span_s for each in self.evaluations if (span_s := each.span_s) is not None]


#: Prefixes of a program's metrics of held-out examples.
_HELD_OUT = ("test_", "val_", "validation_", "eval_")


def held_out_name(metric: str) -> str | None:
    """`accuracy` for `val_accuracy`; None if the metric is not of held-out examples."""
    prefix = next((prefix for prefix in _HELD_OUT if metric.startswith(prefix)), None)
    return None if prefix is None else metric.removeprefix(prefix)


class ProgramRank(Rank, frozen=True, kw_only=True):
    """A rank on which a user's program ran; it ended with exit status 0."""

    program: Annotated[tuple[str, ...], Meta(description="Its words, with all values.")]
    program_time_s: Annotated[float, Meta(description="From its start to its end.")]


class ProgramReport(ProgramRank, frozen=True, kw_only=True, tag="program", tag_field="kind"):
    """The report of such a rank, with what was observed of the program; None: nothing."""

    observed: Observed | None = None

    @property
    def seen(self) -> Observed:
        """What was observed, also if it is nothing."""
        return self.observed or Observed()


#: The report of a rank of a training run.
RankReport = TrainingReport | ServerReport | ProgramReport


class TimedPayload(msgspec.Struct, frozen=True, kw_only=True):
    """How all-reduces of a payload were timed."""

    payload: Annotated[
        Literal["gradient", "sweep"],
        Meta(description="The model's gradient as its list of tensors, or one float32 tensor."),
    ]
    bytes: Positive
    tensors: Positive
    all_reduces_per_call: Annotated[
        int,
        Meta(
            ge=1,
            description="All-reduces one after the other in one call of a compiled function.",
        ),
    ]


class AllReduces(TimedPayload, frozen=True, kw_only=True):
    """A rank's times of one payload."""

    durations_s: Annotated[
        tuple[float, ...], Meta(description="Of one all-reduce in each repetition.")
    ]


class BenchmarkedRank(Rank, frozen=True, kw_only=True):
    """A rank that timed all-reduces."""

    replicas: int


class BenchmarkReport(
    BenchmarkedRank, frozen=True, kw_only=True, tag="benchmark", tag_field="kind"
):
    """The report of a rank of an all-reduce benchmark."""

    all_reduces: tuple[AllReduces, ...]


def summary(whole: msgspec.Struct, kind: type[_S]) -> _S:
    """`whole` with only the fields of `kind`, a base of its class."""
    return kind(**{name: getattr(whole, name) for name in kind.__struct_fields__})
