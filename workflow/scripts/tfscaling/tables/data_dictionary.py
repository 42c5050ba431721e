"""What each column of runs.csv, epochs.csv and comparison.csv has: type, unit, meaning, when empty.

From it are made the types of runs.parquet, the description of the tables for other programs
(datapackage.json, a Data Package of frictionlessdata.io), and the pages of the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from tfscaling.files import atomic
from tfscaling.records import run_record
from tfscaling.records.failure_report import ATTEMPTS_MAX
from tfscaling.records.metrics import METRICS, QUALITY
from tfscaling.records.rank_report import PROGRAM_PACKAGES
from tfscaling.records.run_states import RunState
from tfscaling.study.config import AXES, POINT_AXES
from tfscaling.study.configuration import Schema
from tfscaling.tables import comparison_schema, runs_table
from tfscaling.tables.comparison_schema import COUNT, NUMBER, OTHERS, TEXT, WHOLE, Column, or_null
from tfscaling.tables.table_rows import QUALITY_COLUMNS

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow

#: Columns that are texts without a null.
_EMPTY_TEXTS = ("reason", "warnings")
_NO_RECORD = "null without a record"
_RANKS = f'Values that differ between ranks are separated by "; "; {_NO_RECORD}.'
_TEXT_OR_NONE, _COUNT_OR_NONE = or_null(TEXT), {**or_null(WHOLE), "minimum": 0}

#: The columns of a run that are neither axes of its point nor metrics.
_OF_RUN: dict[str, Column] = {
    "repeat": Column("Which run of its point, from 1.", "", {**WHOLE, "minimum": 1}),
    "devices": OTHERS["devices"],
    "status": Column(
        "ok - the run counts; diverged - its loss became NaN or infinite; failed; unfinished - it "
        "runs, or was killed; stale - made with other parameters, code or data; missing.",
        "",
        {"enum": [str(state) for state in RunState]},
    ),
    "reason": Column("Why the run does not count; empty if it does.", "", TEXT),
    "replicas": Column("Copies of the model that train at the same time.", "replicas", COUNT),
    "per_replica_batch_size": Column("Examples per step and replica.", "examples", COUNT),
    "global_batch_size": Column("Examples per step over all replicas.", "examples", COUNT),
    "batch_scaling": Column(
        "weak - the global batch grows with the replicas; strong - it stays.",
        "",
        {"enum": ["weak", "strong"]},
    ),
    **{name: OTHERS[name] for name in QUALITY_COLUMNS},
    "quality_metric": Column("The metric by which the recipe's runs are compared.", "", TEXT),
    "examples_trained": Column(
        f"Examples trained over all epochs; {_NO_RECORD}.", "examples", COUNT
    ),
    "target_reached": Column(
        "Whether an epoch or evaluation reached the target of its quality in comparison.targets; "
        "null without a target, and unless the run counts.",
        "",
        or_null({"type": "boolean"}),
    ),
    "usd_per_node_hour": Column(
        "Price of a node and hour with its GPUs; null without one.", "US dollars", NUMBER
    ),
    "wall_time_s": Column(
        f"Start of the launcher to all ranks ended and checked; {_NO_RECORD}.", "s", NUMBER
    ),
    "attempt": Column(f"Which attempt at the run succeeded; {_NO_RECORD}.", "", COUNT),
    "failed_attempts": Column(
        "Attempts at the run that failed or were cancelled, whatever their parameters were.",
        "",
        {**WHOLE, "minimum": 0},
    ),
    "lost_time_s": Column(
        "Their wall time together; that of a launcher that was killed is not known.", "s", NUMBER
    ),
    "lost_cost_usd": Column("What they cost; null without a price.", "US dollars", NUMBER),
    "failed_too_often": Column(
        f"Whether the run failed, in {ATTEMPTS_MAX} attempts or more with its parameters of now, "
        "cancelled ones not counted: a search does not try it again.",
        "",
        {"type": "boolean"},
    ),
    "warnings": Column(
        'What a reader of the numbers has to know, separated by "; "; mostly empty.', "", TEXT
    ),
    "projected_from_steps": Column(
        "Steps that a short run trained; execution_time_s, train_time_s, evaluation_time_s, "
        "cost_usd and examples_trained are then those of the whole training, projected. Null where "
        "they are measured.",
        "steps",
        COUNT,
    ),
    "projected_to_steps": OTHERS["projected_to_steps"],
    "projection_error_s": Column(
        "Standard error of the projected time by the scatter of the steps within this run alone; "
        "null where it is measured.",
        "s",
        {**NUMBER, "minimum": 0},
    ),
    "hosts": Column(f"Hosts of the ranks, separated by spaces; {_NO_RECORD}.", "", _TEXT_OR_NONE),
    "machines": Column(
        "Their machines, the same for hosts on one kernel; null if one is unknown.",
        "",
        _TEXT_OR_NONE,
    ),
    "shared_with": Column(
        "Other runs at the same time on one of its machines; null if that is unknown.",
        "runs",
        _COUNT_OR_NONE,
    ),
    "slowest_rank": Column(
        "The rank with the longest computation; null where it was not measured.",
        "",
        _COUNT_OR_NONE,
    ),
    "slowest_host": Column("Its host.", "", _TEXT_OR_NONE),
    "clock_offset_max_s": Column(
        "Largest offset of a rank's clock from the launcher's; null if none answered.",
        "s",
        NUMBER,
    ),
    "clock_uncertainty_max_s": Column("Largest uncertainty of these offsets.", "s", NUMBER),
    "cpu_model": Column(f"Processor. {_RANKS}", "", _TEXT_OR_NONE),
    "cpu_mhz": Column(f"Its least clock rate on any host; {_NO_RECORD}.", "MHz", NUMBER),
    "cpus_online": Column(f"Fewest CPUs of any host; {_NO_RECORD}.", "CPUs", COUNT),
    "memory_gb": Column(f"Memory of a host in GB, as text. {_RANKS}", "", _TEXT_OR_NONE),
    "network_mbit_per_s": Column(
        f"Speeds of the network interfaces in Mbit/s, as a JSON object. {_RANKS}",
        "",
        _TEXT_OR_NONE,
    ),
    "gpus": Column(
        f"The driver's names of the GPUs, as a JSON list; null without any. {_RANKS}",
        "",
        _TEXT_OR_NONE,
    ),
    "gpu_driver": Column(f"Version of the driver. {_RANKS}", "", _TEXT_OR_NONE),
    "kernel": Column(f"Release of the operating system's kernel. {_RANKS}", "", _TEXT_OR_NONE),
    "modules": Column(
        f"Environment modules that were loaded, a JSON list; null without any. {_RANKS}",
        "",
        _TEXT_OR_NONE,
    ),
    "python": Column(f"Version of Python. {_RANKS}", "", _TEXT_OR_NONE),
    **{
        name: Column(f"Version of {name}; null where it is not used. {_RANKS}", "", _TEXT_OR_NONE)
        for name in PROGRAM_PACKAGES
    },
    "git_commit": Column(
        "Commit of the workflow, with -dirty after it if files had changed; null if unknown.",
        "",
        _TEXT_OR_NONE,
    ),
    "slurm_settings": Column(
        "Slurm's settings that place, bind and trace tasks, as a JSON object; null without Slurm.",
        "",
        _TEXT_OR_NONE,
    ),
    "started": Column(
        f"Start of the launcher, by ISO 8601 with its zone; {_NO_RECORD}.",
        "",
        {**_TEXT_OR_NONE, "format": "date-time"},
    ),
    "slurm_job_id": Column("The job's number; null without Slurm.", "", _TEXT_OR_NONE),
    "dataset": Column(
        "What the ranks read; null for a program that has its own data.", "", _TEXT_OR_NONE
    ),
    "dataset_sha256": Column("Its checksum.", "", _TEXT_OR_NONE),
    "unchecked": Column(
        'What could not be compared with the request, separated by "; "; mostly null.',
        "",
        _TEXT_OR_NONE,
    ),
    "parameters_hash": Column("Of all parameters of the run.", "", TEXT),
    "record": Column(
        "Path of run.json, from the project folder; null without one that is of these parameters.",
        "",
        _TEXT_OR_NONE,
    ),
}
#: The columns of an epoch beside the run's axes and status.
_OF_EPOCH: dict[str, Column] = {
    "epoch": Column("Its number, from 1.", "", {**WHOLE, "minimum": 1}),
    "loss": Column(
        "Mean over the epoch's examples while they are trained; null if it was not finite.",
        "",
        NUMBER,
    ),
    "accuracy": Column("Likewise; null if none is measured.", "", NUMBER),
    "duration_s": Column("Training of the epoch; null if a program does not tell.", "s", NUMBER),
    "test_loss": Column(
        "On held-out examples after the epoch; null where it was not evaluated.", "", NUMBER
    ),
    "test_accuracy": Column("Likewise.", "", NUMBER),
    "evaluation_time_s": Column("The evaluation after the epoch.", "s", NUMBER),
}


def of_runs() -> dict[str, Column]:
    """The columns of runs.csv, in their order."""
    return {name: _run_column(name) for name in runs_table.RUN_COLUMNS}


def of_epochs(names: Iterable[str] = runs_table.EPOCH_COLUMNS) -> dict[str, Column]:
    """The columns of epochs.csv; further names are of metrics that recipes name as quality."""
    known = {**{axis: _run_column(axis) for axis in AXES}, "status": _OF_RUN["status"], **_OF_EPOCH}
    own = "A metric that a recipe names as its quality, or the same in training; null elsewhere."
    return {name: known.get(name, Column(own, "", NUMBER)) for name in names}


def of_comparison() -> dict[str, Column]:
    """The columns of comparison.csv, in their order."""
    return {name: comparison_schema.column(name) for name in comparison_schema.names()}


def _run_column(name: str) -> Column:
    if name in POINT_AXES:
        return OTHERS[name]
    if name in _OF_RUN:
        return _OF_RUN[name]
    described = comparison_schema.column(name)
    if name == QUALITY or METRICS[name].value is None:
        return described
    return Column(f"{described.description} Null unless the run counts.", *described[1:])


class Constraints(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What values a field may have."""

    required: bool = False
    enum: tuple[str, ...] = ()


class Field(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A column, as a Table Schema has it; `unit` is ours, empty for pure numbers and texts."""

    name: str
    type: str
    description: str
    format: str = "default"
    unit: str = ""
    constraints: Constraints | UnsetType = UNSET


class TableSchema(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The columns of a table; an empty cell is none."""

    fields: tuple[Field, ...]
    missing_values: tuple[str, ...] = ("",)


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A table, by its file beside the description."""

    name: str
    path: str
    description: str
    schema: TableSchema
    profile: str = "tabular-data-resource"
    format: str = "csv"
    encoding: str = "utf-8"


class DataPackage(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of a study."""

    resources: tuple[Resource, ...]
    profile: str = "tabular-data-package"


def write_data_package(path: Path, epoch_columns: Iterable[str]) -> None:
    """Write datapackage.json, which lies beside the tables."""
    tables = (
        ("runs", "One row per run, with those that do not count.", of_runs()),
        ("epochs", "One row per epoch of each run with a record.", of_epochs(epoch_columns)),
        ("comparison", "One row per point of the grid.", of_comparison()),
    )
    resources = (
        Resource(name=name, path=f"{name}.csv", description=description, schema=_schema(columns))
        for name, description, columns in tables
    )
    run_record.write_json(path, DataPackage(resources=tuple(resources)))


def _schema(columns: Mapping[str, Column]) -> TableSchema:
    return TableSchema(fields=tuple(_field(name, each) for name, each in columns.items()))


def _field(name: str, column: Column) -> Field:
    is_time = column.rules.get("format") == "date-time"
    choices = tuple(each for each in column.rules.get("enum", ()) if each is not None)
    is_required = not _may_be_empty(name, column.rules)
    constraints = Constraints(required=is_required, enum=choices)
    return Field(
        name=name,
        type="datetime" if is_time else type_of(column),
        format="any" if is_time else "default",
        description=column.description,
        unit=column.unit,
        constraints=constraints if constraints != Constraints() else UNSET,
    )


def type_of(column: Column) -> str:
    """string, integer, number or boolean."""
    if "enum" in column.rules:
        return "string"
    kinds = column.rules["type"]
    (kind,) = {kinds} if isinstance(kinds, str) else set(kinds) - {"null"}
    return str(kind)


def _may_be_empty(name: str, rules: Schema) -> bool:
    """Whether a cell may be empty: null, or a text that says nothing."""
    return name in _EMPTY_TEXTS or None in rules.get("enum", ()) or "null" in rules.get("type", "")


def write_parquet(runs: pd.DataFrame, path: Path) -> None:
    """Write the table of runs with a type for each column that does not depend on its values."""
    import pandas as pd
    import pyarrow

    kinds: dict[str, pyarrow.DataType] = {
        "string": pyarrow.string(),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
    }
    columns = of_runs()
    time = pyarrow.timestamp("ms", tz="UTC")
    types = {
        name: time if "format" in column.rules else kinds[type_of(column)]
        for name, column in columns.items()
    }
    times = {
        name: pd.to_datetime(runs[name], utc=True, format="ISO8601", errors="coerce")
        for name, column in columns.items()
        if "format" in column.rules
    }
    with atomic.whole(path) as temporary:
        typed = runs.assign(**times)
        typed.to_parquet(temporary, index=False, schema=pyarrow.schema(types.items()))
