"""Amdahl's law and the Universal Scalability Law of lines of points, or why they are refused.

A fit is valid between the smallest and the largest number of replicas that were measured. On
published multi-GPU data up to 32 GPUs both laws missed the time on 128 GPUs by -20 % to +115 %, so
nothing here extrapolates. Method and sources: `scaling_fits`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd

from tfscaling.conclusions import scaling_fits
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.scaling_fits import Estimate, Fit, Refusal, Times
from tfscaling.spec.config import LINE_AXES
from tfscaling.tables.display import MISSING, NAMING, Number, TextTable, cell, naming, rounded
from tfscaling.tables.estimates import CONFIDENCE
from tfscaling.tables.table_rows import Row, is_known, point_of, points_of, rows_of

#: A law is refused if it misses a point that was left out of its fit by more than this fraction.
LEFT_OUT_ERROR_MAX = 0.25
#: Times differ if they do by this fraction, and by so many standard errors of their runs.
CHANGE_MIN, CHANGE_ERRORS = 0.10, 4.0
#: An interval of sigma, which lies between 0 and 1, that is wider than this is too wide to be used.
SIGMA_WIDTH_MAX = 0.5
#: So does a knee that may be infinite, or below this fraction of the largest number measured.
KNEE_SHARE_MIN = 0.5
#: So many later starts of a line are tried where a law does not describe the whole.
LATER_STARTS = 2


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


class OutsideRange(ValueError):
    """A number of replicas outside the range that was measured."""


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
    the same fit. If the law does not describe the line, the refusal has the fit from the next
    number of replicas on, or the one after it: one replica has no network, and the first that have
    may be odd. Raises ValueError for an unknown law and for numbers that are no times.
    """
    if model not in MODELS:
        raise ValueError(f"no scaling law {model!r}; there are: {', '.join(MODELS)}")
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
    errors = scaling_fits.left_out_errors(line, unknown)
    if errors.max() > LEFT_OUT_ERROR_MAX:
        missed = f"n = {line.n[errors.argmax()]:g} by {errors.max():.1%}"
        limit = f"when fitted to the others (limit {LEFT_OUT_ERROR_MAX:.0%})"
        reason = f"{law.title} does not describe the points: it misses {missed} {limit}."
        return Refusal(law.name, line.extent, reason, misses=True)
    solution = scaling_fits.solve(line, scaling_fits.terms(line.n, unknown))
    allowed, lack_of_fit = scaling_fits.tolerance(line, solution.misfit, unknown)
    found = scaling_fits.estimates(line, solution, allowed)
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
        first, then = map(int, risen[-1])
        return f"{law.title} has no slowdown, but the time rises: {at(first, then)}."
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

NOTES = (
    *(f"{law.name}: {law.title}, {law.formula}, n replicas." for law in MODELS.values()),
    "S(n) = t(1) / t(n) of the execution time; each line trains the same number of examples, in "
    "weak and in strong scaling; points that do not are left out. sigma: share of the time that "
    "more replicas do not shorten; kappa: cost of each pair of replicas. In brackets: "
    f"{CONFIDENCE:.0%} intervals (profile likelihood), each by itself; error if left out: of a "
    "point that the fit has not seen, median and largest. "
    "sigma and kappa are relative to t(1), which is the law's own where it was not measured.",
    "A law holds within the measured range of n only: nothing here is a statement outside it.",
)


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: one row for each line of points and each law, fitted or refused.

    After a refusal there is a row for the fit from more replicas on, if one holds. `runs` as
    `runs_table.read_table` gives it; runs that are not ok take no part, nor do points that
    `comparison` has as doing other work, or of which half the runs diverged: `left_out` says which.
    n is the number of replicas; every line trains the same number of examples, so that the speed-up
    is a ratio of times in weak and in strong scaling. Laws of one line that contradict each other
    say so in their `statement`.
    """
    runs = study.runs
    ineligible = {point_of(row): reason for row, reason in study.ineligible}
    valid = (runs["status"] == "ok") & runs["execution_time_s"].notna()
    rows, refits = [], []
    for axes, line in runs.groupby(list(LAW_AXES), sort=False, dropna=False):
        own = line[valid[line.index]]
        points = points_of(own)
        fit_runs = [point not in ineligible for point in points]
        left_out = {
            n: ineligible[point]
            for n, point in zip(own["replicas"].tolist(), points, strict=True)
            if point in ineligible
        }
        own = own[pd.Series(fit_runs, index=own.index, dtype=bool)]
        n, times = own["replicas"].tolist(), own["execution_time_s"].tolist()
        of_line = dict(zip(LAW_AXES, axes, strict=True)) | {"devices": line["devices"].iloc[0]}
        of_line["left_out"] = "; ".join(f"n = {n:g}: {why}" for n, why in left_out.items())
        of_whole = []
        for law in MODELS:
            found = fit(law, n, times)
            of_whole.append({**of_line, "law": law, **_columns(found)})
            if isinstance(found, Refusal) and found.later is not None:
                refits.append({**of_line, "law": law, **_columns(found.later)})
        rows += _with_contradictions(of_whole)
    return pd.DataFrame(rows + refits, columns=list(COLUMNS))


def _with_contradictions(laws: list[Row]) -> list[Row]:
    """The laws of a line; fits whose least times exclude each other say that one does not hold."""
    marked = []
    for law in laws:
        others = [
            other
            for other in laws
            if law["status"] == other["status"] == FITTED
            and (law["best_low"] > other["best_high"] or other["best_low"] > law["best_high"])
        ]
        contradictions = "".join(
            f" It contradicts {MODELS[other['law']].title}, whose least time is at n = "
            f"{other['best']}: at most one of the two holds."
            for other in others
        )
        if contradictions:
            law = {**law, "statement": law["statement"] + contradictions}
        marked.append(law)
    return marked


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


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def as_text(laws: pd.DataFrame) -> TextTable:
    """`table` for people: what differs between lines, intervals, words."""
    names = [name for name in NAMING if name != "nodes"]
    axes, fixed = naming(laws, [*names, "batch_scaling"])
    rows = []
    for row in rows_of(laws):
        fitted = row["status"] == FITTED
        cells = {axis: cell(axis, row) for axis in axes} | {"law": row["law"]}
        cells["n"] = f"{row['n_min']:g}–{row['n_max']:g}" if row["points"] else MISSING
        cells["runs"] = rounded(row["runs"], 0)
        for name in ("sigma", "kappa"):
            ends = Estimate(*(row[f"{name}{end}"] for end in ("", "_low", "_high")))
            cells[name] = Number(str(ends), ends.value) if is_known(ends.value) else MISSING
        errors = f"{row['loo_error_median']:.1%}, at most {row['loo_error_max']:.1%}"
        cells["error if left out"] = Number(errors, row["loo_error_median"]) if fitted else MISSING
        cells["least time at n"] = Number(row["best"], row["best_n"]) if fitted else MISSING
        said = row["statement"] if fitted else f"Refused. {row['reason']}"
        out = f" Left out: {row['left_out']}." if _is_text(row["left_out"]) else ""
        cells["what it says"] = said + out
        rows.append(cells)
    above = f"All lines: {fixed}." if fixed else ""
    return TextTable("Scaling laws", pd.DataFrame(rows, dtype=object), NOTES, above)
