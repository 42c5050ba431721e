"""Timings that were measured elsewhere: a CSV file with one row for each run.

With the key `timings` the runs of a study are the rows of this file, and nothing is run. Then the
rules take the grid and the tables from this module.
"""

from __future__ import annotations

import csv
import types
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pandas as pd
from msgspec import Meta
from msgspec.structs import replace

from tfscaling.record.rank_report import FromZero, Positive
from tfscaling.record.run_states import RunState
from tfscaling.study.config_types import (
    BATCH_SIZE_KEYS,
    PROGRAM,
    PROGRAM_STRATEGY,
    ModelName,
    Name,
    RecipeName,
)
from tfscaling.study.config_validation import (
    ConfigError,
    RawConfig,
    describe_schema,
    json_schema,
    list_allowed_names,
)
from tfscaling.study.manifest import Manifest, PlannedRun
from tfscaling.study.platforms import LOGICAL, run_cost_usd
from tfscaling.study.run_spec import Point
from tfscaling.tables import runs_table, table_files
from tfscaling.tables.row_types import RunRow
from tfscaling.tables.row_values import is_known

#: Column → its value where a grid follows from the file and the file has no such column.
_DEFAULTS: dict[str, Any] = {
    "platform": "imported",
    "model": PROGRAM,
    "strategy": PROGRAM_STRATEGY,
    "recipe": "imported",
    "gpus_per_node": 0,
    "tasks_per_node": 1,
}
#: Columns with results that a run may have.
_RESULT_COLUMNS = ("loss", "accuracy", "test_accuracy")


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the file: one run, with its axes and results.

    A missing column or an empty cell becomes None. Only `nodes`, `execution_time_s` and
    `global_batch_size` are required.

    Attributes:
        nodes: Number of nodes.
        execution_time_s: Time of the run in seconds.
        global_batch_size: Examples per step of all replicas.
        examples_trained: Examples trained over all epochs.
    """

    nodes: Positive
    execution_time_s: Annotated[float, Meta(gt=0)]
    global_batch_size: Positive
    platform: Name | None = None
    model: ModelName | None = None
    strategy: Name | None = None
    recipe: RecipeName | None = None
    gpus_per_node: FromZero | None = None
    tasks_per_node: Positive | None = None
    loss: float | None = None
    accuracy: Annotated[float, Meta(ge=0, le=1)] | None = None
    test_accuracy: Annotated[float, Meta(ge=0, le=1)] | None = None
    examples_trained: Positive | None = None

    @property
    def axes(self) -> dict[str, Any]:
        """Axis → value, for the nodes and for those axes in `_DEFAULTS` that the row has."""
        named = {name: getattr(self, name) for name in ("nodes", *_DEFAULTS)}
        return {name: value for name, value in named.items() if value is not None}


_LINE = ": line "
#: Pairs of the place of a row, such as `FILE: line 3`, and the row.
PlacedTimings = Sequence[tuple[str, Timing]]
COLUMNS = Timing.__struct_fields__
REQUIRED = ("nodes", "execution_time_s", "global_batch_size")


def read_timings(path: Path | str) -> PlacedTimings:
    """Read a file of timings; columns with other names are ignored.

    Raises:
        ConfigError: It cannot be read or has no row, a column is missing, or a cell is not allowed:
            one line with the file, the line, the column, the value and what is allowed.
    """
    try:
        # spreadsheets put a byte order mark before the first column's name
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or []
            lines = [(f"{path}{_LINE}{reader.line_num}", line) for line in reader]
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    for name in REQUIRED:
        if name not in names:
            others = [other for other in names if other not in COLUMNS]
            near = list_allowed_names(others, name).partition("? ")
            hint = f"; {near[0].replace('did you mean', 'rename')}" if near[1] else ""
            raise ConfigError(f"{path}: line 1: column {name} is missing{hint}; {_ALLOWED}")
    if not lines:
        raise ConfigError(f"{path}: line 2: missing; allowed: one row for each run")
    return [(where, _parse_row(where, line)) for where, line in lines]


_OTHERS = [name for name in COLUMNS if name not in REQUIRED]
_ALLOWED = f"required: {', '.join(REQUIRED)}; allowed: {', '.join(_OTHERS)}"


def _parse_row(where: str, line: Mapping[str | None, Any]) -> Timing:
    """Convert a line of the file to a Timing.

    Args:
        where: Place of the line, for the message.
        line: Name of a column → text of its cell.

    Raises:
        ConfigError: If a cell is missing or not allowed.
    """
    cells = {name: cell.strip() for name in COLUMNS if (cell := line.get(name)) and cell.strip()}
    rules = json_schema(Timing, described=False)["properties"]
    try:
        found = msgspec.convert(cells, Timing, strict=False)
    except msgspec.ValidationError as error:
        missing = [name for name in REQUIRED if name not in cells]
        column = missing[0] if missing else str(error).rpartition("$.")[2].rstrip("`")
        cell = cells.get(column)
        wrong = "missing" if cell is None else f"{cell!r} is not allowed"
        allowed = describe_schema(rules[column], cell).removesuffix(" or null")
        raise ConfigError(f"{where}: {column}: {wrong}; allowed: {allowed}") from None
    for column in ("execution_time_s", "loss"):
        value = getattr(found, column)
        if value is not None and not abs(value) < float("inf"):
            wrong = f"{column}: {cells[column]!r} is not allowed"
            raise ConfigError(f"{where}: {wrong}; allowed: a finite number")
    gpus, tasks = found.gpus_per_node or 0, found.tasks_per_node or 1
    if gpus % tasks:
        rule = f"allowed: a multiple of tasks_per_node, {tasks}, or 0"
        raise ConfigError(f"{where}: gpus_per_node: '{gpus}' is not allowed; {rule}")
    if found.global_batch_size % _count_replicas(found):
        rule = f"allowed: a multiple of the {_count_replicas(found)} replicas"
        size = found.global_batch_size
        raise ConfigError(f"{where}: global_batch_size: '{size}' is not allowed; {rule}")
    return found


def _count_replicas(row: Timing) -> int:
    """Return the number of replicas: one per GPU of each node, or per task if more tasks run."""
    return row.nodes * max(row.tasks_per_node or 1, row.gpus_per_node or 0)


def is_imported(run: RunRow) -> bool:
    """Return whether a run is a row of a file of timings."""
    return run.record is not None and _LINE in run.record


def timings_file(run: RunRow) -> str:
    """Return the path of the file of timings with a run; "" if the run is not from such a file."""
    return str(run.record).rpartition(_LINE)[0] if is_imported(run) else ""


def imported_from(runs: pd.DataFrame) -> str:
    """Return the file of timings that a table of runs is from; "" if they were measured here."""
    records = runs["record"].dropna().astype(str)
    return next((each.rpartition(_LINE)[0] for each in records if _LINE in each), "")


def add_grid_of_timings(raw: RawConfig) -> RawConfig:
    """Return the configuration with the grid of its file of timings; unchanged without a file.

    A `grid` in the configuration is kept; its `repeats` become the highest number of runs that the
    file has of one configuration, see `drop_runs_without_row`. Without a `grid`, grid, recipes and
    platforms follow from the file. Keys of recipes and platforms in the configuration take
    precedence, except for the limits of platforms.

    Raises:
        ConfigError: The file is wrong.
    """
    path = raw.get("timings")
    if not isinstance(path, str) or not path:
        return raw
    rows = read_timings(path)
    if isinstance(blocks := raw.get("grid"), list):
        most = max(Counter(str(row.axes) for _, row in rows).values())
        grid = [{**b, "repeats": most} if isinstance(b, Mapping) else b for b in blocks]
        return {**raw, "grid": grid}
    given, platforms = raw.get("recipes") or {}, raw.get("platforms") or {}
    if not isinstance(given, Mapping) or not isinstance(platforms, Mapping):
        return raw
    recipes, blocks = _recipes_and_blocks(rows)
    named = {name: _merge_recipe(recipe, given.get(name)) for name, recipe in recipes.items()}
    own = {
        name: _make_platform(name, platforms.get(name), blocks)
        for name in _platforms_of_blocks(blocks)
    }
    return {**raw, "grid": blocks, "recipes": {**given, **named}, "platforms": {**platforms, **own}}


def drop_runs_without_row(planned: Manifest, path: str) -> Manifest:
    """Return the manifest with as many runs of each configuration as the file has rows.

    A configuration without a row keeps its first run, which is missing.

    Args:
        planned: The manifest with the highest number of runs for all configurations.
        path: The file of timings.

    Raises:
        ConfigError: The file is wrong, or a row does not belong to exactly one planned run.
    """
    rows = read_timings(path)
    if len(rows) == len(planned.runs):
        return planned
    found = dict(_match_to_planned_runs(planned.runs, rows))
    kept = (r for r in planned.runs if r.spec.repeat == 1 or (r.spec.point, r.spec.repeat) in found)
    return replace(planned, runs=tuple(kept))


def _merge_recipe(recipe: Mapping[str, Any], given: object) -> object:
    """Return a recipe from the file with the keys of the configuration's recipe put over it.

    Args:
        recipe: The recipe that follows from the file.
        given: The recipe in the configuration; returned unchanged if it is no mapping, as an error
            about it follows later.
    """
    return {**recipe, **(given or {})} if isinstance(given, Mapping | None) else given


def _platforms_of_blocks(blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the platforms in the blocks of a grid, each once."""
    return list(dict.fromkeys(block["platform"] for block in blocks))


def _make_platform(name: str, given: object, blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a platform as in the configuration, with limits that are high enough for its blocks.

    Args:
        name: Name of the platform.
        given: The platform in the configuration, or None.
        blocks: All blocks of the grid; the ones on the platform determine `nodes_max`,
            `cpus_per_node` and `gpus_per_node_max`.
    """
    most = {
        axis: max(block[axis] for block in blocks if block["platform"] == name)
        for axis in ("nodes", "gpus_per_node", "tasks_per_node")
    }
    own = dict(given) if isinstance(given, Mapping) else {}
    limits = {
        "nodes_max": most["nodes"],
        "cpus_per_node": most["tasks_per_node"],
        "gpus_per_node_max": most["gpus_per_node"],
    }
    return {"launcher": "srun", **own, **limits}


def _recipes_and_blocks(
    rows: PlacedTimings,
) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Return (name → recipe, blocks of a grid): a configuration that plans exactly these runs.

    Args:
        rows: Timings with their places in the file.
    """
    counts: Counter[tuple[tuple[str, Any], ...]] = Counter()
    rows_of: dict[str, list[tuple[str, Timing]]] = {}
    for where, row in rows:
        axes = {**_DEFAULTS, **row.axes, "strategy": PROGRAM_STRATEGY}
        counts[tuple(axes.items())] += 1
        rows_of.setdefault(axes["recipe"], []).append((where, row))
    recipes = {}
    for name, own in rows_of.items():
        has_results = any(
            getattr(row, result) is not None for _, row in own for result in _RESULT_COLUMNS
        )
        observe = "events" if has_results else "nothing"
        recipes[name] = {
            "program": ["true"],
            "epochs": 1,
            "observe": observe,
            **_batch_size_key(name, own),
        }
    return recipes, [{**dict(axes), "repeats": runs} for axes, runs in counts.items()]


def _batch_size_key(name: str, rows: PlacedTimings) -> dict[str, int]:
    """Return {a key of BATCH_SIZE_KEYS: the batch size that all runs of a recipe share}.

    Args:
        name: Name of the recipe, for an error.
        rows: All runs of the recipe.

    Raises:
        ConfigError: The runs share neither a global batch nor one per worker or replica.
    """
    sizes_by: dict[str, list[float]] = {key: [] for key in BATCH_SIZE_KEYS}
    for _, row in rows:
        size = row.global_batch_size
        sizes_by["global_batch_size"].append(size)
        sizes_by["per_worker_batch_size"].append(size / (row.nodes * (row.tasks_per_node or 1)))
        sizes_by["per_replica_batch_size"].append(size / _count_replicas(row))
    for key in reversed(BATCH_SIZE_KEYS):
        if len(set(sizes_by[key])) == 1:
            return {key: int(sizes_by[key][0])}
    per_replica = sizes_by["per_replica_batch_size"]
    places = (n for n, size in enumerate(per_replica) if size != per_replica[0])
    where, row = rows[next(places)]
    raise ConfigError(
        f"{where}: global_batch_size: '{row.global_batch_size}' is not allowed; allowed in recipe "
        f"{name}: the same batch in all rows, or the same for each task or GPU; give other batches "
        "another name in the column recipe"
    )


def run_tables_of_timings(
    planned: Sequence[PlannedRun],
    path: str,
    targets: Mapping[str, float] = types.MappingProxyType({}),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables of runs and of epochs: one row per planned run, and no epoch.

    Args:
        planned: The runs of the manifest.
        path: The file of timings.
        targets: Quality metric → the value to reach.

    Raises:
        ConfigError: The file is wrong, or a row does not belong to exactly one planned run.
    """
    timing_of = dict(_match_to_planned_runs(planned, read_timings(path)))
    rows = [
        _run_row(run, path, timing_of.get((run.spec.point, run.spec.repeat))) for run in planned
    ]
    for row in rows:
        target, sign = (
            targets.get(row.quality_metric),
            1 if row.quality_direction == "higher" else -1,
        )
        if target is not None and is_known(row.quality):
            row.target_reached = sign * row.quality >= sign * target
    epochs = pd.DataFrame(columns=list(runs_table.EPOCH_COLUMNS))
    return table_files.to_frame(RunRow, rows), epochs


def _match_to_planned_runs(
    planned: Sequence[PlannedRun], rows: PlacedTimings
) -> Iterator[tuple[tuple[Point, int], tuple[str, Timing]]]:
    """Yield ((configuration, repeat), (place, timing)) for each row of the file.

    Args:
        planned: The runs of the manifest.
        rows: The rows of the file.

    Raises:
        ConfigError: A row fits no planned run or several configurations, or has another batch size.
    """
    runs = {(run.spec.point, run.spec.repeat): run for run in planned}
    points = dict.fromkeys(point for point, _ in runs)
    counts: Counter[Point] = Counter()
    for where, row in rows:
        point = _find_point(where, row, list(points))
        counts[point] += 1
        if (run := runs.get((point, counts[point]))) is None:
            axis = next(axis for axis in _DEFAULTS if axis not in row.axes)
            raise ConfigError(f"{where}: {axis}: missing; other rows of the configuration have it")
        if run.spec.global_batch_size != row.global_batch_size:
            rule = f"allowed: {run.spec.global_batch_size}, the batch of recipe {point.recipe}"
            wrong = f"{where}: global_batch_size: '{row.global_batch_size}' is not allowed"
            raise ConfigError(f"{wrong}; {rule}")
        yield (point, counts[point]), (where, row)


def _find_point(where: str, row: Timing, points: Sequence[Point]) -> Point:
    """Return the only configuration that a row may be about.

    Args:
        where: Place of the row, for an error.
        row: The row, in which axes may be missing.
        points: The planned configurations.

    Raises:
        ConfigError: If the row fits no configuration or several ones.
    """
    for axis, value in row.axes.items():
        values = list(dict.fromkeys(str(getattr(point, axis)) for point in points))
        found = [point for point in points if str(getattr(point, axis)) == str(value)]
        if axis == "strategy" and values == [PROGRAM_STRATEGY]:
            continue  # of a grid that follows from the file
        if not found:
            rule = f"the grid has no such configuration; {list_allowed_names(values, value)}"
            raise ConfigError(f"{where}: {axis}: {str(value)!r} is not allowed; {rule}")
        points = found
    if len(points) > 1:
        axes = [axis for axis in _DEFAULTS if len({getattr(p, axis) for p in points}) > 1]
        raise ConfigError(
            f"{where}: {axes[0]}: missing; {len(points)} configurations of the grid have these axes"
        )
    return points[0]


def _run_row(run: PlannedRun, path: str, found: tuple[str, Timing] | None) -> RunRow:
    """Return the row of runs.csv for a planned run.

    Args:
        run: The run.
        path: The file of the timings, for the reason of a missing run.
        found: Place of the run's timing in the file, and its values; None without a timing.
    """
    if found is None:
        return runs_table.row_of_planned_run(run, RunState.MISSING, f"not in {path}")
    where, timing = found
    row = runs_table.row_of_planned_run(run, RunState.OK, "", where)
    nodes, seconds = run.spec.point.nodes, timing.execution_time_s
    row.execution_time_s, row.node_hours = seconds, nodes * seconds / 3600
    row.gpu_hours = row.node_hours * run.spec.point.gpus_per_node * (row.devices != LOGICAL)
    row.examples_trained = timing.examples_trained
    for name in _RESULT_COLUMNS:
        if (value := getattr(timing, name)) is not None:
            setattr(row, name, value)
            if name == row.quality_metric:
                row.quality = value
    price = run.usd_per_node_hour
    for column, time_s in (("cost_usd", seconds), ("lost_cost_usd", 0.0)):
        if (cost := run_cost_usd(price, nodes, time_s)) is not None:
            setattr(row, column, cost)
    row.lost_time_s = 0.0
    return row
