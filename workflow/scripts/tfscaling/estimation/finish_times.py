"""Comparisons of configurations by the moment when all their trainings are done.

Configurations are compared by simulated campaigns (`estimation.campaigns`). These are drawn from
what the runs show, with its uncertainty, so the share of pairs in which one configuration is done
later is the probability that it will be. An interval of the ratio has this probability, and
includes the chance of the campaigns themselves: more runs do not reduce that part. How often
statements are false: benchmarks/campaign.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tfscaling.estimation.campaigns import CAMPAIGNS
from tfscaling.estimation.estimates import Estimates
from tfscaling.estimation.intervals import Array
from tfscaling.estimation.samples import (
    INCONCLUSIVE,
    SUPPORTED,
    Difference,
    Samples,
    tail_probability,
)
from tfscaling.record.metrics import FINISH_TIME
from tfscaling.study.run_spec import Point


@dataclass(frozen=True)
class FinishEstimates(Estimates):
    """Estimates of the time until all trainings are done, from simulated campaigns.

    Attributes:
        logs: Logarithms of the durations, (configurations, campaigns); infinite if a training does
            not end.
    """

    logs: Array = field(kw_only=True)

    @classmethod
    def from_durations(cls, durations_s: Sequence[Array]) -> FinishEstimates:
        """Return the estimates of configurations from the durations of their campaigns.

        Args:
            durations_s: Durations of the simulated campaigns of each configuration, in seconds.
        """
        with np.errstate(divide="ignore"):
            logs = np.log(
                [
                    # campaigns of two configurations are drawn independently
                    np.resize(np.random.default_rng(number).permutation(each), CAMPAIGNS)
                    for number, each in enumerate(durations_s)
                ]
            )
        middle = np.quantile(logs, 0.5, axis=1, method="inverted_cdf")
        spread = np.quantile(logs, 0.84, axis=1, method="inverted_cdf") - middle
        freedom = np.full(len(logs), math.inf)
        return cls(middle, spread**2, freedom, math.inf, True, 1.0, middle, middle, logs=logs)

    def log_ratio_quantile(self, first: int, other: int, share: float) -> float:
        """Return the quantile of the logarithm of the ratio of durations, `other` over `first`.

        Where only `other` never ends, the ratio is infinite; where `first` never ends, it is zero.

        Args:
            first: Index of a configuration.
            other: Index of another configuration.
            share: The share of the campaigns below the quantile.
        """
        a, b = self.logs[first], self.logs[other]
        with np.errstate(invalid="ignore"):
            ratios = np.where(np.isinf(a), -np.inf, b - a)
        return float(np.quantile(ratios, share, method="inverted_cdf"))

    def disadvantage_bounds(self, tail_probability: float, points: Sequence[int]) -> Array:
        """Return upper bounds of how much longer some configurations may take than the best of all.

        A bound is a fraction: with 0.05, the campaign may take 5 % longer.

        Args:
            tail_probability: Error probability of a bound.
            points: Indices of these configurations.
        """
        bounds = [
            max(
                0.0,
                *(
                    -self.log_ratio_quantile(point, other, tail_probability)
                    for other in range(len(self.logs))
                    if other != point
                ),
            )
            for point in points
        ]
        return np.asarray(np.expm1(bounds))


@dataclass(frozen=True, eq=False)
class CampaignSamples(Samples):
    """Values of runs, and the simulated durations of each configuration's campaign.

    Attributes:
        durations_s: Configuration → durations of its simulated campaigns in seconds. Configurations
            without simulated campaigns are missing.
    """

    durations_s: Mapping[Point, Array]

    def cost_values(self, point: Point, metric: str) -> list[float]:
        """Return a metric's value of each finished run; for FINISH_TIME, its execution time."""
        return super().cost_values(point, "execution_time_s" if metric == FINISH_TIME else metric)

    def has_enough_runs(self, metric: str, point: Point) -> bool:
        """Return whether a configuration has enough runs to compare it by a metric.

        For FINISH_TIME it has enough if campaigns were simulated from them.
        """
        if metric == FINISH_TIME:
            return point in self.durations_s
        return super().has_enough_runs(metric, point)

    def estimate_configurations(self, metric: str, points: Sequence[Point]) -> Estimates:
        """Return joint estimates of a metric for several configurations."""
        if metric == FINISH_TIME:
            return FinishEstimates.from_durations([self.durations_s[each] for each in points])
        return super().estimate_configurations(metric, points)

    def compare_by_estimates(
        self,
        metric: str,
        estimates: Estimates,
        points: Sequence[Point],
        pairs: Sequence[tuple[Point, Point]],
        comparisons: int,
    ) -> list[Difference]:
        """Compare configurations in pairs by their joint estimates, with intervals.

        Metrics other than FINISH_TIME are compared as in `Samples`. For FINISH_TIME, the campaigns
        of both configurations were simulated, and each pair of campaigns has a ratio of durations,
        `other` over `better`. The interval holds these ratios without the lowest and the highest
        ones. It is None if an end is zero or infinite, because campaigns never end.

        Args:
            metric: The metric to compare.
            estimates: Estimates of `points`; `FinishEstimates` for FINISH_TIME.
            points: The configurations that were estimated.
            pairs: Pairs (better, other) of them.
            comparisons: Number of comparisons for which all intervals hold together.
        """
        if not isinstance(estimates, FinishEstimates):
            return super().compare_by_estimates(metric, estimates, points, pairs, comparisons)
        places = {point: number for number, point in enumerate(points)}
        tail, found = tail_probability(comparisons), []
        for better, other in pairs:
            plain = self._compare_medians(metric, better, other)
            assert plain is not None, "compared configurations are simulated"
            low, high = (
                math.exp(estimates.log_ratio_quantile(places[better], places[other], share))
                for share in (tail, 1 - tail)
            )
            support = INCONCLUSIVE if low <= 1 <= high else SUPPORTED
            interval = (low, high) if low > 0 and math.isfinite(high) else None
            found.append(replace(plain, interval=interval, support=support))
        return found

    def _compare_medians(self, metric: str, better: Point, other: Point) -> Difference | None:
        """Return the difference of two configurations' medians without an interval.

        None if one of them has no simulated campaigns.
        """
        if metric != FINISH_TIME:
            return super()._compare_medians(metric, better, other)
        if not {better, other} <= self.durations_s.keys():
            return None
        base, value = (
            float(np.quantile(self.durations_s[each], 0.5, method="inverted_cdf"))
            for each in (better, other)
        )
        return Difference(value / base, None, INCONCLUSIVE, value - base)
