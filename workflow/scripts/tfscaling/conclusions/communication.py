"""Communication: the time of a step, of its computation and of its all-reduce.

One row per point. The all-reduce (`all_reduce`) and the computation (`Trainer.compute_steps`) were
timed alone: their sum is the time of a step if nothing overlaps and nothing else takes time.

Latency and bandwidth follow from the times of several sizes by t = latency + bytes / bandwidth
(R. W. Hockney, "The communication challenge for MPP", Parallel Computing 20, 1994). Both are those
of the all-reduce: a ring of n replicas sends 2 (n - 1) / n times the bytes over each link and waits
2 (n - 1) times for the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd

from tfscaling.conclusions.evidence import Study
from tfscaling.record import benchmark_record, run_record, run_states
from tfscaling.record.benchmark_record import BenchmarkRecord
from tfscaling.spec import run_spec, user_code
from tfscaling.spec.config import POINT_AXES
from tfscaling.spec.manifest import NO_ALL_REDUCE, OF_PROGRAM, SINGLE, PlannedBenchmark
from tfscaling.spec.run_spec import BenchmarkSpec
from tfscaling.tables import runs_table
from tfscaling.tables.display import TextTable, cell, of_points, one_line, rounded
from tfscaling.tables.estimates import CONFIDENCE, median_interval
from tfscaling.tables.table_rows import Row, is_known, point_of

_Sizes = TypeVar("_Sizes", float, np.ndarray)

#: Fewer sizes leave nothing to check the two parameters by.
SIZES_MIN = 5
#: The largest size must take so many times as long as the smallest, or bandwidth shows nowhere.
RANGE_MIN = 3.0
#: No size may take so many times as long, or as short, as the model says. Two is not rare: a small
#: message may go another way through the software than a larger one.
MISFIT_MAX = 3.0
#: Neither parameter may change by such a factor when any one size is left out.
CHANGE_MAX = 2.0


@dataclass(frozen=True)
class Fit:
    """`misfit_max` is the largest factor between a size's time and the model's, 1 or more.

    The ranges are those of the fits that each leave one size out.
    """

    latency_s: float
    bandwidth_bytes_per_s: float
    latency_range_s: tuple[float, float]
    bandwidth_range_bytes_per_s: tuple[float, float]
    misfit_max: float


@dataclass(frozen=True)
class Refusal:
    """The times do not determine the two parameters, or do not follow the model."""

    reason: str


def time_s(latency_s: float, bandwidth_bytes_per_s: float, size_bytes: _Sizes) -> _Sizes:
    """What the model says of a size, or of an array of them."""
    return latency_s + size_bytes / bandwidth_bytes_per_s


def fit(sizes_bytes: Sequence[float], times_s: Sequence[float]) -> Fit | Refusal:
    """Fit the model to one time for each size, or say why not.

    Relative errors count, so that the small sizes weigh as much as the large, and by their absolute
    value from a tenth on (loss soft-l1), so that a single odd size does not lead.
    """
    sizes, times = np.asarray(sizes_bytes, float), np.asarray(times_s, float)
    order = np.argsort(sizes)
    sizes, times = sizes[order], times[order]
    if len(sizes) < SIZES_MIN:
        return Refusal(f"{len(sizes)} sizes are too few, {SIZES_MIN} are needed")
    if times[-1] < RANGE_MIN * times[0]:
        return Refusal(
            f"{sizes[-1]:.0f} bytes take only {times[-1] / times[0]:.1f} times as long as "
            f"{sizes[0]:.0f}: larger sizes are needed to see the bandwidth"
        )
    latency_s, bandwidth = _parameters(sizes, times)
    if sizes[0] / bandwidth > latency_s:
        return Refusal(
            f"already {sizes[0]:.0f} bytes take longer than the latency: smaller sizes are needed"
        )
    ratios = times / time_s(latency_s, bandwidth, sizes)
    worst = int(np.argmax(np.abs(np.log(ratios))))
    if not 1 / MISFIT_MAX < ratios[worst] < MISFIT_MAX:
        return Refusal(
            f"{sizes[worst]:.0f} bytes take {ratios[worst]:.2f} times as long as a latency and a "
            "bandwidth explain: the times do not follow the model"
        )
    whole = (latency_s, bandwidth)
    left = [_parameters(np.delete(sizes, n), np.delete(times, n)) for n in range(len(sizes))]
    ranges = [(min(values), max(values)) for values in zip(*left, strict=True)]
    for name, (low, high), value in zip(("latency", "bandwidth"), ranges, whole, strict=True):
        if high > CHANGE_MAX * value or low < value / CHANGE_MAX:
            return Refusal(
                f"without one of the sizes the {name} would be {low / value:.2f} to "
                f"{high / value:.2f} times as large: more sizes are needed"
            )
    misfit = float(max(ratios[worst], 1 / ratios[worst]))
    return Fit(latency_s, bandwidth, ranges[0], ranges[1], misfit)


def _parameters(sizes: np.ndarray, times: np.ndarray) -> tuple[float, float]:
    """(latency in s, bandwidth in bytes per s); logarithms keep both above nothing."""
    from scipy.optimize import least_squares

    def errors(logs: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(times) - np.logaddexp(logs[0], logs[1] + np.log(sizes)))

    slope = (times[-1] - times[0]) / (sizes[-1] - sizes[0])
    start = np.log([times[0], max(slope, times[-1] / sizes[-1] / 10)])
    found = least_squares(errors, start, loss="soft_l1", f_scale=0.1)
    return float(np.exp(found.x[0])), float(np.exp(-found.x[1]))


#: What there is of a point's benchmark; others are those of `runs_table.why_no_record`.
OK, STALE, EXCLUDED = "ok", "stale", "excluded"
_ENDS = ("min", "max", "low", "high")
COLUMNS = (
    *POINT_AXES,
    *("devices", "status", "reason", "runs", "replicas", "steps_per_synchronisation"),
    *("gradient_bytes", "repetitions"),
    *("all_reduce_time_s", *(f"all_reduce_time_s_{end}" for end in _ENDS)),
    *(f"latency_s{end}" for end in ("", "_min", "_max")),
    *(f"bandwidth_mb_per_s{end}" for end in ("", "_min", "_max")),
    *("fit_misfit_max", "fit_reason"),
    *("step_time_s", "compute_time_s", "step_bound_s", "step_time_over_bound", "record"),
)
EXCHANGE = "steps_per_synchronisation"
WHOLE = ("runs", "replicas", EXCHANGE, "gradient_bytes", "repetitions")
REASONS = {
    SINGLE: "nothing to communicate: the bound is the computation alone",
    NO_ALL_REDUCE: "the strategy updates parameter servers: an all-reduce is no bound of it",
    OF_PROGRAM: "a program communicates in its own way: an all-reduce is no bound of it",
}
NOTES = (
    "all_reduce_time_s: the sum over all replicas of tensors shaped like the model's gradient, "
    "timed alone by the training's own strategy and call; in each repetition that of the slowest "
    f"rank, of all repetitions the median, in brackets its {CONFIDENCE:.0%} interval, or the range "
    "of too few.",
    "latency_s and bandwidth_mb_per_s (10^6 bytes per s): an all-reduce of so many bytes takes "
    "t = latency + bytes / bandwidth (Hockney 1994), fitted to the median of each size of a sweep "
    "by relative errors (loss soft-l1). Both are of the whole operation, not of a link. In "
    "brackets the range of the fits that each leave one size out; fit_misfit_max is the largest "
    "factor between a size's time and the fit's.",
    "step_bound_s = compute_time_s + all_reduce_time_s (over steps_per_synchronisation, where "
    "replicas exchange less often than in each step): a benchmark without overlap, each part "
    "measured alone. A step below it (step_time_over_bound < 1) overlaps communication with "
    "computation; what a step takes above it is something else: the update of the variables (and "
    "nothing else with a single replica), waiting for the slowest rank of the step, ranks that "
    "disturb each other. The benchmark is a job of its own: if machines or network were busier "
    "then than during the runs, or less busy, the ratio is off by that.",
)


class Benchmark(NamedTuple):
    """What there is of a planned benchmark: its record only if it counts.

    One that `is_kept` is of other code of the user's, and made again only where that is asked for.
    """

    status: str
    reason: str
    record: BenchmarkRecord | None = None
    is_kept: bool = False


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: one row per point of the comparison; no rows if benchmarks are not enabled."""
    planned = {each.point: each for each in study.manifest.all_reduce_benchmarks}
    points, folder = study.points if planned else (), study.benchmarks_dir
    recipes = {run.spec.point: run.spec.recipe for run in study.manifest.runs}
    steps = {point: recipe.steps_per_synchronisation for point, recipe in recipes.items()}
    rows = [
        _row({**row, EXCHANGE: steps.get(point_of(row))}, planned.get(point_of(row)), folder)
        for row in points
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(WHOLE, "Int64"))


def _row(point: Row, planned: PlannedBenchmark | None, folder: Path) -> Row:
    names = (*POINT_AXES, "devices", "runs", "replicas", EXCHANGE, "step_time_s", "compute_time_s")
    row: Row = {name: point[name] if is_known(point[name]) else None for name in names}
    if planned is None:
        return row | {"status": EXCLUDED, "reason": point["reason"]}
    if planned.spec is None:
        assert planned.refusal is not None
        row |= {"status": planned.refusal, "reason": REASONS[planned.refusal]}
        return row | (_bound(row, 0.0) if planned.refusal == SINGLE else {})
    status, reason, record, _ = read(planned.spec, folder)
    row |= {"status": status, "reason": reason}
    if record is None:
        return row
    gradient = next(r for r in record.all_reduces if r.payload == "gradient")
    times = gradient.slowest_s
    low, high = median_interval(times) or (None, None)
    row |= {"gradient_bytes": gradient.bytes, "repetitions": len(times)}
    row |= {"all_reduce_time_s": median(times), "record": str(_path(planned.spec, folder))}
    for end, value in zip(_ENDS, (min(times), max(times), low, high), strict=True):
        row[f"all_reduce_time_s_{end}"] = value
    return row | _fit(record) | _bound(row, median(times) / row[EXCHANGE])


def _path(spec: BenchmarkSpec, folder: Path) -> Path:
    return folder / spec.path / benchmark_record.RECORD


def read(spec: BenchmarkSpec, folder: Path, name: str = benchmark_record.RECORD) -> Benchmark:
    """What there is of a planned benchmark below `folder`; its record is the file `name`."""
    path = folder / spec.path / name
    try:
        record = benchmark_record.read(path)
    except run_record.RecordError as error:
        return Benchmark("failed", str(error))
    if record is None:
        return Benchmark(*runs_table.why_no_record(path.parent, spec.parameters_hash))
    if record.parameters_hash != spec.parameters_hash:
        planned = {**spec.axes, **spec.parameters}
        changes = run_spec.differences(planned, {**record.axes.axes, **record.parameters})
        return Benchmark(STALE, f"made with other parameters: {changes}")
    code = user_code.of_names(spec.point.model)
    if reason := run_states.changed_code((record.environment.user_code, code)):
        return Benchmark(STALE, reason, is_kept=True)
    return Benchmark(OK, "", record)


def to_do(
    planned: Iterable[PlannedBenchmark], folder: Path, rerun_stale: bool = False
) -> list[PlannedBenchmark]:
    """The planned benchmarks that have no record that counts.

    Those of other code are among them if `rerun_stale` asks for it.
    """
    found = [(each, read(each.spec, folder)) for each in planned if each.spec]
    return [each for each, made in found if made.status != OK and (rerun_stale or not made.is_kept)]


def _fit(record: BenchmarkRecord) -> Row:
    """Latency and bandwidth of the sweep, or why there are none."""
    sweep = [row for row in record.all_reduces if row.payload == "sweep"]
    found = fit([row.bytes for row in sweep], [median(row.slowest_s) for row in sweep])
    if isinstance(found, Refusal):
        return {"fit_reason": found.reason}
    row: Row = {"latency_s": found.latency_s, "fit_misfit_max": found.misfit_max, "fit_reason": ""}
    row["bandwidth_mb_per_s"] = found.bandwidth_bytes_per_s / 1e6
    for place, end in enumerate(("min", "max")):
        row[f"latency_s_{end}"] = found.latency_range_s[place]
        row[f"bandwidth_mb_per_s_{end}"] = found.bandwidth_range_bytes_per_s[place] / 1e6
    return row


def _bound(row: Row, all_reduce_time_s: float) -> Row:
    """The bound, and the measured step over it; nothing where no run was measured."""
    if row["compute_time_s"] is None:
        return {}
    bound_s = row["compute_time_s"] + all_reduce_time_s
    step_s = row["step_time_s"]
    over = step_s / bound_s if step_s is not None and bound_s > 0 else None
    return {"step_bound_s": bound_s, "step_time_over_bound": over}


def as_text(table: pd.DataFrame) -> TextTable:
    """`table` for people: times in seconds, intervals and ranges in brackets, what is missing."""
    cells = partial(_cells, exchanges_less=bool((table[EXCHANGE] > 1).any()))
    none = "Not measured: `all_reduce_benchmark.enabled` is false in the configuration."
    return of_points(table, "Communication", cells, NOTES, none)


def _cells(row: Row, axes: Sequence[str], exchanges_less: bool) -> dict[str, str]:
    cells = {axis: cell(axis, row) for axis in axes} | {"status": row["status"]}
    sizes = ["replicas", *[EXCHANGE] * exchanges_less, "gradient_bytes"]
    cells |= {name: rounded(row[name], 0) for name in sizes}
    is_interval = is_known(row["all_reduce_time_s_low"])
    ends: tuple[str, str] = ("low", "high") if is_interval else ("min", "max")
    cells["all_reduce_time_s"] = rounded(
        row["all_reduce_time_s"], 4, *_pair(row, "all_reduce_time_s", ends)
    )
    for name, digits in (("latency_s", 6), ("bandwidth_mb_per_s", 0)):
        cells[name] = rounded(row[name], digits, *_pair(row, name, ("min", "max")))
    cells["fit_misfit_max"] = rounded(row["fit_misfit_max"], 2)
    cells |= {
        name: rounded(row[name], 4) for name in ("step_time_s", "compute_time_s", "step_bound_s")
    }
    cells["step_time_over_bound"] = rounded(row["step_time_over_bound"], 2)
    refused = row["fit_reason"] if isinstance(row["fit_reason"], str) else ""
    refused = refused and f"no latency and bandwidth: {refused}"
    reasons = [row["reason"] if isinstance(row["reason"], str) else "", refused]
    cells["reason"] = one_line("; ".join(filter(None, reasons)))
    return cells


def _pair(row: Row, name: str, ends: tuple[str, str]) -> tuple[float, float]:
    low, high = ends
    return row[f"{name}_{low}"], row[f"{name}_{high}"]
