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
PART_SDS by marginal likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

Array = np.ndarray

#: Combinations of standard deviations to average over: of deviations, curves, lines' slopes and
#: rounds.
PART_SDS = np.array(
    [
        (own, curve, slope, round_)
        for own in (0.05, 0.1, 0.2)
        for curve, slope in ((0.1, 0.15), (0.25, 0.3), (0.6, 0.5))
        for round_ in (0.01, 0.06)
    ]
)
#: Combinations with a smaller weight are ignored.
WEIGHT_MIN = 0.02
#: Length scale of the curves, in octaves of nodes.
CURVE_LENGTH = 1.5
#: Standard deviations of the level of all lines, and of each line; of the step from one node to
#: several, for all lines and for each line.
LEVEL_SD, LINE_LEVEL_SD, STEP_SD, LINE_STEP_SD = 3.0, 1.2, 1.0, 0.7
#: Mean and standard deviation of the slope of all lines, log value over log nodes.
SLOPE, SLOPE_SPREAD = -0.7, 0.4

#: Standard deviation of runs that is assumed before there are repeats, and the degrees of freedom
#: with which it counts.
SCATTER_SD, SCATTER_FREEDOM = 0.06, 2.0
#: Weight of the pooled variance next to a configuration's variance, in degrees of freedom.
POOLED_FREEDOM = 4.0
#: A run is an outlier beyond this many pooled standard deviations from its configuration's median.
OUTLIER_SD = 3.0
#: One outlier in this many runs, off by this factor or more, is disturbed and hardly counts. All
#: other outliers are a second mode: the configuration has the larger of the two variances.
DISTURBED_ONE_IN, DISTURBED_FACTOR = 6, 2.0


class Runs(NamedTuple):
    """Runs as arrays of shape (runs,), for the fit of the model.

    Attributes:
        candidates: Number of each run's configuration.
        rounds: Number of each run's round, from 0.
        log_values: Logarithm of each run's value.
        is_short: Whether each value is projected from a short run.
    """

    candidates: Array
    rounds: Array
    log_values: Array
    is_short: Array


@dataclass(frozen=True)
class Fit:
    """Estimates of all configurations in logarithms: arrays of shape (configurations,).

    Attributes:
        mean: Estimated logarithm of the value.
        variance: Variance of the estimate.
        error_factor: Factor, at least 1, by which the errors of leave-one-out predictions exceed
            the expected ones.
        left_out: Prediction of a configuration from the runs of all others (leave-one-out); NaN for
            a configuration without runs.
        left_out_sd: Standard deviation of this prediction.
        left_out_errors: Distance of its runs from the prediction, in these standard deviations;
            NaN without runs.
        scatter: Pooled variance of runs of the same configuration.
        freedom: Degrees of freedom of the pooled variance.
        effects: Estimated deviation that all runs of a round share, (rounds,).
    """

    mean: Array
    variance: Array
    error_factor: float
    left_out: Array
    left_out_sd: Array
    left_out_errors: Array
    scatter: float
    freedom: float
    effects: Array
    _weights: Array
    _means: Array
    _prior: Array
    _known: Array

    def difference_sd(self, other: int) -> Array:
        """Return the standard deviation of each configuration's difference from number `other`."""
        with_other = self._known @ self._known[:, other, :, None]
        shared = self._prior[:, :, other] - with_other[..., 0]
        own = np.diagonal(self._prior, axis1=1, axis2=2) - (self._known**2).sum(axis=2)
        gaps = self._means - self._means[:, [other]]
        spread = (gaps - self._weights @ gaps) ** 2
        variance = own + own[:, [other]] - 2 * shared
        return np.sqrt(np.maximum(self._weights @ (variance + spread), 1e-10))


class ScalingModel:
    """Gaussian-process model of a goal's logarithm over the number of nodes.

    Configurations on the same line differ only in the number of nodes. The curves of different
    lines are correlated.

    Args:
        nodes: Number of nodes of each configuration.
        lines: Name of each configuration's line.
        is_cost: Whether values are costs, in proportion to time × nodes; otherwise they are times.
    """

    def __init__(self, nodes: Array, lines: Sequence[str], is_cost: bool) -> None:
        logs = np.log(nodes)
        offset = logs if is_cost else 0 * logs
        logs = logs - (logs.min() + logs.max()) / 2
        own = np.unique(np.array(lines), return_inverse=True)[1]
        same = (own[:, None] == own).astype(float)
        single = nodes == 1
        steps = (single[:, None] & single) * (STEP_SD**2 + LINE_STEP_SD**2 * same)
        slopes = logs[:, None] * logs
        distance = math.sqrt(5) * abs(logs[:, None] - logs) / (math.log(2) * CURVE_LENGTH)
        bends = (1 + distance + distance**2 / 3) * np.exp(-distance) * (1 + same) / 2
        fixed = LEVEL_SD**2 + LINE_LEVEL_SD**2 * same + SLOPE_SPREAD**2 * slopes + steps
        deviations, curves, line_slopes, rounds = PART_SDS.T[:, :, None, None] ** 2
        self._prior = (
            fixed + line_slopes * slopes * same + curves * bends + deviations * np.eye(len(logs))
        )
        self._rounds = rounds
        self._mean = SLOPE * logs + offset

    def fit(self, runs: Runs, effects: Array, projection: Array) -> Fit:
        """Estimate the logarithm of the goal's value for each configuration from all runs.

        Args:
            runs: The runs.
            effects: Deviation that all runs of a round share, from the previous fit, (rounds,). It
                is taken as 0 for rounds that the previous fit did not have.
            projection: Standard deviation of the error that a configuration's short runs share, as
                a logarithm, (configurations,).
        """
        candidates, rounds, log_values, is_short = runs
        known = np.zeros(rounds.max() + 1)
        known[: len(effects)] = effects[: len(known)]
        groups = candidates + is_short * len(self._mean)
        variance, pooled, freedom = run_variances(groups, log_values - known[rounds])
        level = float(np.mean(log_values - self._mean[candidates]))
        rest = log_values - self._mean[candidates] - level
        covariance = self._covariance_of_runs(runs, projection)
        root = np.linalg.cholesky(covariance + np.diag(variance))
        white = np.array([_solve_triangular(each, rest) for each in root])
        kept, weights = _likely_part_sds(root, white)
        prior = self._prior[kept]
        explained = np.array(
            [_solve_triangular(root[n], self._prior[n][candidates]).T for n in kept]
        )
        means = (explained @ white[kept][:, :, None])[..., 0] + self._mean + level
        mean = weights @ means
        variances = np.diagonal(prior, axis1=1, axis2=2) - (explained**2).sum(axis=2)
        top = kept[int(weights.argmax())]
        inverse = _solve_triangular(root[top], np.eye(len(log_values)))
        precision = inverse.T @ inverse
        pulls = precision @ rest
        sums = np.bincount(rounds, weights=pulls, minlength=len(known))
        left_out, left_out_sd, errors = _predict_left_out(
            candidates, log_values, precision, pulls, len(mean)
        )
        squares = np.minimum(errors[np.unique(candidates)] ** 2, 25.0)
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

    def _covariance_of_runs(self, runs: Runs, projection: Array) -> Array:
        """Return the covariance of runs without the scatter of each run: (PART_SDS, runs, runs).

        Args:
            runs: The runs.
            projection: Standard deviation of the projection's error, (configurations,).
        """
        candidates, rounds, _, is_short = runs
        same_round = rounds[:, None] == rounds
        between = self._prior[:, candidates][:, :, candidates] + self._rounds * same_round
        error = projection[candidates] * is_short
        between += error[:, None] * error * (candidates[:, None] == candidates)
        return np.asarray(between)


def _likely_part_sds(root: Array, white: Array) -> tuple[Array, Array]:
    """Return the indices of the rows of PART_SDS that explain the runs well, and their weights.

    A row has one standard deviation for each part of a scaling curve. The weights are likelihoods,
    divided by their sum. Rows whose weight is at most WEIGHT_MIN are left out.

    Args:
        root: Cholesky factors of the runs' covariances, (PART_SDS, runs, runs).
        white: Inverse of these factors times the log values without their mean, (PART_SDS, runs).
    """
    likelihood = -(white**2).sum(axis=1) / 2
    likelihood -= np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    weights = np.exp(likelihood - likelihood.max())
    kept = np.flatnonzero(weights > WEIGHT_MIN * weights.sum())
    return kept, weights[kept] / weights[kept].sum()


def _solve_triangular(root: Array, values: Array) -> Array:
    """Return the product of a lower triangular matrix's inverse with `values`."""
    return np.asarray(scipy.linalg.solve_triangular(root, values, lower=True, check_finite=False))


def _predict_left_out(
    candidate_of_run: Array, log_values: Array, precision: Array, pulls: Array, count: int
) -> Array:
    """Predict the log value of each configuration by the runs of the others.

    Args:
        candidate_of_run: Number of each run's configuration, (runs,).
        log_values: Log value of each run, (runs,).
        precision: Inverse of the runs' covariance, (runs, runs).
        pulls: Precision times the log values without their mean, (runs,).
        count: Number of configurations.

    Returns:
        Predictions, their standard deviations, and errors in these, (3, configurations); NaN for a
        configuration without runs.
    """
    found = np.full((3, count), np.nan)
    for candidate in np.unique(candidate_of_run):
        own = np.flatnonzero(candidate_of_run == candidate)
        covariance = np.linalg.inv(precision[np.ix_(own, own)])
        errors = covariance @ pulls[own]
        sd = math.sqrt(covariance.mean())
        found[:, candidate] = (log_values[own] - errors).mean(), sd, abs(errors.mean()) / sd
    return found


def run_variances(candidate_of_run: Array, log_values: Array) -> tuple[Array, float, float]:
    """Estimate the noise variance of each run's log value.

    The variance of a candidate's runs is moderated towards the pooled variance. A run that is far
    from the other runs of its candidate gets a larger variance.

    Args:
        candidate_of_run: Number of each run's candidate, (runs,).
        log_values: Log value of each run, (runs,).

    Returns:
        The variance of each run, the pooled variance, and its degrees of freedom.
    """
    groups = [
        np.flatnonzero(candidate_of_run == candidate) for candidate in np.unique(candidate_of_run)
    ]
    groups = [own for own in groups if len(own) > 1]
    if not groups:
        return np.full(len(log_values), SCATTER_SD**2), SCATTER_SD**2, SCATTER_FREEDOM
    own_freedom = np.array([len(own) - 1 for own in groups])
    pooled = _estimate_pooled_variance(
        np.array([log_values[own].var(ddof=1) for own in groups]), own_freedom
    )
    freedom = SCATTER_FREEDOM + float(own_freedom.sum())
    disturbed: Array = np.zeros(len(log_values))
    own_variance: list[tuple[float, bool]] = []
    for _ in range(2):
        squares = SCATTER_FREEDOM * SCATTER_SD**2
        disturbed[:], own_variance = 0, []
        for own in groups:
            most = OUTLIER_SD * math.sqrt(pooled) * (0.71 if len(own) == 2 else 1)
            distance = log_values[own] - np.median(log_values[own])
            is_far = abs(distance) > most
            held = float(np.clip(distance, -most, most).var(ddof=1))
            squares += held * (len(own) - 1)
            is_rare = 0 < is_far.sum() <= len(own) / DISTURBED_ONE_IN
            if is_rare and abs(distance[is_far]).min() > math.log(DISTURBED_FACTOR):
                disturbed[own[is_far]] = distance[is_far] ** 2
                own_variance.append((held, False))
            else:
                own_variance.append((float(log_values[own].var(ddof=1)), bool(is_far.any())))
        pooled = max(squares / freedom, 1e-4)
    variance = np.full(len(log_values), pooled)
    for own, (found, has_mode) in zip(groups, own_variance, strict=True):
        weight = len(own) - 1
        moderated = (POOLED_FREEDOM * pooled + weight * found) / (POOLED_FREEDOM + weight)
        variance[own] = max(moderated, found) if has_mode else moderated
    return variance + disturbed, pooled, freedom


def _estimate_pooled_variance(variances: Array, freedoms: Array) -> float:
    """Estimate the variance that all candidates share, so that a few noisy ones change it little.

    The estimate is the median of the candidates' variances, each weighted by its degrees of
    freedom, averaged with a prior of SCATTER_SD ** 2 with SCATTER_FREEDOM degrees of freedom.

    Args:
        variances: Sample variance of each candidate's runs.
        freedoms: Degrees of freedom of each variance.
    """
    order = np.argsort(variances * freedoms / (freedoms - 2 / 3 + 0.1))
    reached = np.cumsum(freedoms[order])
    middle = order[np.searchsorted(reached, reached[-1] / 2)]
    usual = variances[middle] * freedoms[middle] / max(freedoms[middle] - 0.6, 0.4)
    weight = float(freedoms.sum())
    prior = SCATTER_FREEDOM * SCATTER_SD**2
    return float((prior + weight * usual) / (SCATTER_FREEDOM + weight))
