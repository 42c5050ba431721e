#!/usr/bin/env python3
"""How often a campaign ends, and costs, what its 90 % interval states, with known truth.

campaign.py [--trials N] [--seed N] [--cell NAME]: simulates the cells with NAME in their names. In
each cell, --trials times, a few runs are drawn from a known truth, the interval is made from them,
and a campaign of the same truth is run job by job, by an event loop that shares no code with the
library. Prints the shares of the trials inside the intervals of duration and node-hours. Ends with
1 if the share of all cells is not 85 to 95 %, or if a cell surely (99 %) has less than 80 %.

A second table is about answers by `finish_time_s`. Of four configurations, whose trainings take
longer by the factors of the cell, one is recommended. *False* is the share of trials in which it is
supported and its true median is later than the best one's by more than the indifference. *Twice*
is the share of supported answers if the trainings of all but the best take twice as long.

A third table is about limits of `finish_time_s`, and of `campaign_cost_usd` with a price of one
dollar. For each quantile in QUANTILES, the limit is at this quantile of the true campaigns. *Kept,
later* is the share of trials in which the limit is shown to be kept, and the campaign that is then
run is later; *missed, earlier* is the opposite; *more* and *less* are these of the cost. The
highest share of all quantiles is printed. All false ones are at most 5 %.
"""

from __future__ import annotations

import argparse
import heapq
import math
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from scipy.stats import binom

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "workflow/scripts"))

from tfscaling.conclusions.answers.campaign_answers import (  # noqa: E402
    RowWithCampaign,
    judge_simulated,
)
from tfscaling.conclusions.goal_comparison import compare_by_goal  # noqa: E402
from tfscaling.estimation.campaigns import (  # noqa: E402
    CampaignPlan,
    MeasuredRuns,
    SimulatedCampaigns,
    interval_ends,
    simulate_campaigns,
)
from tfscaling.estimation.finish_times import CampaignSamples  # noqa: E402
from tfscaling.record.metrics import CAMPAIGN_COST, FINISH_TIME  # noqa: E402
from tfscaling.study.config_types import CAMPAIGN_METRICS, Limit, Question  # noqa: E402
from tfscaling.tables.row_values import point_of  # noqa: E402

Dice = np.random.Generator
#: Required share of all trials inside the interval, and of each cell.
SHARE_MIN, SHARE_MAX, CELL_MIN = 0.85, 0.95, 0.80
#: Typical time of a training, and start-up of each job, in seconds.
TRAINING_S, STARTUP_S = 6 * 3600.0, 120.0
#: Simulated campaigns for each interval, fewer than in the library.
CAMPAIGNS = 1000

#: Name → factor of the time of a training.
TIMES: dict[str, Callable[[Dice], float]] = {
    "0.5 %": lambda dice: math.exp(0.005 * dice.standard_normal()),
    "3 %": lambda dice: math.exp(0.03 * dice.standard_normal()),
    "15 %": lambda dice: math.exp(0.15 * dice.standard_normal()),
    "skewed, 10 %": lambda dice: 0.9 + 0.1 * dice.standard_exponential(),
    "3 %, one in ten 1.5 times": lambda dice: math.exp(
        0.03 * dice.standard_normal() + math.log(1.5) * (dice.random() < 0.1)
    ),
    "3 %, one in three 1.2 times": lambda dice: math.exp(
        0.03 * dice.standard_normal() + math.log(1.2) * (dice.random() < 1 / 3)
    ),
}


@dataclass(frozen=True)
class Truth:
    """How trainings, waits and failures really are.

    Attributes:
        times: Name of a shape of times, in TIMES.
        wait_s: Median wait before a job, with a scatter of a factor of e; 0 for none.
        failures_per_hour: Failures of a running job in an hour.
        factor: How many times as long trainings take as TRAINING_S.
    """

    times: str = "3 %"
    wait_s: float = 0.0
    failures_per_hour: float = 0.0
    factor: float = 1.0

    def draw_time_s(self, dice: Dice) -> float:
        """Return the time of a training in one job."""
        return self.factor * TRAINING_S * TIMES[self.times](dice)

    def draw_wait_s(self, dice: Dice) -> float:
        """Return the wait before a job."""
        return self.wait_s * math.exp(dice.standard_normal()) if self.wait_s else 0.0


def measure(truth: Truth, number: int, dice: Dice) -> MeasuredRuns:
    """Run trainings as a sweep does: failed attempts are repeated from their first step."""
    times_s, waits_s, failures, hours = [], [], 0, 0.0
    for _ in range(number):
        time_s = truth.draw_time_s(dice)
        while True:
            waits_s.append(truth.draw_wait_s(dice))
            end_s = failure_s(truth.failures_per_hour, dice)
            hours += min(end_s, time_s) / 3600
            if end_s >= time_s:
                break
            failures += 1
            time_s = truth.draw_time_s(dice)
        times_s.append(time_s)
    waits = waits_s[-number:] if truth.wait_s else ()
    return MeasuredRuns(times_s, STARTUP_S, 0.0, waits, failures, hours)


def failure_s(per_hour: float, dice: Dice) -> float:
    """Return when a job fails, in seconds after its start."""
    return 3600 * dice.exponential(1 / per_hour) if per_hour else math.inf


def run_campaign(plan: CampaignPlan, truth: Truth, dice: Dice) -> tuple[float, float]:
    """Run a campaign job by job; return its duration in seconds and the hours of its jobs."""
    todo = [truth.draw_time_s(dice) - STARTUP_S for _ in range(plan.trainings)][::-1]
    under_way: list[tuple[float, float]] = []  # (when its next job is submitted, training left)
    now_s = busy_s = 0.0
    rate = truth.failures_per_hour + plan.interruptions_per_hour
    while todo or under_way:
        while todo and len(under_way) < plan.at_once:
            heapq.heappush(under_way, (now_s, todo.pop()))
        now_s, left_s = heapq.heappop(under_way)
        if left_s <= 0:  # it ended at this time
            continue
        end_s = min(failure_s(rate, dice), plan.time_limit_s)
        job_s = min(STARTUP_S + left_s, end_s)
        busy_s += job_s
        if job_s == STARTUP_S + left_s:
            left_s = 0.0
        elif job_s > STARTUP_S and plan.checkpoint_every_s < math.inf:
            left_s -= (job_s - STARTUP_S) // plan.checkpoint_every_s * plan.checkpoint_every_s
        heapq.heappush(under_way, (now_s + truth.draw_wait_s(dice) + job_s, left_s))
    return now_s, busy_s / 3600


#: Name → plan and truth of a cell.
CELLS: dict[str, tuple[CampaignPlan, Truth]] = {
    **{f"scatter {name}": (CampaignPlan(30, 4), Truth(name)) for name in TIMES},
    "one at a time": (CampaignPlan(30), Truth()),
    "all at once": (CampaignPlan(30, 30), Truth()),
    "one training": (CampaignPlan(1), Truth("15 %")),
    "waits of 10 minutes": (CampaignPlan(30, 4), Truth(wait_s=600)),
    "waits of 3 hours": (CampaignPlan(30, 4), Truth(wait_s=3 * 3600)),
    "one failure in 20 trainings": (CampaignPlan(30, 4), Truth(failures_per_hour=1 / 120)),
    "one failure in 4 trainings": (CampaignPlan(30, 4), Truth(failures_per_hour=1 / 24)),
    "one failure in 4, checkpoints": (
        CampaignPlan(30, 4, checkpoint_every_s=900),
        Truth(failures_per_hour=1 / 24),
    ),
    "limit of 2 hours": (CampaignPlan(30, 4, 7200, 600), Truth(wait_s=600)),
    "spot, one interruption in 4 hours": (
        CampaignPlan(30, 4, checkpoint_every_s=900, interruptions_per_hour=0.25),
        Truth(wait_s=60),
    ),
    "slow mode, waits, failures, limit": (
        CampaignPlan(30, 4, 7200, 600),
        Truth("3 %, one in ten 1.5 times", 600, 1 / 24),
    ),
}
#: Numbers of measured runs.
RUNS = (6, 8, 12)


def count_inside(
    plan: CampaignPlan, truth: Truth, runs: int, trials: int, dice: Dice
) -> tuple[int, int]:
    """Return in how many trials the campaign's duration and node-hours are in their intervals."""
    inside = np.zeros(2, int)
    for _ in range(trials):
        measured = measure(truth, runs, dice)
        seed = int(dice.integers(2**32))
        simulated = simulate_campaigns(plan, measured, seed, CAMPAIGNS)
        happened = run_campaign(plan, truth, dice)
        for place, values in enumerate((simulated.durations_s, simulated.job_hours)):
            low, _, high = interval_ends(values)
            inside[place] += low <= happened[place] <= high
    return int(inside[0]), int(inside[1])


#: Indifference of the answers, and highest rate of false ones.
INDIFFERENCE, FALSE_MAX = Question().indifference, 0.05
#: Campaigns for each true median and quantile.
TRUE_CAMPAIGNS = 400
#: Quantiles of the true campaigns at which a limit is.
QUANTILES = (0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95)
#: Name of a cell → factors by which the trainings of the configurations take longer. With waits,
#: the same difference of the campaigns takes a larger one of the trainings.
ANSWER_CELLS: dict[str, tuple[float, ...]] = {
    "scatter 0.5 %": (1.0, 1.06, 1.06, 1.06),
    "scatter 3 %": (1.06, 1.0, 1.07, 1.06),
    "scatter 15 %": (1.08, 1.08, 1.0, 1.08),
    "scatter 3 %, one in ten 1.5 times": (1.1, 1.0, 1.1, 1.1),
    "one training": (1.2, 1.2, 1.2, 1.0),
    "waits of 3 hours": (1.2, 1.2, 1.0, 1.2),
    "one failure in 4 trainings": (1.07, 1.0, 1.07, 1.2),
    "slow mode, waits, failures, limit": (1.1, 1.1, 1.1, 1.0),
}


@dataclass
class AnswerCounts:
    """Numbers of trials.

    Attributes:
        supported: With a supported answer.
        false: With a supported answer that is wrong.
        supported_twice: With a supported answer if the others' trainings take twice as long.
        limits: (metric, quantile of the limit, kind) → number, with the kinds `kept`, `kept,
            above`, `missed` and `missed, below`.
    """

    supported: int = 0
    false: int = 0
    supported_twice: int = 0
    limits: Counter[tuple[str, float, str]] = field(default_factory=Counter)

    def highest(self, metric: str, kind: str) -> int:
        """Return the highest number of a kind, of all quantiles."""
        return max(self.limits[metric, quantile, kind] for quantile in QUANTILES)


def choose_first(durations_s: Sequence[np.ndarray]) -> tuple[int, bool]:
    """Return which configuration an answer by FINISH_TIME names, and whether it is supported.

    Args:
        durations_s: Durations of the simulated campaigns of each configuration, in seconds.
    """
    rows = [RowWithCampaign(nodes=number + 1) for number in range(len(durations_s))]
    by_point = dict(zip(map(point_of, rows), durations_s, strict=True))
    samples = CampaignSamples(
        {}, {}, np.zeros(0), np.zeros(0, bool), [], {}, {}, Counter(), by_point
    )
    found = compare_by_goal(FINISH_TIME, rows, samples, INDIFFERENCE)
    is_near = found.bound is not None and found.bound <= INDIFFERENCE
    return found.chosen.nodes - 1, is_near


def count_answers(name: str, runs: int, trials: int, dice: Dice) -> AnswerCounts:
    """Return how often answers by campaigns are supported, and false.

    Args:
        name: Name of the cell.
        runs: Number of measured runs of each configuration.
        trials: Number of trials.
        dice: Source of random numbers.
    """
    plan, truth = CELLS[name]
    truths = [replace(truth, factor=factor) for factor in ANSWER_CELLS[name]]
    true = {
        each: np.array([run_campaign(plan, each, dice) for _ in range(TRUE_CAMPAIGNS)])
        for each in {*truths}
    }
    medians = [float(np.median(true[each][:, 0])) for each in truths]
    limits = dict(zip(QUANTILES, np.quantile(true[truths[0]], QUANTILES, axis=0), strict=True))
    found = AnswerCounts()

    def simulate(truth: Truth) -> SimulatedCampaigns:
        measured, seed = measure(truth, runs, dice), int(dice.integers(2**32))
        return simulate_campaigns(plan, measured, seed, CAMPAIGNS)

    for _ in range(trials):
        simulated = [simulate(each) for each in truths]
        chosen, is_supported = choose_first([each.durations_s for each in simulated])
        found.supported += is_supported
        found.false += is_supported and medians[chosen] / min(medians) - 1 > INDIFFERENCE
        twice = [
            own if each.factor == 1 else simulate(replace(truth, factor=2.0))
            for each, own in zip(truths, simulated, strict=True)
        ]
        found.supported_twice += choose_first([each.durations_s for each in twice])[1]
        happened = run_campaign(plan, truths[0], dice)
        for place, values in enumerate((simulated[0].durations_s, simulated[0].job_hours)):
            for quantile in QUANTILES:
                limit = float(limits[quantile][place])
                verdict = judge_simulated(values, Limit(at_most=limit), 1)
                is_above = happened[place] > limit
                found.limits.update(
                    (CAMPAIGN_METRICS[place], quantile, kind)
                    for kind, is_true in {
                        "kept": verdict.is_kept,
                        "kept, above": verdict.is_kept and is_above,
                        "missed": verdict.is_missed,
                        "missed, below": verdict.is_missed and not is_above,
                    }.items()
                    if is_true
                )
    return found


#: Columns of the table of limits → metric and kind.
LIMIT_COLUMNS = {
    "kept": (FINISH_TIME, "kept"),
    "kept, later": (FINISH_TIME, "kept, above"),
    "missed": (FINISH_TIME, "missed"),
    "missed, earlier": (FINISH_TIME, "missed, below"),
    "cost kept": (CAMPAIGN_COST, "kept"),
    "kept, more": (CAMPAIGN_COST, "kept, above"),
    "cost missed": (CAMPAIGN_COST, "missed"),
    "missed, less": (CAMPAIGN_COST, "missed, below"),
}


def check_answers(cells: Sequence[str], trials: int, seed: int) -> list[str]:
    """Print the tables of answers and limits; return what is surely (99 %) too often false.

    Args:
        cells: Names of the cells.
        trials: Trials of each.
        seed: Seed of the random numbers.
    """
    print("\n| answers, runs | supported | false | twice |\n|---|--:|--:|--:|")
    problems, of_limits = [], []
    for name in cells:
        for runs in (RUNS[0], RUNS[-1]):
            dice = np.random.default_rng([seed, runs, zlib.crc32(name.encode()), 1])
            found = count_answers(name, runs, trials, dice)
            counts = {key: found.highest(*of) for key, of in LIMIT_COLUMNS.items()}
            answers = (found.supported, found.false, found.supported_twice)
            texts = (f"{count / trials:.3f}" for count in answers)
            print(f"| {name}, {runs} | {' | '.join(texts)} |", flush=True)
            texts = (f"{count / trials:.3f}" for count in counts.values())
            of_limits.append(f"| {name}, {runs} | {' | '.join(texts)} |")
            false = {"false": found.false} | {key: n for key, n in counts.items() if "," in key}
            for what, count in false.items():
                if binom.sf(count - 1, trials, FALSE_MAX) < 0.01:
                    problems.append(f"{name}, {runs} runs: {what} in {count}")
    print(f"\n| limits, runs | {' | '.join(LIMIT_COLUMNS)} |\n|---|{'--:|' * len(LIMIT_COLUMNS)}")
    print("\n".join(of_limits), flush=True)
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cell", default="", help="part of the names of the cells to simulate")
    parser.add_argument("--answers", action="store_true", help="only the table of answers")
    args = parser.parse_args()
    print(f"{args.trials} campaigns of each cell, seed {args.seed}\n")
    problems = [] if args.answers else check_intervals(args)
    named = [name for name in ANSWER_CELLS if args.cell in name]
    problems += check_answers(named, args.trials, args.seed)
    sys.exit("\n".join(problems) or 0)


def check_intervals(args: argparse.Namespace) -> list[str]:
    """Print the table of intervals; return what is out of range."""
    heads = [f"{what}, {runs} runs" for what in ("duration", "node-hours") for runs in RUNS]
    print(f"| cell | {' | '.join(heads)} |\n|---|{'--:|' * len(heads)}")
    total, low_cells = np.zeros(2, int), 0
    cells = {name: cell for name, cell in CELLS.items() if args.cell in name}
    for name, (plan, truth) in cells.items():
        found = []
        for runs in RUNS:
            dice = np.random.default_rng([args.seed, runs, zlib.crc32(name.encode())])
            found.append(count_inside(plan, truth, runs, args.trials, dice))
        counts = np.array(found).T
        total += counts.sum(axis=1)
        low_cells += int((binom.cdf(counts, args.trials, CELL_MIN) < 0.01).sum())
        shares_text = " | ".join(f"{count / args.trials:.2f}" for count in counts.ravel())
        print(f"| {name} | {shares_text} |", flush=True)
    shares = total / (len(cells) * len(RUNS) * args.trials)
    print(f"\nAll cells: duration {shares[0]:.3f}, node-hours {shares[1]:.3f}")
    if low_cells or not all(SHARE_MIN <= share <= SHARE_MAX for share in shares):
        return [f"{low_cells} shares are below {CELL_MIN:.0%}, or all together out of range"]
    return []


if __name__ == "__main__":
    main()
