"""Which configuration to take for time, cost and quality, as far as the runs show it.

Only configurations of the same model and recipe are compared. Configurations that are shown to be
within an indifference of the best are equally good: the cheapest of them is taken, never one whose
difference is only not significant. How often this is right, with six runs of each configuration:
benchmarks/race.py, "full grid".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from tfscaling.conclusions.evidence import (
    NotCovered,
    Study,
    not_covered,
    not_covered_text,
    remark,
    split,
)
from tfscaling.conclusions.projection import Interval, intervals
from tfscaling.conclusions.search_results import verdict_text
from tfscaling.record.metrics import QUALITY
from tfscaling.search.study_searches import StudySearch
from tfscaling.search.terms import Verdict, Why
from tfscaling.spec.config import POINT_AXES
from tfscaling.spec.run_spec import Point
from tfscaling.tables.comparison import OF_ALL_RUNS, OTHER_WORK, all_at_target
from tfscaling.tables.display import listed, point_name, target_text, value, varying, within
from tfscaling.tables.estimates import CONFIDENCE
from tfscaling.tables.significance import (
    INCONCLUSIVE,
    NOT_COMPARED,
    SUPPORTED,
    TOO_FEW,
    Difference,
    Samples,
    weakest,
)
from tfscaling.tables.table_rows import (
    NOT_MEASURED,
    Row,
    columns_of,
    is_known,
    is_projected,
    metric_of,
    point_of,
    qualities_of,
)

#: Metric → the cost that decides between points that are equally good by it.
COSTS = {
    "execution_time_s": "cost_usd",
    "time_with_queue_s": "cost_usd",
    QUALITY: "cost_usd",
    "time_to_target_s": "cost_to_target_usd",
}
_FEWEST = {"nodes": "the fewest nodes", "gpus_per_node": "the fewest devices per node"}


@dataclass(frozen=True)
class Contest:
    """The points of a goal against each other, each with runs enough.

    `taken` is the point to take and `how` it was chosen; `bound` is by what fraction it may be
    worse than the best, None where the best may be zero; the contest is decided if that is no more
    than the indifference. `is_best`: every other point is shown to be worse than it. `near` are all
    points shown to be so near, `alike` those not shown to be worse than the best estimate, `after`
    is the next best estimate. `against` is how much worse each other point is than the one taken,
    by the same estimates; all its intervals hold together, and `bound` and `is_best` follow them.
    """

    taken: Row
    how: str = ""
    bound: float | None = 0.0
    is_decided: bool = True
    is_best: bool = True
    near: tuple[Row, ...] = ()
    alike: tuple[Row, ...] = ()
    after: Row | None = None
    comparisons: int = 0
    against: Mapping[Point, Difference] = field(default_factory=dict)

    @classmethod
    def of(cls, goal: str, rows: Sequence[Row], samples: Samples, indifference: float) -> Contest:
        rivals = len(rows) - 1
        if not rivals:
            return cls(rows[0])
        points = [point_of(row) for row in rows]
        found = samples.estimates(goal, points)

        def against(taken: int) -> dict[int, Difference]:
            others = [n for n in range(len(rows)) if n != taken]
            pairs = [(points[taken], points[n]) for n in others]
            judged = samples.judged(goal, found, points, pairs, rivals)
            return dict(zip(others, judged, strict=True))

        best, tail = found.best, (1 - CONFIDENCE) / 2 / rivals
        of_best = against(best)
        places = [best, *(n for n in found.near(indifference) if n != best)]
        bounds = dict(zip(places, found.may_be_worse(tail, places).tolist(), strict=True))
        bounds[best] = max(bounds[best], _bound(of_best.values()))
        near = [n for n in places if bounds[n] <= indifference]
        taken, how = best, ""
        if near:
            row, how = preferred(goal, [rows[n] for n in near])
            taken = next(n for n in near if rows[n] is row)
        of_taken = of_best if taken == best else against(taken)
        bound = max(bounds[taken], _bound(of_taken.values()))
        order = [int(n) for n in found.location.argsort(kind="stable") if n != best]
        return cls(
            rows[taken],
            how,
            bound if math.isfinite(bound) else None,
            bound <= indifference,
            all(map(_is_worse, of_taken.values())),
            tuple(rows[n] for n in near),
            tuple(rows[n] for n in order if not _is_worse(of_best[n])),
            rows[order[0]],
            rivals,
            {points[n]: each for n, each in of_taken.items()},
        )


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
            return left[0], "of these it has the lowest cost"
    for axis, words in _FEWEST.items():
        fewest = min(row[axis] for row in left)
        left = [row for row in left if row[axis] == fewest]
        if len(left) == 1:
            return left[0], f"of these it has {words}"
    return left[0], "of these it has the best estimate, as they have the same nodes and devices"


#: Columns that say how sure a choice is.
_SURE = ("bound", "is_decided", "is_best", "indifference", "comparisons")
COLUMNS = (
    *("work", "goal", "title", "text", "support", *POINT_AXES, "alike", *_SURE),
    *("not_covered", "whole_run_low_s", "whole_run_high_s"),
)
#: A goal where the configuration asks for it.
WITH_QUEUE = "time_with_queue_s"
#: Metric → what the choice is for; the quality or the target of the work follows what ends so.
GOALS = {
    "time_with_queue_s": "Shortest time with the wait in the queue",
    "execution_time_s": "Shortest time",
    "cost_usd": "Lowest cost",
    QUALITY: "Best ",
    "time_to_target_s": "Shortest time to ",
    "cost_to_target_usd": "Lowest cost to ",
}


@dataclass(frozen=True)
class Choice:
    """What to take for a goal, a metric; `point` is None where there are too few runs.

    `bound`: by what fraction the point may be worse than the best, with CONFIDENCE for that many
    `comparisons`; supported if it is no more than the `indifference`. `is_best`: every other point
    is shown to be worse, which takes more than a bound of 0: two points may be equally good.
    `alike` are the points that are not shown to be worse than the best estimate. `is_decided`: the
    point is within the indifference of the best of those compared. `against` is how much worse each
    of these is. `not_covered` are planned configurations that were not compared: where one of them
    may still change the answer, the choice is not supported. `whole_run` is the interval of one run
    of the whole training at the point, or at the best estimate, where it is projected.
    """

    work: str
    goal: str
    title: str
    text: str
    support: str
    indifference: float
    point: Point | None = None
    alike: tuple[Point, ...] = ()
    bound: float | None = None
    is_best: bool = False
    comparisons: int = 0
    is_decided: bool = False
    against: Mapping[Point, Difference] = field(default_factory=dict)
    not_covered: tuple[NotCovered, ...] = ()
    whole_run: Interval | None = None

    @property
    def is_open(self) -> bool:
        """Whether a configuration that was not compared may change the answer."""
        return any(each.is_open for each in self.not_covered)


def of_choices(choices: Sequence[Choice]) -> pd.DataFrame:
    """COLUMNS: one row for each choice; the axes are those of the point to take, if there is one.

    `alike` is the number of points that are not shown to be worse than the best estimate.
    """
    rows = []
    for choice in choices:
        row: Row = {"work": choice.work, "goal": choice.goal, "title": choice.title}
        row |= {"text": choice.text, "support": choice.support, "alike": len(choice.alike)}
        row |= {name: getattr(choice, name) for name in _SURE}
        row["not_covered"] = not_covered_text(choice.not_covered)
        if choice.whole_run:
            row |= {f"whole_run_{end}": each for end, each in choice.whole_run._asdict().items()}
        rows.append(row | (columns_of(choice.point) if choice.point else {}))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def decide(study: Study) -> list[Choice]:
    """A choice for each goal and each work of which anything was measured."""
    samples, indifference = study.samples, study.indifference
    whole_runs = intervals(study)
    found = []
    for work, rows in study.works.items():
        measured, ineligible = split(rows, samples)
        uncovered, vary = not_covered(rows, samples), varying(rows)
        goals = [goal for goal in GOALS if goal != WITH_QUEUE or study.decision_time == goal]
        for goal in goals if measured or ineligible else ():
            title = _title(goal, rows)
            if title is None:
                continue
            choice = Choice(work, goal, title, "", NOT_MEASURED, indifference)
            search = study.searches.get(work)
            if search and goal in search.verdicts:
                choice = _searched(choice, search, rows, samples)
            else:
                choice = replace(choice, not_covered=tuple(uncovered))
                choice = _chosen(choice, measured, samples, vary) if measured else choice
            best = next(iter(ranked(goal, measured)), None)
            named = choice.point or (best and point_of(best))
            whole_run = whole_runs.get(named) if named and goal == "execution_time_s" else None
            of_whole = str(whole_run or "")
            text = _joined(choice.text, of_whole, not_covered_text(choice.not_covered, vary))
            found.append(replace(choice, text=text, whole_run=whole_run))
    return found


def _searched(choice: Choice, search: StudySearch, rows: Sequence[Row], samples: Samples) -> Choice:
    """The choice as the search has made it, or stands."""
    verdict, asked = search.verdicts[choice.goal], search.planned.search
    by_point = {point_of(row): row for row in rows}
    choice = replace(choice, not_covered=_out_of_search(search, verdict, by_point))
    taken = search.points.get(verdict.cheapest or "")
    rivals = [search.points[name] for name in verdict.survivors if search.points[name] != taken]
    if taken is None or taken not in by_point:
        support = INCONCLUSIVE if verdict.has_ended else TOO_FEW
        text = f"A search, {verdict_text(search, verdict)}."
        return replace(choice, text=text, support=support, indifference=asked.indifference)
    row, vary = by_point[taken], varying(rows)
    named = f"{point_name(row, vary)}: {value(choice.goal, row)}{remark(row, samples)}"
    is_supported = verdict.is_decided and not choice.is_open
    text = (
        f"{'Use ' * is_supported}{named}; {verdict_text(search, verdict)} "
        f"({asked.confidence:.0%}, a search among {len(search.points)} points)."
    )
    bound = asked.indifference if verdict.is_decided else verdict.bound
    return replace(
        choice,
        text=f"{text[0].upper()}{text[1:]}",
        support=SUPPORTED if is_supported else INCONCLUSIVE,
        is_decided=verdict.is_decided,
        indifference=asked.indifference,
        point=taken,
        alike=tuple(rivals),
        bound=bound if math.isfinite(bound) else None,
        comparisons=len(search.points) - 1,
    )


def _out_of_search(
    search: StudySearch, verdict: Verdict, rows: Mapping[Point, Row]
) -> tuple[NotCovered, ...]:
    """The configurations of a search without a place in its verdict, and why."""
    left = {each.name: each.why for each in verdict.left}
    found = []
    for name in search.points:
        row = rows.get(search.points[name])
        if row is not None and left.get(name) in (Why.DOES_NOT_RUN, Why.NOT_REACHED):
            took = f", its valid runs {value(verdict.goal, row)}" * is_known(row[verdict.goal])
            found.append(NotCovered(row, f"{left[name]}{took}", name in verdict.unresolved))
    others = [rows[point] for point in search.other_work if point in rows]
    return (*found, *(NotCovered(row, OTHER_WORK) for row in others))


def _title(goal: str, rows: Sequence[Row]) -> str | None:
    """What the choice is for, in words; None if the work has no target, or one that is of no use.

    Short runs do not tell when the whole reaches it.
    """
    if goal == QUALITY:
        (quality,) = qualities_of(rows).values()
        return GOALS[goal] + quality.title
    if goal not in OF_ALL_RUNS:
        return GOALS[goal]
    if any(map(is_projected, rows)):
        return None
    target = next((target_text(row) for row in rows if is_known(row["target"])), None)
    return None if target is None else GOALS[goal] + f"{target.name} {target.value}"


def _chosen(
    choice: Choice, measured: Sequence[Row], samples: Samples, vary: Sequence[str]
) -> Choice:
    """The choice with what the runs say of its goal."""
    goal, indifference = choice.goal, choice.indifference
    known = ranked(goal, measured)
    lacking = _lacking(goal, [row for row in measured if not is_known(row[goal])])
    choice = replace(choice, not_covered=(*choice.not_covered, *lacking))
    if not known:
        return choice
    is_higher_better = metric_of(goal, known[0]).is_higher_better
    enough: list[Row] = []
    few: list[Row] = []
    for row in known:
        (enough if samples.has_enough(goal, point_of(row)) else few).append(row)
    best = known[0]
    if few and few[0] is best:
        number = len(samples.values(point_of(best), goal))
        made = f"{number} run{'s' * (number != 1)}"
        extreme = "greatest" if is_higher_better else "smallest"
        shown = f"{point_name(best, vary)}: {value(goal, best)}, of {made}{remark(best, samples)}"
        if len(known) == 1:
            text = f"Measured: {shown}. There is nothing to compare it with."
            return replace(choice, text=text, support=NOT_COMPARED)
        text = f"Too few runs to decide; the {extreme} median has {shown}."
        return replace(choice, text=text, support=TOO_FEW)
    contest = Contest.of(goal, enough, samples, indifference)
    among = " with enough runs" if few else ""
    text = _joined(
        _taken_text(choice, contest, samples, vary, among),
        _rivals_text(goal, contest, samples, vary, indifference),
    )
    if few:
        text += f" Too few runs to compare: {listed([point_name(row, vary) for row in few])}."
    support = weakest(
        [NOT_COMPARED] * (not contest.comparisons)
        + [TOO_FEW] * bool(few)
        + [INCONCLUSIVE] * (choice.is_open or not contest.is_decided)
    )
    return replace(
        choice,
        text=text,
        support=support,
        point=point_of(contest.taken),
        alike=tuple(point_of(row) for row in contest.alike),
        bound=contest.bound,
        is_best=contest.is_best and contest.comparisons > 0,
        comparisons=contest.comparisons,
        is_decided=contest.is_decided and contest.comparisons > 0 and not few,
        against=contest.against,
    )


def ranked(goal: str, rows: Sequence[Row]) -> list[Row]:
    """Those of these points that have the metric, the best median first, fewest nodes before."""
    known = [row for row in rows if is_known(row[goal])]
    if not known:
        return []
    sign = -1 if metric_of(goal, known[0]).is_higher_better else 1
    return sorted(known, key=lambda row: (sign * row[goal], row["nodes"]))


def _taken_text(
    choice: Choice, contest: Contest, samples: Samples, vary: Sequence[str], among: str
) -> str:
    """Which point to take, with its value and how far it may be from the best.

    `among`: which points it is compared with, if not with all.
    """
    goal, taken = choice.goal, contest.taken
    use, among = ("Best of those compared: ", " compared") if choice.is_open else ("Use ", among)
    metrics = dict.fromkeys((goal, COSTS.get(goal, goal)) if len(contest.near) > 1 else (goal,))
    values = ", ".join(value(name, taken) for name in metrics if is_known(taken[name]))
    named = f"{point_name(taken, vary)}: {values}{remark(taken, samples)}"
    if not contest.comparisons:
        return f"Measured: {named}. There is nothing to compare it with."
    held = f"({CONFIDENCE:.0%}, {contest.comparisons} comparison{'s' * (contest.comparisons > 1)})"
    if contest.is_best:
        return f"{use}{named}. Every other point{among} is shown to be worse {held}."
    of_what = "the best" if metric_of(goal, taken).best is None else "the least error"
    far = f"by how much it may be worse is not known {held}"
    if contest.bound is not None:
        far = f"{within(contest.bound, of_what)} {held}"
    if contest.is_decided:
        return f"{use}{named}; {far}."
    limit = f"{100 * choice.indifference:g}%"
    return f"Not decided to within {limit}. The best estimate has {named}; {far}."


def _rivals_text(
    goal: str, contest: Contest, samples: Samples, vary: Sequence[str], indifference: float
) -> str:
    """What else is as good, or may be, or comes next."""
    if len(contest.near) > 1:
        others = [
            f"{point_name(row, vary)}{remark(row, samples)}"
            for row in contest.near
            if row is not contest.taken
        ]
        return (
            f"{listed(others)} {'is' if len(others) == 1 else 'are'} shown to be within "
            f"{100 * indifference:g}% as well: {contest.how}."
        )
    if contest.alike:
        names = listed([point_name(row, vary) for row in contest.alike])
        return f"As good may be: {names}."
    after = contest.after
    return f"The next is {point_name(after, vary)}, {value(goal, after)}." if after else ""


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
            lack = "measured wait in a queue" if goal == WITH_QUEUE else "price"
            found.append(NotCovered(row, f"no {lack}"))
    return found


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)
