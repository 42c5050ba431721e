"""Communication: the time of a step, of its computation and of its all-reduce.

The all-reduce (`all_reduce`) and the computation (`Trainer.compute_steps`) were timed alone: their
sum is the time of a step if nothing overlaps and nothing else takes time.

Latency and bandwidth follow from the times of several sizes by t = latency + bytes / bandwidth
(R. W. Hockney, "The communication challenge for MPP", Parallel Computing 20, 1994). Both describe
the all-reduce: a ring of n replicas sends 2 (n - 1) / n times the bytes over each link and waits
2 (n - 1) times for the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import numpy as np
import pandas as pd

from tfscaling.conclusions import shown
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.shown import text_of, with_spread
from tfscaling.record import benchmark_record, run_record, run_states
from tfscaling.record.benchmark_record import BenchmarkRecord
from tfscaling.spec import run_spec, user_code
from tfscaling.spec.config import POINT_AXES
from tfscaling.spec.manifest import NO_ALL_REDUCE, OF_PROGRAM, SINGLE, PlannedBenchmark
from tfscaling.spec.run_spec import BenchmarkSpec
from tfscaling.tables import runs_table
from tfscaling.tables.display import TextTable, one_line, rounded
from tfscaling.tables.estimates import median_interval
from tfscaling.tables.table_rows import Row, is_known, point_of

#: Fewer sizes leave nothing to check the two parameters by.
SIZES_MIN = 5
#: The largest size must take this many times as long as the smallest to show a bandwidth.
RANGE_MIN = 3.0
#: No size may differ from the model by more than this factor. Two is not rare: small and large
#: messages may take different paths through the software.
MISFIT_MAX = 3.0


class Fit(msgspec.Struct, frozen=True):
    """The columns of the model of latency and bandwidth; only `fit_reason` where it is refused.

    `fit_misfit_max` is the largest factor between a size's time and the model's, 1 or more.
    """

    fit_reason: str = ""
    latency_s: float | None = None
    bandwidth_mb_per_s: float | None = None
    fit_misfit_max: float | None = None


def fit(sizes_bytes: Sequence[float], times_s: Sequence[float]) -> Fit:
    """Fit the model to one time for each size, or give the reason against it.

    Relative errors count, so that the small sizes weigh as much as the large, and by their absolute
    value from a tenth on (loss soft-l1), so that a single odd size does not lead.
    """
    sizes, times = np.asarray(sizes_bytes, float), np.asarray(times_s, float)
    order = np.argsort(sizes)
    sizes, times = sizes[order], times[order]
    if len(sizes) < SIZES_MIN:
        return Fit(f"{len(sizes)} sizes are too few, {SIZES_MIN} are needed")
    if times[-1] < RANGE_MIN * times[0]:
        return Fit(
            f"{sizes[-1]:.0f} bytes take only {times[-1] / times[0]:.1f} times as long as "
            f"{sizes[0]:.0f}: larger sizes are needed to see the bandwidth"
        )
    latency_s, bandwidth = _parameters(sizes, times)
    if sizes[0] / bandwidth > latency_s:
        return Fit(
            f"already {sizes[0]:.0f} bytes take longer than the latency: smaller sizes are needed"
        )
    ratios = times / (latency_s + sizes / bandwidth)
    worst = int(np.argmax(np.abs(np.log(ratios))))
    if not 1 / MISFIT_MAX < ratios[worst] < MISFIT_MAX:
        return Fit(
            f"{sizes[worst]:.0f} bytes take {ratios[worst]:.2f} times as long as a latency and a "
            "bandwidth explain: the times do not follow the model"
        )
    return Fit(
        latency_s=latency_s,
        bandwidth_mb_per_s=bandwidth / 1e6,
        fit_misfit_max=float(max(ratios[worst], 1 / ratios[worst])),
    )


def _parameters(sizes: np.ndarray, times: np.ndarray) -> tuple[float, float]:
    """(latency in s, bandwidth in bytes per s); logarithms keep both above nothing."""
    from scipy.optimize import least_squares

    def errors(logs: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(times) - np.logaddexp(logs[0], logs[1] + np.log(sizes)))

    slope = (times[-1] - times[0]) / (sizes[-1] - sizes[0])
    start = np.log([times[0], max(slope, times[-1] / sizes[-1] / 10)])
    found = least_squares(errors, start, loss="soft_l1", f_scale=0.1)
    return float(np.exp(found.x[0])), float(np.exp(-found.x[1]))


#: Status of a point's benchmark; others come from `runs_table.why_no_record`.
OK, STALE, EXCLUDED = "ok", "stale", "excluded"
COLUMNS = (
    *POINT_AXES,
    *("devices", "status", "reason", "runs", "replicas", "gradient_bytes", "repetitions"),
    *(f"all_reduce_time_s{end}" for end in ("", "_min", "_max", "_low", "_high")),
    *(name for name in Fit.__struct_fields__[1:]),
    *("fit_reason", "step_time_s", "compute_time_s", "step_bound_s", "step_time_over_bound"),
    "record",
)
WHOLE = ("runs", "replicas", "gradient_bytes", "repetitions")
REASONS = {
    SINGLE: "nothing to communicate: the bound is the computation alone",
    NO_ALL_REDUCE: "the strategy updates parameter servers: an all-reduce is no bound of it",
    OF_PROGRAM: "a program communicates in its own way: an all-reduce is no bound of it",
}


class Benchmark(NamedTuple):
    """The state of a planned benchmark, with its record only if it counts.

    A benchmark that `is_kept` has other user code, and is only rerun on request.
    """

    status: str
    reason: str
    record: BenchmarkRecord | None = None
    is_kept: bool = False


def read(spec: BenchmarkSpec, folder: Path, name: str = benchmark_record.RECORD) -> Benchmark:
    """The state of a planned benchmark below `folder`; its record is the file `name`."""
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
    """The planned benchmarks without a record that counts; those that are kept on request only."""
    found = [(each, read(each.spec, folder)) for each in planned if each.spec]
    return [each for each, made in found if made.status != OK and (rerun_stale or not made.is_kept)]


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: one row per point of the comparison; no rows if benchmarks are not enabled."""
    planned = {each.point: each for each in study.manifest.all_reduce_benchmarks}
    names = ("devices", "runs", "replicas", "step_time_s", "compute_time_s")
    rows = []
    for each in study.points if planned else ():
        point = point_of(each)
        row: Row = {name: each[name] if is_known(each[name]) else None for name in names}
        row |= {**{axis: each[axis] for axis in POINT_AXES}}
        excluded: Row = {"status": EXCLUDED, "reason": each["reason"]}
        benchmark = planned.get(point)
        made = _benchmark(row, benchmark, study.benchmarks_dir) if benchmark else excluded
        rows.append(row | made)
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(WHOLE, "Int64"))


def _benchmark(row: Row, planned: PlannedBenchmark, folder: Path) -> Row:
    """The columns of a benchmark and of the bound by it."""
    if planned.spec is None:
        assert planned.refusal is not None
        said: Row = {"status": planned.refusal, "reason": REASONS[planned.refusal]}
        return said | (_bound(row, 0.0) if planned.refusal == SINGLE else {})
    status, reason, record, _ = read(planned.spec, folder)
    if record is None:
        return {"status": status, "reason": reason}
    gradient = next(r for r in record.all_reduces if r.payload == "gradient")
    sweep = [r for r in record.all_reduces if r.payload == "sweep"]
    times = gradient.slowest_s
    low, high = median_interval(times) or (None, None)
    found = fit([r.bytes for r in sweep], [median(r.slowest_s) for r in sweep])
    return {
        **{"status": status, "reason": reason, "gradient_bytes": gradient.bytes},
        **{"repetitions": len(times), "all_reduce_time_s": median(times)},
        **{"all_reduce_time_s_min": min(times), "all_reduce_time_s_max": max(times)},
        **{"all_reduce_time_s_low": low, "all_reduce_time_s_high": high},
        **msgspec.structs.asdict(found),
        **_bound(row, median(times)),
        "record": str(folder / planned.spec.path / benchmark_record.RECORD),
    }


def _bound(row: Row, all_reduce_time_s: float) -> Row:
    """The bound, and the measured step over it; nothing where no run was measured."""
    if row["compute_time_s"] is None:
        return {}
    bound_s, step_s = row["compute_time_s"] + all_reduce_time_s, row["step_time_s"]
    over = step_s / bound_s if step_s is not None and bound_s > 0 else None
    return {"step_bound_s": bound_s, "step_time_over_bound": over}


def as_text(table: pd.DataFrame) -> TextTable:
    """`table` for people: times in seconds, intervals and ranges in brackets, what is missing."""
    none = "Not measured: `all_reduce_benchmark.enabled` is false in the configuration."
    return shown.text_table("Communication", table, _cells, shown.notes("communication"), none)


def _cells(row: Row) -> dict[str, str]:
    ends = ("low", "high") if is_known(row["all_reduce_time_s_low"]) else ("min", "max")
    refused = text_of(row["fit_reason"])
    reasons = [text_of(row["reason"]), refused and f"no latency and bandwidth: {refused}"]
    return {
        "status": row["status"],
        **{name: rounded(row[name], 0) for name in ("replicas", "gradient_bytes")},
        "all_reduce_time_s": with_spread(row, "all_reduce_time_s", 4, ends),
        "latency_s": rounded(row["latency_s"], 6),
        "bandwidth_mb_per_s": rounded(row["bandwidth_mb_per_s"], 0),
        "fit_misfit_max": rounded(row["fit_misfit_max"], 2),
        "step_time_s": rounded(row["step_time_s"], 4),
        "compute_time_s": rounded(row["compute_time_s"], 4),
        "step_bound_s": rounded(row["step_bound_s"], 4),
        "step_time_over_bound": rounded(row["step_time_over_bound"], 2),
        "reason": one_line("; ".join(filter(None, reasons))),
    }
