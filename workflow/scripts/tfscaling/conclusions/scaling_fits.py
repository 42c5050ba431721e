"""Least squares and intervals for scaling laws of the run times of one line of points.

Both laws are sums of terms that are not negative, which the fit uses:

    t(n) = parallel / n + serial + crosstalk (n - 1),    t1 = parallel + serial,
    sigma = serial / t1,    kappa = crosstalk / t1,      Amdahl: crosstalk = 0.

The fit is by least squares on the logarithm of the time, because run times scatter in proportion.
Intervals are profile likelihoods: all values that the runs do not contradict while the other
parameters are free. They keep to the bounds, are
deterministic and valid for few points.

Sources: G. M. Amdahl, AFIPS Spring Joint Computer Conference 1967. N. J. Gunther, "A Simple
Capacity Model of Massively Parallel Transaction Systems", CMG 1993, and "Guerrilla Capacity
Planning", Springer 2007, chapters 4 to 6. D. M. Bates and D. G. Watts, "Nonlinear Regression
Analysis", Wiley 1988, chapter 6 (profiles). T. A. Bancroft, Biometrics 20 (1964) (pooling).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, nnls
from scipy.special import fdtrc, stdtrit

from tfscaling.tables.estimates import CONFIDENCE

#: Above this level of the test for lack of fit, runs and points are pooled to one scatter.
POOLING_LEVEL = 0.25
#: Stands for the misfit of a curve through zero, where the logarithm has no value.
_IMPOSSIBLE = 1e6
#: A sum of squares of log times below this is rounding.
_ROUNDING = 1e-18


@dataclass(frozen=True)
class Estimate:
    """A value with its interval of `intervals.CONFIDENCE`; `high` can be infinite."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g}–{self.high:.3g})".replace("inf", "∞")


@dataclass(frozen=True)
class Extent:
    """What was measured: smallest and largest number of replicas (NaN: nothing), points, runs."""

    n_min: float
    n_max: float
    points: int
    runs: int

    def __str__(self) -> str:
        return f"{self.n_min:g} to {self.n_max:g}"


@dataclass(frozen=True)
class Times:
    """Runs by number of replicas: distinct `n`, rising; mean of log time in s, number of runs.

    `within`: sum of squares of the log times about the mean of their point. Shapes: (points,).
    """

    n: np.ndarray
    log_mean: np.ndarray
    count: np.ndarray
    within: np.ndarray

    @classmethod
    def of(cls, n: Sequence[float], times: Sequence[float]) -> Times:
        """From one number of replicas and one time in seconds for each run.

        Raises ValueError if they differ in length, or if one is no number that can be fitted.
        """
        if len(n) != len(times):
            raise ValueError(f"{len(n)} numbers of replicas but {len(times)} times")
        numbers, values = np.asarray(n, float), np.asarray(times, float)
        if not (np.isfinite(numbers).all() and (numbers >= 1).all()):
            raise ValueError("numbers of replicas must be finite and at least 1")
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ValueError("times must be finite and above 0 s")
        logs = np.log(values)
        distinct, place, count = np.unique(numbers, return_inverse=True, return_counts=True)
        mean = np.bincount(place, logs) / count
        return cls(distinct, mean, count, np.bincount(place, (logs - mean[place]) ** 2))

    def only(self, keep: np.ndarray) -> Times:
        """The points that `keep`, an array of truth values, marks."""
        return Times(self.n[keep], self.log_mean[keep], self.count[keep], self.within[keep])

    @property
    def extent(self) -> Extent:
        ends = (float(self.n[0]), float(self.n[-1])) if len(self.n) else (math.nan, math.nan)
        return Extent(*ends, len(self.n), int(self.count.sum()))


@dataclass(frozen=True)
class Fit:
    """A law that the runs support within `extent`.

    `t1_s`: seconds on one replica by the law, no statement where that was not measured.
    `residual_standard_error` is of the log time, so about a fraction of the time.
    `lack_of_fit`: the points are farther from the curve than their runs scatter (F test, 5 %).
    `loo_error_*`: by what fraction of it the law misses a point that is left out.
    `knee`: sqrt((1 - sigma) / kappa), the replicas of the least time; infinite without kappa.
    """

    model: str
    extent: Extent
    t1_s: float
    parameters: dict[str, Estimate]
    residual_standard_error: float
    lack_of_fit: bool
    loo_error_median: float
    loo_error_max: float
    knee: Estimate

    @property
    def knee_place(self) -> str:
        """Where the interval of the knee lies: inside, beyond or below the range, or undecided."""
        if self.knee.low > self.extent.n_max:
            return "beyond"
        if self.knee.high < self.extent.n_min:
            return "below"
        inside = self.knee.low >= self.extent.n_min and self.knee.high <= self.extent.n_max
        return "inside" if inside else "undecided"


@dataclass(frozen=True)
class Refusal:
    """Why there is no fit. `misses`: the law does not describe the points, whatever its parameters.

    `later` is the fit of the same line from more replicas on, if one was sought and holds.
    """

    model: str
    extent: Extent
    reason: str
    misses: bool = False
    later: Fit | None = None


@dataclass(frozen=True)
class Solution:
    """What fits best: seconds of each term, and the weighted sum of squares of the points."""

    seconds: np.ndarray
    misfit: float


def terms(n: np.ndarray, number: int) -> np.ndarray:
    """The columns parallel, serial and crosstalk, the first `number` of them: (points, number)."""
    return np.stack([1 / n, np.ones_like(n), n - 1.0], axis=1)[:, :number]


def solve(times: Times, columns: np.ndarray) -> Solution:
    """The least squares of log time over sums of `columns` with weights that are not negative.

    Gauss and Newton's method with a non-negative linear problem (Lawson and Hanson 1974) in each
    step, so that a solution at a bound lies exactly there.
    """
    if (columns.max(axis=1) <= 0).any():
        return Solution(np.zeros(columns.shape[1]), _IMPOSSIBLE)
    centre = times.log_mean.mean()
    logs, root = times.log_mean - centre, np.sqrt(times.count)
    size = columns.max(axis=0)
    size[size == 0] = 1
    design = columns / size

    def misfit(weights: np.ndarray) -> float:
        curve = design @ weights
        if (curve <= 0).any():
            return math.inf
        return float(((root * (logs - np.log(curve))) ** 2).sum())

    found = nnls((root / np.exp(logs))[:, None] * design, root)[0]
    if not math.isfinite(misfit(found)):
        found = np.full(columns.shape[1], 1 / columns.shape[1])
    least = misfit(found)
    for _ in range(100):
        curve = design @ found
        target = root * (logs - np.log(curve) + 1)
        step = nnls((root / curve)[:, None] * design, target)[0] - found
        share, trial = 1.0, misfit(found + step)
        while trial > least and share > 1e-4:
            share /= 2
            trial = misfit(found + share * step)
        gain = least - trial
        if gain < 0:
            break
        found, least = found + share * step, trial
        if gain <= 1e-13 * least:
            break
    return Solution(found / size * math.exp(centre), least)


def tolerance(times: Times, least: float, parameters: int) -> tuple[float, bool]:
    """(misfit beyond the least that the runs still allow, whether the law itself misses them).

    Where the points are farther from the curve than the scatter of their runs explains, runs say
    nothing more about the parameters than points do, and points alone set the scale.
    """
    points, runs, within = len(times.n), int(times.count.sum()), float(times.within.sum())
    between, own = points - parameters, runs - points
    scatter, freedom, misses = (within + least) / (runs - parameters), runs - parameters, False
    if own > 0 and least > _ROUNDING:
        ratio = least / between / (within / own) if within else math.inf
        level = float(fdtrc(between, own, ratio))
        if level < POOLING_LEVEL:
            scatter, freedom = least / between, between
        misses = level < 1 - CONFIDENCE
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2) ** 2 * scatter), misses


def interval(
    misfit: Callable[[float], float], best: float, least: float, allowed: float
) -> tuple[float, float]:
    """Where in [0, 1] a profile stays within `allowed` of `least`, its value at `best`."""

    def beyond(place: float) -> float:
        return min(misfit(place), _IMPOSSIBLE) - least - allowed

    ends = []
    for end in (0.0, 1.0):
        if best == end or beyond(end) <= 0:
            ends.append(end)
        elif beyond(best) >= 0:  # without scatter only rounding is left
            ends.append(best)
        else:
            ends.append(float(brentq(beyond, end, best, xtol=1e-13, rtol=1e-10)))
    return ends[0], ends[1]


def left_out_errors(times: Times, number: int) -> np.ndarray:
    """By what fraction the first `number` terms miss each point that was left out: (points,)."""
    columns = terms(times.n, number)
    errors = []
    for index in range(len(times.n)):
        others = np.arange(len(times.n)) != index
        fitted = solve(times.only(others), columns[others])
        expected = float(columns[index] @ fitted.seconds)
        errors.append(abs(expected / math.exp(times.log_mean[index]) - 1))
    return np.array(errors)


def estimates(times: Times, best: Solution, allowed: float) -> dict[str, Estimate]:
    """sigma, and with crosstalk kappa and knee, with their intervals.

    Each profile holds one parameter by tying columns together. kappa and the knee are sought on
    u = ratio / (ratio + scale), from 0 to 1, with both columns multiplied by 1 - u, so that an
    infinite ratio has a value too; the ratio is kappa, or kappa / (1 - sigma) for the knee.
    """
    parallel, serial, *others = terms(times.n, len(best.seconds)).T

    def ends(tied: Callable[[float], list[np.ndarray]], place: float) -> tuple[float, float]:
        def misfit(held: float) -> float:
            return solve(times, np.stack(tied(held), axis=1)).misfit

        return interval(misfit, place, best.misfit, allowed)

    seconds = best.seconds / max(float(best.seconds[:2].sum()), sys.float_info.min)
    sigma = float(seconds[1])
    mixed = ends(lambda u: [(1 - u) * parallel + u * serial, *others], sigma)
    found = {"sigma": Estimate(sigma, *mixed)}
    if not others:
        return found
    scale = 1 / float(times.n[-1] * (times.n[-1] - 1))
    more = scale * others[0]
    kappa, ratio = float(seconds[2]), _divided(float(seconds[2]), float(seconds[0]))
    places = ends(
        lambda u: [(1 - u) * parallel + u * more, (1 - u) * serial + u * more],
        kappa / (kappa + scale),
    )
    low, high = (scale * _divided(u, 1 - u) for u in places)
    found["kappa"] = Estimate(kappa, low, high)
    share = 1.0 if math.isinf(ratio) else ratio / (ratio + scale)
    places = ends(lambda u: [(1 - u) * parallel + u * more, serial], share)
    high, low = (_divided(1.0, math.sqrt(scale * _divided(u, 1 - u))) for u in places)
    found["knee"] = Estimate(_divided(1.0, math.sqrt(ratio)), low, high)
    return found


def _divided(above: float, below: float) -> float:
    """above / below for numbers that are not negative: 0 / 0 is 0, and 1 / 0 is infinite."""
    return above / below if below else math.inf if above else 0.0
