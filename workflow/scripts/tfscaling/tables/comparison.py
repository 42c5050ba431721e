"""The table comparison.csv: one row per configuration, with medians, intervals and speed-up."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from statistics import median

import pandas as pd

from tfscaling.estimation.intervals import (
    CONFIDENCE,
    RUNS_FOR_INTERVAL,
    median_interval,
    ratio_interval,
)
from tfscaling.record.metrics import METRICS, NAN, QUALITY
from tfscaling.record.run_states import FINISHED, RunState
from tfscaling.study import platforms, variants
from tfscaling.study.config_types import POINT_AXES
from tfscaling.study.manifest import ExcludedConfiguration, Manifest
from tfscaling.study.run_spec import Point
from tfscaling.tables import display, row_values, table_files
from tfscaling.tables.display import BracketKind, TextTable, axis_text
from tfscaling.tables.published_results import PublishedPoint, PublishedResult, trains_same_model
from tfscaling.tables.row_types import Cells, PointRow, RunRow, columns
from tfscaling.tables.row_values import QUALITY_COLUMNS, is_known, is_projected, point_of
from tfscaling.tables.run_measurements import HOURS, RUN_METRICS
from tfscaling.tables.runs_table import PROJECTION_STEPS, SERIES_AXES, SIZES

#: Axis → value: for a baseline, the axes that the configuration names.
AxisValues = Mapping[str, str | int]

#: Metrics that have columns for minimum, maximum and the interval of the median.
SPREAD_METRICS = tuple(name for name, metric in METRICS.items() if "min" in metric.ends)
#: Metrics that a configuration has only if every valid run has a value and no run diverged. A
#: median without the runs that missed the target would be too good.
ALL_RUNS_METRICS = ("time_to_target_s", "cost_to_target_usd")
#: Metrics that are energy_kwh times a price or an emission factor.
ENERGY_COSTS = ("energy_usd", "energy_kg_co2")
#: The metric that every valid run has, except runs that resumed from a checkpoint.
TIME = "execution_time_s"
#: Kind of speed-up → function that returns the compared seconds of a run: of the complete run, or
#: per example.
SECONDS_OF_SPEEDUP: dict[str, Callable[[RunRow], float]] = {
    "speedup": lambda run: run.execution_time_s,
    "steady_state_speedup": lambda run: (
        1 / rate if (rate := run.throughput_examples_per_s) else NAN
    ),
}
#: Configurations are not comparable if their numbers of trained examples differ by more than this
#: fraction. The published script drops incomplete batches: 59,968 examples on one node, 59,904 on
#: others.
SAME_WORK_TOLERANCE = 0.002
#: Beginning of the reason of a configuration whose runs measured the energy of different parts.
DIFFERENT_ENERGIES = "runs have energies of different parts"
#: Beginning of the reason of a configuration that trained another number of examples than others.
DIFFERENT_WORK = "does not do the same work"
#: The columns of comparison.csv: all metrics, whatever comparison.md shows of them.
COLUMNS = tuple(columns(PointRow))


def comparison_table(
    runs: pd.DataFrame,
    manifest: Manifest,
    baseline: AxisValues | None = None,
    published_results: Sequence[PublishedResult] = (),
) -> pd.DataFrame:
    """Return the comparison: one `PointRow` per configuration, in the grid's order.

    Rows of excluded configurations are at the end. Speed-up is relative to the row's baseline, see
    `find_baseline`. It is left out where a configuration and its baseline trained different numbers
    of examples. Programs that report no examples are assumed to train equally many.

    Args:
        runs: The table of runs.
        manifest: The manifest of the study.
        baseline: Axis → value, such as `nodes: 1`, that the baseline must have.
        published_results: Published results of the same configurations.
    """
    points = row_values.group_by_point(table_files.to_rows(RunRow, runs))
    rows = [_point_row(point, group, manifest.targets) for point, group in points.items()]
    excluded = _excluded_rows(manifest.excluded, points)
    titles = platforms.unique_titles(manifest.platforms)
    for row in (*rows, *excluded):
        platform = manifest.platforms[row.platform]
        row.platform_title, row.cloud = titles[row.platform], platform.cloud
        row.devices = platforms.device_kind(row.gpus_per_node, platform.devices)
    _set_speedups(rows, points, baseline or {})
    rows += excluded
    _set_published_values(rows, manifest, published_results)
    return table_files.to_frame(PointRow, rows)


def _point_row(point: Point, group: Sequence[RunRow], targets: Mapping[str, float]) -> PointRow:
    """Return the row of one configuration: its run counts, medians, intervals and reasons.

    Args:
        point: The configuration.
        group: All its planned runs.
        targets: Quality metric → the value to reach.
    """
    valid = [run for run in group if run.status == RunState.OK]
    others = [run for run in group if run.status != RunState.OK]
    diverged = [run for run in others if run.status == RunState.DIVERGED]
    first = group[0]
    row = PointRow(**row_values.axis_columns(point))  # type: ignore[arg-type]
    for name in (*SIZES, *QUALITY_COLUMNS):
        setattr(row, name, getattr(first, name))
    row.runs, row.runs_planned, row.runs_diverged = len(valid), len(group), len(diverged)
    row.status = "ok"
    if others:  # with no valid run the most frequent status
        statuses = [run.status for run in others]
        row.status = "incomplete" if valid else max(statuses, key=statuses.count).value
    row.runs_timed = sum(is_known(run.execution_time_s) for run in valid)
    reasons = [*_invalid_run_reasons(group, diverged)]
    reasons += _set_examples_trained(row, valid)
    for name in PROJECTION_STEPS:
        steps = [value for run in valid if (value := getattr(run, name)) is not None]
        setattr(row, name, max(steps, default=None))
    target = targets.get(first.quality_metric)
    if target is not None and row.projected_from_steps is None:
        # including runs that reached it at an unknown time; unknown if a run reports no quality
        reached = [is_known(r.time_to_target_s) or r.target_reached for r in valid]
        row.target = target
        row.runs_at_target = None if None in reached else sum(map(bool, reached))
    reasons += _set_medians(row, valid, diverged)
    if of_examples_s := _valid_values(valid, SECONDS_OF_SPEEDUP["steady_state_speedup"]):
        # total examples over the median time, not a mean of rates in the middle
        row.throughput_examples_per_s = 1 / median(of_examples_s)
    if is_known(row.straggler_ratio) and is_known(row.compute_time_s) and row.compute_time_s:
        # a ratio of medians, not a median of ratios: the slowest ranks' over the median ranks'
        slowest = _valid_values(valid, lambda run: run.straggler_ratio * run.compute_time_s)
        row.straggler_ratio = median(slowest) / row.compute_time_s
    row.reason = "; ".join(reasons)
    return row


def _set_examples_trained(row: PointRow, valid: Sequence[RunRow]) -> list[str]:
    """Set in a row how many examples the valid runs of its configuration trained.

    Returns:
        [why the row is not comparable] if the numbers differ, else [].
    """
    trained = [run.examples_trained for run in valid if run.examples_trained is not None]
    if trained and len(trained) == len(valid):
        row.examples_trained = round(median(trained))
        row.examples_trained_min, row.examples_trained_max = min(trained), max(trained)
        if not are_equal_work(min(trained), max(trained)):
            row.same_work = False
            return [varying_work_reason(min(trained), max(trained))]
    return []


def _set_medians(row: PointRow, valid: Sequence[RunRow], diverged: Sequence[RunRow]) -> list[str]:
    """Set medians, ranges and intervals of metrics; return reasons of missing values.

    Args:
        row: The row of a configuration.
        valid: Its valid runs.
        diverged: Its runs that diverged. If there is one, ALL_RUNS_METRICS have no value.
    """
    reasons = []
    energy_of = {run.energy_of or "" for run in valid if is_known(run.energy_kwh)}
    if len(energy_of) == 1:
        row.energy_of = energy_of.pop()
    elif energy_of:
        reasons.append(f"{DIFFERENT_ENERGIES}: {', '.join(sorted(energy_of))}")
    of_runs = (QUALITY, "share_of_peak", "cost_usd", *HOURS)
    for name in (*RUN_METRICS, *of_runs, *ENERGY_COSTS, *ALL_RUNS_METRICS):
        values = [value for run in valid if is_known(value := getattr(run, name))]
        if name in ("energy_kwh", *ENERGY_COSTS) and not row.energy_of:
            values = []
        if name in ALL_RUNS_METRICS and len(values) < len(valid) + len(diverged):
            values = []
        if len(values) < len(valid) and (values or name == TIME):
            reasons.append(f"{name} is known of {len(values)} of {len(valid)} runs")
        setattr(row, name, median(values) if values else NAN)
        if name in SPREAD_METRICS and values:
            low, high = median_interval(values) or (NAN, NAN)
            row.ends |= {f"{name}_min": min(values), f"{name}_max": max(values)}
            row.ends |= {f"{name}_low": low, f"{name}_high": high}
    return reasons


def _invalid_run_reasons(group: Sequence[RunRow], diverged: Sequence[RunRow]) -> Iterator[str]:
    """Yield the reason of each run that is not valid; one reason for all runs that diverged."""
    if diverged:
        why = (f"repeat {run.repeat}: {run.reason.removeprefix('diverged: ')}" for run in diverged)
        yield f"{len(diverged)} of {len(group)} diverged ({', '.join(why)})"
    for run in group:
        if run.status not in FINISHED:
            yield f"repeat {run.repeat} {run.status}: {run.reason}"


def all_runs_reached_target(row: Cells) -> bool:
    """Return whether all valid and diverged runs of a configuration reached its target."""
    return bool(row["runs_at_target"] == row["runs"] + row["runs_diverged"])


def find_baseline(row: PointRow, rows: Sequence[PointRow], baseline: AxisValues) -> PointRow | None:
    """Return the row that the speed-up of `row` is relative to; None if the grid has none.

    If `baseline` does not name the platform, model, strategy or recipe, the row's value is used. Of
    the configurations that match, the one with the fewest replicas is returned. It trains on the
    same kind of device as the row, unless `baseline` names gpus_per_node or a platform without such
    devices.

    Args:
        row: The configuration to compare.
        rows: All configurations.
        baseline: Axis → value that the baseline must have.
    """
    own: AxisValues = {axis: getattr(row, axis) for axis in SERIES_AXES}
    named = {axis: str(v) if axis == "tasks_per_node" else v for axis, v in baseline.items()}
    if named.get("recipe") == variants.base_recipe(row.recipe):
        named["recipe"] = row.recipe  # of a recipe with variants each has its own

    def matching(axes: AxisValues) -> list[PointRow]:
        pairs = axes.items()
        return [other for other in rows if all(getattr(other, a) == v for a, v in pairs)]

    def alike(points: Iterable[PointRow]) -> list[PointRow]:
        return [other for other in points if other.devices == row.devices]

    found = matching({**own, **named})
    if "gpus_per_node" not in named and found:
        found = alike(found) or (found if "platform" in named else alike(matching(own)))
    return min(found, key=lambda r: (r.replicas, r.nodes, r.gpus_per_node), default=None)


def _set_speedups(
    rows: Sequence[PointRow], points: Mapping[Point, list[RunRow]], baseline: AxisValues
) -> None:
    """Set the baseline of each row, and its speed-up and efficiencies.

    A row whose configuration trained more or fewer examples than its baseline gets no speed-up.

    Args:
        rows: The rows to complete.
        points: The runs of each configuration.
        baseline: Axis → value that a baseline must have.
    """
    bases: dict[tuple[str, ...], PointRow | None] = {}
    most: dict[tuple[str, ...], int] = {}
    series = [tuple(getattr(row, axis) for axis in SERIES_AXES) for row in rows]
    for key, row in zip(series, rows, strict=True):
        most[key] = max(most.get(key, 0), row.examples_trained or 0)
    for key, row in zip(series, rows, strict=True):
        if (alike := (*key, row.devices)) not in bases:
            bases[alike] = find_baseline(row, rows, baseline)
        base = bases[alike]
        _set_work_verdict(row, base, most[key])
        if base is None:
            row.baseline = "no configuration of the grid"
            continue
        shown = [*baseline, *(a for a in POINT_AXES if a not in (*SERIES_AXES, *baseline))]
        words = [axis_text(axis, base) for axis in shown if axis != "tasks_per_node"]
        if base.tasks_per_node != "1":
            words.append(axis_text("tasks_per_node", base))
        row.baseline = ", ".join(words)
        row.baseline_point = point_of(base).path
        row.baseline_execution_time_s = base.execution_time_s
        _set_weak_scaling(row, base, points)
        own, of_base = row.examples_trained, base.examples_trained
        if not (row.runs and base.runs) or row.same_work is False:
            continue
        # the recipe defines the work of a program that reports no examples
        if own is None or of_base is None or are_equal_work(own, of_base):
            _set_speedup(row, base, points)
        else:
            _add_reason(row, f"no speedup: the baseline trained {of_base:,} examples")


def _set_work_verdict(row: PointRow, base: PointRow | None, most: int) -> None:
    """Set `same_work` of a row: whether the row trained as many examples as its baseline.

    If not, add a reason. Without a measured baseline of the same model and recipe, the row is
    compared with its series, the rows of its platform, model, strategy and recipe.

    Args:
        row: The row to complete.
        base: Its baseline; None without one.
        most: The highest number of examples that a configuration of the row's series trained.
    """
    own = row.examples_trained
    if own is None or row.same_work is False:
        return
    is_alike = base is not None and (base.model, base.recipe) == (row.model, row.recipe)
    of_base = base.examples_trained if base and is_alike else None
    other = of_base or most
    row.same_work = are_equal_work(own, other)
    if not row.same_work:
        whose = "its baseline" if of_base else "another configuration of its series"
        _add_reason(row, f"{DIFFERENT_WORK}: trained {own:,} examples, {whose} {other:,}")


def varying_work_reason(least: int, most: int) -> str:
    """Return why a configuration is not compared: its runs trained different numbers of examples.

    Args:
        least: The fewest examples of a run.
        most: The most examples of a run.
    """
    return f"{DIFFERENT_WORK}: its runs trained {least:,} to {most:,} examples"


def are_equal_work(examples: float, others: float) -> bool:
    """Return whether two numbers of trained examples are equal within SAME_WORK_TOLERANCE."""
    return abs(examples - others) <= SAME_WORK_TOLERANCE * others


def _add_reason(row: PointRow, reason: str) -> None:
    """Append a reason to the row's reasons."""
    row.reason = "; ".join(filter(None, (row.reason, reason)))


def _set_speedup(row: PointRow, base: PointRow, points: Mapping[Point, list[RunRow]]) -> None:
    """Set speed-up, its interval and the scaling efficiency of a row relative to its baseline.

    Args:
        row: The row to complete.
        base: Its baseline.
        points: The runs of each configuration.
    """
    for name, seconds in SECONDS_OF_SPEEDUP.items():
        of_base, own = (_valid_values(points[point_of(point)], seconds) for point in (base, row))
        if not (of_base and own):
            continue
        if not (median(of_base) and median(own)):
            _add_reason(row, f"no {name}: a median time is 0")
            continue
        setattr(row, name, median(of_base) / median(own))
        interval = ratio_interval(of_base, own)
        if interval is not None and row is not base:  # compared with itself: no uncertainty
            row.ends[f"{name}_low"], row.ends[f"{name}_high"] = interval
    share = replica_ratio(row, base)
    row.scaling_efficiency = row.speedup * share
    for end in ("low", "high"):
        if f"speedup_{end}" in row.ends:
            row.ends[f"scaling_efficiency_{end}"] = row.ends[f"speedup_{end}"] * share


def replica_ratio(row: PointRow, base: PointRow) -> float:
    """Return the number of replicas of the baseline divided by the configuration's number."""
    assert row.replicas is not None
    assert base.replicas is not None
    return base.replicas / row.replicas


def _set_weak_scaling(row: PointRow, base: PointRow, points: Mapping[Point, list[RunRow]]) -> None:
    """Set the weak scaling efficiency of a row, if its batch per replica equals the baseline's.

    It is the throughput per replica divided by the baseline's, without start-up.

    Args:
        row: The row to complete.
        base: Its baseline.
        points: The runs of each configuration.
    """
    if "strong" in (row.batch_scaling, base.batch_scaling):
        return
    if row.per_replica_batch_size != base.per_replica_batch_size:
        return
    seconds = SECONDS_OF_SPEEDUP["steady_state_speedup"]
    of_base, own = (_valid_values(points[point_of(point)], seconds) for point in (base, row))
    if not (of_base and own) or not median(own):
        return
    share = replica_ratio(row, base)
    row.weak_scaling_efficiency = median(of_base) / median(own) * share
    interval = ratio_interval(of_base, own)
    if interval is not None and row is not base:
        row.ends["weak_scaling_efficiency_low"] = interval[0] * share
        row.ends["weak_scaling_efficiency_high"] = interval[1] * share


def _valid_values(group: Sequence[RunRow], value: Callable[[RunRow], float]) -> list[float]:
    """Return one value of each valid run, without missing values.

    Args:
        group: Runs of a configuration.
        value: Returns the value of a run; NaN if it is missing.
    """
    found = (value(run) for run in group if run.status == RunState.OK)
    return [number for number in found if is_known(number)]


def _set_published_values(
    rows: Sequence[PointRow], manifest: Manifest, published_results: Sequence[PublishedResult]
) -> None:
    """Set published values, and measured values divided by published ones for the same training.

    Args:
        rows: The rows to complete.
        manifest: The manifest of the study.
        published_results: The published results.
    """
    known = {result.point: result for result in published_results}
    spec_at = {run.spec.point: run.spec for run in manifest.runs}
    for row in rows:
        point = point_of(row)
        result = known.get(PublishedPoint.from_point(point, manifest.platforms))
        if result is None:
            continue
        spec = spec_at.get(point)  # an excluded point has none
        same = spec is not None and trains_same_model(result, spec, manifest.synchronous_strategies)
        for name in ("execution_time_s", "loss", "accuracy"):
            value = getattr(result, name)
            setattr(row, f"published_{name}", value)
            if same and value != 0:  # measured over published
                setattr(row, f"{name.removesuffix('_s')}_ratio", getattr(row, name) / value)


def _excluded_rows(
    excluded: Iterable[ExcludedConfiguration], planned: Container[Point]
) -> list[PointRow]:
    """Return a row for each excluded configuration that no other block of the grid plans."""
    reasons: dict[Point, str] = {}
    for out in excluded:
        reasons.setdefault(out.point, out.reason)
    return [
        PointRow(**row_values.axis_columns(point), status="excluded", reason=reason)  # type: ignore[arg-type]
        for point, reason in reasons.items()
        if point not in planned
    ]


def comparison_text_table(
    table: pd.DataFrame, title: str, metrics: Sequence[str], imported_from: str = ""
) -> TextTable:
    """Return the comparison as a table of texts for comparison.md and the page.

    Axes with a single value are named above the table. Columns without any value are left out.

    Args:
        table: The comparison, with the columns of `PointRow`.
        title: The title of the table.
        metrics: The metrics to show, in order.
        imported_from: The file of timings from which the runs were imported; "" if they were
            measured here.
    """
    axes, fixed = display.split_naming_columns(table)
    rows = table_files.to_rows(PointRow, table)
    names = [*axes, *(name for name in metrics if any(is_known(row[name]) for row in rows))]
    names += ["status", "runs", *[display.PROJECTED_COLUMN] * any(map(is_projected, rows))]
    names += ["replicas", "global_batch_size", *["reason"] * any(row.reason for row in rows)]
    heads = display.column_headings(table, names)
    cells = [[display.format_cell(name, row) for name in heads] for row in rows]
    measured = [row for row in rows if row.runs]
    kinds = display.bracket_kinds(names, rows)
    notes = display.fill_notes(
        "comparison_notes",
        names=list(heads),
        baselines=_baseline_times(rows) if "speedup" in heads else {},
        has_diverged=any(row.runs_diverged for row in rows),
        has_interval=BracketKind.MEDIAN_INTERVAL in kinds,
        has_complete_run=BracketKind.COMPLETE_RUN_INTERVAL in kinds,
        has_range=BracketKind.RANGE in kinds,
        has_few=any(
            row.runs_timed < RUNS_FOR_INTERVAL
            and display.bracket_kind(TIME, row) is not BracketKind.COMPLETE_RUN_INTERVAL
            for row in measured
        ),
        times=sorted({display.measured_time_text(row, imported_from) for row in measured}),
        confidence=f"{CONFIDENCE:.0%}",
        runs_for_interval=RUNS_FOR_INTERVAL,
    )
    return TextTable.from_rows(
        title, list(heads.values()), cells, notes, display.shared_values_sentence(fixed)
    )


def _baseline_times(rows: Sequence[PointRow]) -> dict[str, float | None]:
    """Return the median time of each baseline in seconds, for the notes below the table.

    Args:
        rows: The configurations.

    Returns:
        `<platform>, <model>, <strategy>, recipe <recipe>: relative to <baseline>` → seconds; None
        if the time is unknown.
    """
    found: dict[str, float | None] = {}
    for row in rows:
        if row.baseline is not None:
            series = f"{row.platform}, {row.model}, {row.strategy}, recipe {row.recipe}"
            time_s = row.baseline_execution_time_s
            named = f"{series}: relative to {row.baseline}"
            found.setdefault(named, time_s if is_known(time_s) else None)
    return found
