"""Which configuration to take for time, cost and quality, as far as the runs show it.

Only configurations of the same model and recipe are compared, unless `question.choose` has these
axes: then by time and cost to a target and by quality. Configurations that are shown to be
within an indifference of the best are equally good: the cheapest of them is taken, never one whose
difference is only not significant. How often this is right, with six runs of each configuration:
benchmarks/race.py, "full grid".
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import pandas as pd

from tfscaling.conclusions.evidence import NotCovered, Study, not_covered_text, split
from tfscaling.conclusions.projection import Interval, intervals
from tfscaling.conclusions.search_results import verdict_text
from tfscaling.conclusions.shown import render, sentences
from tfscaling.record.metrics import NAN, QUALITY
from tfscaling.search.study_searches import StudySearch
from tfscaling.spec.run_spec import Point
from tfscaling.tables.comparison import OF_ALL_RUNS, OTHER_WORK, all_at_target
from tfscaling.tables.display import target_text, value, varying
from tfscaling.tables.estimates import (
    CONFIDENCE,
    INCONCLUSIVE,
    NOT_COMPARED,
    SUPPORTED,
    TOO_FEW,
    Difference,
    Samples,
    weakest,
)
from tfscaling.tables.rows import columns
from tfscaling.tables.table_rows import (
    NOT_MEASURED,
    Row,
    columns_of,
    frame,
    grouped,
    is_known,
    is_projected,
    metric_of,
    point_of,
    qualities_of,
    typed,
)

#: Metric → the cost that decides between points that are equally good by it.
COSTS = {
    "execution_time_s": "cost_usd",
    "time_with_queue_s": "cost_usd",
    QUALITY: "cost_usd",
    "time_to_target_s": "cost_to_target_usd",
}
_FEWEST = {"nodes": "the fewest nodes", "gpus_per_node": "the fewest devices per node"}


def _is_worse(found: Difference) -> bool:
    return found.support == SUPPORTED and found.is_worse


def _bound(found: Iterable[Difference]) -> float:
    """By what fraction the point taken may be worse by the intervals of the ratios."""
    lows = [each.interval[0] for each in found if each.interval and each.ratio is not None]
    return max([0.0, *(1 / low - 1 if low > 0 else math.inf for low in lows)])


def preferred(goal: str, near: Sequence[Row]) -> tuple[Row, str]:
    """(the point to take of those that are all near enough to the best, why)."""
    left, cost = list(near), COSTS.get(goal)
    if cost and all(is_known(row[cost]) for row in near):
        least = min(row[cost] for row in near)
        left = [row for row in near if row[cost] == least]
        if len(left) == 1:
            return left[0], "the lowest cost"
    for axis, words in _FEWEST.items():
        fewest = min(row[axis] for row in left)
        left = [row for row in left if row[axis] == fewest]
        if len(left) == 1:
            return left[0], words
    return left[0], "the best estimate, as they have the same nodes and devices"


#: A goal where it is measured, and goals where the configuration names them.
ENERGY, WITH_QUEUE, NODE_HOURS = "energy_kwh", "time_with_queue_s", "node_hours"
#: Metric → what the choice is for; the quality or the target of the work follows what ends so.
GOALS = {
    "time_with_queue_s": "Shortest time with the wait in the queue",
    "execution_time_s": "Shortest time",
    "cost_usd": "Lowest cost",
    NODE_HOURS: "Fewest node-hours",
    ENERGY: "Lowest energy",
    QUALITY: "Best ",
    "time_to_target_s": "Shortest time to ",
    "cost_to_target_usd": "Lowest cost to ",
}


@dataclass(frozen=True)
class Choice:
    """What to take for a goal, a metric; `point` is None where there are too few runs.

    `how` it was chosen from itself and `others`, all points shown to be within the indifference of
    the best. `bound` is by what fraction it may be worse than the best, None where the best may be
    zero; `is_best`: every other point is shown to be worse, which takes more than a bound of 0: two
    points may be equally good. `alike` are the points not shown to be worse than the best estimate,
    `after` is the next best estimate. `against` is how much worse each other point is, by the same
    estimates; all its intervals hold together, and `bound` and `is_best` follow them, with
    CONFIDENCE for that many `comparisons`.
    `is_only`: no other point is shown to keep the limits, and some are shown to miss them, or to
    be worse.
    `not_covered` are planned configurations that were not compared: where one of them
    may still change the answer, the choice is not supported. `whole_run` is the interval of one run
    of the whole training at the point, or at the best estimate, where it is projected. The text
    names `shown`, the point to take or else the best median; `few` have too few runs to be compared
    with it. `compared` are those with the metric, the best median first.
    """

    work: str
    goal: str
    title: str
    indifference: float
    support: str = NOT_MEASURED
    text: str = ""
    point: Point | None = None
    alike: tuple[Point, ...] = ()
    bound: float | None = None
    is_best: bool = False
    comparisons: int = 0
    is_decided: bool = False
    is_only: bool = False
    against: Mapping[Point, Difference] = field(default_factory=dict)
    not_covered: tuple[NotCovered, ...] = ()
    whole_run: Interval | None = None
    shown: Row | None = None
    how: str = ""
    others: tuple[Row, ...] = ()
    after: Row | None = None
    few: tuple[Row, ...] = ()
    compared: tuple[Row, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether a configuration that was not compared may change the answer."""
        return any(each.is_open for each in self.not_covered)

    @property
    def is_near(self) -> bool:
        """Whether the point is shown to be within the indifference of the best."""
        return self.bound is not None and self.bound <= self.indifference


class DecisionRow(msgspec.Struct):
    """A choice as a row; the axes are of the recommended point, if there is one.

    `alike` is the number of points that are not shown to be worse than the best estimate.
    """

    work: str
    goal: str
    title: str
    text: str
    support: str
    platform: str | None = None
    model: str | None = None
    strategy: str | None = None
    recipe: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    tasks_per_node: str | None = None
    alike: int = 0
    bound: float = NAN
    is_decided: bool = False
    is_best: bool = False
    indifference: float = 0.0
    comparisons: int = 0
    not_covered: str = ""
    whole_run_low_s: float = NAN
    whole_run_high_s: float = NAN

    @classmethod
    def of(cls, choice: Choice) -> DecisionRow:
        low, high = choice.whole_run or (NAN, NAN)
        same = ("work", "goal", "title", "text", "support", "indifference", "comparisons")
        values = {name: getattr(choice, name) for name in (*same, "is_decided", "is_best")}
        return cls(
            **(columns_of(choice.point) if choice.point else {}),  # type: ignore[arg-type]
            **values,
            alike=len(choice.alike),
            bound=NAN if choice.bound is None else choice.bound,
            not_covered=not_covered_text(choice.not_covered),
            whole_run_low_s=low,
            whole_run_high_s=high,
        )


COLUMNS = tuple(columns(DecisionRow))


def table(study: Study) -> pd.DataFrame:
    """One `DecisionRow` for each choice."""
    return frame(DecisionRow, [DecisionRow.of(choice) for choice in decide(study)])


@functools.lru_cache(maxsize=1)  # the headline and the decision show the same choices
def decide(study: Study) -> Sequence[Choice]:
    """A choice for each goal and each work with measured runs."""
    samples = study.samples
    whole_runs = intervals(study)
    found = []
    for work, rows in study.works.items():
        search = study.searches.get(work)
        not_asked = {WITH_QUEUE, NODE_HOURS} - {study.question.goal}
        goals = [goal for goal in GOALS if goal not in not_asked]
        for goal in goals if any(split(rows, samples)) else ():
            if (title := _title(goal, rows)) is None:
                continue
            choice = Choice(work, goal, title, study.question.indifference)
            if search and goal == search.planned.goal:
                choice = _searched(choice, search, rows)
            else:
                measured, uncovered = study.compared(rows, goal)
                has_missed = any(each.missed for each in uncovered)
                choice = replace(
                    choice,
                    not_covered=tuple(uncovered),
                    is_only=len(measured) == 1 and has_missed,
                    compared=tuple(ranked(goal, measured)),
                )
                choice = _chosen(choice, measured, samples)
            named = choice.point or next(map(point_of, choice.compared), None)
            if named and goal == "execution_time_s":
                choice = replace(choice, whole_run=whole_runs.get(named))
            found.append(replace(choice, text=_text(choice, study.named(work), samples, search)))
    return found


def _text(choice: Choice, rows: Sequence[Row], samples: Samples, search: StudySearch | None) -> str:
    """The choice in words."""
    is_of_search = search is not None and choice.goal == search.planned.goal
    shown, goal = choice.shown, choice.goal
    metric = metric_of(goal, shown or rows[0])
    by_point = {point_of(row): row for row in reversed(rows)}
    return sentences(
        "decision",
        rows,
        samples,
        choice=choice,
        alike=[by_point[point] for point in choice.alike if point in by_point],
        verdict=verdict_text(search) if search and is_of_search else "",
        cost=COSTS.get(goal, goal),
        runs=len(samples.values(point_of(shown), goal)) if shown else 0,
        best="the best" if metric.best is None else "the least error",
        not_covered=not_covered_text(choice.not_covered, varying(rows)),
    )


def _searched(choice: Choice, search: StudySearch, rows: Sequence[Row]) -> Choice:
    """The choice that the search has made, or would make now."""
    verdict = search.decision
    by_point = {point_of(row): row for row in rows}
    choice = replace(choice, not_covered=_out_of_search(search, by_point))
    taken = search.points.get(verdict.best or "")
    if taken is None or taken not in by_point:
        return replace(choice, support=INCONCLUSIVE if verdict.has_ended else TOO_FEW)
    bound = choice.indifference if verdict.is_decided else verdict.bound
    return replace(
        choice,
        support=SUPPORTED if verdict.is_decided and not choice.is_open else INCONCLUSIVE,
        is_decided=verdict.is_decided,
        point=taken,
        shown=by_point[taken],
        alike=tuple(search.points[name] for name in verdict.survivors if name != verdict.best),
        bound=bound if math.isfinite(bound) else None,
        comparisons=len(search.points) - 1,
    )


def _out_of_search(search: StudySearch, rows: Mapping[Point, Row]) -> tuple[NotCovered, ...]:
    """The configurations of a search without a place in its verdict, and why."""
    goal, failed = search.planned.goal, search.decision.failed
    found = []
    for name, point in search.points.items():
        if name in failed and (row := rows.get(point)):
            took = f", its valid runs {value(goal, row)}" * is_known(row[goal])
            is_open = name in search.decision.unresolved
            found.append(NotCovered(row, f"{failed[name]}{took}", is_open))
    others = [rows[point] for point in search.other_work if point in rows]
    return (*found, *(NotCovered(row, OTHER_WORK) for row in others))


def _title(goal: str, rows: Sequence[Row]) -> str | None:
    """What the choice is for, in words; None if no row has energy, or the work has no target."""
    if goal == QUALITY:
        (quality,) = qualities_of(rows).values()
        return GOALS[goal] + quality.title
    if goal == ENERGY and not any(ENERGY in row and is_known(row[ENERGY]) for row in rows):
        return None
    if goal not in OF_ALL_RUNS:
        return GOALS[goal]
    if any(map(is_projected, rows)):  # short runs do not tell when the whole reaches it
        return None
    target = next((target_text(row) for row in rows if is_known(row["target"])), None)
    return None if target is None else GOALS[goal] + target


def _chosen(choice: Choice, measured: Sequence[Row], samples: Samples) -> Choice:
    """The choice with what the runs say of its goal."""
    goal = choice.goal
    measured, others = _of_same_parts(measured) if goal == ENERGY else (measured, [])
    known = ranked(goal, measured)
    others += _lacking(goal, [row for row in measured if not is_known(row[goal])])
    choice = replace(choice, not_covered=(*choice.not_covered, *others))
    if not known:
        return choice
    enough = [row for row in known if samples.has_enough(goal, point_of(row))]
    few = [row for row in known if not samples.has_enough(goal, point_of(row))]
    if few and few[0] is known[0]:
        return replace(choice, shown=few[0], support=TOO_FEW if known[1:] else NOT_COMPARED)
    undecided = [each for each in choice.not_covered if each.undecided and each.is_open]
    choice = contested(replace(choice, few=tuple(few)), enough, samples, len(undecided))
    choice = _without_worse(choice, undecided, samples)
    support = weakest(
        [NOT_COMPARED] * (not choice.comparisons and not choice.is_only)
        + [TOO_FEW] * bool(few)
        + [INCONCLUSIVE] * (choice.is_open or not choice.is_near)
    )
    return replace(choice, support=support)


def _without_worse(choice: Choice, undecided: Sequence[NotCovered], samples: Samples) -> Choice:
    """The choice where `undecided` points that are worse than the one taken are not open."""
    taken, rivals = choice.point, len(choice.against) + len(undecided)
    pairs = [(taken, point_of(each.row)) for each in undecided if taken]
    found = samples.differences(choice.goal, pairs, rivals)
    worse = {
        other for (_, other), each in zip(pairs, found, strict=True) if each and _is_worse(each)
    }
    not_covered = tuple(
        replace(each, reason=f"is worse, and {each.reason}", is_open=False)
        if point_of(each.row) in worse
        else each
        for each in choice.not_covered
    )
    is_only = choice.is_only or (bool(worse) and not choice.comparisons)
    is_decided = choice.is_decided or (is_only and not choice.few)
    return replace(choice, not_covered=not_covered, is_only=is_only, is_decided=is_decided)


def contested(choice: Choice, rows: Sequence[Row], samples: Samples, undecided: int = 0) -> Choice:
    """The choice among points of its goal, each with runs enough; its `support` is left open.

    The error is shared with comparisons with as many points that are `undecided` by a limit.
    """
    points, goal, rivals = [point_of(row) for row in rows], choice.goal, len(rows) - 1 + undecided
    if not rows[1:]:
        is_decided = choice.is_only and not choice.few
        return replace(choice, point=points[0], shown=rows[0], bound=0.0, is_decided=is_decided)
    found = samples.estimates(goal, points)

    def against(taken: int) -> dict[int, Difference]:
        others = [n for n in range(len(rows)) if n != taken]
        pairs = [(points[taken], points[n]) for n in others]
        judged = samples.judged(goal, found, points, pairs, rivals)
        return dict(zip(others, judged, strict=True))

    best, tail = found.best, (1 - CONFIDENCE) / 2 / rivals
    of_best = against(best)
    places = [best, *(n for n in found.near(choice.indifference) if n != best)]
    bounds = dict(zip(places, found.may_be_worse(tail, places).tolist(), strict=True))
    bounds[best] = max(bounds[best], _bound(of_best.values()))
    near = [n for n in places if bounds[n] <= choice.indifference]
    taken, how = best, ""
    if near:
        row, how = preferred(goal, [rows[n] for n in near])
        taken = next(n for n in near if rows[n] is row)
    of_taken = of_best if taken == best else against(taken)
    bound = max(bounds[taken], _bound(of_taken.values()))
    order = [int(n) for n in found.location.argsort(kind="stable") if n != best]
    return replace(
        choice,
        point=points[taken],
        shown=rows[taken],
        how=how,
        others=tuple(rows[n] for n in near if n != taken),
        bound=bound if math.isfinite(bound) else None,
        is_decided=bound <= choice.indifference and not choice.few,
        is_best=all(map(_is_worse, of_taken.values())),
        alike=tuple(points[n] for n in order if not _is_worse(of_best[n])),
        after=rows[order[0]],
        comparisons=rivals,
        against={points[n]: each for n, each in of_taken.items()},
    )


def _of_same_parts(rows: Sequence[Row]) -> tuple[list[Row], list[NotCovered]]:
    """The configurations whose energies include the same parts as most, and the others."""
    counted = Counter(row["energy_of"] for row in rows if is_known(row[ENERGY]))
    parts = next((name for name, _ in counted.most_common(1)), None)
    same = [row for row in rows if row["energy_of"] == parts or not is_known(row[ENERGY])]
    others = [row for row in rows if row["energy_of"] != parts and is_known(row[ENERGY])]
    return same, [NotCovered(row, f"its energy includes {row['energy_of']}") for row in others]


def ranked(goal: str, rows: Sequence[Row]) -> list[Row]:
    """The points that have the metric, the best median first; equal ones by fewest nodes."""
    known = [row for row in rows if is_known(row[goal])]
    sign = -1 if known and metric_of(goal, known[0]).is_higher_better else 1
    return sorted(known, key=lambda row: (sign * row[goal], row["nodes"]))


def _lacking(goal: str, rows: Sequence[Row]) -> list[NotCovered]:
    """Measured configurations without the metric, and what they lack."""
    found = []
    for row in rows:
        needed = row["runs"] if goal in OF_ALL_RUNS else 1
        if goal != QUALITY and row["runs_timed"] < needed:
            all_runs = " of every run" * (goal in OF_ALL_RUNS)
            found.append(NotCovered(row, f"no time that counts{all_runs}"))
        elif goal in OF_ALL_RUNS and not all_at_target(row):
            reached = row["runs_at_target"]
            made = f"{reached:.0f} of {row['runs'] + row['runs_diverged']:.0f} runs"
            found.append(NotCovered(row, f"reached the target in {made}", bool(reached)))
        elif goal == QUALITY:
            short = ", which is not projected from short runs" * is_projected(row)
            found.append(NotCovered(row, f"no {metric_of(goal, row).title}{short}"))
        elif goal in OF_ALL_RUNS and not is_known(row["time_to_target_s"]):
            found.append(NotCovered(row, "no known time to the target"))
        else:
            lack = {WITH_QUEUE: "measured wait in a queue", ENERGY: "energy"}.get(goal, "price")
            found.append(NotCovered(row, f"no {lack}"))
    return found


def page(table: pd.DataFrame, study: Study) -> str:
    """The page decision.md: the choices of each question."""
    rows = typed(DecisionRow, table)
    works = grouped(rows, lambda row: row.work)
    return render("decision_page", works=works, indifference=study.question.indifference) + "\n"
