"""Amdahl's law and the Universal Scalability Law of lines of points, or why they do not hold.

Layer 4 (view). A fit speaks of the numbers of replicas between the smallest and the largest that
were measured. On published multi-GPU data up to 32 GPUs both laws missed the time on 128 GPUs by
-20 % to +115 %, so nothing here extrapolates. Where the runs do not support a law, there is a
refusal with its reason instead of a fit. Method and sources: `scaling_fits`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from tfscaling import scaling_fits
from tfscaling.display import MISSING, Shown, one_line
from tfscaling.grid import POINT_AXES
from tfscaling.scaling_fits import Estimate, Fit, Refusal, Times
from tfscaling.statistics import CONFIDENCE

#: A law is refused if it misses a point that was left out of its fit by more than this fraction.
LEFT_OUT_ERROR_MAX = 0.25
#: Times differ if they do by this fraction, and by so many standard errors of their runs.
CHANGE_MIN, CHANGE_ERRORS = 0.10, 4.0
#: An interval of sigma, which lies between 0 and 1, that is wider than this says too little.
SIGMA_WIDTH_MAX = 0.5
#: So does a knee that may be infinite, or below this fraction of the largest number measured.
KNEE_SHARE_MIN = 0.5

FITTED, REFUSED = "fitted", "refused"
#: Points that share these differ in the number of nodes only.
LINE_AXES = (*(axis for axis in POINT_AXES if axis != "nodes"), "batch_scaling")
FIT_VALUES = ("residual_standard_error", "lack_of_fit", "loo_error_median", "loo_error_max")
COLUMNS = (
    *(*LINE_AXES, "law", "status", "reason", "n_min", "n_max", "points", "runs", "t1_s"),
    *(f"{name}{end}" for name in ("sigma", "kappa") for end in ("", "_low", "_high")),
    *(*FIT_VALUES, "knee", "knee_low", "knee_high", "knee_place"),
    *("best_n", "best_low", "best_high", "best", "best_time_s", "statement"),
)


@dataclass(frozen=True)
class ScalingModel:
    """A law of the speed-up S(n) = t(1) / t(n): `function` takes n and the parameters."""

    name: str
    title: str
    parameters: tuple[str, ...]
    formula: str
    function: Callable[..., float]


#: Every law, by the name in the column `law`.
MODELS: dict[str, ScalingModel] = {
    "amdahl": ScalingModel(
        "amdahl",
        "Amdahl's law",
        ("sigma",),
        "S(n) = 1 / (sigma + (1 - sigma) / n)",
        lambda n, sigma: 1 / (sigma + (1 - sigma) / n),
    ),
    "usl": ScalingModel(
        "usl",
        "The Universal Scalability Law",
        ("sigma", "kappa"),
        "S(n) = n / (1 + sigma (n - 1) + kappa n (n - 1))",
        lambda n, sigma, kappa: n / (1 + sigma * (n - 1) + kappa * n * (n - 1)),
    ),
}

NOTES = (
    *(f"{law.name}: {law.title}, {law.formula}, n replicas." for law in MODELS.values()),
    "S(n) = t(1) / t(n) of the execution time; each line trains the same number of examples, in "
    "weak and in strong scaling. sigma: share of the time that more replicas do not shorten; "
    f"kappa: cost of each pair of replicas. In brackets: {CONFIDENCE:.0%} intervals (profile "
    "likelihood); error if left out: of a point that the fit has not seen, median and largest. "
    "sigma and kappa are relative to t(1), which is the law's own where it was not measured.",
    "A law holds within the measured range of n only: nothing here is a statement outside it.",
)


class OutsideRange(ValueError):
    """A law was asked about a number of replicas outside those that were measured."""


@dataclass(frozen=True)
class Best:
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


def fit(model: str, n: Sequence[float], times: Sequence[float], from_n: float = 1) -> Fit | Refusal:
    """The law `model` fitted to runs: their numbers of replicas `n`, their `times` in seconds.

    Both have shape (runs,); runs on fewer than `from_n` replicas are left out. The same runs give
    the same fit. Raises ValueError for an unknown law and for numbers that are no times.
    """
    if model not in MODELS:
        raise ValueError(f"no scaling law {model!r}; there are: {', '.join(MODELS)}")
    law, line = MODELS[model], Times.of(n, times)
    line = line.only(line.n >= from_n)
    unknown = len(law.parameters) + 1
    if len(line.n) <= unknown:
        reason = (
            f"{law.title} has {unknown} unknowns with t1 and needs {unknown + 1} different numbers "
            f"of replicas; measured: {', '.join(f'{x:g}' for x in line.n) or 'none'}."
        )
        return Refusal(model, line.extent, reason)
    errors = scaling_fits.left_out_errors(line, unknown)
    if reason := _cannot_describe(law, line, errors):
        start = float(line.n[1])
        later = fit(model, n, times, start)
        offer = start if isinstance(later, Fit) else later.from_n
        if offer is not None:
            reason += " One replica runs without the network." if line.n[0] == 1 else ""
            reason += f" From n = {offer:g} on a fit is possible."
        return Refusal(model, line.extent, reason, offer)
    solution = scaling_fits.solve(line, scaling_fits.terms(line.n, unknown))
    allowed, lack_of_fit = scaling_fits.tolerance(line, solution.misfit, unknown)
    found = scaling_fits.estimates(line, solution, allowed)
    if reason := _undetermined(found, line):
        return Refusal(model, line.extent, reason)
    freedom = line.extent.runs - unknown
    return Fit(
        model,
        line.extent,
        t1_s=float(solution.seconds[:2].sum()),
        parameters={name: found[name] for name in law.parameters},
        residual_standard_error=math.sqrt((line.within.sum() + solution.misfit) / freedom),
        lack_of_fit=lack_of_fit,
        loo_error_median=float(np.median(errors)),
        loo_error_max=float(errors.max()),
        knee=found.get("knee", Estimate(math.inf, math.inf, math.inf)),
    )


def _cannot_describe(law: ScalingModel, line: Times, errors: np.ndarray) -> str:
    """Why the law does not hold: laws fall, with kappa rise after that, and meet unseen points."""
    freedom = line.count.sum() - len(line.n)
    error = CHANGE_ERRORS * math.sqrt(line.within.sum() / freedom) if freedom else 0.0

    def rises(first: int, then: int) -> bool:
        spread = error * math.sqrt(1 / line.count[first] + 1 / line.count[then])
        change = float(line.log_mean[then] - line.log_mean[first])
        return change > max(math.log1p(CHANGE_MIN), spread)

    def at(*points: int) -> str:
        return ", ".join(f"{math.exp(line.log_mean[i]):.1f} s at n = {line.n[i]:g}" for i in points)

    places, height = range(len(line.n)), line.log_mean
    up = {pair: rises(*pair) for pair in itertools.product(places, places)}
    trios = itertools.combinations(places, 3)
    humps = [(a, top, b) for a, top, b in trios if up[a, top] and up[b, top]]
    if humps:
        most = max(humps, key=lambda trio: 2 * height[trio[1]] - height[trio[0]] - height[trio[2]])
        return f"{law.title} cannot rise and then fall, as the time does: {at(*most)}."
    risen = [pair for pair in itertools.combinations(places, 2) if up[pair]]
    if risen and "kappa" not in law.parameters:
        return f"{law.title} has no slowdown, but the time rises: {at(*risen[-1])}."
    if errors.max() > LEFT_OUT_ERROR_MAX:
        missed = f"n = {line.n[errors.argmax()]:g} by {errors.max():.1%}"
        limit = f"when fitted to the others (limit {LEFT_OUT_ERROR_MAX:.0%})"
        return f"{law.title} does not describe the points: it misses {missed} {limit}."
    return ""


def _undetermined(found: Mapping[str, Estimate], line: Times) -> str:
    """Why the runs leave parameters open: intervals that hold all answers to the question."""
    sigma, knee = found["sigma"], found.get("knee")
    if "kappa" in found and math.isinf(found["kappa"].high):
        return "The points do not determine kappa: however large it is, it agrees with the runs."
    if sigma.high - sigma.low > SIGMA_WIDTH_MAX:
        return (
            f"The points do not determine sigma: anything from {sigma.low:.2g} to {sigma.high:.2g} "
            f"agrees with the runs."
        )
    if knee is not None and math.isinf(knee.high) and knee.low < KNEE_SHARE_MIN * line.n[-1]:
        return (
            f"The points do not determine kappa: a knee at n = {max(knee.low, 1):.2g}, well within "
            f"the measured range, agrees with the runs, and so does none at all."
        )
    return ""


def predict(found: Fit, n: float) -> float:
    """Seconds on `n` replicas by the law; raises OutsideRange where nothing was measured."""
    if not found.extent.n_min <= n <= found.extent.n_max:
        raise OutsideRange(f"n = {n:g} lies outside the measured range {found.extent}")
    values = (estimate.value for estimate in found.parameters.values())
    return found.t1_s / MODELS[found.model].function(n, *values)


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
    lack = " The points lie further from the curve than their runs scatter."
    return text + (lack if found.lack_of_fit else "")


def scaling_table(runs: pd.DataFrame, nodes_min: int = 1) -> pd.DataFrame:
    """COLUMNS: one row for each line of points and each law, fitted or refused.

    `runs` as `tables.read_table` gives it; runs that are not ok or on fewer than `nodes_min` nodes
    take no part. n is the number of replicas; every line trains the same number of examples, so
    that the speed-up is a ratio of times in weak and in strong scaling.
    """
    valid = (runs["status"] == "ok") & runs["execution_time_s"].notna()
    valid &= runs["nodes"] >= nodes_min
    rows = []
    for axes, line in runs.groupby(list(LINE_AXES), sort=False, dropna=False):
        own = line[valid[line.index]]
        for law in MODELS:
            found = fit(law, own["replicas"].tolist(), own["execution_time_s"].tolist())
            row = {**dict(zip(LINE_AXES, axes, strict=True)), "law": law, **asdict(found.extent)}
            rows.append({**row, **_columns(found)})
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _columns(found: Fit | Refusal) -> dict[str, Any]:
    if isinstance(found, Refusal):
        return {"status": REFUSED, "reason": found.reason}
    row: dict[str, Any] = {"status": FITTED, "reason": "", "knee_place": found.knee_place}
    row |= {name: getattr(found, name) for name in ("t1_s", *FIT_VALUES)}
    known = {**found.parameters, **({"knee": found.knee} if "kappa" in found.parameters else {})}
    for name, estimate in known.items():
        row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    least = best(found)
    row |= {"best_n": least.n, "best_low": least.low, "best_high": least.high, "best": least.text}
    return row | {"best_time_s": least.time_s, "statement": statement(found)}


def shown(table: pd.DataFrame) -> Shown:
    """The table of `scaling_table` for people: what differs between lines, intervals, words."""
    axes = [axis for axis in LINE_AXES if table[axis].nunique() > 1]
    rows = []
    for row in table.to_dict("records"):
        fitted = row["status"] == FITTED
        cells = {axis: one_line(str(row[axis])) for axis in axes} | {"law": row["law"]}
        cells["n"] = f"{row['n_min']:g}–{row['n_max']:g}" if row["points"] else MISSING
        cells["runs"] = str(row["runs"])
        for name in ("sigma", "kappa"):
            ends = Estimate(*(row[f"{name}{end}"] for end in ("", "_low", "_high")))
            cells[name] = MISSING if pd.isna(ends.value) else str(ends)
        errors = f"{row['loo_error_median']:.1%}, at most {row['loo_error_max']:.1%}"
        cells["error if left out"] = errors if fitted else MISSING
        cells["least time at n"] = row["best"] if fitted else MISSING
        cells["what it says"] = row["statement"] if fitted else f"Refused. {row['reason']}"
        rows.append(cells)
    fixed = [f"{axis} {table[axis].iloc[0]}" for axis in LINE_AXES if axis not in axes and rows]
    above = f"All lines: {', '.join(fixed)}." if fixed else ""
    texts = frozenset({*axes, "law", "n", "what it says"})
    return Shown("Scaling laws", pd.DataFrame(rows, dtype=object), NOTES, above, texts)
