"""Results of searches: the state of each configuration, and the cost compared with the grid."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import ClassVar

import pandas as pd

from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.rendering import format_with_interval, render_line
from tfscaling.estimation.run_counts import KEPT_RUNS, miss_rate_text
from tfscaling.record.metrics import METRICS, NAN
from tfscaling.search.search_costs import CandidateCosts, RunCosts, SearchSaving
from tfscaling.search.search_state import PROJECTION
from tfscaling.search.search_types import Decision, Standing
from tfscaling.search.study_searches import StudySearch
from tfscaling.tables import display
from tfscaling.tables.display import (
    NAMING_COLUMNS,
    TextTable,
    count_text,
    format_cell,
    format_three_digits,
    format_value,
    join_names,
    point_name,
    split_naming_columns,
    varying_axes,
)
from tfscaling.tables.row_types import ConfigurationRow, columns
from tfscaling.tables.row_values import (
    axes_and_devices,
    group_by,
    is_known,
    point_of,
)
from tfscaling.tables.table_files import to_frame, to_rows

#: Whether measured values lie within or outside the projected interval.
WITHIN, OUTSIDE = "within", "outside"
TAKEN, IN, OUT = "the answer", "not excluded", "excluded"
OTHER_WORK = "trains fewer examples than others"
#: Columns that only searches with limits, or with short runs, have.
_OPTIONAL_COLUMNS = ("limits", "short_runs", "projected", "measured")
_SHOWN = (
    *("place", "limits", "why", "behind", "chance", "short_runs", "runs"),
    *("projected", "measured", "node_hours", "cost_usd"),
)
_HEADS = {"chance": "chance to be better"}
_SHORT_HEADS = {"short_runs": "short runs", "runs": "complete runs"}
_DIGITS = {"short_runs": 0, "runs": 0, "node_hours": 4, "cost_usd": 4}


class SearchRow(ConfigurationRow):
    """One configuration of a search, a row of search.csv.

    The fields from `rounds` on are equal in all rows of a search.

    Attributes:
        question: Name of the question.
        place: `the answer`, `not excluded` or `excluded`.
        limits: `in` if it is shown to keep all limits, `out` if it is shown to miss one, else
            `open`; None without limits.
        why: Why it is not the answer; None for the answer and for configurations that may be it.
        behind: Estimated fraction by which it is worse than the answer.
        chance: Probability that it is better than the answer by more than the indifference.
        short_runs: Number of its short runs.
        projected: The goal, projected from short runs, with the interval of the mean.
        measured: Mean of the goal over its complete runs, to compare with `projected`; NaN without
            a projection.
        full_runs: Number of its runs in the full grid; `full_node_hours` and `full_cost_usd` are
            the cost of these runs.
        rounds: Number of rounds of the search so far.
        bound: Fraction by which a configuration may be better than the answer; NaN if unknown.
        verdict: The result of the search in words.
        kept: The limits, and how many runs must keep them, by `limits_text`; None without limits.
        further_price: Price of the next round, if the search ended because it is not worth its
            price, in node-hours, or in US dollars if the goal is a cost; else NaN.
        further_saving: What the next round is expected to save in all trainings, in the unit of
            `further_price`; NaN if that is NaN.
        chance_of_better: Estimated probability that any other configuration is better than the
            answer by more than the indifference; NaN if `further_price` is NaN.
    """

    inherited_after: ClassVar[str] = "goal"

    question: str
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
    further_price: float = NAN
    further_saving: float = NAN
    chance_of_better: float = NAN

    @property
    def costs(self) -> CandidateCosts:
        """Cost of its runs in the search, and cost of its runs in the full grid."""
        return CandidateCosts(
            RunCosts(self.runs + self.short_runs, self.node_hours, self.cost_usd),
            RunCosts(self.full_runs, self.full_node_hours, self.full_cost_usd),
        )


COLUMNS = tuple(columns(SearchRow))


def table(study: Study) -> pd.DataFrame:
    """Return one `SearchRow` for each configuration of each search, the answer first."""
    rows = [
        row for task, search in study.searches for row in _search_rows(study, task.name, search)
    ]
    return to_frame(SearchRow, rows)


def _search_rows(study: Study, question: str, search: StudySearch) -> Iterator[SearchRow]:
    """Yield a row for each configuration of one search, the answer first.

    Args:
        study: The evidence.
        question: Name of the question.
        search: The search.
    """
    shorts = {each.point: each.short for each in search.planned.points if each.short}
    made = Counter(point_of(run) for run in study.run_rows if is_known(run.wall_time_s))
    points = {**search.points, **{point.path: point for point in search.points_with_less_work}}
    shown = {point: study.axes_row(point) for point in points.values()}
    limits, decision = limits_text(search), search.decision
    checks = [own.projection_check for own in decision.standings.values() if own.projection_check]
    missed = sum(not check.is_within_interval for check in checks)
    says = [f"{verdict_text(search)}, in {count_text(decision.rounds, 'round')}"]
    says.append(failed_candidates_text(study, search))
    says.append(render_line("search_missed", missed=missed, tried=len(checks)))
    order = sorted(search.points, key=lambda name: _sort_key(name, decision))
    for name in [*order, *(point.path for point in search.points_with_less_work)]:
        costs = search.costs[points[name]]
        row = SearchRow(
            **axes_and_devices(shown[points[name]]),
            question=question,
            goal=search.planned.goal,
            place=TAKEN if name == decision.best else IN,
            **costs.made._asdict(),
            **{f"full_{what}": value for what, value in costs.full_grid._asdict().items()},
            rounds=decision.rounds,
            is_decided=decision.is_decided,
            bound=decision.bound if decision.has_bound else NAN,
            verdict="; ".join(filter(None, says)),
            indifference=search.planned.indifference,
            kept=limits,
        )
        if further := decision.not_worth_it:
            row.further_price, row.further_saving = further.price, further.saving
            row.chance_of_better = further.chance
        row.short_runs = made[shorts[points[name]]] if shorts else 0
        row.runs -= row.short_runs
        if name in search.points:
            _set_standing(row, decision.standings[name])
        else:
            row.place, row.why = OUT, OTHER_WORK
        yield row


def _set_standing(row: SearchRow, standing: Standing) -> None:
    """Set the columns of a configuration's row from its `Standing` in the search."""
    if check := standing.projection_check:
        row.projected, row.measured = check.projected, check.measured
        row.projected_low, row.projected_high = check.low, check.high
    row.limits = str(standing.limit_verdict) if row.kept else None
    if standing.behind is not None and standing.chance is not None:
        row.behind, row.chance = standing.behind, standing.chance
    if standing.reason:
        row.place, row.why = OUT, str(standing.reason)


def _sort_key(name: str, decision: Decision) -> tuple[bool, bool, float, str]:
    """Return a key that sorts the answer first and excluded configurations last.

    The others are sorted by how far they are behind the answer.
    """
    each = decision.standings[name]
    behind = math.inf if each.behind is None else each.behind
    return name != decision.best, each.reason is not None, behind, name


def limits_text(search: StudySearch) -> str | None:
    """Return a search's limits, and how many runs must keep them; None without limits.

    Example: `quality of at least 0.98; cost of at most 40: 11 runs or more, …`.
    """
    words = [
        f"{METRICS[name].title} of at {'least' if each.at_most is None else 'most'} {each.value:g}"
        for name, each in search.planned.limits.items()
    ]
    misses = miss_rate_text(KEPT_RUNS, len(search.points))
    kept = f"{KEPT_RUNS} runs or more, so with 95% fewer than {misses} miss any of them"
    return f"{join_names(words)}: {kept}" if words else None


def verdict_text(search: StudySearch) -> str:
    """Return the result of a search, such as `undecided: within 7.2% of the best`.

    If the search ended because further runs are not worth their price, the text begins with
    `ended:`.
    """
    return render_line("search_verdict", search=search)


def failed_candidates_text(study: Study, search: StudySearch) -> str:
    """List the candidates that were eliminated for failures; "" if none was.

    For each: name, reason, and the median of the goal over its valid runs.
    """
    vary = varying_axes([study.axes_row(point) for point in search.points.values()])
    names, goal = [], search.planned.goal
    for name, reason in search.decision.failed.items():
        point = search.points[name]
        values, metric = study.samples.cost_values(point, goal), METRICS[goal]
        took = ""
        if values:
            middle = f"{format_value(median(values), metric.digits)} {metric.unit}".rstrip()
            took = f"; its {count_text(len(values), 'valid run')}: {middle}"
        names.append(f"{point_name(study.axes_row(point), vary)} {reason}{took}")
    return join_names(names)


def as_text(table: pd.DataFrame) -> TextTable:
    """Return the table for the page, with results, costs and guarantees as notes."""
    axes, fixed = split_naming_columns(table)
    found = to_rows(SearchRow, table)
    known = {
        name for name in _OPTIONAL_COLUMNS for row in found if row[name] and is_known(row[name])
    }
    empty = {*_OPTIONAL_COLUMNS} - known
    names = [*axes, *(name for name in _SHOWN if name not in empty)]
    rows = [[_cell(name, row) for name in names] for row in found]
    words = _HEADS | (_SHORT_HEADS if "short_runs" not in empty else {})
    heads = [words.get(name, name) for name in names]
    return TextTable.from_rows(
        "The search", heads, rows, _search_notes(found), display.shared_values_sentence(fixed)
    )


def _search_notes(rows: Sequence[SearchRow]) -> Iterator[str]:
    """Yield the notes below the table of searches."""
    questions = group_by(rows, lambda row: row.question)
    for question, own in questions.items():
        named = f"{question}: " * (len(questions) > 1)
        yield f"{named}{METRICS[own[0].goal].title}: {own[0].verdict}."
        saving = SearchSaving.from_candidates((row.costs for row in own), own[0].goal)
        yield named + render_line("search_saving", saving=saving)
    about = {"is_short": any(row.short_runs for row in rows), "projection": PROJECTION}
    about["is_ended"] = any(is_known(row.further_price) for row in rows)
    for indifference, kept in dict.fromkeys((row.indifference, row.kept) for row in rows):
        yield render_line("search_promise", indifference=indifference, limit=kept, **about)


def _cell(name: str, row: SearchRow) -> str:
    """Return the text of a value in the table for the page; "" if it is unknown."""
    if not is_known(row[name]):
        return ""
    if name in ("behind", "chance"):
        return f"{row[name]:.1%}"
    if name == "projected":
        return str(format_with_interval(row, name, None))
    if name == "measured":
        is_within = row.projected_low <= row.measured <= row.projected_high
        return f"{format_three_digits(row.measured)}, {WITHIN if is_within else OUTSIDE}"
    if name in _DIGITS:
        return format_value(row[name], _DIGITS[name])
    return format_cell(name, row) if name in NAMING_COLUMNS else str(row[name])


def page(table: pd.DataFrame, _: Study) -> str:
    """Return the page search.md."""
    if table.empty:
        return "# The search\n\nNo block of the grid has a `search`.\n"
    return display.to_markdown(as_text(table))
