"""Upper bounds of the time in the queue, from similar past jobs of the partition.

QBETS (Nurmi, Brevik and Wolski, 2007) takes an order statistic of the waits of similar jobs. Waits
of the same hours resemble each other, so such a bound alone holds too seldom. Here it comes from
the most recent jobs and is multiplied by the factor with which it would have held for 95 % of the
past jobs. Jobs that still wait, or were cancelled while they waited, are included with their wait
so far (Kaplan and Meier, 1958). Jobs that were submitted together a minute ago show nothing yet,
and a partition that starts no job for hours shows it by its waiting jobs. So the larger of two
bounds is taken: from the last jobs, and from as many jobs as include enough started ones.
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
from tfscaling.plan.preflight import SlurmRequest
from tfscaling.snakemake_adapter.submission import Submission
from tfscaling.study.config_types import Config

#: Days of past jobs that are read, and the most similar jobs that are used, latest first.
DAYS, JOBS_MAX = 14, 1000
#: With fewer similar jobs the bound is unknown; QBETS begins with the same number.
JOBS_MIN = 59
#: The bound follows this quantile of this many recent jobs.
RECENT_JOBS, RECENT_QUANTILE = 30, 0.8
#: Waits below this are treated as equal, in seconds.
WAIT_MIN_S = 60.0
#: Similar jobs have at most this many times more or fewer nodes, and minutes of time limit.
NODES_RATIO_MAX, TIME_LIMIT_RATIO_MAX = 2.0, 4.0


def read_past_jobs(partition: str | None) -> Array:
    """Return a partition's past jobs, sorted by the time from which Slurm could start them.

    Args:
        partition: The partition; None for the default one.

    Returns:
        An array (jobs, 5), empty without accounting or if sacct fails. Its columns:

        0. eligible time, from which Slurm could start the job, in seconds since 1970
        1. start, in seconds since 1970; infinite if the job has not started
        2. number of nodes
        3. time limit in minutes; infinite without a limit
        4. end of a job that never started, in seconds since 1970; infinite for all others
    """
    if partition is None:
        defaults = (p for p in preflight.read_partitions() if p.get("Default") == "YES")
        partition = ",".join(each["PartitionName"] for each in defaults)
    rows = preflight.SLURM.accounted_waits(partition, DAYS)
    return parse_jobs([] if isinstance(rows, NoAnswer) else rows)


def parse_jobs(rows: Iterable[Sequence[str]]) -> Array:
    """Return the array of `read_past_jobs`, without jobs that have no eligible time.

    Args:
        rows: [eligible time, start, nodes, time limit in minutes, state, end] of each job, as sacct
            prints them.
    """
    jobs = []
    for eligible, start, nodes, limit_min, state, end in rows:
        has_started = state != "PENDING" and start not in ("None", "Unknown")
        try:
            times_s = [_parse_seconds(eligible), _parse_seconds(start) if has_started else np.inf]
            left_s = np.inf if has_started or state == "PENDING" else _parse_seconds(end)
        except ValueError:
            continue
        limit = float(limit_min) if limit_min.isdecimal() else np.inf
        jobs.append((*times_s, float(nodes), limit, left_s))
    return np.array(sorted(jobs)).reshape(len(jobs), 5)


def _parse_seconds(time_utc: str) -> float:
    """Return a time of sacct in UTC as seconds since 1970."""
    return datetime.datetime.fromisoformat(f"{time_utc}+00:00").timestamp()


def select_similar_jobs(jobs: Array, nodes: int, limit_min: float) -> Array:
    """Return the latest jobs with similar nodes and time limit, at most JOBS_MAX.

    If fewer than JOBS_MIN jobs are similar in both, the time limit is ignored.

    Args:
        jobs: The array of `read_past_jobs`.
        nodes: Nodes of the job to submit.
        limit_min: Its time limit in minutes.
    """

    def is_near(values: Array, value: float, times: float) -> Array:
        return (values <= times * value) & (values >= value / times)

    of_size = jobs[is_near(jobs[:, 2], nodes, NODES_RATIO_MAX)]
    of_both = of_size[is_near(of_size[:, 3], limit_min, TIME_LIMIT_RATIO_MAX)]
    return (of_both if len(of_both) >= JOBS_MIN else of_size)[-JOBS_MAX:]


def wait_bound_s(jobs: Array, now_s: float) -> float | None:
    """Return an upper bound of the time in the queue for a job that is submitted now, in seconds.

    The bound is chosen so that it would have held for 95 % of `jobs`. Jobs that become eligible
    after `now_s` are ignored.

    Args:
        jobs: Similar jobs, from `select_similar_jobs`.
        now_s: The present time in seconds since 1970.

    Returns:
        None if fewer than JOBS_MIN jobs are eligible by now.
    """
    jobs = jobs[jobs[:, 0] <= now_s]
    if len(jobs) < JOBS_MIN:
        return None
    eligible, start, left = jobs[:, 0], jobs[:, 1], jobs[:, 4]

    def quantile(begin: int, number: int, now_s: float) -> float:
        """Return the RECENT_QUANTILE quantile of the waits of jobs, as it was known at a time.

        Args:
            begin: Index of the first of these jobs.
            number: Index after the last one.
            now_s: The time. A job that had not started by then is taken to wait longer.
        """
        own = slice(begin, number)
        waits = np.minimum(np.minimum(start[own], left[own]), now_s) - eligible[own] + WAIT_MIN_S
        return _censored_quantile(waits, start[own] <= now_s, RECENT_QUANTILE)

    def recent(number: int, now_s: float) -> float:
        """Return the larger of two quantiles of waits before a job, as they were known at a time.

        One is over the last RECENT_JOBS jobs before it. The other also includes earlier jobs, so
        that RECENT_JOBS of them had started by then.

        Args:
            number: Index of the job.
            now_s: The time.
        """
        begin = max(0, number - RECENT_JOBS)
        (started,) = np.nonzero(start[:number] <= now_s)
        further = int(started[-RECENT_JOBS:][0]) if len(started) else begin
        own = quantile(begin, number, now_s)
        return own if further >= begin else max(own, quantile(further, number, now_s))

    numbers = range(RECENT_JOBS, len(jobs))
    expected = np.array([recent(n, eligible[n]) for n in numbers])
    waited = (
        np.minimum(np.minimum(start, left), now_s)[RECENT_JOBS:]
        - eligible[RECENT_JOBS:]
        + WAIT_MIN_S
    )
    factor = _censored_quantile(waited / expected, start[RECENT_JOBS:] <= now_s, CONFIDENCE)
    return max(0.0, recent(len(jobs), now_s) * factor - WAIT_MIN_S)


def _censored_quantile(values: Array, is_complete: Array, level: float) -> float:
    """Return an upper prediction bound: a further value exceeds it with probability 1 - `level`.

    The bound is one of the values, by the Kaplan-Meier estimate. If the values are too few for the
    level, the largest value is returned.

    Args:
        values: The values.
        is_complete: Whether each value is exact; otherwise it is a lower bound (censored).
        level: Probability that the bound holds, such as 0.95.
    """
    order = np.lexsort((~is_complete, values))
    at_risk = np.arange(len(values), 0, -1) + 1  # with the one more
    exceeded = np.cumprod(1 - is_complete[order] / at_risk)
    (enough,) = np.nonzero(exceeded <= 1 - level + 1e-9)
    return float(values[order][enough[0] if len(enough) else -1])


def add_wait_bounds(
    rows: Iterable[PlanRow], config: Config, job_submission: Submission
) -> list[PlanRow]:
    """Return the rows with the upper bound of a run's time in the queue, where it is known.

    Args:
        rows: The rows.
        config: The configuration, with the platforms.
        job_submission: How Snakemake submits jobs.
    """
    rows, now_s = list(rows), datetime.datetime.now().timestamp()
    asked = preflight.make_requests((row.point for row in rows if row.runs), config, job_submission)
    of_partition = functools.cache(read_past_jobs)

    @functools.cache
    def of_request(request: SlurmRequest) -> float | None:
        jobs = of_partition(request.partition)
        return wait_bound_s(select_similar_jobs(jobs, request.nodes, request.runtime_min), now_s)

    def bounded(row: PlanRow) -> PlanRow:
        return replace(row, wait_bound_s=of_request(asked[row.point]))

    return [bounded(row) if row.runs and not row.is_refused else row for row in rows]
