"""Values of the runs for statistics, read from a table of runs."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pandas as pd

from tfscaling.estimation.samples import Samples, as_costs
from tfscaling.record.metrics import METRICS, QUALITY
from tfscaling.record.run_states import RESULTS, RunState
from tfscaling.study.run_spec import Point
from tfscaling.tables.row_values import group_by, metric_of, points_of


def read_samples(runs: pd.DataFrame) -> Samples:
    """Return the metrics of the runs that have a result, as samples for statistics.

    For each configuration, they also have the numbers of runs by status and of failed attempts.
    """
    counted = runs[runs["status"].isin([*RESULTS])]
    names = [name for name in METRICS if name in counted]
    measured = {name: counted[name].to_numpy(float, na_value=math.nan) for name in names}
    is_endless = (counted["status"] != RunState.OK).to_numpy()
    errors = np.zeros(len(counted))
    if "projection_error_s" in counted:
        found = counted["projection_error_s"] / counted["execution_time_s"]
        errors = np.nan_to_num(found.to_numpy(float, na_value=math.nan))
    points = points_of(counted)
    statuses: dict[Point, Counter[str]] = {}
    failed_attempts: Counter[Point] = Counter()
    failed = runs["failed_attempts"] if "failed_attempts" in runs else pd.Series(0, runs.index)
    states, counts = runs["status"].tolist(), failed.fillna(0).astype(int).tolist()
    for point, status, number in zip(points_of(runs), states, counts, strict=True):
        statuses.setdefault(point, Counter())[status] += 1
        failed_attempts[point] += number
    return Samples(
        measured,
        {
            name: np.where(is_endless, math.inf, _metric_costs(name, values, counted)).tolist()
            for name, values in measured.items()
        },
        errors,
        is_endless,
        pd.factorize(counted["repeat"], sort=True)[0].tolist(),
        group_by(range(len(points)), points.__getitem__),
        statuses,
        failed_attempts,
    )


def _metric_costs(name: str, values: np.ndarray, runs: pd.DataFrame) -> np.ndarray:
    """Return the values of a metric as costs, smaller is better.

    Args:
        name: The metric; the quality is converted by the metric of each run's recipe.
        values: Its value of each run.
        runs: The table of runs.
    """
    if name != QUALITY:
        return as_costs(values, METRICS[name])
    costs = np.full(len(values), np.nan)
    numbers, _ = pd.factorize(runs["quality_metric"])
    for own in (numbers == number for number in set(numbers) - {-1}):
        costs[own] = as_costs(values[own], metric_of(QUALITY, runs.iloc[int(own.argmax())]))
    return costs
