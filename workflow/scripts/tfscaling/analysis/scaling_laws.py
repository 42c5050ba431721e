"""The table of scaling laws: every line of points by every law, fitted or refused.

The laws and why they are refused: `scaling_models`.
"""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd

from tfscaling.analysis.evidence import Study
from tfscaling.analysis.scaling_fits import Estimate, Fit, Refusal
from tfscaling.analysis.scaling_models import MODELS, best, fit, statement
from tfscaling.study.config import LINE_AXES
from tfscaling.tables.display import MISSING, NAMING, Number, TextTable, cell, naming, rounded
from tfscaling.tables.intervals import CONFIDENCE
from tfscaling.tables.table_rows import Row, is_known, point_of, points_of, rows_of

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
