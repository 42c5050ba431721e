"""The comparison: one row per point, with intervals, speed-up and published values."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from statistics import median

import pandas as pd

from tfscaling.records.metrics import METRICS, QUALITY
from tfscaling.records.run_states import FINISHED, RunState
from tfscaling.study import platforms, variants
from tfscaling.study.config import POINT_AXES
from tfscaling.study.manifest import Excluded, Manifest
from tfscaling.study.run_spec import Point
from tfscaling.tables import published
from tfscaling.tables.display import axis_text
from tfscaling.tables.intervals import median_interval, ratio_interval
from tfscaling.tables.published_results import PublishedPoint, PublishedResult, by_point
from tfscaling.tables.runs_table import PROJECTED, RUN_METRICS, SERIES_AXES, SIZES
from tfscaling.tables.table_rows import (
    QUALITY_COLUMNS,
    Row,
    columns_of,
    is_known,
    is_projected,
    point_of,
    points_of,
    quality_columns,
    quality_of,
    rows_of,
)

#: Axis → value: of a baseline, those that the configuration names.
AxisValues = Mapping[str, str | int]

#: Metrics that come with minimum, maximum and the interval of the median over a point's runs.
SPREAD = (
    *("execution_time_s", "time_with_queue_s", "loss", "accuracy", "test_accuracy", QUALITY),
    *("cost_usd", "time_to_target_s", "cost_to_target_usd"),
)
#: Metrics that a point has only if all its valid runs have and none diverged: the others did not
#: get so far, and a median without them would make the point look better than it is.
OF_ALL_RUNS = ("time_to_target_s", "cost_to_target_usd")
#: Metrics that come with a bootstrap interval.
RATIOS = ("speedup", "scaling_efficiency", "steady_state_speedup")
RATE = "throughput_examples_per_s"
#: What every valid run has, but for one that went on from a checkpoint.
TIME = "execution_time_s"
#: Speed-up → the seconds of a run that it is a ratio of: of the whole, and per example of training.
TIMES: dict[str, Callable[[Row], float]] = {
    "speedup": lambda run: run[TIME],
    "steady_state_speedup": lambda run: 1 / run[RATE] if run[RATE] else math.nan,
}
WHOLE = (
    *PROJECTED,
    *("runs_asked", "runs_at_target", "runs_diverged", "examples_trained"),
    *("examples_trained_min", "examples_trained_max"),
    *(size for size in SIZES if size != "batch_scaling"),
)
#: Points whose numbers of examples trained differ by more than this fraction do not do the same.
#: The published script drops incomplete batches: 59,968 examples on one node, 59,904 on others.
SAME_WORK_TOLERANCE = 0.002
#: How the reason of such a point begins.
OTHER_WORK = "does not do the same work"
#: Between the names of several ratios in one cell.
SEPARATOR = "; "
#: What the comparison reads of a run.
_OF_RUNS = (
    *("repeat", "status", "reason", "examples_trained", "cost_usd"),
    *("target_reached", *OF_ALL_RUNS),
    *(*SIZES, *RUN_METRICS, QUALITY, *QUALITY_COLUMNS, *PROJECTED),
)
#: The columns of comparison.csv: all metrics, whatever comparison.md shows of them.
COLUMNS = (
    *POINT_AXES,
    "devices",
    "platform_title",
    "cloud",
    "status",
    "runs",
    "runs_timed",
    "runs_asked",
    "runs_diverged",
    *SIZES,
    "examples_trained",
    "examples_trained_min",
    "examples_trained_max",
    "same_work",
    *PROJECTED,
    *METRICS,
    *QUALITY_COLUMNS,
    *(f"{name}_{end}" for name in SPREAD for end in ("min", "max", "low", "high")),
    *(f"{name}_{end}" for name in RATIOS for end in ("low", "high")),
    "undefined_ratios",
    "baseline",
    "baseline_point",
    "baseline_execution_time_s",
    "target",
    "runs_at_target",
    "reason",
)


def comparison_table(
    runs: pd.DataFrame,
    manifest: Manifest,
    baseline: AxisValues | None = None,
    published_results: Sequence[PublishedResult] = (),
) -> pd.DataFrame:
    """One row per point, in the order of the grid; excluded points at the end.

    Every metric is the median over the point's valid runs; times of those that have some, which
    `runs_timed` counts; time and cost to the target of its quality only if all of them reached it
    and tell when, and `runs_at_target` counts those that reached it. Speed-up is
    relative to the point that `baseline` names by values of axes; axes that it leaves open are the
    point's own (platform, model, strategy, recipe) or those of the fewest replicas (the others), on
    the same kind of device; `baseline` names it for a reader, `baseline_point` is its path. Points
    that do not train as many examples as their baseline have no speed-up: `same_work` says which,
    None where it is not known: a user's program then has a speed-up by its recipe.
    `undefined_ratios` are those whose denominator is 0 or does other work.
    """
    points = _by_point(runs)
    rows = [_point_row(point, group, manifest.targets) for point, group in points.items()]
    excluded = _excluded_rows(manifest.excluded, points)
    for row in (*rows, *excluded):
        platform = manifest.platforms[row["platform"]]
        row |= {"platform_title": platform.title, "cloud": platform.cloud}
        row["devices"] = platforms.device_kind(row["gpus_per_node"], platform.devices)
    _add_speedup(rows, points, baseline or {})
    rows += excluded
    _add_published(rows, manifest, published_results)
    # a point that was not run has no sizes: the whole numbers of the others stay whole
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(WHOLE, "Int64"))


def _by_point(runs: pd.DataFrame) -> dict[Point, list[Row]]:
    points: dict[Point, list[Row]] = {}
    table = runs.reindex(columns=_OF_RUNS)  # tables of before do not have all of them
    for point, run in zip(points_of(runs), rows_of(table), strict=True):
        points.setdefault(point, []).append(run)
    return points


def _point_row(point: Point, group: Sequence[Row], targets: Mapping[str, float]) -> Row:
    valid = [run for run in group if run["status"] == RunState.OK]
    others = [run for run in group if run["status"] != RunState.OK]
    row: Row = columns_of(point)
    row |= {size: group[0][size] for size in SIZES}
    row |= quality_columns(quality_of(group[0]))
    diverged = [run for run in others if run["status"] == RunState.DIVERGED]
    row |= {"runs": len(valid), "runs_asked": len(group), "status": _status(valid, others)}
    row["runs_timed"] = sum(is_known(run[TIME]) for run in valid)
    reasons = [*_reasons(group, diverged)]
    row["runs_diverged"] = len(diverged)
    trained = [int(run["examples_trained"]) for run in valid if is_known(run["examples_trained"])]
    if trained and len(trained) == len(valid):
        row["examples_trained"] = round(median(trained))
        row |= {"examples_trained_min": min(trained), "examples_trained_max": max(trained)}
        if not is_same_work(min(trained), max(trained)):
            row["same_work"] = False
            reasons.append(runs_differ(row))
    for name in PROJECTED:
        row[name] = max((int(run[name]) for run in valid if is_known(run.get(name))), default=None)
    target = targets.get(row["quality_metric"])
    if target is not None and not is_projected(row):
        reached = sum(map(_is_at_target, valid))
        row |= {"target": target, "runs_at_target": reached}
    for name in (*RUN_METRICS, QUALITY, "cost_usd", *OF_ALL_RUNS):
        values = [run[name] for run in valid if is_known(run[name])]
        if name in OF_ALL_RUNS and len(values) < len(valid) + len(diverged):
            values = []
        if len(values) < len(valid) and (values or name == TIME):
            reasons.append(f"{name} is known of {len(values)} of {len(valid)} runs")
        row[name] = median(values) if values else None
        if name in SPREAD and values:
            low, high = median_interval(values) or (None, None)
            row |= {f"{name}_min": min(values), f"{name}_max": max(values)}
            row |= {f"{name}_low": low, f"{name}_high": high}
    if of_examples_s := _known(valid, TIMES["steady_state_speedup"]):
        # total examples over the median time, not a mean of rates in the middle
        row[RATE] = 1 / median(of_examples_s)
    if row["straggler_ratio"] is not None and row["compute_time_s"]:
        # a ratio of medians, not a median of ratios: the slowest ranks' over the median ranks'
        slowest = _known(valid, lambda run: run["straggler_ratio"] * run["compute_time_s"])
        row["straggler_ratio"] = median(slowest) / row["compute_time_s"]
    row["reason"] = "; ".join(reasons)
    return row


def _is_at_target(run: Row) -> bool:
    """Whether a run reached its target, also where it is not known when."""
    told = run["target_reached"]
    return is_known(run["time_to_target_s"]) or (is_known(told) and bool(told))


def _reasons(group: Sequence[Row], diverged: Sequence[Row]) -> Iterator[str]:
    """Why runs of a point do not count."""
    if diverged:
        reasons = (
            f"repeat {run['repeat']}: {run['reason'].removeprefix('diverged: ')}"
            for run in diverged
        )
        yield f"{len(diverged)} of {len(group)} diverged ({', '.join(reasons)})"
    for run in group:
        if run["status"] not in FINISHED:
            yield f"repeat {run['repeat']} {run['status']}: {run['reason']}"


def _status(valid: Sequence[Row], others: Sequence[Row]) -> str:
    """ok, or incomplete, or with no valid run the most frequent status of the others."""
    if not others:
        return "ok"
    statuses = [run["status"] for run in others]
    return "incomplete" if valid else max(statuses, key=statuses.count)


def all_at_target(row: Row) -> bool:
    """Whether all runs of a point with a target reached it; one that diverged did not."""
    return bool(row["runs_at_target"] == row["runs"] + row["runs_diverged"])


def baseline_of(row: Row, rows: Iterable[Row], baseline: AxisValues) -> Row | None:
    """The point that `row` is compared with; None if the grid has none.

    It has the same kind of device, unless `baseline` says otherwise: it names gpus_per_node, or a
    platform that has no such device. Where no point that `baseline` names has the kind of device,
    it is the smallest of the row's own series that has.
    """
    own = {axis: row[axis] for axis in SERIES_AXES}
    named = {axis: str(v) if axis == "tasks_per_node" else v for axis, v in baseline.items()}
    if named.get("recipe") == variants.base(row["recipe"]):
        named["recipe"] = row["recipe"]  # of a recipe with variants each has its own
    everything = list(rows)

    def matching(axes: AxisValues) -> list[Row]:
        return [other for other in everything if all(other[a] == v for a, v in axes.items())]

    def alike(points: Iterable[Row]) -> list[Row]:
        return [other for other in points if other["devices"] == row["devices"]]

    found = matching(own | named)
    if "gpus_per_node" not in named and found:
        found = alike(found) or (found if "platform" in named else alike(matching(own)))
    return min(found, key=lambda r: (r["replicas"], r["nodes"], r["gpus_per_node"]), default=None)


def _add_speedup(
    rows: Sequence[Row],
    points: Mapping[Point, list[Row]],
    baseline: AxisValues,
) -> None:
    bases: dict[tuple[str, ...], Row | None] = {}
    most: dict[tuple[str, ...], int] = {}
    for row in rows:
        series = tuple(row[axis] for axis in SERIES_AXES)
        most[series] = max(most.get(series, 0), row.get("examples_trained", 0))
    for row in rows:
        series = tuple(row[axis] for axis in SERIES_AXES)
        alike = (*series, row["devices"])
        if alike not in bases:
            bases[alike] = baseline_of(row, rows, baseline)
        base = bases[alike]
        _compare_work(row, base, most[series])
        if base is None:
            row["baseline"] = "no point of the grid"
            continue
        shown = [*baseline, *(a for a in POINT_AXES if a not in (*SERIES_AXES, *baseline))]
        words = [axis_text(axis, base) for axis in shown if axis != "tasks_per_node"]
        if str(base["tasks_per_node"]) != "1":
            words.append(axis_text("tasks_per_node", base))
        row["baseline"] = ", ".join(words)
        row["baseline_point"] = point_of(base).path
        row["baseline_execution_time_s"] = base["execution_time_s"]
        own, of_base = row.get("examples_trained"), base.get("examples_trained")
        if not (row["runs"] and base["runs"]) or row.get("same_work") is False:
            continue
        # of a program that tells no examples the recipe stands for the work
        if own is None or of_base is None or is_same_work(own, of_base):
            _add_ratios(row, base, points)
        else:
            _undefined(row, "speedup", f"the baseline trained {of_base:,} examples")


def _compare_work(row: Row, base: Row | None, most: int) -> None:
    """Mark whether the point trains as many examples as its baseline, and say if it does not.

    Without a measured baseline of the same model and recipe: as many as the point of its series
    that trains the most.
    """
    own = row.get("examples_trained")
    if own is None or row.get("same_work") is False:
        return
    is_alike = base is not None and all(base[axis] == row[axis] for axis in ("model", "recipe"))
    of_base = base.get("examples_trained") if base and is_alike else None
    other = of_base or most
    row["same_work"] = is_same_work(own, other)
    if not row["same_work"]:
        whose = "its baseline" if of_base else "another point of its series"
        _say(row, f"{OTHER_WORK}: trained {own:,} examples, {whose} {other:,}")


def runs_differ(row: Row) -> str:
    """That the runs of a point trained different numbers of examples."""
    least, most = int(row["examples_trained_min"]), int(row["examples_trained_max"])
    return f"{OTHER_WORK}: its runs trained {least:,} to {most:,} examples"


def is_same_work(examples: float, others: float) -> bool:
    """Whether two numbers of examples trained are the same work."""
    return abs(examples - others) <= SAME_WORK_TOLERANCE * others


def _say(row: Row, reason: str) -> None:
    row["reason"] = "; ".join(filter(None, (row["reason"], reason)))


def _undefined(row: Row, ratio: str, why: str) -> None:
    """Note that the row has no such ratio; an efficiency is a speed-up too."""
    names = [ratio, "scaling_efficiency"] if ratio == "speedup" else [ratio]
    earlier = filter(None, [row.get("undefined_ratios")])
    row["undefined_ratios"] = SEPARATOR.join([*earlier, *names])
    _say(row, f"no {ratio}: {why}")


def _add_ratios(row: Row, base: Row, points: Mapping[Point, list[Row]]) -> None:
    for name, seconds in TIMES.items():
        of_base, own = (_known(points[point_of(point)], seconds) for point in (base, row))
        if not (of_base and own):
            continue
        if not (median(of_base) and median(own)):
            _undefined(row, name, "a median time is 0")
            continue
        row[name] = median(of_base) / median(own)
        interval = ratio_interval(of_base, own)
        if interval is not None and row is not base:  # compared with itself: no uncertainty
            row[f"{name}_low"], row[f"{name}_high"] = interval
    share = base["replicas"] / row["replicas"]
    for end in ("", "_low", "_high"):
        if f"speedup{end}" in row:
            row[f"scaling_efficiency{end}"] = row[f"speedup{end}"] * share


def _known(group: Sequence[Row], value: Callable[[Row], float]) -> list[float]:
    found = (value(run) for run in group if run["status"] == "ok")
    return [number for number in found if is_known(number)]


def _add_published(
    rows: Sequence[Row], manifest: Manifest, published_results: Sequence[PublishedResult]
) -> None:
    if not published_results:
        return
    known = by_point(published_results)
    spec_at = {run.spec.point: run.spec for run in manifest.runs}
    for row in rows:
        point = point_of(row)
        result = known.get(PublishedPoint.of(point, manifest.platforms))
        if result is None:
            continue
        spec = spec_at.get(point)  # an excluded point has none
        same = spec is not None and published.same_training(
            result, spec, manifest.synchronous_strategies
        )
        row |= published.columns_of(result, row, same)
        if same and row["runs"]:
            for name in published.without_ratio(result):
                _undefined(row, name, "the published value is 0")


def _excluded_rows(excluded: Iterable[Excluded], planned: Container[Point]) -> list[Row]:
    """Points that no block of the grid runs, once each."""
    rows: dict[Point, Row] = {}
    for out in excluded:
        if out.point not in planned:
            row = {"runs": 0, "runs_timed": 0, "status": "excluded", "reason": out.reason}
            rows.setdefault(out.point, {**columns_of(out.point), **row})
    return list(rows.values())
