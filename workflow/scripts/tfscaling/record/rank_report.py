"""The reports of a run's ranks, one of each rank, from which the launcher builds the record.

`Rank` has the resources that any rank got; its subclasses add the results of their kind of work.
Records have the ranks without their raw measurements (`copy_fields`), which are in separate files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tfscaling.study.config_types import number_meta

Positive = Annotated[int, Meta(ge=1)]
FromZero = Annotated[int, Meta(ge=0)]
Examples = Annotated[int, number_meta("examples", ge=1)]
Amount = Annotated[float, Meta(ge=0)]
Above0 = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_S = TypeVar("_S", bound=msgspec.Struct)

#: Packages whose version can change a measurement of the trainer.
PACKAGES = ("tensorflow", "keras", "numpy")
#: Packages whose version can change a measurement of a program in a separate environment.
PROGRAM_PACKAGES = (*PACKAGES, "tf_keras", "torch", "jax", "jaxlib")


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class for parts of records and reports; unknown keys in a file are an error."""


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a rank's host; None if the system does not report one."""

    machine: str | None
    """Id of the running kernel: equal for all containers and processes on one machine."""
    packages: dict[str, str | None]
    """Name of a package → its version."""
    cpu_model: str | None = None
    cpu_mhz: float | None = None
    cpus_online: int | None = None
    sockets: int | None = None
    memory_gb: float | None = None
    network_mbit_per_s: dict[str, float | None] = msgspec.field(default_factory=dict)
    """Network interface → its speed in Mbit/s."""
    gpus: tuple[str, ...] = ()
    """Models of all GPUs of the host, in the driver's order; a GPU with slices (MIG) that the rank
    may use is replaced by these."""
    gpu_uuids: tuple[str, ...] = ()
    """UUIDs of all GPUs of the host, in the order of `gpus`."""
    gpu_driver: str | None = None
    kernel: str | None = None
    python: str | None = None
    modules: tuple[str, ...] = ()
    """Environment modules that the rank had loaded."""


#: Facts that should be equal on all hosts of a comparison; the others may differ.
COMPARED = (
    *("cpu_model", "memory_gb", "network_mbit_per_s", "gpus", "gpu_driver", "kernel", "modules"),
)


class RankClock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Offset of a rank's clock from the launcher's clock; unset if it is not known."""

    offset_s: float | UnsetType = UNSET
    """Seconds to add to the rank's time to get the launcher's time."""
    uncertainty_s: float | UnsetType = UNSET
    """Largest error of the offset in seconds."""


class GpuUse(Part, frozen=True, kw_only=True):
    """Energy and utilisation of a GPU while a rank worked; None if unknown."""

    uuid: str
    energy_j: Amount | None = None
    """Energy in joules, the difference of NVML's energy counter."""
    busy_share: Share | None = None
    """Share of the time in which a kernel ran, from NVML's utilisation once a second."""
    memory_gb: Amount | None = None
    """Peak of the GPU memory in GB that all processes use, sampled once a second."""


class ResourceUse(Part, frozen=True, kw_only=True):
    """Resources that a rank used from the start of its work to the end."""

    duration_s: Amount
    gpus: tuple[GpuUse, ...] = ()
    """Energy and utilisation of each of the rank's GPUs."""
    processors_energy_j: Amount | None = None
    """Energy of all processors of the node and their memory, by RAPL; null if it cannot be read, or
    if the job shares the node."""
    cpu_s: Amount = 0.0
    """CPU time in seconds of the rank and of the program that it runs."""
    memory_gb: Amount | None = None
    """Peak resident memory in GB of the rank's largest process; null if unknown."""
    sampling_cpu_s: Amount = 0.0
    """Part of `cpu_s` that these measurements themselves took."""
    unknown: tuple[str, ...] = ()
    """Sentences on what could not be measured, and why."""


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of rank reports: the resources that a rank got, such as host and devices.

    Parameter servers, and workers that a coordinator drives, report nothing else.
    """

    rank: FromZero
    job: str
    """The rank's job in TF_CONFIG, such as worker."""
    host: str
    devices: tuple[str, ...]
    """Names of the devices on which TensorFlow computes, such as GPU:0."""
    cpus: int
    """Number of CPUs on which the process may run."""
    cpu_list: str | None = None
    """Numbers of the CPUs on which the process may run, as the kernel lists them: 0-3,8."""
    numa_nodes: tuple[int, ...] = ()
    """Numbers of the NUMA nodes that have the rank's CPUs, each once."""
    sockets: tuple[int, ...] = ()
    """Numbers of the sockets that have the rank's CPUs, each once."""
    topology: str | None = None
    """Slurm's `SLURM_TOPOLOGY_ADDR`: the switches above the node, and the node."""
    cluster_hash: str
    """Checksum of the cluster: the addresses of all tasks, by job."""
    tensorflow_version: str | None
    """Version of TensorFlow; null for a rank of a program, which may not use it."""
    clock: RankClock
    """Offset from the launcher's clock; empty if the launcher did not answer."""
    host_facts: HostFacts
    start_s: float | None = None
    """When the first line of the process ran, in seconds since the epoch."""
    cluster_source: str | None = None
    """Source of the cluster: TF_CONFIG, slurm or single."""
    gpus_given: int | None = None
    """Number of GPUs that Slurm lets the task see; null if unknown."""
    gpus_visible: str | None = None
    """Value of CUDA_VISIBLE_DEVICES, or of AMD's or Intel's variable where that selects the
    GPUs."""
    gpu_names: tuple[str | None, ...] = ()
    """The driver's names of the GPUs that the task uses."""
    cpu_quota: float | None = None
    """CPU time that control groups allow, as a number of CPUs; null without a limit."""
    intra_op_threads: int | None = None
    """Number of TensorFlow's threads for one operation."""
    mpi_library: str | None = None
    """Name and version of the MPI library, if the strategy sums gradients by MPI."""
    use: ResourceUse | None = None
    """Energy, memory and CPU time that the rank used; null if not measured."""


class TrainedRank(Rank, frozen=True, kw_only=True):
    """A rank that ran the training loop: all ranks, or the coordinator of parameter servers."""

    replicas: int
    """Number of replicas of the strategy, over all ranks."""
    worker_devices: tuple[tuple[str, ...], ...] | None
    """For a coordinator, the devices of each worker that it drives; else null."""
    global_batch_size: int
    per_replica_batch_size: int
    examples_per_step: int
    """Number of examples in one update of the variables."""
    model_parameters: int
    flops_per_example: float | None = None
    """FLOPs of a training step per example, counted on the chief; null if they are not known."""
    data_sha256: str | None
    """Checksum of the data that was read; null if the prepared file stores none."""
    train_examples: int
    test_examples: int
    examples_trained: int
    """Number of trained examples over all epochs and replicas, without padding."""
    input_wait_s: float | None = None
    """Mean seconds that this rank waited for its pipeline in a step after the first; null for
    arrays."""
    diverged: str
    """Which value is not finite, and from which epoch on; empty if all are finite."""
    test_loss: float | None
    test_accuracy: float | None


class Epoch(Part, frozen=True, kw_only=True, omit_defaults=True):
    """One epoch of a training. Held-out values exist only if an evaluation followed it."""

    epoch: Positive
    loss: float | None
    """Training loss; null if a program reports none, or if it was NaN or infinite (the run diverged
    in this epoch)."""
    accuracy: float | None
    """Training accuracy; null if a custom model or a program measures none."""
    duration_s: float | None
    """Seconds of the epoch's training. For a program, they begin after its first step, or after the
    previous epoch and its evaluation. They end with the epoch, or when its evaluation begins. Null
    if the program reports no times."""
    metrics: dict[str, float | None] = msgspec.field(default_factory=dict)
    """Training metrics of a custom model with its own compile() settings, or all that a program
    reports: name → value, null where not finite."""
    test_loss: float | UnsetType | None = UNSET
    """Loss on held-out examples after this epoch; absent if the model was not evaluated then, null
    if the loss was NaN or infinite."""
    test_accuracy: Share | None = None
    """Accuracy on held-out examples after this epoch; null if it was not measured."""
    test_metrics: dict[str, float | None] = msgspec.field(default_factory=dict)
    """Metrics on held-out examples after this epoch, from the same sources as `metrics`."""
    ended_s: float | None = None
    """Seconds from the first line of the first rank to the end of the epoch and of its evaluation,
    without probes; null if the end was not observed."""
    evaluation_time_s: float | None = None
    """Seconds of the evaluation after this epoch."""

    @property
    def is_finite(self) -> bool:
        """Whether loss and test loss of the epoch are finite."""
        return self.loss is not None and self.test_loss is not None


class Execution(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive steps of an epoch in one call of a compiled function.

    `duration_s` is the time of all these steps in seconds. It includes `input_wait_s`, the seconds
    for which this rank waited for batches of a pipeline.
    """

    epoch: int
    first_step: int
    steps: int
    duration_s: float
    input_wait_s: float = 0.0


class ResumePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Position from which a rank resumed a training."""

    epoch: Positive
    step: FromZero
    """Number of this epoch's steps that were trained before."""
    examples: int
    """Number of examples that all replicas together had trained, in all epochs."""
    trained_s: float
    """Seconds of training up to this position."""
    steps_per_epoch: int
    """Number of steps of an epoch; 0 if no epoch was complete, so that it was unknown."""


class StopPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The point at which `stop_after_steps` ended a training, with facts for its projection."""

    steps_per_epoch: Positive
    """Number of steps in an epoch of the complete training."""
    evaluations: Positive
    """Number of evaluations that were made, with the evaluation after the training."""
    epoch_turn_s: float
    """Seconds from the last step of an epoch to the first step of the next one, without an
    evaluation. It is measured separately, after the training."""


class TrainingReport(TrainedRank, frozen=True, kw_only=True, tag="training", tag_field="kind"):
    """The report of a rank that trained."""

    epochs: tuple[Epoch, ...]
    steps: tuple[Execution, ...]
    """Calls of the compiled training function, in their order; each trains one or more steps."""
    compute_steps: tuple[float, ...] = ()
    """Seconds of each probe step: forward and backward pass without communication."""
    weights_sha256: str = ""
    """Checksum of the trained weights; empty if the training diverged."""
    trained_by: str = ""
    """How a custom model with its own compile() settings was trained, in words; else empty."""
    warnings: tuple[str, ...] = ()
    resumed_from: ResumePoint | None = None
    """Position from which the training resumed; null if it began with its first step."""
    stopped: StopPoint | None = None
    """Where `stop_after_steps` ended the training; null if the training ended otherwise."""


class ServerReport(Rank, frozen=True, kw_only=True, tag="server", tag_field="kind"):
    """The report of a parameter server, or of a worker that a coordinator drives."""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a rank's program from its start until `time_s`: steps, examples, wait for input."""

    #: Unix time in seconds at which the totals were taken.
    time_s: float
    steps: int
    #: Examples of this rank alone; None if not reported.
    examples: int | None = None
    #: Seconds that the program waited for its next batch; None if not reported.
    input_wait_s: float | None = None


class ObservedEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch of a program's training.

    At `time_s` the program had copied the epoch's metrics from the device, so all its steps were
    done.
    """

    epoch: int
    #: Unix time in seconds at which the epoch's last step had ended; None if the recipe's way to
    #: observe the program reports no times.
    time_s: float | None = None
    #: Metric, by the program's name for it → value; None where not finite.
    metrics: dict[str, float | None]
    #: Number of steps, then of examples, from the program's start to the end of this epoch; None if
    #: not reported.
    steps: int | None = None
    examples: int | None = None


class ObservedEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation of a program on held-out examples."""

    #: Number of the training epoch after which the evaluation took place; 0 before the first.
    epoch: int
    #: Unix time in seconds at which the evaluation began, then at which it had ended; None if the
    #: recipe's way to observe the program reports no times.
    begin_s: float | None = None
    time_s: float | None = None
    #: Metric, by the program's name without a prefix such as `val_` → value; None where not finite.
    metrics: dict[str, float | None]

    @property
    def span_s(self) -> tuple[float, float] | None:
        """Begin and end of the evaluation as Unix times in seconds; None if one is unknown."""
        if self.begin_s is None or self.time_s is None:
            return None
        return self.begin_s, self.time_s


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank's program reported about its training: times, totals, epochs, evaluations.

    A value that was not reported is None or empty. Times are Unix times in seconds by the clock of
    the rank's host. Counts are totals since the program's start.
    """

    #: When the program's packages had been imported.
    imported_s: float | None = None
    #: When the first step had ended.
    first_step_s: float | None = None
    #: When the last step had ended.
    last_step_s: float | None = None
    steps: int | None = None
    #: Number of examples of this rank alone.
    examples: int | None = None
    input_wait_s: float | None = None
    epochs: tuple[ObservedEpoch, ...] = ()
    evaluations: tuple[ObservedEvaluation, ...] = ()
    #: Totals at successive times, the first after the first step. The steps between two of them are
    #: a window. A GPU may lag behind the program's count of steps, except at an epoch's `time_s`,
    #: when the program has fetched values from it.
    windows: tuple[Totals, ...] = ()
    #: Warnings for readers of the record, one sentence each.
    warnings: tuple[str, ...] = ()

    @property
    def has_training(self) -> bool:
        """Whether the program has reported steps, epochs or evaluations."""
        return bool(self.steps or self.epochs or self.evaluations)

    @property
    def evaluation_spans_s(self) -> list[tuple[float, float]]:
        """Begin and end of each evaluation with known times, as Unix times in seconds."""
        return [span_s for each in self.evaluations if (span_s := each.span_s) is not None]


#: Prefixes of a program's metrics that are measured on held-out examples.
_HELD_OUT = ("test_", "val_", "validation_", "eval_")


def held_out_name(metric: str) -> str | None:
    """Return a held-out metric's name without its prefix, such as `accuracy` for `val_accuracy`.

    None if the metric is not measured on held-out examples.
    """
    prefix = next((prefix for prefix in _HELD_OUT if metric.startswith(prefix)), None)
    return None if prefix is None else metric.removeprefix(prefix)


class ProgramRank(Rank, frozen=True, kw_only=True):
    """A rank whose program ended with exit status 0."""

    program: tuple[str, ...]
    """Words of the program's command line, with all values filled in."""
    program_time_s: float
    """Seconds from the program's start to its end."""


class ProgramReport(ProgramRank, frozen=True, kw_only=True, tag="program", tag_field="kind"):
    """The report of a rank that ran a program.

    Attributes:
        observed: What the program reported about its training; empty if the recipe observes
            nothing.
    """

    observed: Observed = Observed()


#: The report of a rank of a training run.
RankReport = TrainingReport | ServerReport | ProgramReport


def copy_fields(source: msgspec.Struct, kind: type[_S]) -> _S:
    """Make an object of type `kind` from the fields of `source` with the same names.

    Args:
        source: An object that has all fields of `kind`, and maybe more.
        kind: The type.
    """
    return kind(**{name: getattr(source, name) for name in kind.__struct_fields__})


def training_reports(reports: Sequence[RankReport]) -> list[TrainingReport]:
    """Return the reports of ranks that ran the training loop.

    These are all ranks, or with parameter servers the coordinator.
    """
    return [report for report in reports if isinstance(report, TrainingReport)]


def program_reports(reports: Sequence[RankReport]) -> list[ProgramReport]:
    """Return the reports of ranks that ran a program."""
    return [report for report in reports if isinstance(report, ProgramReport)]


def first_observed(reports: Sequence[RankReport]) -> Observed:
    """Return the first report of a program about its training; an empty one if none reported."""
    observed = [report.observed for report in program_reports(reports)]
    return next((each for each in observed if each.has_training), Observed())
