"""The searches of a study: who left in which round, by what margin, at what cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from tfscaling.analysis.evidence import Study
from tfscaling.race.study_searches import StudySearch
from tfscaling.race.terms import Claim, Left, Verdict, Why
from tfscaling.study import costs
from tfscaling.study.config import POINT_AXES, SearchLimit
from tfscaling.study.run_spec import Point
from tfscaling.tables import formats
from tfscaling.tables.display import TextTable, cell, naming, rounded
from tfscaling.tables.table_rows import Row, columns_of, is_known, points_of, rows_of
from tfscaling.tables.wording import percent, point_name, varying

TAKEN, IN, LEFT = "the answer", "not excluded", "left"
#: `rival`: the point that was ahead when this one left, by the fraction `gap` by estimate;
#: `at_least`: by what it is worse with the confidence of the search, where that is claimed.
COLUMNS = (
    *("goal", *POINT_AXES, "devices", "place", "constraint"),
    *("round", "why", "rival", "gap", "at_least"),
    *("runs", "node_hours", "cost_usd", "full_node_hours", "full_cost_usd"),
    *("rounds", "is_decided", "bound"),
)
_SHOWN = (
    *("place", "constraint", "round", "why", "rival", "gap", "at_least"),
    *("runs", "node_hours", "cost_usd"),
)


@dataclass(frozen=True)
class Spent:
    """Runs, node-hours and US dollars, None where one is not known."""

    runs: int
    node_hours: float | None
    cost_usd: float | None

    @classmethod
    def of(cls, nodes: int, price: float | None, seconds: Sequence[float], repeats: int) -> Spent:
        """What so many repeats take, by the mean of runs of so many seconds on these nodes."""
        if not seconds:
            return cls(repeats, None, None)
        total_s = repeats * sum(seconds) / len(seconds)
        return cls(repeats, nodes * total_s / 3600, costs.run_cost_usd(price, nodes, total_s))

    @classmethod
    def sum(cls, parts: Sequence[Spent]) -> Spent:
        return cls(
            sum(part.runs for part in parts),
            _sum([part.node_hours for part in parts]),
            _sum([part.cost_usd for part in parts]),
        )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def spent(study: Study, search: StudySearch) -> dict[Point, tuple[Spent, Spent]]:
    """Point → (what its runs took, what those of the full grid would have taken)."""
    seconds: dict[Point, list[float]] = {}
    prices = {run.spec.point: run.usd_per_node_hour for run in study.manifest.runs}
    table = study.runs
    for point, wall_s in zip(points_of(table), table["wall_time_s"].tolist(), strict=True):
        if is_known(wall_s):
            seconds.setdefault(point, []).append(wall_s)
    found = {}
    for each in search.planned.points:
        point, own = each.point, seconds.get(each.point, [])
        had, full = (
            Spent.of(point.nodes, prices.get(point), own, n) for n in (len(own), each.repeats)
        )
        found[point] = had, full
    return found


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: one row for each goal and point of each search, the answer first."""
    rows = [row for search in study.searches.values() for row in _rows(study, search)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows(study: Study, search: StudySearch) -> Iterator[Row]:
    costs_of = spent(study, search)
    shown = dict(zip(points_of(study.comparison), study.points, strict=True))
    vary = varying([shown[point] for point in search.points.values()])
    names = {name: point_name(shown[point], vary) for name, point in search.points.items()}
    allowed = search.decision.allowed
    for verdict in search.decision.verdicts:
        claims = {claim.worse: claim for claim in verdict.claims}
        left = {each.name: each for each in verdict.left}
        order = sorted(search.points, key=lambda name: _place(name, verdict, left))
        for name in order:
            point = search.points[name]
            had, full = costs_of[point]
            yield {
                "goal": verdict.goal,
                **columns_of(point),
                "devices": shown[point]["devices"],
                **_standing(name, verdict, left.get(name), claims.get(name), names),
                "constraint": str(allowed[name]) if search.planned.search.constraint else None,
                "runs": had.runs,
                "node_hours": had.node_hours if had.runs else 0.0,
                "cost_usd": had.cost_usd if had.runs else 0.0,
                "full_node_hours": full.node_hours,
                "full_cost_usd": full.cost_usd,
                "rounds": verdict.rounds,
                "is_decided": verdict.is_decided,
                "bound": verdict.bound if math.isfinite(verdict.bound) else None,
            }


def _place(name: str, verdict: Verdict, left: Mapping[str, Left]) -> tuple[int, float, str]:
    if name in left:
        return -left[name].round, left[name].gap or math.inf, name
    return -1000 - (name == verdict.cheapest), 0.0, name


def _standing(
    name: str,
    verdict: Verdict,
    left: Left | None,
    claim: Claim | None,
    names: Mapping[str, str],
) -> Row:
    row: Row = {"place": TAKEN if name == verdict.cheapest else IN}
    if left:
        row = {"place": LEFT, "round": left.round, "why": str(left.why), "gap": left.gap}
        row["rival"] = names.get(left.rival or "")
    if claim:
        row["at_least"] = claim.at_least
    return row


def guarantee(search: StudySearch) -> str:
    """What the search promises, and what it does not, in plain words."""
    asked = search.planned.search
    near, sure = f"{100 * asked.indifference:g}%", f"{asked.confidence:.0%}"
    limits = "".join(
        f" The point named keeps {limit_text(metric, limit)}, as sure."
        for metric, limit in asked.constraint.items()
    )
    return (
        f"“Decided” means: in at least {sure} of such searches the point named is within {near} of "
        "the best; “undecided” names a point and how far it may be from the best, as sure. "
        f"A point that left is not the best: that says nothing of how much worse it is, except "
        "where an amount is given. It holds where up to one run in twenty is disturbed and all "
        "platforms drift alike, not where one platform drifts by itself or a point always runs on "
        f"the same bad node.{limits}"
    )


def limit_text(metric: str, limit: SearchLimit) -> str:
    """`test_accuracy of at least 0.98, but for 0.002`."""
    words = (
        f"at least {limit.at_least:g}" if limit.at_most is None else f"at most {limit.at_most:g}"
    )
    return f"{metric} of {words}, but for {limit.indifference:g}"


def saving(study: Study, search: StudySearch) -> str:
    """What the search took beside the full grid, by the runs that there are."""
    pairs = spent(study, search).values()
    had, full = (Spent.sum([pair[n] for pair in pairs]) for n in (0, 1))
    text = f"{had.runs} runs instead of the {full.runs} of the full grid"
    if not full.node_hours or had.node_hours is None:
        return f"{text}."
    text += f", {had.node_hours:.3g} of {full.node_hours:.3g} node-hours"
    if had.cost_usd is not None and full.cost_usd:
        text += f", ${had.cost_usd:.2f} of ${full.cost_usd:.2f}"
    share = had.node_hours / full.node_hours
    less = f"{1 - share:.0%} less" if share < 1 else f"{share - 1:.0%} more"
    return f"{text}: {less}. The full grid's runs are taken to last as long as those made."


def verdict_text(search: StudySearch, verdict: Verdict) -> str:
    """`decided: within 5% of the best`, or `undecided: within 7.2% of the best`."""
    if verdict.is_decided:
        return f"decided: within {100 * search.planned.search.indifference:g}% of the best"
    state = "undecided" if verdict.has_ended else "undecided so far"
    if math.isfinite(verdict.bound):
        return f"{state}: within {percent(verdict.bound)} of the best"
    if not verdict.has_ended:
        return f"{state}: no bound yet"
    limited = bool(search.planned.search.constraint)
    return f"{state}: no point {'is shown to keep the constraint' if limited else 'can be named'}"


def rounds_text(verdict: Verdict) -> str:
    """`in 3 rounds`."""
    return f"in {verdict.rounds} round{'s' * (verdict.rounds != 1)}"


def as_text(table: pd.DataFrame) -> TextTable:
    """The table of the page, of all searches."""
    axes, fixed = naming(table)
    several = table["goal"].nunique() > 1
    shown = [n for n in _SHOWN if n != "constraint" or table["constraint"].notna().any()]
    names = [*(["goal"] * several), *axes, *shown]
    rows = [[_cell(name, row) for name in names] for row in rows_of(table)]
    heads = {"gap": "behind", "at_least": "worse by at least", "rival": "ahead of it"}
    above = f"All points: {fixed}." if fixed else ""
    notes = (
        "“left” with “not the best” does not say by how much a point is worse: only “worse by at "
        "least” does, for all points together with the confidence of the search. “behind” is the "
        "estimate when it left.",
    )
    return TextTable.of("The search", [heads.get(n, n) for n in names], rows, notes, above)


def _cell(name: str, row: Row) -> str:
    if not is_known(row[name]):
        return ""
    if name in ("gap", "at_least"):
        return f"{row[name]:.1%}"
    digits = {"round": 0, "runs": 0, "node_hours": 4, "cost_usd": 4}
    if name in digits:
        return rounded(row[name], digits[name])
    return cell(name, row) if name in POINT_AXES else str(row[name])


def markdown(table: pd.DataFrame, study: Study) -> str:
    """The page search.md."""
    parts = ["# The search"]
    if table.empty:
        return "\n\n".join([*parts, "No block of the grid has a `search`."]) + "\n"
    for work, search in study.searches.items():
        lines = [
            f"- **{verdict.goal}**: {verdict_text(search, verdict)}, {rounds_text(verdict)}."
            for verdict in search.decision.verdicts
        ]
        lines.append(f"- {saving(study, search)}")
        lines += [f"- {why}" for why in left_otherwise(search)]
        own = table[(table["model"] == search.planned.model)]
        own = own[own["recipe"] == search.planned.recipe]
        shown = formats.markdown(as_text(own), 3)
        parts += [f"## {work}", "\n".join(lines), guarantee(search), shown.rstrip()]
    return "\n\n".join(parts) + "\n"


def left_otherwise(search: StudySearch) -> list[str]:
    """Sentences about points that left although they are not shown to be no best."""
    found = {
        each.name: str(each.why)
        for verdict in search.decision.verdicts
        for each in verdict.left
        if each.why is not Why.NOT_THE_BEST
    }
    reasons = {why: sum(1 for each in found.values() if each == why) for why in found.values()}
    if search.other_work:
        reasons["trained fewer examples than others"] = len(search.other_work)
    return [f"{number} point{'s' * (number > 1)}: {why}." for why, number in reasons.items()]
