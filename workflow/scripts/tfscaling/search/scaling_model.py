"""A Gaussian process over nodes for the logarithm of a run's time or cost.

The logarithm of a run is the sum of these parts, each normally distributed:

- a level and a slope over the logarithm of the nodes, of all lines and of each line; a line has the
  configurations that differ in their nodes alone
- a step from one node to several, where the network begins
- a smooth curve, of all lines and of each line
- a deviation of the configuration from its neighbours
- an effect of the round, which all its runs share
- of a short run: the error of the projection, which all short runs of its configuration share
- the run's scatter

The sizes of the curves, deviations and effects of rounds are not fitted. They are averaged over
SIZES by marginal likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

Array = np.ndarray

#: Standard deviations to average over: of deviations, curves, lines' slopes and rounds.
SIZES = np.array(
    [
        (own, curve, slope, round_)
        for own in (0.05, 0.1, 0.2)
        for curve, slope in ((0.1, 0.15), (0.25, 0.3), (0.6, 0.5))
        for round_ in (0.01, 0.06)
    ]
)
#: Sizes with a smaller weight are ignored.
WEIGHT_MIN = 0.02
#: Length scale of the curves, in octaves of nodes.
BEND = 1.5
#: Standard deviations of levels and of steps from one node to several; the slope of all lines.
LEVEL, LINE_LEVEL, STEP, LINE_STEP = 3.0, 1.2, 1.0, 0.7
SLOPE, SLOPE_SPREAD = -0.7, 0.4

#: Before there are repeats, runs are taken to scatter by SCATTER, with the weight of this many.
SCATTER, SCATTER_FREEDOM = 0.06, 2.0
#: Weight of the pooled variance next to a configuration's variance, in degrees of freedom.
POOLED_FREEDOM = 4.0
#: A run is an outlier beyond this many pooled standard deviations from its configuration's median.
FAR = 3.0
#: One odd run in this many, off by this factor or more, is disturbed and hardly counts. All other
#: odd runs are a second mode: the configuration has the larger of the two variances.
DISTURBED_ONE_IN, DISTURBED_FACTOR = 6, 2.0


class Runs(NamedTuple):
    """Runs as arrays of shape (runs,).

    Attributes:
        owners: Number of the configuration.
        rounds: Round, from 0.
        logs: Logarithm of the value.
        is_short: Whether the value is projected from a short run.
    """

    owners: Array
    rounds: Array
    logs: Array
    is_short: Array


@dataclass(frozen=True)
class Fit:
    """Estimates of all configurations in logarithms: arrays of shape (configurations,).

    Attributes:
        mean: Estimated logarithm of the value.
        variance: Variance of the estimate.
        misses: Factor, at least 1, by which the model's errors exceed its intervals.
        left_out: Prediction of a configuration by the runs of the others.
        left_out_sd: Standard deviation of this prediction.
        errors: Distance of its runs from the prediction, in standard deviations; NaN without runs.
        scatter: Pooled variance of runs.
        freedom: Degrees of freedom of the pooled variance.
        effects: Effects of the rounds.
    """

    mean: Array
    variance: Array
    misses: float
    left_out: Array
    left_out_sd: Array
    errors: Array
    scatter: float
    freedom: float
    effects: Array
    _weights: Array
    _means: Array
    _prior: Array
    _known: Array

    def difference_sd(self, other: int) -> Array:
        """Return the standard deviation of each configuration's difference from `other`."""
        with_other = self._known @ self._known[:, other, :, None]
        shared = self._prior[:, :, other] - with_other[..., 0]
        own = np.diagonal(self._prior, axis1=1, axis2=2) - (self._known**2).sum(axis=2)
        gaps = self._means - self._means[:, [other]]
        spread = (gaps - self._weights @ gaps) ** 2
        variance = own + own[:, [other]] - 2 * shared
        return np.sqrt(np.maximum(self._weights @ (variance + spread), 1e-10))


class ScalingModel:
    """The model of configurations with these numbers of nodes, on these lines.

    Args:
        nodes: Number of nodes of each configuration.
        lines: Line of each configuration.
        is_cost: Whether values are costs, which are times on all nodes; else times.
    """

    def __init__(self, nodes: Array, lines: Sequence[str], is_cost: bool) -> None:
        logs = np.log(nodes)
        offset = logs if is_cost else 0 * logs
        logs = logs - (logs.min() + logs.max()) / 2
        own = np.unique(np.array(lines), return_inverse=True)[1]
        same = (own[:, None] == own).astype(float)
        single = nodes == 1
        steps = (single[:, None] & single) * (STEP**2 + LINE_STEP**2 * same)
        slopes = logs[:, None] * logs
        distance = math.sqrt(5) * abs(logs[:, None] - logs) / (math.log(2) * BEND)
        bends = (1 + distance + distance**2 / 3) * np.exp(-distance) * (1 + same) / 2
        fixed = LEVEL**2 + LINE_LEVEL**2 * same + SLOPE_SPREAD**2 * slopes + steps
        deviations, curves, line_slopes, rounds = SIZES.T[:, :, None, None] ** 2
        self._prior = (
            fixed + line_slopes * slopes * same + curves * bends + deviations * np.eye(len(logs))
        )
        self._rounds = rounds
        self._mean = SLOPE * logs + offset

    def fit(self, runs: Runs, effects: Array, projection: Array) -> Fit:
        """Fit all runs.

        Args:
            runs: The runs.
            effects: Effects of the rounds from the last analysis, (rounds,).
            projection: Standard deviation of the projection's error, (configurations,).
        """
        owners, rounds, logs, is_short = runs
        known = np.zeros(rounds.max() + 1)
        known[: len(effects)] = effects[: len(known)]
        groups = owners + is_short * len(self._mean)
        variance, pooled, freedom = scatter(groups, logs - known[rounds])
        level = float(np.mean(logs - self._mean[owners]))
        rest = logs - self._mean[owners] - level
        same_round = rounds[:, None] == rounds
        between = self._prior[:, owners][:, :, owners] + self._rounds * same_round
        error = projection[owners] * is_short
        between += error[:, None] * error * (owners[:, None] == owners)
        root = np.linalg.cholesky(between + np.diag(variance))
        white = np.array([_solve_triangular(each, rest) for each in root])
        likelihood = -(white**2).sum(axis=1) / 2
        likelihood -= np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        weights = np.exp(likelihood - likelihood.max())
        kept = np.flatnonzero(weights > WEIGHT_MIN * weights.sum())
        weights = weights[kept] / weights[kept].sum()
        prior = self._prior[kept]
        explained = np.array([_solve_triangular(root[n], self._prior[n][owners]).T for n in kept])
        means = (explained @ white[kept][:, :, None])[..., 0] + self._mean + level
        mean = weights @ means
        variances = np.diagonal(prior, axis1=1, axis2=2) - (explained**2).sum(axis=2)
        top = kept[int(weights.argmax())]
        inverse = _solve_triangular(root[top], np.eye(len(logs)))
        precision = inverse.T @ inverse
        pulls = precision @ rest
        sums = np.bincount(rounds, weights=pulls, minlength=len(known))
        left_out, left_out_sd, errors = _predict_left_out(owners, logs, precision, pulls, len(mean))
        squares = np.minimum(errors[np.unique(owners)] ** 2, 25.0)
        misses = math.sqrt((squares.sum() + 4) / (len(squares) + 4))
        return Fit(
            mean,
            weights @ variances + weights @ (means - mean) ** 2,
            max(1.0, misses),
            left_out,
            left_out_sd,
            errors,
            pooled,
            freedom,
            float(self._rounds[top, 0, 0]) * sums,
            weights,
            means,
            prior,
            explained,
        )


def _solve_triangular(root: Array, values: Array) -> Array:
    """Return values times the inverse of a lower triangular matrix."""
    return np.asarray(scipy.linalg.solve_triangular(root, values, lower=True, check_finite=False))


def _predict_left_out(
    owners: Array, logs: Array, precision: Array, pulls: Array, count: int
) -> Array:
    """Predict each configuration by the runs of the others.

    Returns:
        Predictions, their standard deviations, and errors in these, (3, configurations); NaN for a
        configuration without runs.
    """
    found = np.full((3, count), np.nan)
    for owner in np.unique(owners):
        own = np.flatnonzero(owners == owner)
        covariance = np.linalg.inv(precision[np.ix_(own, own)])
        errors = covariance @ pulls[own]
        sd = math.sqrt(covariance.mean())
        found[:, owner] = (logs[own] - errors).mean(), sd, abs(errors.mean()) / sd
    return found


def scatter(owners: Array, logs: Array) -> tuple[Array, float, float]:
    """Return the variance of each run, the pooled variance, and its degrees of freedom.

    Args:
        owners: Number of the configuration of each run.
        logs: Logarithm of each run's value.
    """
    groups = [np.flatnonzero(owners == owner) for owner in np.unique(owners)]
    groups = [own for own in groups if len(own) > 1]
    if not groups:
        return np.full(len(logs), SCATTER**2), SCATTER**2, SCATTER_FREEDOM
    own_freedom = np.array([len(own) - 1 for own in groups])
    pooled = _median_variance(np.array([logs[own].var(ddof=1) for own in groups]), own_freedom)
    freedom = SCATTER_FREEDOM + float(own_freedom.sum())
    disturbed: Array = np.zeros(len(logs))
    own_variance: list[tuple[float, bool]] = []
    for _ in range(2):
        squares = SCATTER_FREEDOM * SCATTER**2
        disturbed[:], own_variance = 0, []
        for own in groups:
            most = FAR * math.sqrt(pooled) * (0.71 if len(own) == 2 else 1)
            distance = logs[own] - np.median(logs[own])
            is_far = abs(distance) > most
            held = float(np.clip(distance, -most, most).var(ddof=1))
            squares += held * (len(own) - 1)
            is_rare = 0 < is_far.sum() <= len(own) / DISTURBED_ONE_IN
            if is_rare and abs(distance[is_far]).min() > math.log(DISTURBED_FACTOR):
                disturbed[own[is_far]] = distance[is_far] ** 2
                own_variance.append((held, False))
            else:
                own_variance.append((float(logs[own].var(ddof=1)), bool(is_far.any())))
        pooled = max(squares / freedom, 1e-4)
    variance = np.full(len(logs), pooled)
    for own, (found, has_mode) in zip(groups, own_variance, strict=True):
        weight = len(own) - 1
        moderated = (POOLED_FREEDOM * pooled + weight * found) / (POOLED_FREEDOM + weight)
        variance[own] = max(moderated, found) if has_mode else moderated
    return variance + disturbed, pooled, freedom


def _median_variance(variances: Array, freedoms: Array) -> float:
    """Return the median of variances with these degrees of freedom; SCATTER is included."""
    order = np.argsort(variances * freedoms / (freedoms - 2 / 3 + 0.1))
    reached = np.cumsum(freedoms[order])
    middle = order[np.searchsorted(reached, reached[-1] / 2)]
    usual = variances[middle] * freedoms[middle] / max(freedoms[middle] - 0.6, 0.4)
    weight = float(freedoms.sum())
    prior = SCATTER_FREEDOM * SCATTER**2
    return float((prior + weight * usual) / (SCATTER_FREEDOM + weight))
