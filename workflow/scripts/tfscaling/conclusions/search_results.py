"""The searches of a study: who left in which round, by what margin, at what cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import pandas as pd

from tfscaling.conclusions.evidence import Study
from tfscaling.record.metrics import METRICS
from tfscaling.record.run_states import RunState
from tfscaling.search.study_searches import StudySearch
from tfscaling.search.terms import KEPT_RUNS, Claim, Left, Verdict, Why
from tfscaling.spec import platforms
from tfscaling.spec.config import LINE_AXES, POINT_AXES, SearchLimit
from tfscaling.spec.run_spec import Point
from tfscaling.tables import display
from tfscaling.tables.display import (
    TextTable,
    cell,
    listed,
    naming,
    percent,
    point_name,
    rounded,
    varying,
)
from tfscaling.tables.table_rows import Row, columns_of, is_known, points_of, rows_of

TAKEN, IN, LEFT = "the answer", "not excluded", "left"
OTHER_WORK = "trains fewer examples than others"
#: `rival`: the point that was ahead when this one left, by the fraction `gap` by estimate;
#: `at_least`: by what it is worse with the confidence of the search, where that is claimed.
COLUMNS = (
    *("goal", *POINT_AXES, "devices", "place", "constraint"),
    *("round", "why", "rival", "gap", "at_least"),
    *("runs", "node_hours", "cost_usd", "full_runs", "full_node_hours", "full_cost_usd"),
    *("rounds", "is_decided", "bound", "verdict", "indifference", "confidence", "limit"),
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
        if not repeats:
            return cls(0, 0.0, 0.0)
        if not seconds:
            return cls(repeats, None, None)
        total_s = repeats * sum(seconds) / len(seconds)
        return cls(repeats, nodes * total_s / 3600, platforms.run_cost_usd(price, nodes, total_s))

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
    """Point → (what its runs took, what those of the full grid would have taken).

    The runs of points that a bound left out are counted as at linear speed-up, the least. What a
    run took that went on from a checkpoint is that of its last attempt: no measure of others.
    """
    seconds: dict[Point, list[float]] = {}
    whole: dict[Point, list[float]] = {}
    prices = {run.spec.point: run.usd_per_node_hour for run in study.manifest.runs}
    table = study.runs
    went_on = (table["status"] == RunState.OK) & table["execution_time_s"].isna()
    walls_s = table["wall_time_s"].tolist()
    for point, wall_s, part in zip(points_of(table), walls_s, went_on.tolist(), strict=True):
        if is_known(wall_s):
            seconds.setdefault(point, []).append(wall_s)
            if not part:
                whole.setdefault(point, []).append(wall_s)
    found = {}
    for each in search.planned.points:
        point, own = each.point, seconds.get(each.point, [])
        takes = whole.get(point) or own
        if not takes and search.planned.search.at_most_linear:
            takes = _at_least_s(point, whole)
        price = prices.get(point)
        had = Spent.of(point.nodes, price, own, len(own))
        found[point] = had, Spent.of(point.nodes, price, takes, each.repeats)
    return found


def _at_least_s(point: Point, seconds: Mapping[Point, Sequence[float]]) -> list[float]:
    """The seconds of runs at linear speed-up from the smallest point of the same line."""
    line = [getattr(point, axis) for axis in LINE_AXES]
    own = [each for each in seconds if [getattr(each, axis) for axis in LINE_AXES] == line]
    if not own:
        return []
    least = min(own, key=lambda each: each.nodes)
    return [least.nodes / point.nodes * value for value in seconds[least]]


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: one row for each goal and point of each search, the answer first."""
    rows = [row for search in study.searches.values() for row in _rows(study, search)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows(study: Study, search: StudySearch) -> Iterator[Row]:
    costs_of = spent(study, search)
    points = {**search.points, **{point.path: point for point in search.other_work}}
    shown = {point: _shown(point, study) for point in points.values()}
    vary = varying([*shown.values()])
    names = {name: point_name(shown[point], vary) for name, point in points.items()}
    allowed, asked = search.decision.allowed, search.planned.search
    limit = next(
        (f"{limit_text(*each)}: {_kept_text(_kept(search))}" for each in asked.constraint.items()),
        None,
    )
    for verdict in search.decision.verdicts:
        claims = {claim.worse: claim for claim in verdict.claims}
        left = {each.name: each for each in verdict.left}
        says = f"{verdict_text(search, verdict)}, {rounds_text(verdict)}"
        order = sorted(search.points, key=lambda name: _place(name, verdict, left))
        for name in [*order, *(point.path for point in search.other_work)]:
            point = points[name]
            had, full = costs_of[point]
            yield {
                "goal": verdict.goal,
                **columns_of(point),
                "devices": shown[point]["devices"],
                **(
                    _standing(name, verdict, left.get(name), claims.get(name), names)
                    if name in search.points
                    else {"place": LEFT, "why": OTHER_WORK}
                ),
                "constraint": str(allowed.get(name, "")) if asked.constraint else None,
                "runs": had.runs,
                "node_hours": had.node_hours if had.runs else 0.0,
                "cost_usd": had.cost_usd if had.runs else 0.0,
                "full_runs": full.runs,
                "full_node_hours": full.node_hours,
                "full_cost_usd": full.cost_usd,
                "rounds": verdict.rounds,
                "is_decided": verdict.is_decided,
                "bound": verdict.bound if math.isfinite(verdict.bound) else None,
                "verdict": "; ".join(filter(None, (says, left_text(study, search, verdict)))),
                "indifference": asked.indifference,
                "confidence": asked.confidence,
                "limit": limit,
            }


def _shown(point: Point, study: Study) -> Row:
    """What names a point, whether it was run or not."""
    devices = study.manifest.platforms[point.platform].devices
    return {
        **columns_of(point),
        "devices": platforms.device_kind(point.gpus_per_node, devices),
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


def guarantee(indifference: float, confidence: float, limit: str | None) -> str:
    """What a search promises, and what it does not, in plain words."""
    near, sure = f"{100 * indifference:g}%", f"{confidence:.0%}"
    return (
        f"“Decided” means: in at least {sure} of such searches the point named is within {near} of "
        "the best; “undecided” names a point and how far it may be from the best, as sure. "
        "“left” with “not the best” does not say by how much a point is worse: only “worse by at "
        f"least” does, for all points together with {sure}; “behind” is the estimate when it left. "
        "This holds where up to one run in twenty is disturbed and all platforms drift alike, not "
        "where one platform drifts by itself, runs depend on each other, or a point always runs on "
        "the same bad node." + (f" All runs of the point named kept {limit}." if limit else "")
    )


def _kept(search: StudySearch) -> int:
    """The number of runs that must have kept a target or limit before a point is named."""
    return min(KEPT_RUNS, search.planned.search.looks[-1])


def _kept_text(runs: int) -> str:
    """The share of runs that may miss a limit that so many runs kept."""
    return f"{runs} runs or more, so with 95% fewer than {1 - 0.05 ** (1 / runs):.0%} miss it"


def unresolved(verdict: Verdict) -> tuple[Left, ...]:
    """The candidates that left by failing and whose valid runs are not shown to be worse."""
    return tuple(each for each in verdict.left if each.name in verdict.unresolved)


def limit_text(metric: str, limit: SearchLimit) -> str:
    """`test_accuracy of at least 0.98, but for 0.002`."""
    words = (
        f"at least {limit.at_least:g}" if limit.at_most is None else f"at most {limit.at_most:g}"
    )
    return f"{metric} of {words}, but for {limit.indifference:g}"


def saving(pairs: Iterable[tuple[Spent, Spent]]) -> str:
    """What a search took beside the full grid: of each point (its runs, the full grid's)."""
    each = list(pairs)
    had, full = map(Spent.sum, zip(*each, strict=True))
    text = f"{had.runs} runs instead of the {full.runs} of the full grid"
    if not full.node_hours or had.node_hours is None:
        return f"{text}."
    text += f", {had.node_hours:.3g} of {full.node_hours:.3g} node-hours"
    if had.cost_usd is not None and full.cost_usd:
        text += f", ${had.cost_usd:.2f} of ${full.cost_usd:.2f}"
    share = had.node_hours / full.node_hours
    less = f"{1 - share:.0%} less" if share < 1 else f"{share - 1:.0%} more"
    never = sum(not runs.runs for runs, _ in each)
    text = f"{text}: {less}, if the full grid's runs last as long as those made"
    if never:
        text += f"; {never} points without runs are counted as at linear speed-up"
    return f"{text}."


def verdict_text(search: StudySearch, verdict: Verdict) -> str:
    """`decided: within 5% of the best`, or `undecided: within 7.2% of the best`."""
    if not verdict.is_compared and verdict.has_ended:
        return "not compared: fewer than two points have valid runs"
    if verdict.is_decided:
        return f"decided: within {100 * search.planned.search.indifference:g}% of the best"
    state = "undecided" if verdict.has_ended else "undecided so far"
    if math.isfinite(verdict.bound):
        enough = search.planned.search.indifference < verdict.bound or verdict.has_ended
        few = "" if enough else f", until {_kept(search)} of its runs kept the target or limit"
        return f"{state}: within {percent(verdict.bound)} of the best{few}"
    if not verdict.has_ended:
        return f"{state}: no bound yet"
    if verdict.best is not None:
        return f"{state}: too few runs of the others have times"
    limited = bool(search.planned.search.constraint)
    return f"{state}: no point {'is shown to keep the constraint' if limited else 'can be named'}"


def left_text(study: Study, search: StudySearch, verdict: Verdict) -> str:
    """Which points left because they do not run or miss the target, with their valid runs' median.

    Empty if none did.
    """
    gone = [each for each in verdict.left if each.why in (Why.DOES_NOT_RUN, Why.NOT_REACHED)]
    vary = varying([_shown(point, study) for point in search.points.values()])
    names = []
    for each in gone:
        point = search.points[each.name]
        values = study.samples.values(point, verdict.goal)
        had = f"its {len(values)} valid run{'s' * (len(values) != 1)}"
        metric = METRICS[verdict.goal]
        unit = f" {metric.unit}" * bool(metric.unit)
        took = f"; {had}: {rounded(median(values), metric.digits)}{unit}" if values else ""
        names.append(f"{point_name(_shown(point, study), vary)} {each.why}{took}")
    return listed(names)


def rounds_text(verdict: Verdict) -> str:
    """`in 3 rounds`."""
    return f"in {verdict.rounds} round{'s' * (verdict.rounds != 1)}"


def as_text(table: pd.DataFrame) -> TextTable:
    """The table of the page, of all searches: what each found, took and promises below it."""
    axes, fixed = naming(table)
    several = table["goal"].nunique() > 1
    shown = [n for n in _SHOWN if n != "constraint" or table["constraint"].notna().any()]
    names = [*(["goal"] * several), *axes, *shown]
    rows = [[_cell(name, row) for name in names] for row in rows_of(table)]
    heads = {"gap": "behind", "at_least": "worse by at least", "rival": "ahead of it"}
    above = f"All points: {fixed}." if fixed else ""
    return TextTable.of("The search", [heads.get(n, n) for n in names], rows, _notes(table), above)


def _notes(table: pd.DataFrame) -> Iterator[str]:
    works = table.groupby(["model", "recipe"], sort=False)
    for (model, recipe), own in works:
        named = f"{model}, {recipe}: " if len(works) > 1 else ""
        goals = own.groupby("goal", sort=False)
        for goal, of_goal in goals:
            yield f"{named}{METRICS[str(goal)].title}: {of_goal['verdict'].iloc[0]}."
        yield named + saving(_spent(row) for row in rows_of(next(iter(goals))[1]))
    promises = table[["indifference", "confidence", "limit"]].drop_duplicates()
    for row in rows_of(promises):
        limit = row["limit"] if is_known(row["limit"]) else None
        yield guarantee(row["indifference"], row["confidence"], limit)
    if (table["why"] == Why.BOUNDED).any():
        yield (
            f"“{Why.BOUNDED}” rests on the assumption of the configuration that n times the nodes "
            "are at most n times as fast; “behind” is then the least."
        )


def _spent(row: Row) -> tuple[Spent, Spent]:
    """What a row says of the point's runs and of those of the full grid."""
    found = []
    for before in ("", "full_"):
        hours, usd = row[f"{before}node_hours"], row[f"{before}cost_usd"]
        spent = Spent(
            int(row[f"{before}runs"]),
            hours if is_known(hours) else None,
            usd if is_known(usd) else None,
        )
        found.append(spent)
    return found[0], found[1]


def _cell(name: str, row: Row) -> str:
    if not is_known(row[name]):
        return ""
    if name in ("gap", "at_least"):
        return f"{row[name]:.1%}"
    digits = {"round": 0, "runs": 0, "node_hours": 4, "cost_usd": 4}
    if name in digits:
        return rounded(row[name], digits[name])
    return cell(name, row) if name in POINT_AXES else str(row[name])


def page(table: pd.DataFrame, _: Study) -> str:
    """The page search.md."""
    if table.empty:
        return "# The search\n\nNo block of the grid has a `search`.\n"
    return display.markdown(as_text(table))
