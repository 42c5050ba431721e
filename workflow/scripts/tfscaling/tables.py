"""Tables: one row per run, one row per point. Layer 4 (view).

Nothing is dropped: a run that failed, is missing, or was made with other parameters is a row with
its reason, and takes part in no median and no speed-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from tfscaling import costs, parameters, records
from tfscaling.grid import AXES, POINT_AXES
from tfscaling.metrics import METRICS

SIZES = ("replicas", "per_replica_batch_size", "global_batch_size", "batch_scaling")
#: Points that share these are compared with each other: the same work on the same platform.
SERIES_AXES = ("platform", "model", "strategy", "recipe")
#: The columns of comparison.csv: all metrics, whatever comparison.md shows of them.
COMPARISON_COLUMNS = (
    *POINT_AXES,
    "status",
    "runs",
    "runs_asked",
    *SIZES,
    *METRICS,
    "execution_time_s_min",
    "execution_time_s_max",
    "baseline",
    "baseline_execution_time_s",
    "reason",
)
#: Below this number of runs even the whole range of a sample is no 95 % interval of the median.
RUNS_FOR_INTERVAL = 6


def runs_table(expected: Mapping[str, Any], runs_dir: Path) -> pd.DataFrame:
    """One row per expected run: axes, status, reason, sizes, metrics, hosts, record path.

    `status` is ok, failed, unfinished (started, left neither a record nor a failure: still
    running, or killed), stale (made with other parameters) or missing.
    """
    rows = [_run_row(entry, runs_dir) for entry in expected["runs"]]
    columns = [
        *AXES,
        "status",
        "reason",
        *SIZES,
        *_run_metrics(),
        "cost_usd",
        "usd_per_node_hour",
        "attempt",
        "hosts",
        "slurm_job_id",
        "parameters_hash",
        "record",
    ]
    # "2+1" is a value of this axis too: text here as in the file
    return pd.DataFrame(rows, columns=columns).astype({"tasks_per_node": str})


def _run_metrics() -> list[str]:
    return [name for name, metric in METRICS.items() if metric.value is not None]


def _run_row(entry: Mapping[str, Any], runs_dir: Path) -> dict[str, Any]:
    folder = runs_dir / entry["path"]
    row: dict[str, Any] = {
        **entry["axes"],
        **{size: entry[size] for size in SIZES},
        "usd_per_node_hour": entry["usd_per_node_hour"],
        "parameters_hash": entry["parameters_hash"],
    }
    try:
        record = records.read_json(folder / records.RECORD)
        if record is not None:
            records.check(record, folder / records.RECORD)
    except records.RecordError as error:
        return {**row, "status": "failed", "reason": str(error)}
    if record is None:
        return {**row, **_why_no_record(folder)}
    if record["parameters_hash"] != entry["parameters_hash"]:
        expected = {**entry["axes"], **entry["parameters"]}
        found = {**record["axes"], **record["parameters"]}
        reason = f"made with other parameters: {parameters.differences(expected, found)}"
        return {**row, "status": "stale", "reason": reason}
    row |= {name: METRICS[name].value(record) for name in _run_metrics()}  # type: ignore[misc]
    job = record["environment"]["slurm_job"] or {}
    return {
        **row,
        "status": "ok",
        "reason": "",
        "cost_usd": costs.run_cost_usd(
            entry["usd_per_node_hour"], entry["axes"]["nodes"], row["execution_time_s"]
        ),
        "attempt": record["attempt"],
        "hosts": " ".join(dict.fromkeys(rank["host"] for rank in record["ranks"])),
        "slurm_job_id": job.get("id"),
        "record": str(folder / records.RECORD),
    }


def _why_no_record(folder: Path) -> dict[str, str]:
    try:
        failure = records.read_json(folder / records.FAILURE)
    except records.RecordError as error:
        return {"status": "failed", "reason": str(error)}
    if failure is not None:
        cause = failure["cause"]
        where = (
            "" if cause.get("rank") is None else f"rank {cause['rank']} on {cause.get('host')}: "
        )
        return {"status": "failed", "reason": f"{cause['kind']}: {where}{cause['message']}"}
    if any(folder.glob("attempt=*")):
        return {"status": "unfinished", "reason": "still running, or killed before it could report"}
    return {"status": "missing", "reason": "not run yet"}


def read_table(path: Path) -> pd.DataFrame:
    """A table from its CSV: texts stay texts, whatever they look like; empty cells are missing."""
    text = [*SERIES_AXES, "tasks_per_node", "status", "hosts", "slurm_job_id", "parameters_hash"]
    return pd.read_csv(
        path,
        dtype=dict.fromkeys(text, "object"),
        converters={"reason": str},
        keep_default_na=False,
        na_values=[""],
    )


def comparison_table(runs: pd.DataFrame, excluded: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per point, in the order of the grid; excluded points at the end.

    Every metric is the median over the point's valid runs; the execution time comes with its
    minimum and maximum. Speed-up is relative to the series' point with the fewest replicas, whose
    time stands beside it.
    """
    rows = [_point_row(axes, group) for axes, group in runs.groupby(list(POINT_AXES), sort=False)]
    table = pd.DataFrame(rows)
    table = pd.concat(
        [_with_speedup(series) for _, series in table.groupby(list(SERIES_AXES), sort=False)]
    ).sort_index()
    left_out = [
        {
            **point["axes"],
            "tasks_per_node": str(point["axes"]["tasks_per_node"]),
            "runs": 0,
            "status": "excluded",
            "reason": point["reason"],
        }
        for point in excluded
    ]
    if left_out:
        table = pd.concat([table, pd.DataFrame(left_out)], ignore_index=True)
    return table.reindex(columns=COMPARISON_COLUMNS)


def _point_row(axes: Any, group: pd.DataFrame) -> dict[str, Any]:
    valid = group[group["status"] == "ok"]
    others = group[group["status"] != "ok"]
    row: dict[str, Any] = dict(zip(POINT_AXES, axes, strict=True))
    row |= {size: group[size].iloc[0] for size in SIZES}
    row |= {"runs": len(valid), "runs_asked": len(group)}
    counts = others["status"].value_counts()
    row["status"] = "ok" if others.empty else counts.index[0] if valid.empty else "incomplete"
    row["reason"] = "; ".join(
        f"repeat {repeat} {status}: {reason}"
        for repeat, status, reason in others[["repeat", "status", "reason"]].itertuples(index=False)
    )
    for name in (*_run_metrics(), "cost_usd"):
        row[name] = pd.to_numeric(valid[name]).median() if len(valid) else None
    row["execution_time_s_min"] = valid["execution_time_s"].min() if len(valid) else None
    row["execution_time_s_max"] = valid["execution_time_s"].max() if len(valid) else None
    return row


def _with_speedup(series: pd.DataFrame) -> pd.DataFrame:
    series = series.copy()
    base = series.sort_values(["replicas", "nodes", "gpus_per_node"], kind="stable").iloc[0]
    time = pd.to_numeric(pd.Series([base["execution_time_s"]])).iloc[0]
    own = pd.to_numeric(series["execution_time_s"])
    series["baseline"] = (
        f"nodes={base['nodes']} gpus_per_node={base['gpus_per_node']}"
        f" tasks_per_node={base['tasks_per_node']}"
    )
    series["baseline_execution_time_s"] = time
    series["speedup"] = time / own
    series["scaling_efficiency"] = series["speedup"] * base["replicas"] / series["replicas"]
    return series
