"""Amdahl's law and the Universal Scalability Law of lines of points, or why they are refused.

Both laws are sums of terms that are not negative, which the fit uses:

    t(n) = parallel / n + serial + crosstalk (n - 1),    t1 = parallel + serial,
    sigma = serial / t1,    kappa = crosstalk / t1,      Amdahl: crosstalk = 0.

The fit is by least squares on the logarithm of the time, because run times scatter in proportion.
Intervals are profile likelihoods: all values that the runs do not contradict while the other
parameters are free. They keep to the bounds, are deterministic and valid for few points.

A fit is valid between the smallest and the largest number of replicas that were measured. On
published multi-GPU data up to 32 GPUs both laws missed the time on 128 GPUs by -20 % to +115 %, so
nothing here extrapolates.

Sources: G. M. Amdahl, AFIPS Spring Joint Computer Conference 1967. N. J. Gunther, "A Simple
Capacity Model of Massively Parallel Transaction Systems", CMG 1993, and "Guerrilla Capacity
Planning", Springer 2007, chapters 4 to 6. D. M. Bates and D. G. Watts, "Nonlinear Regression
Analysis", Wiley 1988, chapter 6 (profiles). T. A. Bancroft, Biometrics 20 (1964) (pooling).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import brentq, nnls
from scipy.special import fdtrc, stdtrit

from tfscaling.conclusions import shown
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.shown import text_of
from tfscaling.spec.config import LINE_AXES
from tfscaling.tables.display import MISSING, NAMING, Number, TextTable, rounded
from tfscaling.tables.estimates import CONFIDENCE
from tfscaling.tables.table_rows import Row, is_known, point_of, points_of

#: A law is refused if it misses a point that was left out of its fit by more than this fraction.
LEFT_OUT_ERROR_MAX = 0.25
#: Times differ if they do by this fraction, and by this many standard errors of their runs.
CHANGE_MIN, CHANGE_ERRORS = 0.10, 4.0
#: An interval of sigma, which lies between 0 and 1, that is wider than this is too wide to be used.
SIGMA_WIDTH_MAX = 0.5
#: So is the interval of a knee from below this fraction of the largest number measured to infinity.
KNEE_SHARE_MIN = 0.5
#: Later starts of a line that are tried if a law does not describe all of it.
LATER_STARTS = 2
#: Above this level of the test for lack of fit, runs and points are pooled to one scatter.
POOLING_LEVEL = 0.25
#: The misfit of a curve through zero, where the logarithm has no value.
_IMPOSSIBLE = 1e6
#: A sum of squares of log times below this is rounding.
_ROUNDING = 1e-18


class Estimate(NamedTuple):
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
        """From one number of replicas and one time in seconds, above 0, for each run."""
        numbers, logs = np.asarray(n, float), np.log(np.asarray(times, float))
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


class Solution(NamedTuple):
    """The best fit: seconds of each term, and the weighted sum of squares of the points."""

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
        expected = float(columns[index] @ solve(times.only(others), columns[others]).seconds)
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


class ScalingModel(NamedTuple):
    """A law of the speed-up S(n) = t(1) / t(n): `function` takes n and the parameters."""

    name: str
    title: str
    parameters: tuple[str, ...]
    formula: str
    function: Callable[..., float]


#: Every law, by the name in the column `law`.
MODELS = {
    law.name: law
    for law in (
        ScalingModel(
            "amdahl",
            "Amdahl's law",
            ("sigma",),
            "S(n) = 1 / (sigma + (1 - sigma) / n)",
            lambda n, sigma: 1 / (sigma + (1 - sigma) / n),
        ),
        ScalingModel(
            "usl",
            "The Universal Scalability Law",
            ("sigma", "kappa"),
            "S(n) = n / (1 + sigma (n - 1) + kappa n (n - 1))",
            lambda n, sigma, kappa: n / (1 + sigma * (n - 1) + kappa * n * (n - 1)),
        ),
    )
}


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


def fit(model: str, n: Sequence[float], times: Sequence[float], from_n: float = 1) -> Fit | Refusal:
    """The law `model` fitted to runs: their numbers of replicas `n`, their `times` in seconds.

    Both have shape (runs,); runs on fewer than `from_n` replicas are left out. The same runs give
    the same fit. If the law does not describe the line, the refusal has the fit from the next
    number of replicas on, or the one after it: one replica has no network, and the first that have
    may be odd.
    """
    law, line = MODELS[model], Times.of(n, times)
    line = line.only(line.n >= from_n)
    found = _fit(law, line)
    if not (isinstance(found, Refusal) and found.misses):
        return found
    for start in line.n[1 : 1 + LATER_STARTS]:
        later = _fit(law, line.only(line.n >= start))
        if isinstance(later, Fit):
            alone = " One replica runs without the network." if line.n[0] == 1 else ""
            reason = f"{found.reason}{alone} From n = {start:g} on a fit is possible."
            return replace(found, reason=reason, later=later)
    return found


def _fit(law: ScalingModel, line: Times) -> Fit | Refusal:
    unknown = len(law.parameters) + 1
    if len(line.n) <= unknown:
        reason = (
            f"{law.title} has {unknown} unknowns with t1 and needs {unknown + 1} different numbers "
            f"of replicas; measured: {', '.join(f'{x:g}' for x in line.n) or 'none'}."
        )
        return Refusal(law.name, line.extent, reason)
    if reason := _other_shape(law, line):
        return Refusal(law.name, line.extent, reason, misses=True)
    errors = left_out_errors(line, unknown)
    if errors.max() > LEFT_OUT_ERROR_MAX:
        missed = f"n = {line.n[errors.argmax()]:g} by {errors.max():.1%}"
        limit = f"when fitted to the others (limit {LEFT_OUT_ERROR_MAX:.0%})"
        reason = f"{law.title} does not describe the measurements: it misses {missed} {limit}."
        return Refusal(law.name, line.extent, reason, misses=True)
    solution = solve(line, terms(line.n, unknown))
    allowed, lack_of_fit = tolerance(line, solution.misfit, unknown)
    found = estimates(line, solution, allowed)
    if reason := _undetermined(found, line):
        return Refusal(law.name, line.extent, reason)
    freedom = line.extent.runs - unknown
    return Fit(
        law.name,
        line.extent,
        t1_s=float(solution.seconds[:2].sum()),
        parameters={name: found[name] for name in law.parameters},
        residual_standard_error=math.sqrt((line.within.sum() + solution.misfit) / freedom),
        lack_of_fit=lack_of_fit,
        loo_error_median=float(np.median(errors)),
        loo_error_max=float(errors.max()),
        knee=found.get("knee", Estimate(math.inf, math.inf, math.inf)),
    )


def _other_shape(law: ScalingModel, line: Times) -> str:
    """Why the times cannot follow the law: laws fall, and with kappa rise after that."""
    freedom = line.count.sum() - len(line.n)
    error = CHANGE_ERRORS * math.sqrt(line.within.sum() / freedom) if freedom else 0.0

    def at(*points: int) -> str:
        return ", ".join(f"{math.exp(line.log_mean[i]):.1f} s at n = {line.n[i]:g}" for i in points)

    height = line.log_mean
    spread = error * np.sqrt(1 / line.count[:, None] + 1 / line.count)
    #: [a, b]: whether the time rises from a to b by more than chance.
    up = height - height[:, None] > np.maximum(math.log1p(CHANGE_MIN), spread)
    humps = []
    for top in range(1, len(height) - 1):
        before, after = np.flatnonzero(up[:top, top]), top + 1 + np.flatnonzero(up[top + 1 :, top])
        if len(before) and len(after):
            a, b = before[height[before].argmin()], after[height[after].argmin()]
            humps.append((2 * height[top] - height[a] - height[b], int(a), top, int(b)))
    if humps:
        _, *points = max(humps, key=lambda hump: hump[0])
        return f"{law.title} cannot rise and then fall, as the time does: {at(*points)}."
    risen = np.argwhere(np.triu(up))
    if len(risen) and "kappa" not in law.parameters:
        return f"{law.title} has no slowdown, but the time rises: {at(*map(int, risen[-1]))}."
    return ""


def _undetermined(found: Mapping[str, Estimate], line: Times) -> str:
    """Why the runs leave parameters open: intervals that hold all answers to the question."""
    sigma, knee = found["sigma"], found.get("knee")
    if "kappa" in found and math.isinf(found["kappa"].high):
        return (
            "The measurements do not determine kappa: however large it is, it agrees with the runs."
        )
    if sigma.high - sigma.low > SIGMA_WIDTH_MAX:
        return (
            f"The measurements do not determine sigma: anything from {sigma.low:.2g} to "
            f"{sigma.high:.2g} agrees with the runs."
        )
    if knee is not None and math.isinf(knee.high) and knee.low < KNEE_SHARE_MIN * line.n[-1]:
        return (
            f"The measurements do not determine kappa: a knee at n = {max(knee.low, 1):.2g}, well "
            f"within the measured range, agrees with the runs, and so does none at all."
        )
    return ""


def predict(found: Fit, n: float) -> float:
    """Seconds on `n` replicas by the law; ValueError where nothing was measured."""
    if not found.extent.n_min <= n <= found.extent.n_max:
        raise ValueError(f"n = {n:g} lies outside the measured range {found.extent}")
    values = (estimate.value for estimate in found.parameters.values())
    return found.t1_s / MODELS[found.model].function(n, *values)


class Best(NamedTuple):
    """The whole number of replicas of the least time within the range, with its interval.

    `at_edge`: it is the smallest or the largest measured, so the least time may lie outside.
    """

    n: int
    low: int
    high: int
    time_s: float
    at_edge: bool

    @property
    def text(self) -> str:
        spread = "" if self.low == self.high else f" ({self.low}–{self.high})"
        return f"{self.n}{spread}{', at the edge of the range' if self.at_edge else ''}"


def best(found: Fit) -> Best:
    """Where in the range the time is least by the law; the interval follows from the knee's."""
    least, most = math.ceil(found.extent.n_min), math.floor(found.extent.n_max)

    def whole(knee: float) -> int:
        """t(n) <= t(n + 1) where n (n + 1) >= knee squared: the first such n is the least."""
        if knee >= most:
            return most
        floor = math.floor(knee)
        return min(most, max(least, floor if floor * (floor + 1) >= knee**2 else floor + 1))

    # a curve that may be flat, sigma = 1, has its least time anywhere
    low = least if found.parameters["sigma"].high >= 1 else whole(found.knee.low)
    n = whole(found.knee.value)
    return Best(n, low, whole(found.knee.high), predict(found, n), n in (least, most))


def statement(found: Fit) -> str:
    """What the law says of this line, in words."""
    over = f"the measured range {found.extent}"
    if found.model == "amdahl":
        sigma = found.parameters["sigma"]
        ends = (1 / x if x else math.inf for x in (sigma.value, sigma.high, sigma.low))
        text = f"The speed-up's limit 1/sigma, {Estimate(*ends)}, is an asymptote beyond {over}."
    elif found.knee_place == "beyond":
        text = f"The knee lies beyond {over}, where nothing was measured; by the law {found.knee}."
    elif found.knee_place == "undecided":
        text = f"Whether the knee, {found.knee}, lies within {over} is left open by the runs."
    else:
        text = f"The knee, {found.knee}, lies {found.knee_place} {over}."
    lack = " The measurements lie further from the curve than their runs scatter."
    return text + (lack if found.lack_of_fit else "")


FITTED, REFUSED = "fitted", "refused"
#: Points that share these are what a law is fitted to.
LAW_AXES = (*LINE_AXES, "batch_scaling")
FIT_VALUES = ("residual_standard_error", "lack_of_fit", "loo_error_median", "loo_error_max")
COLUMNS = (
    *(*LAW_AXES, "devices", "law", "status", "reason", "n_min", "n_max", "points", "runs", "t1_s"),
    *(f"{name}{end}" for name in ("sigma", "kappa") for end in ("", "_low", "_high")),
    *(*FIT_VALUES, "knee", "knee_low", "knee_high", "knee_place"),
    *("best_n", "best_low", "best_high", "best", "best_time_s", "statement", "left_out"),
)


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: one row for each line of points and each law, fitted or refused.

    After a refusal there is a row for the fit from more replicas on, if one holds. Excluded are
    runs that are not ok, and points that do other work or with half of their runs diverged:
    `left_out` names them. n is the number of replicas; every line trains the same number of
    examples, so that the speed-up is a ratio of times in weak and in strong scaling. Laws of one
    line that contradict each other say so in their `statement`.
    """
    ineligible = {point_of(row): reason for row, reason in study.ineligible}
    valid = (study.runs["status"] == "ok") & study.runs["execution_time_s"].notna()
    rows: list[Row] = []
    refits: list[Row] = []
    for axes, line in study.runs.groupby(list(LAW_AXES), sort=False, dropna=False):
        own = line[valid[line.index]]
        times: list[tuple[float, float]] = []
        left_out: dict[float, str] = {}
        values = own["replicas"].tolist(), own["execution_time_s"].tolist()
        for point, n, time_s in zip(points_of(own), *values, strict=True):
            if point in ineligible:
                left_out[n] = ineligible[point]
            else:
                times.append((n, time_s))
        of_line = dict(zip(LAW_AXES, axes, strict=True)) | {"devices": line["devices"].iloc[0]}
        of_line["left_out"] = "; ".join(f"n = {n:g}: {why}" for n, why in left_out.items())
        found = [fit(law, [n for n, _ in times], [time_s for _, time_s in times]) for law in MODELS]
        laws = [{**of_line, "law": each.model, **_columns(each)} for each in found]
        later = [each.later for each in found if isinstance(each, Refusal) and each.later]
        refits += [{**of_line, "law": each.model, **_columns(each)} for each in later]
        _add_contradictions([law for law in laws if law["status"] == FITTED])
        rows += laws
    return pd.DataFrame(rows + refits, columns=list(COLUMNS))


def _add_contradictions(laws: Sequence[Row]) -> None:
    """Add to the statements of fits of a line whose least times exclude each other."""
    said = [law["statement"] for law in laws]
    for place, law in enumerate(laws):
        for other in laws:
            if law["best_low"] > other["best_high"] or other["best_low"] > law["best_high"]:
                said[place] += (
                    f" It contradicts {MODELS[other['law']].title}, whose least time is at n = "
                    f"{other['best']}: at most one of the two holds."
                )
    for law, text in zip(laws, said, strict=True):
        law["statement"] = text


def _columns(found: Fit | Refusal) -> Row:
    row: Row = asdict(found.extent)
    if isinstance(found, Refusal):
        return row | {"status": REFUSED, "reason": found.reason}
    row |= {"status": FITTED, "reason": "", "knee_place": found.knee_place}
    row |= {name: getattr(found, name) for name in ("t1_s", *FIT_VALUES)}
    known = {**found.parameters, **({"knee": found.knee} if "kappa" in found.parameters else {})}
    for name, estimate in known.items():
        row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    least = best(found)
    row |= {"best_n": least.n, "best_low": least.low, "best_high": least.high, "best": least.text}
    return row | {"best_time_s": least.time_s, "statement": statement(found)}


def as_text(laws: pd.DataFrame) -> TextTable:
    """`table` for people: what differs between lines, intervals, words."""
    names = [*(name for name in NAMING if name != "nodes"), "batch_scaling"]
    notes = shown.notes("scaling", laws=MODELS.values())
    return shown.text_table(
        "Scaling laws", laws, _cells, notes, "No runs.", names=names, each="lines"
    )


def _cells(row: Row) -> dict[str, str]:
    cells = {"law": row["law"]}
    cells["n"] = f"{row['n_min']:g}–{row['n_max']:g}" if row["points"] else MISSING
    cells["runs"] = rounded(row["runs"], 0)
    for name in ("sigma", "kappa"):
        ends = Estimate(*(row[f"{name}{end}"] for end in ("", "_low", "_high")))
        cells[name] = Number(str(ends), ends.value) if is_known(ends.value) else MISSING
    error, least = MISSING, MISSING
    said = f"Refused. {row['reason']}"
    if row["status"] == FITTED:
        text = f"{row['loo_error_median']:.1%}, at most {row['loo_error_max']:.1%}"
        error = Number(text, row["loo_error_median"])
        least, said = Number(row["best"], row["best_n"]), row["statement"]
    out = f" Left out: {row['left_out']}." if text_of(row["left_out"]) else ""
    return cells | {
        "error if left out": error,
        "least time at n": least,
        "what it says": said + out,
    }
