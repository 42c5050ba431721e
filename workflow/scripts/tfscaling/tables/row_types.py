"""Rows of the tables of runs, epochs and configurations: each column is one field.

A column is a field of a row type, with its unit in its annotation. The types in CSV and Parquet
files, the JSON schema and the pages of the reference follow from the fields.
"""

from __future__ import annotations

import enum
import functools
import types
import typing
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec
from msgspec import Meta

from tfscaling.estimation.samples import COMPLETE_RUN_METRICS
from tfscaling.record.metrics import METRICS, NAN, PointMetrics, RunMetrics
from tfscaling.record.rank_report import PROGRAM_PACKAGES, Above0, Amount, FromZero, Positive
from tfscaling.record.run_states import RunState
from tfscaling.study.config_validation import Schema
from tfscaling.study.platforms import DeviceKind

#: Separates several values in a cell.
SEPARATOR = "; "
_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean"}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "pattern": "pattern"}


class Cells(Protocol):
    """A row whose cells are read by column name: a mapping or a `TypedRow`."""

    def __getitem__(self, column: str, /) -> Any:
        """Return the cell of a column."""

    def __contains__(self, column: object, /) -> bool:
        """Return whether the row has a column of this name."""


class TypedRow:
    """Base of row types: cells can also be read by column name, as in `row["nodes"]`."""

    __slots__ = ()

    def __getitem__(self, column: str, /) -> Any:
        """Return the cell of a column."""
        return getattr(self, column)

    def __contains__(self, column: object, /) -> bool:
        """Return whether the row has a column of this name."""
        return column in columns(type(self))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Column:
    """Description of a column of a table.

    Attributes:
        unit: Unit of the numbers; "" for pure numbers and texts.
        format: Format of texts by JSON Schema, such as date-time; "" for any text.
        may_be_empty: Whether the empty text is a value.
        description: The string literal below the field in the row type, for the reference.
        rules: JSON schema of the values, from the type of the field.
    """

    unit: str = ""
    format: str = ""
    may_be_empty: bool = False
    description: str = ""
    rules: Schema = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Type of the values by JSON Schema: string, integer, number or boolean."""
        if "enum" in self.rules:
            return "string"
        kinds = self.rules["type"]
        return str(kinds if isinstance(kinds, str) else kinds[0])

    @property
    def is_whole(self) -> bool:
        """Whether it has integers, written without a decimal point although cells may be empty."""
        return self.kind == "integer" and "null" in self.rules["type"]

    @property
    def schema(self) -> Schema:
        """JSON schema of a cell, with its description."""
        return {"description": self.description, "unit": self.unit, **self.rules}


@functools.cache
def columns(kind: type[msgspec.Struct]) -> dict[str, Column]:
    """Return name of a column → its description, for a row type, in the table's order.

    Fields of base classes come first, or after the field that the attribute `inherited_after` of
    the row type names.
    """
    return {
        key: each for name in field_order(kind) for key, each in field_columns(kind, name).items()
    }


@functools.cache
def _type_hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the types of a row type's fields, with their annotations."""
    return typing.get_type_hints(kind, include_extras=True)


def field_order(kind: type[msgspec.Struct]) -> list[str]:
    """Return the names of a row type's fields, also inherited ones, in the table's order."""
    own = [name for name in kind.__struct_fields__ if name in kind.__annotations__]
    bases = [base for base in kind.__bases__ if issubclass(base, msgspec.Struct)]
    inherited = (
        [name for base in bases for name in field_order(base)] if kind.__struct_fields__ else []
    )
    declared = vars(kind).get("inherited_after")
    after = own.index(declared) + 1 if declared else 0
    return [*own[:after], *(name for name in inherited if name not in own), *own[after:]]


@functools.cache
def field_columns(kind: type[msgspec.Struct], name: str) -> dict[str, Column]:
    """Return name of a column → its description, for one field of a row type.

    A field is one column. A field that is a mapping has a column for each of its keys.
    """
    hint = _type_hints(kind)[name]
    if typing.get_origin(hint) is not typing.Annotated:
        hint = typing.Annotated[hint, Column()]
    said = hint.__metadata__[-1]
    if isinstance(said, dict):
        value = _type_schema(typing.get_args(hint.__origin__)[1], ())
        return {key: replace(column, rules=column.rules or value) for key, column in said.items()}
    rules = _type_schema(hint.__origin__, hint.__metadata__)
    if hint.__origin__ is float:
        rules = _allow_null(rules)
    if name in METRICS:
        said = Column(METRICS[name].unit)
    column = said if isinstance(said, Column) else Column()
    if column.format:
        rules = {**rules, "format": column.format}
    return {name: replace(column, rules=rules)}


def _type_schema(kind: Any, metadata: tuple[Any, ...]) -> Schema:
    """Return the JSON schema of a type and its metadata, without a description."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        (other,) = (part for part in typing.get_args(kind) if part is not types.NoneType)
        return _allow_null(_type_schema(other, metadata))
    if typing.get_origin(kind) is typing.Annotated:
        return _type_schema(kind.__origin__, (*kind.__metadata__, *metadata))
    if typing.get_origin(kind) is Literal:
        return {"enum": list(typing.get_args(kind))}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [str(each) for each in kind]}
    bounds = {
        word: value
        for meta in metadata
        if isinstance(meta, Meta)
        for name, word in _BOUNDS.items()
        if (value := getattr(meta, name)) is not None
    }
    return {"type": _KINDS[kind], **bounds}


def _allow_null(rules: Schema) -> Schema:
    """Return a JSON schema that allows null, too."""
    if "enum" in rules:
        return {"enum": [*rules["enum"], None]}
    return {**rules, "type": [rules["type"], "null"]}


def enumeration(kind: type[msgspec.Struct], name: str) -> type[enum.Enum] | None:
    """Return the enumeration type of a row type's field; None if the field has another type."""
    hint = _type_hints(kind)[name]
    own = hint.__origin__ if typing.get_origin(hint) is typing.Annotated else hint
    return own if isinstance(own, type) and issubclass(own, enum.Enum) else None


#: Columns that several tables have.
Nodes = Annotated[Positive, Column("nodes")]
GpusPerNode = Annotated[FromZero, Column("GPUs")]
TasksPerNode = Annotated[str, Meta(pattern=r"^[1-9]\d*(\+[1-9]\d*)*$"), Column("tasks")]
Seconds = Annotated[float, Column("s")]
Usd = Annotated[float, Column("US dollars")]
Examples = Annotated[Positive | None, Column("examples")]
Steps = Annotated[Positive | None, Column("steps")]
Direction = Literal["higher", "lower"] | None
#: Why the times of a valid run do not count.
UntimedReason = Literal["resumed", "overlapping", "not steady", "not reported"]
#: A text that may be empty.
Text = Annotated[str, Column(may_be_empty=True)]
PointStatus = Literal[
    "ok",
    "incomplete",
    "diverged",
    "does_not_fit",
    "failed",
    "unfinished",
    "stale",
    "missing",
    "excluded",
]


class RunRow(RunMetrics, TypedRow):
    """A row of runs.csv: one planned run, whether it succeeded, failed or is missing.

    `quality` and costs depend on the configuration file; other metrics are from the run's record.
    """

    inherited_after: ClassVar[str] = "batch_scaling"

    platform: str = ""
    """The platform's name in the configuration."""
    model: str = ""
    """The model, a name or package.module:function."""
    strategy: str = ""
    """The distribution strategy."""
    recipe: str = ""
    """The recipe's name in the configuration."""
    nodes: Nodes = 1
    """Number of nodes."""
    gpus_per_node: GpusPerNode = 0
    """GPUs (or logical devices) on each node; 0 is the CPU."""
    tasks_per_node: TasksPerNode = "1"
    """Ranks on each node; "2+1" is two on the first and one on the second of two nodes."""
    repeat: Positive = 1
    """Number of the run among the runs of its configuration, from 1."""
    devices: DeviceKind = "CPU"
    """What each node trains on - its CPU, its GPUs, or logical devices, which are parts of its CPU
    that simulate GPUs."""
    status: RunState = RunState.MISSING
    """ok - the run counts; diverged - its loss became NaN or infinite; does_not_fit - out of
    memory; failed; unfinished - running or killed; stale - made by other code or from other
    data; missing."""
    reason: Text = ""
    """Why the run does not count; empty if it does."""
    untimed_reason: UntimedReason | None = None
    """Why the times of a valid run do not count: resumed - from a checkpoint (compare_resumed);
    overlapping - it ran at the same time as others with the local launcher; not steady - a short
    run whose steps still change; not reported - a short run whose epochs are unknown. Null if they
    count."""
    replicas: Annotated[Positive | None, Column("replicas")] = None
    """Copies of the model that train at the same time."""
    per_replica_batch_size: Annotated[Positive | None, Column("examples")] = None
    """Examples per step and replica."""
    global_batch_size: Annotated[Positive | None, Column("examples")] = None
    """Examples per step over all replicas."""
    batch_scaling: Literal["weak", "strong"] = "weak"
    """weak - the global batch grows with the replicas; strong - it stays."""
    quality: float = NAN
    quality_metric: str = ""
    """The metric by which the recipe's runs are compared."""
    quality_direction: Direction = None
    """Whether a higher or a lower quality is better."""
    quality_unit: str | None = None
    """Unit of the quality; null without one."""
    quality_best: float = NAN
    """The best possible value of the quality, such as 1 for an accuracy: runs are compared by their
    distance from it. null if the quality has no best value."""
    examples_trained: Examples = None
    """Examples trained over all epochs; null without a record."""
    share_of_peak: Amount = NAN
    cost_usd: Amount = NAN
    node_hours: Amount = NAN
    core_hours: Amount = NAN
    gpu_hours: Amount = NAN
    energy_usd: Amount = NAN
    energy_kg_co2: Amount = NAN
    energy_of: str | None = None
    """The parts that energy_kwh includes: GPUs, processors, or both; null if it is unknown."""
    target_reached: bool | None = None
    """Whether an epoch or evaluation reached the target of its quality in `question.limits`; null
    without a target, if the run does not count, and if it reports no quality."""
    time_to_target_s: Amount = NAN
    cost_to_target_usd: Amount = NAN
    usd_per_node_hour: Usd = NAN
    """Price of a node and hour with its GPUs; null without one."""
    memory_limit_gb: Annotated[Amount, Column("GB")] = NAN
    """For a run that does not fit in memory: memory of the GPU or of the job on a node, whichever
    ran out; null if unknown."""
    wall_time_s: Seconds = NAN
    """From the start of the launcher until all ranks have ended and are checked; null without a
    record."""
    attempt: Positive | None = None
    """Number of the attempt that made the record; null without a record."""
    failed_attempts: FromZero = 0
    """Attempts at the run that failed or were cancelled, whatever their parameters were."""
    lost_time_s: Seconds = NAN
    """Total wall time of the failed attempts as far as it is known, without training that a resumed
    run continues."""
    lost_cost_usd: Usd = NAN
    """Cost of the failed attempts; null without a price."""
    failed_too_often: bool = False
    """Whether 3 or more attempts at the run with its current parameters failed, not counting
    cancelled ones. A search does not retry such a run."""
    warnings: Text = ""
    """Warnings for readers of the numbers, separated by "; "; mostly empty."""
    projected_from_steps: Steps = None
    """Steps that a short run trained; execution_time_s, train_time_s, evaluation_time_s, cost_usd
    and examples_trained are then projected to the complete training. Null where they are measured.
    """
    projected_to_steps: Steps = None
    """Steps of the complete training, for a short run; null for other runs."""
    projection_error_s: Annotated[Amount, Column("s")] = NAN
    """Standard error of the projected time, from the scatter and trend of the steps in this run.
    More runs of the configuration do not reduce it. Null where the time is measured."""
    hosts: str | None = None
    """Hosts of the ranks, separated by spaces; null without a record."""
    machines: str | None = None
    """Boot identifier of the kernel on each host, the same for simulated nodes of one machine; null
    if one is unknown."""
    shared_with: Annotated[FromZero | None, Column("runs")] = None
    """Number of other runs that ran on one of its machines at the same time; null if unknown."""
    slowest_rank: FromZero | None = None
    """The rank with the longest computation; null where it was not measured."""
    slowest_host: str | None = None
    """Host of the slowest rank; null where slowest_rank is null."""
    clock_offset_max_s: Seconds = NAN
    """Largest difference between a rank's clock and the launcher's; null if no rank measured it."""
    clock_uncertainty_max_s: Seconds = NAN
    """Largest uncertainty of such a difference; null if no rank measured it."""
    cpu_model: str | None = None
    """Processor. Values that differ between ranks are separated by "; "; null without a record."""
    cpu_mhz: Annotated[float, Column("MHz")] = NAN
    """Lowest clock rate of the processor on any host; null if no host reports it."""
    cpus_online: Annotated[Positive | None, Column("CPUs")] = None
    """Number of CPUs of the host with the fewest; null if no host reports it."""
    memory_gb: str | None = None
    """Memory of a host in GB, as text. Values that differ between ranks are separated by "; "; null
    without a record."""
    network_mbit_per_s: str | None = None
    """Speeds of the network interfaces in Mbit/s, as a JSON object. Values that differ between
    ranks are separated by "; "; null without a record."""
    gpus: str | None = None
    """The driver's names of the GPUs, as a JSON list; null without any. Values that differ between
    ranks are separated by "; "; null without a record."""
    gpu_driver: str | None = None
    """Version of the GPU driver. Values that differ between ranks are separated by "; "; null
    without a record."""
    kernel: str | None = None
    """Release of the operating system's kernel. Values that differ between ranks are separated by
    "; "; null without a record."""
    modules: str | None = None
    """Environment modules that were loaded, a JSON list; null without any. Values that differ
    between ranks are separated by "; "; null without a record."""
    python: str | None = None
    """Version of Python. Values that differ between ranks are separated by "; "; null without a
    record."""
    packages: Annotated[dict[str, str | None], dict.fromkeys(PROGRAM_PACKAGES, Column())] = {}
    """Version of the package {column}; null where it is not used. Values that differ between ranks
    are separated by "; "; null without a record."""
    git_commit: str | None = None
    """Commit of the workflow, with -dirty after it if files had changed; null if unknown."""
    slurm_settings: str | None = None
    """Slurm's settings that place, bind and trace tasks, as a JSON object; null without Slurm."""
    started: Annotated[str | None, Column(format="date-time")] = None
    """Start of the launcher, by ISO 8601 with its zone; null without a record."""
    slurm_job_id: str | None = None
    """Number of the Slurm job; null without Slurm."""
    dataset: str | None = None
    """The data that the ranks read; null for a program that has its own data."""
    dataset_sha256: str | None = None
    """Checksum of the dataset."""
    unchecked: str | None = None
    """Requested properties that could not be checked, separated by "; "; mostly null."""
    parameters_hash: str = ""
    """Hash of all parameters of the run."""
    record: str | None = None
    """Path of run.json, from the project folder; null without a record for these parameters. For
    imported timings, their file and line."""

    def __getitem__(self, column: str, /) -> Any:
        """Return the cell of a column, also the version of a package."""
        return self.packages.get(column) if column in PROGRAM_PACKAGES else getattr(self, column)


class EpochRow(msgspec.Struct):
    """A row of epochs.csv: one epoch of a run that has a record and is not a short run."""

    platform: str
    model: str
    strategy: str
    recipe: str
    nodes: Nodes
    gpus_per_node: GpusPerNode
    tasks_per_node: TasksPerNode
    repeat: Positive
    status: RunState
    epoch: Positive
    """Number of the epoch, from 1."""
    loss: float
    """Training loss: mean over the epoch's examples while they are trained; null if it is not
    finite or a program reports none."""
    accuracy: float
    """Training accuracy: mean over the epoch's examples while they are trained; null if not
    measured."""
    duration_s: Seconds
    """Time of the epoch's training; null if a program does not report it."""
    test_loss: float
    """Loss on held-out examples after the epoch; null where it was not evaluated."""
    test_accuracy: float
    """Accuracy on held-out examples after the epoch; null where it was not evaluated."""
    evaluation_time_s: Seconds
    """Time of the evaluation after the epoch; null where it was not measured."""


class TableRow(TypedRow, msgspec.Struct):
    """Base of the rows of tables of conclusions."""


class AxesRow(TableRow):
    """Base of rows about a configuration on any platform: all axes but the platform; devices."""

    model: str
    strategy: str
    recipe: str
    nodes: int
    gpus_per_node: int
    tasks_per_node: str
    devices: str


class ConfigurationRow(AxesRow):
    """Base of rows about a configuration on one platform: its axes and devices."""

    inherited_after: ClassVar[str] = "platform"

    platform: str


_ENDS = {
    "min": "Least {} of the valid runs; null without any.",
    "max": "Greatest {} of the valid runs; null without any.",
    "low": "Lower end of the 95 % interval of {}; null below 6 valid runs.",
    "high": "Upper end of the 95 % interval of {}; null below 6 valid runs.",
}


#: What else the columns of COMPLETE_RUN_METRICS hold.
_COMPLETE_RUN = (
    " Of projected values it is the interval of one complete run; null below 3 short runs."
)

#: Name of a column → its description, for the ends of metrics' ranges and intervals, ranges first.
_SPREAD_COLUMNS = {
    f"{name}_{end}": replace(
        column,
        description=_ENDS[end].format(name)
        + _COMPLETE_RUN * (name in COMPLETE_RUN_METRICS and end in ("low", "high")),
    )
    for name, column in sorted(
        columns(PointMetrics).items(), key=lambda item: -len(METRICS[item[0]].ends)
    )
    for end in METRICS[name].ends
}


class PointRow(PointMetrics, TypedRow):
    """One row of results/<study>/comparison.csv: a configuration of the grid over all its runs.

    An empty cell is null; unit "" is a pure number or a text. Metrics are medians over the valid
    runs of the configuration.
    """

    inherited_after: ClassVar[str] = "projected_to_steps"

    platform: str = ""
    model: str = ""
    strategy: str = ""
    recipe: str = ""
    nodes: Nodes = 1
    gpus_per_node: GpusPerNode = 0
    tasks_per_node: TasksPerNode = "1"
    devices: DeviceKind = "CPU"
    platform_title: str = ""
    """Title of the platform in tables and plots."""
    cloud: str | None = None
    """The cloud on which the platform runs; null for a platform outside of clouds."""
    status: PointStatus = "missing"
    """ok - all runs are valid; incomplete - some are; diverged, does_not_fit, failed, unfinished,
    stale or missing - none is valid, and this is the most frequent status; excluded - the
    configuration is not run."""
    runs: Annotated[FromZero, Column("runs")] = 0
    """Number of valid runs, over which medians, ranges and intervals are computed."""
    runs_timed: Annotated[FromZero, Column("runs")] = 0
    """Number of valid runs whose times count, for medians, ranges and intervals of times, rates and
    costs. Lower than runs if the times of some do not count, see untimed_reason of runs.csv."""
    energy_of: str | None = None
    """The parts that energy_kwh includes; only energies of the same parts can be compared."""
    runs_planned: Annotated[Positive | None, Column("runs")] = None
    """Number of planned runs; null for an excluded configuration."""
    runs_diverged: Annotated[FromZero | None, Column("runs")] = None
    """Number of runs whose loss became NaN or infinite, which no median includes; null for an
    excluded configuration."""
    replicas: Annotated[Positive | None, Column("replicas")] = None
    """Copies of the model that train at the same time; null for an excluded configuration."""
    per_replica_batch_size: Examples = None
    """Examples per step and replica; null for an excluded configuration."""
    global_batch_size: Examples = None
    """Examples per step over all replicas; null for an excluded configuration."""
    batch_scaling: Literal["weak", "strong"] | None = None
    """weak - the global batch grows with the replicas; strong - it stays; null for an excluded
    configuration."""
    examples_trained: Examples = None
    """Median of the examples trained over all epochs; null unless all valid runs report them."""
    examples_trained_min: Examples = None
    """Fewest examples that a valid run trained; null where examples_trained is null."""
    examples_trained_max: Examples = None
    """Most examples that a valid run trained; null where examples_trained is null."""
    same_work: bool | None = None
    """Whether examples_trained equals the baseline's to 0.2 %; otherwise there is no speed-up.
    Without a measured baseline of the same model and recipe, it is compared with the highest value
    of the same platform, model, strategy and recipe. false if the runs differ from each other. Null
    where examples_trained is null."""
    projected_from_steps: Steps = None
    """Steps that short runs trained, from which times and costs of the complete training are
    projected; null where they are measured."""
    projected_to_steps: Steps = None
    quality_metric: str | None = None
    """The metric by which the recipe's runs are compared; values of different metrics are never
    compared. Null for an excluded configuration."""
    quality_direction: Direction = None
    quality_unit: str | None = None
    quality_best: float = NAN
    ends: Annotated[dict[str, float], _SPREAD_COLUMNS] = {}
    baseline: str | None = None
    """The configuration that speed-up is relative to, by its axes; null for an excluded
    configuration."""
    baseline_point: str | None = None
    """The baseline's configuration as a path below results/runs; null without a baseline."""
    baseline_execution_time_s: Annotated[Above0, Column("s")] = NAN
    """Median execution time of the baseline; null if it has no valid run with times."""
    target: float = NAN
    """The target of the configuration's quality in `question.limits`, in quality_unit; null without
    a target, and for an excluded configuration."""
    runs_at_target: Annotated[FromZero | None, Column("runs")] = None
    """Number of valid runs that reached the target; null without a target, for an excluded
    configuration, and if a valid run reports no quality."""
    reason: Text = ""
    """Why runs do not count, or why the configuration is not run; empty if nothing is wrong."""

    def __getitem__(self, column: str, /) -> Any:
        """Return the cell of a column, also an end of a metric's range or interval."""
        return self.ends.get(column, NAN) if column in _SPREAD_COLUMNS else getattr(self, column)
