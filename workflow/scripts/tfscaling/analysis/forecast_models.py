"""Models of the time on numbers of replicas that were not run, and their error on points left out.

By `ring` and `tree` a run is start-up by ranks, and steps of computation by batch and an all-reduce
by latency and bandwidth: around a ring each rank sends 2 (n - 1) / n of the gradient in 2 (n - 1)
messages, up and down a tree the whole gradient 2 log2(n) times (Thakur, Rabenseifner and Gropp,
"Optimization of Collective Communication Operations in MPICH", 2005). Where the parts were measured
each is fitted by itself; where only the whole time is known, the sum of what the parts make of it.
`amdahl` and `usl` are the laws of `scaling_models`, of the whole time.

All weights are not negative. A model is judged by the points that its fit has not seen: each but
the smallest left out alone, and those beyond half of the largest left out together. That tests a
step of two beyond the range; it cannot show a network that is full further out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.special import stdtrit

from tfscaling.analysis import scaling_fits
from tfscaling.analysis.scaling_fits import Times
from tfscaling.tables.estimates import Array
from tfscaling.tables.intervals import CONFIDENCE

#: A model that misses a point that was left out by more than this fraction forecasts nothing.
LEFT_OUT_ERROR_MAX = 0.20
#: With fewer points, a model has hardly more of them than unknowns.
POINTS_MIN = 5
RING, TREE, AMDAHL, USL = "ring", "tree", "amdahl", "usl"
MODELS = (RING, TREE, AMDAHL, USL)


@dataclass(frozen=True)
class Parts:
    """Measured parts of the points, all of shape (points,); seconds, of a step or of the run.

    `exchange_s` is what a step takes above its computation.
    """

    startup_s: Array
    compute_s: Array
    exchange_s: Array

    def only(self, keep: Array) -> Parts:
        return Parts(self.startup_s[keep], self.compute_s[keep], self.exchange_s[keep])


@dataclass(frozen=True)
class Line:
    """Points that differ in the number of replicas `n`, which rises; arrays of shape (points,).

    `steps` of a run and examples of a replica in a step, its `batch`; `seconds` of the whole run.
    `parts` is None where they were not measured.
    """

    n: Array
    batch: Array
    steps: Array
    seconds: Array
    parts: Parts | None

    def only(self, keep: Array) -> Line:
        """The points that `keep`, an array of truth values, marks."""
        parts = self.parts.only(keep) if self.parts else None
        return Line(self.n[keep], self.batch[keep], self.steps[keep], self.seconds[keep], parts)

    def at(self, n: float) -> Line:
        """The same training on `n` replicas, not measured: a line of one point."""
        is_weak = bool(np.allclose(self.batch, self.batch[0], rtol=0.02))
        share = self.n[-1] / n  # of weak scaling the steps, of strong scaling the batch
        batch = self.batch[-1:] * (1.0 if is_weak else share)
        steps = self.steps[-1:] * (share if is_weak else 1.0)
        return Line(np.array([n]), batch, steps, np.full(1, np.nan), None)


@dataclass(frozen=True)
class Split:
    """Seconds of a run by its parts; for Amdahl's law and the USL there is only the whole."""

    startup_s: float
    compute_s: float
    exchange_s: float

    @property
    def whole_s(self) -> float:
        return self.startup_s + self.compute_s + self.exchange_s


@dataclass(frozen=True)
class Errors:
    """Errors on points left out: logarithms of the expected over the measured time, by point.

    `alone` of one at a time, `beyond` of those beyond half of the largest n together. The largest
    are fractions of the measured time.
    """

    alone: Array
    beyond: Array

    @property
    def alone_max(self) -> float:
        return float(np.abs(np.expm1(self.alone)).max())

    @property
    def beyond_max(self) -> float:
        return float(np.abs(np.expm1(self.beyond)).max())

    @property
    def most(self) -> float:
        return max(self.alone_max, self.beyond_max)


def predict(model: str, line: Line, point: Line) -> Split:
    """Seconds of `point`, a line of one, by the model fitted to `line`."""
    if model in (RING, TREE):
        return _by_parts(model, line, point) if line.parts else _by_whole(model, line, point)
    number = 3 if model == USL else 2
    times = Times.of(line.n.tolist(), line.seconds.tolist())
    found = scaling_fits.solve(times, scaling_fits.terms(times.n, number))
    parallel, *others = (scaling_fits.terms(point.n, number) * found.seconds)[0].tolist()
    return Split(others[0], parallel, sum(others[1:]))


def refusal(line: Line) -> str:
    """Why no model is fitted to the line, or an empty text."""
    if len(line.n) < POINTS_MIN:
        return f"{len(line.n)} numbers of replicas measured, {POINTS_MIN} are needed"
    if np.count_nonzero(line.n <= line.n[-1] / 2) < POINTS_MIN - 2:
        return "too few of the measured points are at half of the largest or below"
    return ""


def left_out(model: str, line: Line) -> Errors:
    """How far the model misses measured points that its fit has not seen."""
    places = np.arange(len(line.n))
    alone = [_errors(model, line, places == place) for place in places[1:]]
    return Errors(np.concatenate(alone), _errors(model, line, line.n > line.n[-1] / 2))


def _errors(model: str, line: Line, out: Array) -> Array:
    """Those on the points `out` by the model fitted to the others."""
    fitted = line.only(~out)
    points = [line.only(np.arange(len(line.n)) == place) for place in np.flatnonzero(out)]
    return np.array([_log_s(model, fitted, point) - np.log(point.seconds[0]) for point in points])


def _log_s(model: str, line: Line, point: Line) -> float:
    return float(np.log(max(predict(model, line, point).whole_s, np.finfo(float).tiny)))


def interval(model: str, line: Line, point: Line, errors: Errors) -> tuple[float, float]:
    """Seconds between which `point`, a line of one, is if the line goes on as it is.

    By Student's t of two parts: how far the forecast moves if a point is left out of the fit
    (jackknife), and how far the model misses points that it has not seen, `errors`.
    """
    places = np.arange(len(line.n))
    moved = np.array([_log_s(model, line.only(places != place), point) for place in places])
    fit = (len(places) - 1) * float(np.var(moved))
    missed = float(np.mean(np.concatenate([errors.alone, errors.beyond]) ** 2))
    quantile = float(stdtrit(len(places) - 2, (1 + CONFIDENCE) / 2))
    half, middle = quantile * np.sqrt(fit + missed), _log_s(model, line, point)
    return float(np.exp(middle - half)), float(np.exp(middle + half))


def _by_parts(model: str, line: Line, point: Line) -> Split:
    assert line.parts is not None
    parts = line.parts
    step = parts.compute_s + parts.exchange_s

    def of(columns: Callable[[Line], Array], values: Array, scale: Array) -> float:
        weights = nnls(columns(line) / scale[:, None], values / scale)[0]
        return float((columns(point) @ weights)[0])

    is_weak = bool(np.allclose(line.batch, line.batch[0], rtol=0.02))
    by_batch: Callable[[Line], Array] = _constant if is_weak else _by_batch
    compute_s = of(by_batch, parts.compute_s, parts.compute_s)
    exchange_s = of(_ring if model == RING else _tree, np.maximum(parts.exchange_s, 0), step)
    startup_s = of(_by_ranks, parts.startup_s, parts.startup_s)
    steps = float(point.steps[0])
    return Split(startup_s, steps * compute_s, steps * exchange_s)


def _by_whole(model: str, line: Line, point: Line) -> Split:
    """By the whole time: what start-up, computation and all-reduce make of it."""

    def columns(of: Line) -> Array:
        # of a ring with few messages the bandwidth alone; its latency is like start-up in each step
        exchange = np.log2(of.n) if model == TREE else (of.n - 1) / of.n
        shares = of.steps / line.steps.max()
        return np.stack([np.ones_like(of.n), 1 / of.n, shares * exchange], axis=1)

    times = Times.of(line.n.tolist(), line.seconds.tolist())
    found = scaling_fits.solve(times, columns(line))
    return Split(*(columns(point) * found.seconds)[0].tolist())


def _constant(line: Line) -> Array:
    return np.ones((len(line.n), 1))


def _by_batch(line: Line) -> Array:
    return np.stack([np.ones_like(line.n), line.batch], axis=1)


def _by_ranks(line: Line) -> Array:
    return np.stack([np.ones_like(line.n), line.n - 1], axis=1)


def _ring(line: Line) -> Array:
    return np.stack([np.ones_like(line.n), line.n - 1, (line.n - 1) / line.n], axis=1)


def _tree(line: Line) -> Array:
    return np.stack([np.ones_like(line.n), np.log2(line.n)], axis=1)
