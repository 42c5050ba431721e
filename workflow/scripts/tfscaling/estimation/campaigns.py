"""Simulation of campaigns: many trainings, some at once, with time limits, waits and failures.

The times of a few runs do not determine the times of further trainings. Each simulated campaign
therefore has its own mean and scatter of times, drawn from their posterior distribution given the
runs (logarithms of times, normal, with the reference prior: together Student's t). A few runs may
also miss a slow mode, such as a slow node: a share of trainings takes longer, by a factor that runs
have shown, or else by an assumed one. Waits in the queue and the rate of failures are drawn in the
same way. benchmarks/campaign.py has the rate with which the intervals hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tfscaling.estimation.intervals import Array

#: Share of campaigns inside their interval.
LEVEL = 0.9
#: Most simulated campaigns, and fewest, if there are very many trainings.
CAMPAIGNS, CAMPAIGNS_MIN = 10_000, 200
#: Most jobs of all simulated campaigns together, which bounds the time of a simulation.
JOBS_SIMULATED_MAX = 2_000_000
#: A training that is not done after this many jobs does not end.
JOBS_MAX = 1000
#: Waits below this are treated as equal, in seconds.
WAIT_MIN_S = 60.0
#: A run is slow if it takes this many times the median, and is this many deviations above it.
SLOW_RATIO, SLOW_DEVIATIONS = 1.15, 6.0
#: Prior of slow modes: slow runs among none, and the mean logarithm of how many times as long.
SLOW_RUNS_PRIOR, SLOW_LOG_PRIOR = 0.25, 0.4
#: Assumed bounds: a slow mode takes at most this many times as long, unless runs show more, and a
#: wait is at most this many times the longest measured one.
SLOW_RATIO_MAX, WAIT_RATIO_MAX = 4.0, 10.0
#: Prior of failures: this many in the time of this many trainings.
FAILURES_PRIOR, FAILURE_TRAININGS_PRIOR = 0.25, 5.0


@dataclass(frozen=True)
class CampaignPlan:
    """How the trainings of a campaign are run.

    Attributes:
        trainings: Number of trainings.
        at_once: Highest number of trainings that have a job in the queue or running.
        time_limit_s: Time after which a job ends, in seconds.
        checkpoint_every_s: Interval of checkpoints in seconds; infinite without checkpoints.
        interruptions_per_hour: Expected interruptions of a job in an hour.
    """

    trainings: int
    at_once: int = 1
    time_limit_s: float = math.inf
    checkpoint_every_s: float = math.inf
    interruptions_per_hour: float = 0.0

    def saved_s(self, trained_s: Array) -> Array:
        """Return the seconds of a job's training that its last checkpoint keeps.

        Args:
            trained_s: Seconds for which each job has trained.
        """
        if math.isinf(self.checkpoint_every_s):
            return np.zeros_like(trained_s)
        return np.floor(np.maximum(trained_s, 0.0) / self.checkpoint_every_s + 1e-9) * (
            self.checkpoint_every_s
        )


@dataclass(frozen=True)
class MeasuredRuns:
    """What the runs of a configuration show about further trainings.

    Attributes:
        times_s: Time of a job that makes a complete training, in seconds, for each run.
        startup_s: Part of this time that each further job of a training repeats.
        shared_error: Standard error of the times as a fraction, which more runs do not reduce.
        waits_s: Waits of jobs before they began, in seconds; if empty, no waits are simulated.
        failures: Number of failed attempts.
        attempt_hours: Hours of all attempts, failed or not.
    """

    times_s: Sequence[float]
    startup_s: float = 0.0
    shared_error: float = 0.0
    waits_s: Sequence[float] = ()
    failures: int = 0
    attempt_hours: float = 0.0


@dataclass(frozen=True)
class SimulatedCampaigns:
    """Results of simulated campaigns, arrays of shape (campaigns,).

    Attributes:
        durations_s: Time from the start until all trainings are done; infinite if one never is.
        job_hours: Hours of all jobs together; infinite if a training never ends.
        unfinished: Number of trainings that never end.
        jobs: Number of jobs of all trainings.
    """

    durations_s: Array
    job_hours: Array
    unfinished: Array
    jobs: Array


@dataclass(frozen=True)
class LogNormals:
    """A log-normal distribution of times for each simulated campaign.

    Attributes:
        means: Mean of the logarithms, (campaigns,).
        deviations: Standard deviation of the logarithms, (campaigns,).
        most: Highest logarithm that `draw` returns; its exponential is finite.
    """

    means: Array
    deviations: Array
    most: float = 700.0

    @classmethod
    def draw_posterior(
        cls, logs: Array, shared_error: float, campaigns: int, dice: np.random.Generator
    ) -> LogNormals:
        """Draw distributions from the posterior that follows from two or more measured times.

        Args:
            logs: Logarithms of the times.
            shared_error: Standard error that all logarithms share, which more times do not reduce.
            campaigns: Number of distributions to draw.
            dice: Source of random numbers.
        """
        number = len(logs)
        scatter = max(float(logs.std(ddof=1)), shared_error)
        deviations = scatter * np.sqrt((number - 1) / dice.chisquare(number - 1, campaigns))
        errors = np.hypot(deviations / math.sqrt(number), shared_error)
        return cls(logs.mean() + errors * dice.standard_normal(campaigns), deviations)

    def draw(self, campaigns: Array, dice: np.random.Generator) -> Array:
        """Draw the logarithm of a time from the distribution of each of these campaigns.

        Args:
            campaigns: Indices of campaigns; an index may be repeated.
            dice: Source of random numbers.
        """
        own = dice.standard_normal(campaigns.shape)
        return np.minimum(self.means[campaigns] + self.deviations[campaigns] * own, self.most)


def simulate_campaigns(
    plan: CampaignPlan, runs: MeasuredRuns, seed: int = 0, campaigns: int = CAMPAIGNS
) -> SimulatedCampaigns:
    """Simulate campaigns; the same seed gives the same result.

    Args:
        plan: How the trainings are run.
        runs: What the measured runs show about one training; at least two runs.
        seed: Seed of the random numbers.
        campaigns: Number of campaigns; fewer are simulated if they have very many jobs.
    """
    dice = np.random.default_rng(seed)
    campaigns = min(campaigns, _campaigns_to_simulate(plan, runs))
    times_s = _draw_times(runs, campaigns, plan.trainings, dice)
    wait_logs = np.log(np.maximum(np.array(runs.waits_s, float), 0.0) + WAIT_MIN_S)
    waits = None
    if len(wait_logs):
        waits = replace(
            LogNormals.draw_posterior(wait_logs, 0.0, campaigns, dice),
            most=wait_logs.max() + math.log(WAIT_RATIO_MAX),
        )
    hours = float(np.median(runs.times_s)) / 3600
    failures = dice.gamma(runs.failures + FAILURES_PRIOR, size=campaigns)
    failures /= runs.attempt_hours + FAILURE_TRAININGS_PRIOR * hours
    simulated = _JobSimulation(plan, runs.startup_s, waits, failures, dice)
    spans_s, busy_s, jobs = simulated.run(times_s)
    return SimulatedCampaigns(
        last_end_s(spans_s, plan.at_once),
        busy_s.sum(axis=1) / 3600,
        np.isinf(spans_s).sum(axis=1),
        jobs.sum(axis=1),
    )


def _campaigns_to_simulate(plan: CampaignPlan, runs: MeasuredRuns) -> int:
    """Return how many campaigns to simulate: fewer where a campaign has many jobs.

    The jobs of a training are estimated: one for each part that fits into the time limit, and more
    for failures and interruptions, which lose what was trained after the last checkpoint.
    """
    time_s = float(np.median(runs.times_s))
    per_job_s = max(plan.time_limit_s - runs.startup_s, 1.0)
    ends_per_hour = plan.interruptions_per_hour + (runs.failures + FAILURES_PRIOR) / (
        runs.attempt_hours + FAILURE_TRAININGS_PRIOR * time_s / 3600
    )
    unsaved_s = min(time_s, runs.startup_s + min(plan.checkpoint_every_s, per_job_s))
    tries = math.exp(min(ends_per_hour * unsaved_s / 3600, math.log(JOBS_MAX)))
    parts = max(1, math.ceil(time_s / per_job_s))
    jobs = parts * tries + ends_per_hour * time_s / 3600
    number = int(JOBS_SIMULATED_MAX / (plan.trainings * min(JOBS_MAX, jobs)))
    return min(CAMPAIGNS, max(CAMPAIGNS_MIN, number))


def _draw_times(
    runs: MeasuredRuns, campaigns: int, trainings: int, dice: np.random.Generator
) -> Array:
    """Draw the time of each training if a single job makes it, in seconds.

    Args:
        runs: The measured runs.
        campaigns: Number of campaigns.
        trainings: Number of trainings in each.
        dice: Source of random numbers.

    Returns:
        An array (campaigns, trainings).
    """
    logs = np.log(np.asarray(runs.times_s, float))
    middle = float(np.median(logs))
    deviation = 1.4826 * float(np.median(np.abs(logs - middle)))
    is_slow = logs > middle + max(math.log(SLOW_RATIO), SLOW_DEVIATIONS * deviation)
    slow = int(is_slow.sum())
    usual = LogNormals.draw_posterior(logs[~is_slow], runs.shared_error, campaigns, dice)
    shares = dice.beta(slow + SLOW_RUNS_PRIOR, len(logs) - slow + SLOW_RUNS_PRIOR, campaigns)
    excess = SLOW_LOG_PRIOR + float((logs[is_slow] - logs[~is_slow].mean()).sum())
    excesses = excess / dice.gamma(slow + 2.0, size=campaigns)
    places = np.broadcast_to(np.arange(campaigns)[:, None], (campaigns, trainings))
    slowed = dice.random((campaigns, trainings)) < shares[:, None]
    drawn = usual.draw(places, dice)
    longer = excesses[places[slowed]] * dice.standard_exponential(int(slowed.sum()))
    most = max(math.log(SLOW_RATIO_MAX), float(logs.max()) - middle)
    drawn[slowed] += np.minimum(longer, most)
    return np.exp(np.minimum(drawn, 700.0))


@dataclass(frozen=True)
class _JobSimulation:
    """Simulates the jobs of all trainings of all campaigns: each first job, each second job, ….

    Attributes:
        plan: How the trainings are run.
        startup_s: Time before a job trains, in seconds.
        waits: Distributions of the wait before a job; None without waits.
        failures_per_hour: Expected failures of a job in an hour, (campaigns,).
        dice: Source of random numbers.
    """

    plan: CampaignPlan
    startup_s: float
    waits: LogNormals | None
    failures_per_hour: Array
    dice: np.random.Generator

    def run(self, times_s: Array) -> tuple[Array, Array, Array]:
        """Simulate jobs until each training is done, or has had JOBS_MAX jobs.

        Args:
            times_s: Seconds of each training in one job without interruptions, (campaigns,
                trainings).

        Returns:
            Three arrays (campaigns, trainings): the seconds from a training's first submission to
            its end, and the seconds of its jobs, both infinite if it never ends; the number of its
            jobs.
        """
        spans_s, busy_s, jobs = np.zeros((3, times_s.size))
        remaining_s = np.maximum(times_s.ravel() - self.startup_s, 0.0)
        campaigns = np.repeat(np.arange(len(times_s)), times_s.shape[1])
        active = np.flatnonzero(~self._never_ends(remaining_s))
        for _ in range(JOBS_MAX):
            if not len(active):
                break
            job_s, is_done = self._run_job(remaining_s[active], campaigns[active])
            trained_s = self.plan.saved_s(job_s - self.startup_s)
            remaining_s[active] = np.where(is_done, 0.0, remaining_s[active] - trained_s)
            busy_s[active] += job_s
            spans_s[active] += job_s + self._draw_waits(campaigns[active])
            jobs[active] += 1
            active = active[~is_done]
        ends = jobs.astype(bool)
        ends[active] = False
        spans_s[~ends] = busy_s[~ends] = np.inf
        shape = times_s.shape
        return spans_s.reshape(shape), busy_s.reshape(shape), jobs.reshape(shape)

    def _never_ends(self, remaining_s: Array) -> Array:
        """Return which trainings never end: longer than a job, which ends before any checkpoint."""
        in_job_s = self.plan.time_limit_s - self.startup_s
        if self.plan.saved_s(np.array([min(in_job_s, 1e12)]))[0] > 0:
            return np.zeros(remaining_s.shape, bool)
        return remaining_s > in_job_s

    def _run_job(self, remaining_s: Array, campaigns: Array) -> tuple[Array, Array]:
        """Return how long a job of each training runs in seconds, and whether it finishes.

        Args:
            remaining_s: Seconds of each training that remain.
            campaigns: Index of each training's campaign.
        """
        rates = self.failures_per_hour[campaigns] + self.plan.interruptions_per_hour
        with np.errstate(divide="ignore"):
            ends_s = 3600 * self.dice.standard_exponential(len(rates)) / rates
        ends_s = np.minimum(ends_s, self.plan.time_limit_s)
        needed_s = self.startup_s + remaining_s
        return np.minimum(needed_s, ends_s), needed_s <= ends_s

    def _draw_waits(self, campaigns: Array) -> Array:
        """Return the wait before a job of each of these campaigns (indices), in seconds."""
        if self.waits is None:
            return np.zeros(len(campaigns))
        return np.maximum(np.exp(self.waits.draw(campaigns, self.dice)) - WAIT_MIN_S, 0.0)


def interval_ends(values: Array) -> tuple[float, float, float]:
    """Return lower end, median and upper end of the interval of simulated values.

    Args:
        values: A value of each campaign; infinite ones are allowed.
    """
    shares = [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2]
    low, middle, high = np.quantile(values, shares, method="inverted_cdf").tolist()
    return low, middle, high


def last_end_s(spans_s: Array, at_once: int) -> Array:
    """Return when the last training of each campaign ends, in seconds after the start.

    Trainings start in their order, each as soon as fewer than `at_once` others are under way.

    Args:
        spans_s: Time that each training takes from its first submission, (campaigns, trainings).
        at_once: Highest number of trainings that are under way at the same time.
    """
    free_s = spans_s[:, :at_once].copy()
    places = np.arange(len(spans_s))
    for number in range(free_s.shape[1], spans_s.shape[1]):
        free_s[places, free_s.argmin(axis=1)] += spans_s[:, number]
    return free_s.max(axis=1)
