"""Simulated campaigns of known trainings: the order, time limits, checkpoints, and their rates."""

from __future__ import annotations

import heapq
import math
import random

import campaign as simulation
import numpy as np
import pytest
from scipy.stats import binom
from seeds import drawn_seed
from tfscaling.estimation.campaigns import (
    CampaignPlan,
    MeasuredRuns,
    interval_ends,
    last_end_s,
    simulate_campaigns,
)

SEED = drawn_seed()


def equal_runs(time_s: float, number: int = 12, **known: float) -> MeasuredRuns:
    """Runs of the same time, without a failure in very many hours."""
    return MeasuredRuns([time_s] * number, attempt_hours=1e9, **known)  # type: ignore[arg-type]


def jobs_one_by_one(plan: CampaignPlan, time_s: float, startup_s: float) -> tuple[int, float]:
    """Number of jobs of a training, and their time, without failures."""
    left_s, jobs, busy_s = time_s - startup_s, 0, 0.0
    while True:
        jobs += 1
        if startup_s + left_s <= plan.time_limit_s:
            return jobs, busy_s + startup_s + left_s
        busy_s += plan.time_limit_s
        every_s = plan.checkpoint_every_s
        left_s -= (plan.time_limit_s - startup_s) // every_s * every_s


def test_trainings_start_when_a_slot_is_free() -> None:
    dice = random.Random(SEED)
    campaigns, trainings = dice.randint(1, 9), dice.randint(1, 40)
    at_once = dice.randint(1, trainings)
    spans = np.array([[dice.uniform(1, 9) for _ in range(trainings)] for _ in range(campaigns)])
    expected = []
    for own in spans.tolist():
        ends: list[float] = []
        for span in own:
            begin = heapq.heappop(ends) if len(ends) == at_once else 0.0
            heapq.heappush(ends, begin + span)
        expected.append(max(ends))
    assert last_end_s(spans, at_once).tolist() == pytest.approx(expected), SEED
    never = last_end_s(np.where(spans == spans.max(), np.inf, spans), at_once)
    assert np.isinf(never).any() and not np.isnan(never).any(), SEED


def test_equal_runs_give_a_known_date() -> None:
    """Most campaigns have no slow training: low end and median are the exact time."""
    dice = random.Random(SEED)
    time_s, at_once = dice.uniform(100, 10_000), dice.randint(1, 5)
    plan = CampaignPlan(dice.randint(2, 9), at_once)
    simulated = simulate_campaigns(plan, equal_runs(time_s))
    low, middle, high = interval_ends(simulated.durations_s)
    rounds = math.ceil(plan.trainings / at_once)
    assert (low, middle) == pytest.approx((rounds * time_s,) * 2), SEED
    assert high >= middle
    hours = interval_ends(simulated.job_hours)
    assert hours[0] == pytest.approx(plan.trainings * time_s / 3600), SEED


def test_time_limits_take_as_many_jobs_as_one_by_one() -> None:
    dice = random.Random(SEED)
    startup_s, limit_s = dice.uniform(0, 300), dice.uniform(3600, 7200)
    plan = CampaignPlan(dice.randint(1, 5), 1, limit_s, dice.uniform(60, 1800))
    time_s = dice.uniform(2, 20) * limit_s
    jobs, busy_s = jobs_one_by_one(plan, time_s, startup_s)
    simulated = simulate_campaigns(plan, equal_runs(time_s, startup_s=startup_s))
    low, middle, _ = interval_ends(simulated.durations_s)
    assert (low, middle) == pytest.approx((plan.trainings * busy_s,) * 2), SEED
    assert interval_ends(simulated.jobs)[:2] == (plan.trainings * jobs,) * 2, SEED
    assert not simulated.unfinished.any()


@pytest.mark.parametrize(
    ("limit_s", "every_s", "ends"),
    [(1000.0, math.inf, False), (1000.0, 990.0, False), (1000.0, 900.0, True), (1e6, 1e9, True)],
)
def test_a_training_ends_only_if_its_jobs_make_progress(
    limit_s: float, every_s: float, ends: bool
) -> None:
    plan = CampaignPlan(3, 2, limit_s, every_s)
    simulated = simulate_campaigns(plan, equal_runs(5000.0, startup_s=50.0))
    assert (simulated.unfinished.mean() < 0.1) == ends
    assert np.isfinite(simulated.durations_s).mean() == pytest.approx(float(ends), abs=0.1)


def test_interruptions_cost_what_the_exponential_says() -> None:
    """A training of w hours without checkpoints takes (exp(r w) - 1) / r hours of jobs."""
    rate, hours = 0.5, 2.0
    plan = CampaignPlan(40, 1, interruptions_per_hour=rate)
    simulated = simulate_campaigns(plan, equal_runs(3600 * hours, number=4000))
    expected = plan.trainings * math.expm1(rate * hours) / rate
    assert simulated.job_hours.mean() == pytest.approx(expected, rel=0.02)
    with_checkpoints = simulate_campaigns(
        CampaignPlan(40, 1, math.inf, 60.0, rate), equal_runs(3600 * hours, number=4000)
    )
    assert with_checkpoints.job_hours.mean() == pytest.approx(40 * hours, rel=0.02)


def test_waits_and_failures_are_as_the_runs_showed() -> None:
    waits_s = (1800.0,) * 12
    waiting = simulate_campaigns(CampaignPlan(6, 2), equal_runs(3600.0, waits_s=waits_s))  # type: ignore[arg-type]
    assert interval_ends(waiting.durations_s)[1] == pytest.approx(3 * 5400)
    runs = MeasuredRuns([3600.0] * 4000, failures=1000, attempt_hours=5000.0)
    failing = simulate_campaigns(CampaignPlan(40), runs)
    assert failing.jobs.mean() == pytest.approx(40 * math.exp(0.2), rel=0.02)


def test_fewer_runs_and_slow_runs_widen_the_interval() -> None:
    def width(times_s: list[float]) -> float:
        low, middle, high = interval_ends(
            simulate_campaigns(CampaignPlan(30, 4), MeasuredRuns(times_s)).durations_s
        )
        return (high - low) / middle

    few = [1000 * math.exp(0.1 * each) for each in (-1.2, -0.7, -0.2, 0.2, 0.7, 1.2)]
    assert width(few) > 1.3 * width(few * 4)
    assert width([*few[1:], 2000.0] * 2) > width(few * 2)


def test_many_trainings_are_as_uncertain_as_the_mean_of_the_runs() -> None:
    """The scatter of 1,000 trainings averages out; the error of their mean does not."""
    plan = CampaignPlan(1000)
    few = [1000 * math.exp(0.1 * each) for each in (-1.2, -0.7, -0.2, 0.2, 0.7, 1.2)]
    low, middle, _ = interval_ends(simulate_campaigns(plan, MeasuredRuns(few)).durations_s)
    assert low < 0.95 * middle
    low, middle, _ = interval_ends(simulate_campaigns(plan, equal_runs(1000.0)).durations_s)
    assert low > 0.98 * middle
    shared = equal_runs(1000.0, shared_error=0.1)
    low, middle, _ = interval_ends(simulate_campaigns(plan, shared).durations_s)
    assert low < 0.9 * middle


def test_the_same_seed_gives_the_same_campaigns_and_many_trainings_fewer() -> None:
    runs = MeasuredRuns([10.0, 11.0, 12.0], waits_s=[1.0, 2.0, 3.0])
    one, two, other = (simulate_campaigns(CampaignPlan(5, 2), runs, seed) for seed in (1, 1, 2))
    assert (one.durations_s == two.durations_s).all()
    assert (one.durations_s != other.durations_s).any()
    many = simulate_campaigns(CampaignPlan(10_000, 300), runs)
    assert len(many.durations_s) < len(one.durations_s)


def check(name: str, runs: int, trials: int, share_min: float) -> None:
    inside = simulation.count_inside(
        *simulation.CELLS[name], runs, trials, np.random.default_rng(SEED)
    )
    for count in inside:
        assert binom.cdf(count, trials, share_min) > 1e-3, (SEED, inside)


@pytest.mark.parametrize("name", ["scatter 3 %", "slow mode, waits, failures, limit"])
def test_a_campaign_is_within_its_interval(name: str) -> None:
    check(name, 6, 40, 0.85)


@pytest.mark.full
@pytest.mark.parametrize("runs", simulation.RUNS)
@pytest.mark.parametrize("name", simulation.CELLS)
def test_every_campaign_is_within_its_interval(name: str, runs: int) -> None:
    check(name, runs, 100, simulation.CELL_MIN)
