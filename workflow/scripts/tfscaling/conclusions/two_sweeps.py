"""This study against another (`compare_with`): point by point slower, faster or the same.

The verdicts on times are those of `change`; a point of which most runs fail is one that fails,
whatever the times of the others. Failures that are spread over the points are counted over all of
them (`change`). Points are compared where they do the same work in both studies, and each
row says in what their runs were made otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pandas as pd

from tfscaling.conclusions import change
from tfscaling.conclusions.change import FASTER, OPEN, RUNS_MIN, SAME, SLOWER, Ends, judge
from tfscaling.conclusions.evidence import Parameters, Study, Sweep, why_not
from tfscaling.record.run_states import RunState
from tfscaling.spec import run_spec
from tfscaling.spec.config import POINT_AXES
from tfscaling.spec.run_spec import NO_PARAMETERS, Point, RunSpec
from tfscaling.tables import environments
from tfscaling.tables.comparison import OTHER_WORK, is_same_work
from tfscaling.tables.display import TextTable, cell, naming, one_line, rounded
from tfscaling.tables.estimates import CONFIDENCE, Array
from tfscaling.tables.table_rows import Row, is_known, point_of, points_of, rows_of

TITLE = "Against another sweep"
TIME, REFERENCE_TIME = "execution_time_s", "reference_execution_time_s"
#: Of a point that has runs that count there, and whose runs here failed or diverged.
LOST = "lost"
#: Of a point of which some runs count here, but most failed or diverged: `is_failing`.
FAILING = "failing"
NOT_COMPARED = "not compared"
#: In the order in which they are counted.
VERDICTS = (SLOWER, LOST, FAILING, FASTER, SAME, OPEN, NOT_COMPARED)
#: What ends `snakemake regressions` with status 1.
REGRESSIONS = (SLOWER, LOST, FAILING)
#: Those of points of which anything is known.
COMPARED = (SLOWER, LOST, FAILING, FASTER, SAME, OPEN)
#: Those of points whose failures are counted together; those of others are told of each.
_TOGETHER = (SLOWER, FASTER, SAME, OPEN)
COLUMNS = (
    *("reference", *POINT_AXES, "devices", "verdict"),
    *("reference_recipe", "reference_runs", "runs", REFERENCE_TIME, TIME),
    *("reference_runs_failed", "reference_runs_ended", "runs_failed", "runs_ended"),
    *("time_ratio", "time_ratio_low", "time_ratio_high", "comparisons", "indifference"),
    *("reason", "differs"),
)
#: What should be known of how two sweeps were made.
_FACTS = (*environments.ALIKE, "dataset_sha256")
_OF_RUNS = ("repeat", "status", TIME, "started", "hosts", *_FACTS)
#: Characters of a hash, and of another fact, that are shown.
_HASH_WIDTH, _WIDTH = 10, 60
_ENDED_BADLY = (RunState.FAILED, RunState.DIVERGED)


@dataclass(frozen=True)
class Side:
    """A point in one of the two studies: its row of the comparison, and the rows of its runs."""

    row: Row
    runs: Sequence[Row]

    @property
    def valid(self) -> list[Row]:
        return [run for run in self.runs if run["status"] == RunState.OK]

    @property
    def timed(self) -> list[Row]:
        """The valid runs that have a time: not those that went on from a checkpoint."""
        return [run for run in self.valid if is_known(run[TIME])]

    @property
    def statuses(self) -> Counter[str]:
        return Counter(run["status"] for run in self.runs)

    @property
    def ends(self) -> Ends:
        bad = sum(self.statuses[status] for status in _ENDED_BADLY)
        return Ends(bad, bad + len(self.valid))


@dataclass(frozen=True)
class Pair:
    """A point in this study and in the reference."""

    here: Side
    there: Side


def table(study: Study) -> pd.DataFrame:
    """COLUMNS: one row per point of either study; no rows without a reference.

    `runs` and `reference_runs` are the valid runs that have a time; `runs_failed` are those that
    failed or diverged, of the `runs_ended`. `time_ratio` is the time here
    over that of the reference, above 1 where it is slower here, with its interval for all
    `comparisons` together. `differs` says in what parameters and facts the runs of the two were
    made otherwise.
    """
    reference = study.reference
    if reference is None:
        return pd.DataFrame(columns=list(COLUMNS))
    here, there = _sides(study), _sides(reference)
    specs = {run.spec.point: run.spec for run in study.manifest.runs}
    rows, compared = [], []
    for point, counterpart in _counterparts(here, there):
        if point is None or counterpart is None:
            (only,) = ((here | there)[each] for each in (point, counterpart) if each)
            rows.append(_alone(only.row, counterpart is None))
            continue
        pair = Pair(here[point], there[counterpart])
        row = _row(pair.here.row) | {
            "reference_recipe": counterpart.recipe,
            "reference_runs": len(pair.there.timed),
            "runs": len(pair.here.timed),
            REFERENCE_TIME: pair.there.row[TIME],
            TIME: pair.here.row[TIME],
        }
        for before, side in (("reference_", pair.there), ("", pair.here)):
            row |= {f"{before}runs_failed": side.ends.bad, f"{before}runs_ended": side.ends.runs}
        row["verdict"], row["reason"] = _without_times(pair)
        parameters = reference.parameters.get(counterpart, {})
        row["differs"] = "; ".join(
            [*_other_parameters(specs[point], parameters), *_other_facts(pair)]
        )
        if not row["verdict"]:
            compared.append((row, pair))
        rows.append(row)
    _judge(compared, study.indifference)
    named = {"reference": str(reference.folder), "indifference": study.indifference}
    return pd.DataFrame([row | named for row in rows], columns=list(COLUMNS))


def _row(point: Row) -> Row:
    return {name: point[name] for name in (*POINT_AXES, "devices")}


def _alone(point: Row, is_here: bool) -> Row:
    """The row of a point that one of the studies has not."""
    where = "this study" if is_here else "the reference"
    return _row(point) | {"verdict": NOT_COMPARED, "reason": f"only in {where}"}


def _sides(sweep: Sweep) -> dict[Point, Side]:
    """The points of a study that were planned, not those that were excluded."""
    runs: dict[Point, list[Row]] = {}
    names = [name for name in _OF_RUNS if name in sweep.runs]
    for point, run in zip(points_of(sweep.runs), rows_of(sweep.runs, names), strict=True):
        runs.setdefault(point, []).append(run)
    rows = {point_of(row): row for row in sweep.points}
    return {point: Side(row, runs[point]) for point, row in rows.items() if point in runs}


def _counterparts(
    here: Mapping[Point, Side], there: Mapping[Point, Side]
) -> Iterator[tuple[Point | None, Point | None]]:
    """Each point with the same one there, or with the only one that has another recipe."""
    left = [point for point in there if point not in here]
    for point in here:
        found = point if point in there else None
        if found is None:
            alike = [p for p in left if msgspec.structs.replace(p, recipe=point.recipe) == point]
            found = alike[0] if len(alike) == 1 else None
        if found in left:
            left.remove(found)
        yield point, found
    yield from ((None, point) for point in left)


def _without_times(pair: Pair) -> tuple[str, str]:
    """(verdict, reason) of points whose times are not compared.

    Of others the verdict is empty, and the reason says how many runs failed or diverged.
    """
    here, there = pair.here, pair.there
    not_there = why_not(there.row, there.statuses) if there.valid else "no run counts"
    if not_there:
        return NOT_COMPARED, f"in the reference: {not_there}"
    not_here = why_not(here.row, here.statuses) if here.valid else "no run counts"
    if not_here:
        counts = ", ".join(f"{count} {status}" for status, count in here.statuses.items())
        has_ended = here.ends.bad and here.ends.runs == sum(here.statuses.values())
        return LOST if has_ended else NOT_COMPARED, f"{not_here}: {counts}"
    if reason := _other_work(here.row, there.row):
        return NOT_COMPARED, reason
    ended_badly = _ended_badly(here.ends, there.ends)
    if is_failing(here.ends, there.ends):
        return FAILING, ended_badly
    keys = [
        {(run["started"], run["hosts"]) for run in side.timed if is_known(run["started"])}
        for side in (here, there)
    ]
    if shared := len(keys[0] & keys[1]):
        return NOT_COMPARED, f"{shared} of its runs are in both studies"
    runs = len(here.timed), len(there.timed)
    if min(runs) < RUNS_MIN:
        needed = f"{RUNS_MIN} runs of each with a time are needed"
        reason = f"{needed}: {runs[0]} here, {runs[1]} there"
        return OPEN if min(runs) else NOT_COMPARED, "; ".join(filter(None, (reason, ended_badly)))
    return "", ended_badly


def is_failing(here: Ends, there: Ends) -> bool:
    """Whether most runs fail or diverge here, and at most a quarter of those there did."""
    return 2 * here.bad > here.runs and 4 * there.bad <= there.runs


def _ended_badly(here: Ends, there: Ends) -> str:
    """How many runs failed or diverged, or an empty text if none did."""
    if not here.bad + there.bad:
        return ""
    return (
        f"{here.bad} of {here.runs} runs failed or diverged here, {there.bad} of {there.runs} there"
    )


def _other_work(here: Row, there: Row) -> str:
    """Why two points do not the same work, or an empty text.

    Of a program that tells no examples the recipe stands for the work.
    """
    known = [row["examples_trained"] for row in (here, there) if is_known(row["examples_trained"])]
    if len(known) == 2 and not is_same_work(*known):
        return f"{OTHER_WORK}: trained {known[0]:,.0f} examples, there {known[1]:,.0f}"
    if len(known) < 2 and here["recipe"] != there["recipe"]:
        return "whether it does the same work is not known: another recipe, and no examples"
    return ""


def _other_parameters(spec: RunSpec, there: Parameters) -> Iterator[str]:
    """`key: there, now here`.

    What an earlier version of the workflow had no key for it did as by default; a key that this
    one lacks is not compared.
    """
    if not there:
        return
    before = {**run_spec.later_defaults(), **there}
    here: Parameters = {
        **msgspec.json.decode(msgspec.json.encode(spec.recipe)),  # as a file has them
        **msgspec.json.decode(msgspec.json.encode(spec.measured)),
    }
    for key, value in here.items():
        if key in before and key not in NO_PARAMETERS and value != before[key]:
            yield one_line(f"{key}: {before[key]}, now {value}")


def _other_facts(pair: Pair) -> Iterator[str]:
    """The same of versions, machines and data, as the valid runs have them."""
    for fact in _FACTS:
        values = [
            dict.fromkeys(_short(fact, run[fact]) for run in side.valid if is_known(run.get(fact)))
            for side in (pair.there, pair.here)
        ]
        if all(values) and values[0].keys() != values[1].keys():
            there, here = (" and ".join(each) for each in values)
            yield f"{fact}: {there}, now {here}"


def _short(fact: str, value: object) -> str:
    width = _HASH_WIDTH if fact in ("git_commit", "dataset_sha256") else _WIDTH
    text = one_line(str(value))
    return text if len(text) <= width else text[:width] + "…" * (width == _WIDTH)


def _judge(compared: Sequence[tuple[Row, Pair]], indifference: float) -> None:
    """Fill in the verdicts of points whose times are compared, all of them together."""
    if not compared:
        return
    before = _times([pair.there for _, pair in compared])
    changes = judge(before, _times([pair.here for _, pair in compared]), indifference)
    for (row, _), found in zip(compared, changes, strict=True):
        row |= {"verdict": found.verdict, "time_ratio": found.ratio}
        row |= {"time_ratio_low": found.low, "time_ratio_high": found.high}
        row["comparisons"] = len(compared)


def _times(sides: Sequence[Side]) -> Array:
    """Seconds of the timed runs: (points, repeats), NaN where there is none."""
    repeats = max(run["repeat"] for side in sides for run in side.timed)
    times = np.full((len(sides), repeats), np.nan)
    for place, side in enumerate(sides):
        for run in side.timed:
            times[place, run["repeat"] - 1] = run[TIME]
    return times


@dataclass(frozen=True)
class Failures:
    """Over all points that are compared, and neither lost nor failing: runs that ended badly.

    `chance` is the probability of so many here if runs fail as often as in the reference.
    """

    points: int
    here: Ends
    there: Ends
    chance: float

    @property
    def are_more(self) -> bool:
        """Whether more runs fail here, beyond chance."""
        return self.chance <= change.LEVEL

    @property
    def text(self) -> str:
        """One sentence, or nothing if no run failed."""
        if not self.here.bad + self.there.bad:
            return ""
        points = f"{self.points} point{'s that are' if self.points > 1 else ' that is'}"
        more = "more than by chance" if self.are_more else "that more fail here is not shown"
        return (
            f"At {points} neither lost nor failing {self.here.bad} of {self.here.runs} runs failed "
            f"or diverged here, {self.there.bad} of {self.there.runs} there: {more}."
        )


def failures(found: pd.DataFrame) -> Failures:
    """Those of `table`, also of it as read from its file."""
    rows = rows_of(found[found["verdict"].isin(_TOGETHER)])
    here, there = (
        [Ends(int(row[f"{before}runs_failed"]), int(row[f"{before}runs_ended"])) for row in rows]
        for before in ("", "reference_")
    )
    chance = change.chance(zip(here, there, strict=True))
    return Failures(len(rows), _sum(here), _sum(there), chance)


def _sum(ends: Sequence[Ends]) -> Ends:
    return Ends(sum(each.bad for each in ends), sum(each.runs for each in ends))


def summary(found: pd.DataFrame) -> str:
    """`2 points slower, 1 faster, 3 the same than in results/before.`: how many of each verdict."""
    counts = Counter(found["verdict"])
    named = [f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]]
    points = f"{len(found)} point{'s' * (len(found) > 1)}"
    return f"{points} against {found['reference'].iloc[0]}: {', '.join(named)}."


def as_text(found: pd.DataFrame) -> TextTable:
    """`table` for people: one row per point, with the verdict first."""
    if found.empty:
        note = "Not compared: `compare_with` in the configuration names no other study."
        return TextTable(TITLE, pd.DataFrame(), (note,))
    axes, fixed = naming(found)
    causes = {text for text in found["differs"] if is_known(text)}
    columns = [*axes, "verdict", "reference_runs", "runs", REFERENCE_TIME, TIME, "time_ratio"]
    columns += ["reason"] if found["reason"].fillna("").any() else []
    columns += ["differs"] if len(causes) > 1 else []
    rows = [[_cell(name, row) for name in columns] for row in rows_of(found)]
    notes = [*_notes(found), *(_of_all(cause) for cause in causes if len(causes) == 1)]
    above = [summary(found), failures(found).text, f"All points: {fixed}." if fixed else ""]
    return TextTable.of(TITLE, columns, rows, notes, " ".join(filter(None, above)))


def _cell(name: str, row: Row) -> str:
    value = row[name]
    if name in ("reference_runs", "runs"):
        return rounded(value, 0)
    if name in (TIME, REFERENCE_TIME):
        return rounded(value, 1)
    if name == "time_ratio":
        return rounded(value, 3, row["time_ratio_low"], row["time_ratio_high"])
    return cell(name, row) if name not in ("reason", "differs") or is_known(value) else ""


def _of_all(cause: str) -> str:
    if not cause:
        return "Made alike: no parameter, version, machine or data that is recorded differs."
    return f"Made otherwise in the reference: {cause}."


def _notes(found: pd.DataFrame) -> Iterator[str]:
    comparisons, indifference = found["comparisons"].max(), found["indifference"].iloc[0]
    yield (
        f"time_ratio: {TIME} here over that of the reference, above 1 where it is slower here, in "
        "brackets its interval; of means of clipped logarithms, so not exactly the ratio of the "
        "medians beside it."
    )
    yield (
        f"slower, faster: the interval leaves out 1, and the ratio is beyond the indifference of "
        f"{indifference:.0%}. same: the whole interval is within it. cannot be told: neither; more "
        "runs of both narrow the interval. lost: runs here failed or diverged, and those of the "
        "reference count. failing: most runs here failed or diverged, and at most a quarter of "
        "those of the reference did."
    )
    if is_known(comparisons):
        yield (
            f"Verdicts of a kind hold with {CONFIDENCE:.0%} for all {comparisons:.0f} comparisons "
            "together (Holm). They are about these two sweeps: whatever else was different when "
            "they ran, such as a busier network, is part of the difference."
        )
