"""Rows of the tables of runs, epochs and points: each column is one field."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from tfscaling.record.attempts import ATTEMPTS_MAX
from tfscaling.record.metrics import (
    COST,
    COST_TO_TARGET,
    METRICS,
    NAN,
    OF_QUALITY,
    TIME_TO_TARGET,
    Above0,
    Amount,
    Metric,
    PointMetrics,
    RunMetrics,
)
from tfscaling.record.rank_report import PROGRAM_PACKAGES
from tfscaling.record.run_states import RunState
from tfscaling.spec.platforms import DeviceKind
from tfscaling.tables.columns import Column, TypedRow, columns

_NO_RECORD = "null without a record"
_RANKS = f'Values that differ between ranks are separated by "; "; {_NO_RECORD}.'
_EXCLUDED = "null for an excluded point."

Count = Annotated[int, Meta(ge=1)]
FromZero = Annotated[int, Meta(ge=0)]
Platform = Annotated[str, Column("The platform's name in the configuration.")]
Model = Annotated[str, Column("The model, a name or package.module:function.")]
Strategy = Annotated[str, Column("The distribution strategy.")]
Recipe = Annotated[str, Column("The recipe's name in the configuration.")]
Nodes = Annotated[Count, Column("Number of nodes.", "nodes")]
GpusPerNode = Annotated[
    FromZero, Column("GPUs (or logical devices) on each node; 0 is the CPU.", "GPUs")
]
TasksPerNode = Annotated[
    str,
    Meta(pattern=r"^[1-9]\d*(\+[1-9]\d*)*$"),
    Column(
        'Ranks on each node; "2+1" is two on the first and one on the second of two nodes.', "tasks"
    ),
]
Devices = Annotated[
    DeviceKind,
    Column(
        "What each node trains on - its CPU, its GPUs, or logical devices, which are "
        "parts of its CPU and stand for GPUs."
    ),
]
Repeat = Annotated[Count, Column("Which run of its point, from 1.")]
RunStatus = Annotated[
    RunState,
    Column(
        "ok - the run counts; diverged - its loss became NaN or infinite; failed; unfinished - it "
        "runs, or was killed; stale - made with other parameters, code or data; missing."
    ),
]
PointStatus = Literal[
    "ok", "incomplete", "diverged", "failed", "unfinished", "stale", "missing", "excluded"
]
QualityDirection = Annotated[
    Literal["higher", "lower"] | None, Column("Whether its higher or lower value is better.")
]
QualityUnit = Annotated[str | None, Column("Its unit; null where it has none.")]
QualityBest = Annotated[
    float,
    Column(
        "Its best possible value, from which values are compared by their distance; null where it "
        "has none."
    ),
]
ProjectedToSteps = Annotated[
    Count | None,
    Column("Steps of the whole training of short runs; null of others.", "steps", is_whole=True),
]
_PER_REPLICA = "Examples per step and replica"
_GLOBAL = "Examples per step over all replicas"


_PACKAGES = {
    name: Column(f"Version of {name}; null where it is not used. {_RANKS}")
    for name in PROGRAM_PACKAGES
}


class RunRow(RunMetrics, TypedRow):
    """A row of runs.csv: one run, also one that failed or is missing.

    `quality` and costs need the configuration; other metrics are those of the record.
    """

    inherited_after: ClassVar[str] = "batch_scaling"

    platform: Platform = ""
    model: Model = ""
    strategy: Strategy = ""
    recipe: Recipe = ""
    nodes: Nodes = 1
    gpus_per_node: GpusPerNode = 0
    tasks_per_node: TasksPerNode = "1"
    repeat: Repeat = 1
    devices: Devices = "CPU"
    status: RunStatus = RunState.MISSING
    reason: Annotated[
        str, Column("Why the run does not count; empty if it does.", may_be_empty=True)
    ] = ""
    replicas: Annotated[
        Count | None, Column("Copies of the model that train at the same time.", "replicas")
    ] = None
    per_replica_batch_size: Annotated[Count | None, Column(f"{_PER_REPLICA}.", "examples")] = None
    global_batch_size: Annotated[Count | None, Column(f"{_GLOBAL}.", "examples")] = None
    batch_scaling: Annotated[
        Literal["weak", "strong"],
        Column("weak - the global batch grows with the replicas; strong - it stays."),
    ] = "weak"
    quality: Annotated[float, OF_QUALITY] = NAN
    quality_metric: Annotated[
        str, Column("The metric by which the recipe's runs are compared.")
    ] = ""
    quality_direction: QualityDirection = None
    quality_unit: QualityUnit = None
    quality_best: QualityBest = NAN
    examples_trained: Annotated[
        Count | None,
        Column(f"Examples trained over all epochs; {_NO_RECORD}.", "examples", is_whole=True),
    ] = None
    cost_usd: Annotated[Amount, COST] = NAN
    target_reached: Annotated[
        bool | None,
        Column(
            "Whether an epoch or evaluation reached the target of its quality in "
            "comparison.targets; null without a target, and unless the run counts."
        ),
    ] = None
    time_to_target_s: Annotated[Amount, TIME_TO_TARGET] = NAN
    cost_to_target_usd: Annotated[Amount, COST_TO_TARGET] = NAN
    usd_per_node_hour: Annotated[
        float, Column("Price of a node and hour with its GPUs; null without one.", "US dollars")
    ] = NAN
    wall_time_s: Annotated[
        float, Column(f"Start of the launcher to all ranks ended and checked; {_NO_RECORD}.", "s")
    ] = NAN
    attempt: Annotated[
        Count | None, Column(f"Which attempt at the run succeeded; {_NO_RECORD}.")
    ] = None
    failed_attempts: Annotated[
        FromZero,
        Column(
            "Attempts at the run that failed or were cancelled, whatever their parameters were."
        ),
    ] = 0
    lost_time_s: Annotated[
        float,
        Column("Their wall time together; that of a launcher that was killed is not known.", "s"),
    ] = NAN
    lost_cost_usd: Annotated[
        float, Column("What they cost; null without a price.", "US dollars")
    ] = NAN
    failed_too_often: Annotated[
        bool,
        Column(
            f"Whether the run failed, in {ATTEMPTS_MAX} attempts or more with its parameters of "
            "now, cancelled ones not counted: a search does not try it again."
        ),
    ] = False
    warnings: Annotated[
        str,
        Column(
            'What a reader of the numbers has to know, separated by "; "; mostly empty.',
            may_be_empty=True,
        ),
    ] = ""
    projected_from_steps: Annotated[
        Count | None,
        Column(
            "Steps that a short run trained; execution_time_s, train_time_s, evaluation_time_s, "
            "cost_usd and examples_trained are then those of the whole training, projected. Null "
            "where they are measured.",
            "steps",
            is_whole=True,
        ),
    ] = None
    projected_to_steps: ProjectedToSteps = None
    projection_error_s: Annotated[
        Amount,
        Column(
            "Standard error of the projected time by the scatter of the steps within this run "
            "alone; null where it is measured.",
            "s",
        ),
    ] = NAN
    hosts: Annotated[
        str | None, Column(f"Hosts of the ranks, separated by spaces; {_NO_RECORD}.")
    ] = None
    machines: Annotated[
        str | None,
        Column("Their machines, the same for hosts on one kernel; null if one is unknown."),
    ] = None
    shared_with: Annotated[
        FromZero | None,
        Column(
            "Other runs at the same time on one of its machines; null if that is unknown.", "runs"
        ),
    ] = None
    slowest_rank: Annotated[
        FromZero | None,
        Column("The rank with the longest computation; null where it was not measured."),
    ] = None
    slowest_host: Annotated[str | None, Column("Its host.")] = None
    clock_offset_max_s: Annotated[
        float,
        Column("Largest offset of a rank's clock from the launcher's; null if none answered.", "s"),
    ] = NAN
    clock_uncertainty_max_s: Annotated[
        float, Column("Largest uncertainty of these offsets.", "s")
    ] = NAN
    cpu_model: Annotated[str | None, Column(f"Processor. {_RANKS}")] = None
    cpu_mhz: Annotated[float, Column(f"Its least clock rate on any host; {_NO_RECORD}.", "MHz")] = (
        NAN
    )
    cpus_online: Annotated[
        Count | None, Column(f"Fewest CPUs of any host; {_NO_RECORD}.", "CPUs")
    ] = None
    memory_gb: Annotated[str | None, Column(f"Memory of a host in GB, as text. {_RANKS}")] = None
    network_mbit_per_s: Annotated[
        str | None,
        Column(f"Speeds of the network interfaces in Mbit/s, as a JSON object. {_RANKS}"),
    ] = None
    gpus: Annotated[
        str | None,
        Column(f"The driver's names of the GPUs, as a JSON list; null without any. {_RANKS}"),
    ] = None
    gpu_driver: Annotated[str | None, Column(f"Version of the driver. {_RANKS}")] = None
    kernel: Annotated[str | None, Column(f"Release of the operating system's kernel. {_RANKS}")] = (
        None
    )
    modules: Annotated[
        str | None,
        Column(f"Environment modules that were loaded, a JSON list; null without any. {_RANKS}"),
    ] = None
    python: Annotated[str | None, Column(f"Version of Python. {_RANKS}")] = None
    packages: Annotated[
        dict[str, str | None],
        _PACKAGES,
    ] = {}
    git_commit: Annotated[
        str | None,
        Column(
            "Commit of the workflow, with -dirty after it if files had changed; null if unknown."
        ),
    ] = None
    slurm_settings: Annotated[
        str | None,
        Column(
            "Slurm's settings that place, bind and trace tasks, as a JSON object; null without "
            "Slurm."
        ),
    ] = None
    started: Annotated[
        str | None,
        Column(
            f"Start of the launcher, by ISO 8601 with its zone; {_NO_RECORD}.", format="date-time"
        ),
    ] = None
    slurm_job_id: Annotated[str | None, Column("The job's number; null without Slurm.")] = None
    dataset: Annotated[
        str | None, Column("What the ranks read; null for a program that has its own data.")
    ] = None
    dataset_sha256: Annotated[str | None, Column("Its checksum.")] = None
    unchecked: Annotated[
        str | None,
        Column('What could not be compared with the request, separated by "; "; mostly null.'),
    ] = None
    parameters_hash: Annotated[str, Column("Of all parameters of the run.")] = ""
    record: Annotated[
        str | None,
        Column(
            "Path of run.json, from the project folder; null without one that is of these "
            "parameters."
        ),
    ] = None

    @staticmethod
    def described(metric: Metric) -> str:
        """The description of the column of a metric."""
        return (
            metric.meaning
            if metric.value is None
            else f"{metric.meaning} Null unless the run counts."
        )


class EpochRow(msgspec.Struct):
    """A row of epochs.csv: an epoch of a run with a record."""

    platform: Platform
    model: Model
    strategy: Strategy
    recipe: Recipe
    nodes: Nodes
    gpus_per_node: GpusPerNode
    tasks_per_node: TasksPerNode
    repeat: Repeat
    status: RunStatus
    epoch: Annotated[Count, Column("Its number, from 1.")]
    loss: Annotated[
        float,
        Column("Mean over the epoch's examples while they are trained; null if it was not finite."),
    ]
    accuracy: Annotated[float, Column("Likewise; null if none is measured.")]
    duration_s: Annotated[
        float, Column("Training of the epoch; null if a program does not tell.", "s")
    ]
    test_loss: Annotated[
        float, Column("On held-out examples after the epoch; null where it was not evaluated.")
    ]
    test_accuracy: Annotated[float, Column("Likewise.")]
    evaluation_time_s: Annotated[float, Column("The evaluation after the epoch.", "s")]


_ENDS = {
    "min": "Least {} of the valid runs; null without any.",
    "max": "Greatest {} of the valid runs; null without any.",
    "low": "Lower end of the 95 % interval of {}; null below 6 valid runs.",
    "high": "Upper end of the 95 % interval of {}; null below 6 valid runs.",
}


def _ends() -> dict[str, Column]:
    """The columns of the spread of metrics, ranges first."""
    by_name = columns(PointMetrics)
    spread = sorted(METRICS.items(), key=lambda item: -len(item[1].ends))
    return {
        f"{name}_{end}": Column(_ENDS[end].format(name), metric.unit, rules=by_name[name].rules)
        for name, metric in spread
        for end in metric.ends
    }


_END_COLUMNS = _ends()


class PointRow(PointMetrics, TypedRow):
    """One row of results/<study>/tables/comparison.csv - a point of the grid over all its runs.

    An empty cell is null; unit "" is a pure number or a text. Metrics are medians over the valid
    runs of the point.
    """

    inherited_after: ClassVar[str] = "projected_to_steps"

    platform: Platform = ""
    model: Model = ""
    strategy: Strategy = ""
    recipe: Recipe = ""
    nodes: Nodes = 1
    gpus_per_node: GpusPerNode = 0
    tasks_per_node: TasksPerNode = "1"
    devices: Devices = "CPU"
    platform_title: Annotated[str, Column("How tables and plots call the platform.")] = ""
    cloud: Annotated[
        str | None, Column("The cloud on which the platform runs; null if it is none.")
    ] = None
    status: Annotated[
        PointStatus,
        Column(
            "ok - all runs are valid; incomplete - some are; diverged, failed, unfinished, "
            "stale or missing - none is, mostly for this; excluded - the point is not run."
        ),
    ] = "missing"
    runs: Annotated[
        FromZero, Column("Valid runs; medians, ranges and intervals are over these.", "runs")
    ] = 0
    runs_timed: Annotated[
        FromZero,
        Column(
            "Those of them whose times count; medians, ranges and intervals of times, rates and "
            "costs are over these. Fewer than runs where some went on from a checkpoint "
            "(compare_resumed).",
            "runs",
        ),
    ] = 0
    runs_asked: Annotated[
        Count | None,
        Column(
            "Runs that the configuration asks for; null for an excluded point.",
            "runs",
            is_whole=True,
        ),
    ] = None
    runs_diverged: Annotated[
        FromZero | None,
        Column(
            "Runs whose loss became NaN or infinite - results that are in no median; null for "
            "an excluded point.",
            "runs",
            is_whole=True,
        ),
    ] = None
    replicas: Annotated[
        Count | None,
        Column(
            f"Copies of the model that train at the same time; {_EXCLUDED}",
            "replicas",
            is_whole=True,
        ),
    ] = None
    per_replica_batch_size: Annotated[
        Count | None, Column(f"{_PER_REPLICA}; {_EXCLUDED}", "examples", is_whole=True)
    ] = None
    global_batch_size: Annotated[
        Count | None, Column(f"{_GLOBAL}; {_EXCLUDED}", "examples", is_whole=True)
    ] = None
    batch_scaling: Annotated[
        Literal["weak", "strong"] | None,
        Column(
            "weak - the global batch grows with the replicas; strong - it stays; null for an "
            "excluded point."
        ),
    ] = None
    examples_trained: Annotated[
        Count | None,
        Column(
            "Median of the examples trained over all epochs; null without a valid run.",
            "examples",
            is_whole=True,
        ),
    ] = None
    examples_trained_min: Annotated[
        Count | None,
        Column(
            "Fewest examples that a valid run trained; null without a valid run.",
            "examples",
            is_whole=True,
        ),
    ] = None
    examples_trained_max: Annotated[
        Count | None,
        Column(
            "Most examples that a valid run trained; null without a valid run.",
            "examples",
            is_whole=True,
        ),
    ] = None
    same_work: Annotated[
        bool | None,
        Column(
            "Whether examples_trained is that of the baseline to 0.2 % (without a measured "
            "baseline, that of the point of its series that trained the most); only then "
            "there is a speed-up. Null without a valid run."
        ),
    ] = None
    projected_from_steps: Annotated[
        Count | None,
        Column(
            "Steps that short runs trained, from which times and costs of the whole training are "
            "projected; null where they are measured.",
            "steps",
            is_whole=True,
        ),
    ] = None
    projected_to_steps: ProjectedToSteps = None
    quality_metric: Annotated[
        str | None,
        Column(
            "The metric by which the recipe's runs are compared; values of different ones are "
            "not. Null for an excluded point."
        ),
    ] = None
    quality_direction: QualityDirection = None
    quality_unit: QualityUnit = None
    quality_best: QualityBest = NAN
    ends: Annotated[dict[str, float], _END_COLUMNS] = {}
    undefined_ratios: Annotated[
        str | None,
        Column(
            'The ratios that the point cannot have, separated by "; "; the reason says why. '
            "Null if there are none."
        ),
    ] = None
    baseline: Annotated[
        str | None,
        Column("The point that speed-up is relative to, by its axes; null for an excluded point."),
    ] = None
    baseline_point: Annotated[
        str | None,
        Column(
            "The same point by its path, as that of its folder below results/runs; null "
            "without a baseline."
        ),
    ] = None
    baseline_execution_time_s: Annotated[
        Above0,
        Column(
            "Median execution time of the baseline; null if it has no valid run with times.", "s"
        ),
    ] = NAN
    target: Annotated[
        float,
        Column(
            "The target of the point's quality in comparison.targets, in quality_unit; null "
            "without one, and for an excluded point."
        ),
    ] = NAN
    runs_at_target: Annotated[
        FromZero | None,
        Column(
            "Valid runs that reached target; null without a target, and for an excluded point.",
            "runs",
            is_whole=True,
        ),
    ] = None
    reason: Annotated[
        str,
        Column(
            "Why runs do not count, or why the point is not run; empty if nothing is wrong.",
            may_be_empty=True,
        ),
    ] = ""

    def __getitem__(self, column: str, /) -> Any:
        return self.ends.get(column, NAN) if column in _END_COLUMNS else getattr(self, column)

    @staticmethod
    def described(metric: Metric) -> str:
        """The description of the column of a metric."""
        return metric.of_points or metric.meaning
