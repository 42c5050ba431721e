"""A 95 % bound of a job's wait, by order statistics of similar past jobs of the partition.

QBETS (Nurmi, Brevik and Wolski, 2007) takes an order statistic of the waits of similar jobs. Waits
of the same hours resemble each other, so such a bound alone holds too seldom. Here it comes from
the most recent jobs, and is multiplied by the factor with which it would have held for 95 % of the
past jobs. Jobs that still wait, or were cancelled while they waited, are included with their wait
so far (Kaplan and Meier, 1958). A group of jobs that were submitted together a minute ago shows
nothing yet, and a partition that starts no job for hours shows it by the jobs that wait. So the
bound is the larger one of two: by the last jobs, and by as many as include enough started ones.
docs/evidence.md has the simulated rates.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from tfscaling.cluster.slurm_client import NoAnswer
from tfscaling.estimation.intervals import CONFIDENCE, Array
from tfscaling.plan import preflight
from tfscaling.plan.costed_plan import PlanRow
from tfscaling.plan.preflight import Request
from tfscaling.snakemake_adapter.submission import Submission
from tfscaling.study.config_types import Config

#: Days of past jobs that are read, and the most similar jobs that are used, latest first.
DAYS, JOBS_MAX = 14, 1000
#: With fewer similar jobs the bound is unknown: the number with which QBETS begins.
JOBS_MIN = 59
#: The bound follows this quantile of this many recent jobs.
RECENT, RECENT_QUANTILE = 30, 0.8
#: Waits below this are alike.
WAIT_MIN_S = 60.0
#: Similar jobs have at most this many times more or fewer nodes, and minutes of time limit.
TIMES_NODES, TIMES_LIMIT = 2.0, 4.0


def history(partition: str | None) -> Array:
    """Return a partition's past jobs by the time from which Slurm could start them: (jobs, 5).

    The columns are this time and the start in seconds, nodes, the time limit in minutes, and the
    time at which a job was cancelled that had not started. The start of a job that waits or was
    cancelled is infinite, as is the last column of all others. No partition is the default one.
    Without accounting, or if sacct fails, the result is empty.
    """
    if partition is None:
        defaults = (p for p in preflight.partitions() if p.get("Default") == "YES")
        partition = ",".join(each["PartitionName"] for each in defaults)
    rows = preflight.SLURM.accounted_waits(partition, DAYS)
    return read([] if isinstance(rows, NoAnswer) else rows)


def read(rows: Iterable[Sequence[str]]) -> Array:
    """Return `history` from the rows of sacct, without jobs that were held."""
    jobs = []
    for eligible, start, nodes, limit_min, state, end in rows:
        has_started = state != "PENDING" and start not in ("None", "Unknown")
        try:
            times_s = [_seconds(eligible), _seconds(start) if has_started else np.inf]
            left_s = np.inf if has_started or state == "PENDING" else _seconds(end)
        except ValueError:
            continue
        limit = float(limit_min) if limit_min.isdecimal() else np.inf
        jobs.append((*times_s, float(nodes), limit, left_s))
    return np.array(sorted(jobs)).reshape(-1, 5)


def _seconds(time_utc: str) -> float:
    return datetime.datetime.fromisoformat(f"{time_utc}+00:00").timestamp()


def similar(jobs: Array, nodes: int, limit_min: float) -> Array:
    """Return the latest jobs of similar size and time limit; if too few, only of similar size."""

    def is_near(values: Array, value: float, times: float) -> Array:
        return (values <= times * value) & (values >= value / times)

    of_size = jobs[is_near(jobs[:, 2], nodes, TIMES_NODES)]
    of_both = of_size[is_near(of_size[:, 3], limit_min, TIMES_LIMIT)]
    return (of_both if len(of_both) >= JOBS_MIN else of_size)[-JOBS_MAX:]


def bound_s(jobs: Array, now_s: float) -> float | None:
    """Return the bound of the wait of a job like `jobs`, in seconds from now on.

    None if too few of them could start by now: jobs that may begin later show no wait.
    """
    jobs = jobs[jobs[:, 0] <= now_s]
    if len(jobs) < JOBS_MIN:
        return None
    eligible, start, left = jobs[:, 0], jobs[:, 1], jobs[:, 4]

    def quantile(begin: int, number: int, now_s: float) -> float:
        """Return RECENT_QUANTILE of the waits of these jobs as they were known at this time."""
        own = slice(begin, number)
        waits = np.minimum(np.minimum(start[own], left[own]), now_s) - eligible[own] + WAIT_MIN_S
        return _quantile(waits, start[own] <= now_s, RECENT_QUANTILE)

    def recent(number: int, now_s: float) -> float:
        """Return the larger quantile by the jobs before this one, as known when it came."""
        begin = max(0, number - RECENT)
        (started,) = np.nonzero(start[:number] <= now_s)
        further = int(started[-RECENT:][0]) if len(started) else begin
        own = quantile(begin, number, now_s)
        return own if further >= begin else max(own, quantile(further, number, now_s))

    numbers = range(RECENT, len(jobs))
    expected = np.array([recent(n, eligible[n]) for n in numbers])
    waited = np.minimum(np.minimum(start, left), now_s)[RECENT:] - eligible[RECENT:] + WAIT_MIN_S
    factor = _quantile(waited / expected, start[RECENT:] <= now_s, CONFIDENCE)
    return max(0.0, recent(len(jobs), now_s) * factor - WAIT_MIN_S)


def _quantile(values: Array, is_complete: Array, level: float) -> float:
    """Return the order statistic that one more value exceeds with 1 - `level`.

    If no value is that large, the result is the largest one. Incomplete values are lower bounds.
    """
    order = np.lexsort((~is_complete, values))
    at_risk = np.arange(len(values), 0, -1) + 1  # with the one more
    exceeded = np.cumprod(1 - is_complete[order] / at_risk)
    (enough,) = np.nonzero(exceeded <= 1 - level + 1e-9)
    return float(values[order][enough[0] if len(enough) else -1])


def added(rows: Iterable[PlanRow], config: Config, how: Submission) -> list[PlanRow]:
    """Add the bound of a run's queue wait to the rows, as far as accounting covers it."""
    rows, now_s = list(rows), datetime.datetime.now().timestamp()
    asked = preflight.requests((row.point for row in rows if row.runs), config, how)
    of_partition = functools.cache(history)

    @functools.cache
    def of_request(request: Request) -> float | None:
        jobs = of_partition(request.partition)
        return bound_s(similar(jobs, request.nodes, request.runtime_min), now_s)

    def bounded(row: PlanRow) -> PlanRow:
        return replace(row, wait_bound_s=of_request(asked[row.point]))

    return [bounded(row) if row.runs and not row.is_refused else row for row in rows]
