"""The searches of a study: what each configuration needed, how far it is behind, at what cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import ClassVar, NamedTuple

import pandas as pd

from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.shown import line, with_spread
from tfscaling.estimation.run_counts import KEPT_RUNS, missed_at_most
from tfscaling.record.metrics import METRICS, NAN
from tfscaling.record.run_states import RunState
from tfscaling.search.search_state import PROJECTION
from tfscaling.search.search_types import Decision
from tfscaling.search.study_searches import StudySearch
from tfscaling.study import platforms
from tfscaling.study.run_spec import Point
from tfscaling.tables import display
from tfscaling.tables.display import (
    NAMING,
    TextTable,
    cell,
    count,
    listed,
    naming,
    point_name,
    rounded,
    three_digits,
    varying,
)
from tfscaling.tables.row_types import ConfigurationRow, columns
from tfscaling.tables.row_values import axes_of, by_point, grouped, is_known, line_of, point_of
from tfscaling.tables.table_files import frame, typed

#: Whether measured values lie in the projected interval.
WITHIN, OUTSIDE = "within", "outside"
TAKEN, IN, OUT = "the answer", "not excluded", "excluded"
OTHER_WORK = "trains fewer examples than others"
#: Columns of searches with limits, and with short runs.
_OPTIONAL = ("limits", "short_runs", "projected", "measured")
_SHOWN = (
    *("place", "limits", "why", "behind", "chance", "short_runs", "runs"),
    *("projected", "measured", "node_hours", "cost_usd"),
)
_HEADS = {"chance": "chance to be better"}
_SHORT_HEADS = {"short_runs": "short runs", "runs": "complete runs"}
_DIGITS = {"short_runs": 0, "runs": 0, "node_hours": 4, "cost_usd": 4}


class SearchRow(ConfigurationRow):
    """A point of a search.

    `behind` is by what fraction it is behind the answer by estimate, `chance` the probability that
    it is better by more than the indifference. `projected` is the goal by its `short_runs`, with
    the interval of the mean of its complete runs, `measured`. `full_…` is what the runs of the full
    grid would have taken. What follows is the same for all points of a search.
    """

    inherited_after: ClassVar[str] = "goal"

    work: str
    goal: str
    place: str = ""
    limits: str | None = None
    why: str | None = None
    behind: float = NAN
    chance: float = NAN
    short_runs: int = 0
    projected: float = NAN
    projected_low: float = NAN
    projected_high: float = NAN
    measured: float = NAN
    runs: int = 0
    node_hours: float = 0.0
    cost_usd: float = 0.0
    full_runs: int = 0
    full_node_hours: float = 0.0
    full_cost_usd: float = 0.0
    rounds: int = 0
    is_decided: bool = False
    bound: float = NAN
    verdict: str = ""
    indifference: float = 0.0
    kept: str | None = None

    @property
    def spent(self) -> tuple[Spent, Spent]:
        """What its runs took, what the runs of the full grid would have taken."""
        return (
            Spent(self.runs + self.short_runs, self.node_hours, self.cost_usd),
            Spent(self.full_runs, self.full_node_hours, self.full_cost_usd),
        )


COLUMNS = tuple(columns(SearchRow))


class Spent(NamedTuple):
    """Runs, node-hours and US dollars; NaN where one is not known."""

    runs: int
    node_hours: float
    cost_usd: float

    @classmethod
    def of(cls, nodes: int, price: float | None, seconds: Sequence[float], repeats: int) -> Spent:
        """Return the cost of `repeats` runs on these nodes that take the mean of `seconds` each."""
        if not repeats:
            return cls(0, 0.0, 0.0)
        if not seconds:
            return cls(repeats, NAN, NAN)
        total_s = repeats * sum(seconds) / len(seconds)
        usd = platforms.run_cost_usd(price, nodes, total_s)
        return cls(repeats, nodes * total_s / 3600, NAN if usd is None else usd)


def spent(study: Study, search: StudySearch) -> dict[Point, tuple[Spent, Spent]]:
    """Point → (what its runs took, what the runs of the full grid would have taken).

    Points without runs are counted as at linear speed-up, the least. A run that resumed from a
    checkpoint has the wall time of its last attempt: no measure of other runs. Complete runs take
    what short ones project, if none was made.
    """
    made = by_point(run for run in study.run_rows if is_known(run.wall_time_s))
    seconds = {point: [run.wall_time_s for run in runs] for point, runs in made.items()}
    whole: dict[Point, list[float]] = {}
    for point, runs in made.items():
        for run in runs:
            if run.status != RunState.OK or is_known(run.execution_time_s):
                is_short = is_known(run.projected_from_steps)
                takes_s = run.execution_time_s if is_short else run.wall_time_s
                whole.setdefault(point, []).append(takes_s)
    found = {}
    for each in search.planned.points:
        point, own = each.point, seconds.get(each.point, [])
        takes = whole.get(point) or own
        if each.short:
            own = own + seconds.get(each.short, [])
            takes = takes or whole.get(each.short, [])
        if not takes and search.planned.search.is_smooth:  # linear speed-up on the same line
            alike = [p for p in whole if line_of(p.axes) == line_of(point.axes)]
            least = min(alike, key=lambda p: p.nodes, default=point)
            takes = [least.nodes / point.nodes * value for value in whole.get(least, [])]
        price = study.prices.get(point)
        had = Spent.of(point.nodes, price, own, len(own))
        found[point] = had, Spent.of(point.nodes, price, takes, each.repeats)
    return found


def table(study: Study) -> pd.DataFrame:
    """One `SearchRow` for each point of each search, the answer first."""
    rows = [row for task, search in study.searches for row in _rows(study, task.name, search)]
    return frame(SearchRow, rows)


def _rows(study: Study, work: str, search: StudySearch) -> Iterator[SearchRow]:
    costs_of = spent(study, search)
    shorts = {each.point: each.short for each in search.planned.points if each.short}
    made = Counter(point_of(run) for run in study.run_rows if is_known(run.wall_time_s))
    points = {**search.points, **{point.path: point for point in search.other_work}}
    shown = {point: study.shown(point) for point in points.values()}
    limits, decision = limits_text(search), search.decision
    trials = [own.trial for own in decision.standings.values() if own.trial]
    missed = sum(not trial.holds for trial in trials)
    says = [f"{verdict_text(search)}, in {count(decision.rounds, 'round')}"]
    says.append(left_text(study, search))
    says.append(line("search", part="missed", missed=missed, tried=len(trials)))
    order = sorted(search.points, key=lambda name: _order(name, decision))
    for name in [*order, *(point.path for point in search.other_work)]:
        had, full = costs_of[points[name]]
        row = SearchRow(
            **axes_of(shown[points[name]]),
            work=work,
            goal=search.planned.goal,
            place=TAKEN if name == decision.best else IN,
            **had._asdict(),
            **{f"full_{what}": value for what, value in full._asdict().items()},
            rounds=decision.rounds,
            is_decided=decision.is_decided,
            bound=decision.bound if math.isfinite(decision.bound) else NAN,
            verdict="; ".join(filter(None, says)),
            indifference=search.planned.indifference,
            kept=limits,
        )
        row.short_runs = made[shorts[points[name]]] if shorts else 0
        row.runs -= row.short_runs
        if name not in search.points:
            row.place, row.why = OUT, OTHER_WORK
        else:
            standing = decision.standings[name]
            if trial := standing.trial:
                row.projected, row.measured = trial.projected, trial.measured
                row.projected_low, row.projected_high = trial.low, trial.high
            row.limits = str(standing.allowed) if limits else None
            if standing.behind is not None and standing.chance is not None:
                row.behind, row.chance = standing.behind, standing.chance
            if standing.reason:
                row.place, row.why = OUT, str(standing.reason)
        yield row


def _order(name: str, decision: Decision) -> tuple[bool, bool, float, str]:
    """Return a key that sorts the answer first and excluded configurations last.

    Other configurations are sorted by how far they are behind the answer.
    """
    each = decision.standings[name]
    behind = math.inf if each.behind is None else each.behind
    return name != decision.best, each.reason is not None, behind, name


def limits_text(search: StudySearch) -> str | None:
    """`quality of at least 0.98, cost_usd of at most 40: 11 runs or more, …`, or None."""
    words = [
        f"{METRICS[name].title} of at {'least' if each.at_most is None else 'most'} {each.value:g}"
        for name, each in search.planned.limits.items()
    ]
    misses = f"{missed_at_most(KEPT_RUNS):.0%}"
    kept = f"{KEPT_RUNS} runs or more, so with 95% fewer than {misses} miss any of them"
    return f"{listed(words)}: {kept}" if words else None


def saving(pairs: Iterable[tuple[Spent, Spent]], goal: str) -> str:
    """Describe what a search took compared with the full grid.

    Args:
        pairs: For each point, the cost of its runs and the cost in the full grid.
        goal: The search's goal. The saving is in dollars if it is a cost, else in node-hours.
    """
    each = list(pairs)
    had, full = (Spent(*map(sum, zip(*own, strict=True))) for own in zip(*each, strict=True))
    never = sum(not runs.runs for runs, _ in each)
    is_cost = goal.startswith("cost_")
    return line("search", part="saving", had=had, full=full, never=never, is_cost=is_cost)


def verdict_text(search: StudySearch) -> str:
    """`decided: within 5% of the best`, or `undecided: within 7.2% of the best`."""
    return line(
        "search",
        part="verdict",
        verdict=search.decision,
        infinite=math.inf,
        indifference=search.planned.indifference,
        kept_runs=KEPT_RUNS,
        among=len(search.points) if search.other_work else 0,
        is_limited=bool(search.planned.limits),
        unit="cheaper" if search.planned.goal.startswith("cost_") else "faster",
    )


def left_text(study: Study, search: StudySearch) -> str:
    """Which points left as in FAILED, with their valid runs' median.

    Empty if none did.
    """
    vary = varying([study.shown(point) for point in search.points.values()])
    names, goal = [], search.planned.goal
    for name, reason in search.decision.failed.items():
        point = search.points[name]
        values, metric = study.samples.values(point, goal), METRICS[goal]
        took = ""
        if values:
            middle = f"{rounded(median(values), metric.digits)} {metric.unit}".rstrip()
            took = f"; its {count(len(values), 'valid run')}: {middle}"
        names.append(f"{point_name(study.shown(point), vary)} {reason}{took}")
    return listed(names)


def as_text(table: pd.DataFrame) -> TextTable:
    """Return the page's table of all searches, with their results, costs and promises as notes."""
    axes, fixed = naming(table)
    found = typed(SearchRow, table)
    known = {name for name in _OPTIONAL for row in found if row[name] and is_known(row[name])}
    empty = {*_OPTIONAL} - known
    names = [*axes, *(name for name in _SHOWN if name not in empty)]
    rows = [[_cell(name, row) for name in names] for row in found]
    words = _HEADS | (_SHORT_HEADS if "short_runs" not in empty else {})
    heads = [words.get(name, name) for name in names]
    return TextTable.of("The search", heads, rows, _notes(found), display.all_share(fixed))


def _notes(rows: Sequence[SearchRow]) -> Iterator[str]:
    works = grouped(rows, lambda row: row.work)
    for work, own in works.items():
        named = f"{work}: " * (len(works) > 1)
        yield f"{named}{METRICS[own[0].goal].title}: {own[0].verdict}."
        yield named + saving((row.spent for row in own), own[0].goal)
    about = {"is_short": any(row.short_runs for row in rows), "projection": PROJECTION}
    for indifference, kept in dict.fromkeys((row.indifference, row.kept) for row in rows):
        yield line("search", part="promise", indifference=indifference, limit=kept, **about)


def _cell(name: str, row: SearchRow) -> str:
    if not is_known(row[name]):
        return ""
    if name in ("behind", "chance"):
        return f"{row[name]:.1%}"
    if name == "projected":
        return str(with_spread(row, name, None))
    if name == "measured":
        is_within = row.projected_low <= row.measured <= row.projected_high
        return f"{three_digits(row.measured)}, {WITHIN if is_within else OUTSIDE}"
    if name in _DIGITS:
        return rounded(row[name], _DIGITS[name])
    return cell(name, row) if name in NAMING else str(row[name])


def page(table: pd.DataFrame, _: Study) -> str:
    """Return the page search.md."""
    if table.empty:
        return "# The search\n\nNo block of the grid has a `search`.\n"
    return display.markdown(as_text(table))
