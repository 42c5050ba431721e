"""Which points may be compared and recommended, and the remarks that they need.

A point that trained another number of examples than the others, or of which half the runs or more
diverged, takes no part in decisions, findings, scaling laws and clouds. A point with fewer diverged
runs, or with failed ones, does, and every sentence that recommends it says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfscaling.race.study_searches import work_of
from tfscaling.records.run_states import RunState
from tfscaling.tables.comparison import (
    OTHER_WORK,
    SAME_WORK_TOLERANCE,
    is_same_work,
    runs_differ,
)
from tfscaling.tables.significance import Samples
from tfscaling.tables.table_rows import Row, is_known, point_of
from tfscaling.tables.wording import listed, point_name

#: Points that share these do the same work.
WORK_AXES = ("model", "recipe")


def split(rows: Sequence[Row], samples: Samples) -> tuple[list[Row], list[tuple[Row, str]]]:
    """(points that take part, those that do not, with the reason), of points of one work."""
    return _split(rows, [samples.statuses(point_of(row)) for row in rows])


@dataclass(frozen=True)
class NotCovered:
    """A planned configuration about which a statement says nothing, and why.

    `is_open`: its runs may still change the answer. Not where the runs themselves show that it
    cannot be recommended: they diverged, or all of them missed the target.
    """

    row: Row
    reason: str
    is_open: bool = True


def not_covered(rows: Sequence[Row], samples: Samples) -> list[NotCovered]:
    """The planned configurations of one task that are in no comparison."""
    most = examples_of_work(rows)
    found = []
    for row in rows:
        statuses = samples.statuses(point_of(row))
        if reason := why_not(row, statuses, most):
            found.append(NotCovered(row, reason, not statuses[RunState.DIVERGED]))
        elif row["runs"] == 0 and row["status"] != "excluded":
            made = ", ".join(f"{count} {status}" for status, count in statuses.items())
            found.append(NotCovered(row, f"no valid run ({made or row['status']})"))
    return found


def not_covered_text(found: Sequence[NotCovered], vary: Sequence[str] = ()) -> str:
    """A sentence that names them and the reasons; empty if there are none."""
    if not found:
        return ""
    return f"Not compared: {listed([f'{point_name(n.row, vary)}, {n.reason}' for n in found])}."


def taking_part(rows: Sequence[Row]) -> list[Row]:
    """The points that take part, of points of one work, by what their own rows count of runs."""
    return _split(rows, [_counted(row) for row in rows])[0]


def _split(
    rows: Sequence[Row], statuses: Sequence[Counter[str]]
) -> tuple[list[Row], list[tuple[Row, str]]]:
    most = examples_of_work(rows)
    eligible: list[Row] = []
    ineligible: list[tuple[Row, str]] = []
    for row, of_runs in zip(rows, statuses, strict=True):
        reason = why_not(row, of_runs, most)
        if reason:
            ineligible.append((row, reason))
        elif row["runs"] > 0:
            eligible.append(row)
    return eligible, ineligible


def examples_of_work(rows: Sequence[Row]) -> float:
    """The number of examples that is the work of these configurations (`work_of`)."""
    return work_of(row["examples_trained"] for row in rows if _is_known(row, "examples_trained"))


def why_not(row: Row, statuses: Counter[str], work: float = 0.0) -> str:
    """Why the point takes no part in comparisons; nothing if it does, or was not measured.

    `work` is the number of examples of the work. A point that did all of it, or more, takes part,
    though its baseline did less and it has no speed-up for that; not one whose runs differ in that.
    """
    if _is_known(row, "examples_trained"):
        trained = row["examples_trained"]
        if work - trained > SAME_WORK_TOLERANCE * work:
            return f"{OTHER_WORK}: trained {trained:,.0f} examples, another point {work:,.0f}"
    if _is_known(row, "examples_trained_min") and not is_same_work(
        row["examples_trained_min"], row["examples_trained_max"]
    ):
        return runs_differ(row)
    diverged, ended = statuses[RunState.DIVERGED], statuses[RunState.DIVERGED] + statuses["ok"]
    if diverged and 2 * diverged >= ended:
        return f"{diverged} of {ended} runs diverged"
    return ""


def remark(row: Row, samples: Samples) -> str:
    """`; 2 of 6 runs diverged, 12 of 18 attempts failed`: what a recommendation must not hide."""
    statuses = samples.statuses(point_of(row))
    total = sum(statuses.values())
    counts = [
        f"{count} of {total} runs {status}"
        for status, count in sorted(statuses.items(), key=lambda item: item[0] != RunState.DIVERGED)
        if count and status != "ok"
    ]
    if _is_known(row, "runs_at_target") and (missed := row["runs"] - row["runs_at_target"]):
        counts.append(f"{missed:.0f} of {row['runs']} runs missed the target")
    failed = samples.failed_attempts(point_of(row))
    if failed > statuses[RunState.FAILED]:
        ended = statuses[RunState.OK] + statuses[RunState.DIVERGED]
        counts.append(f"{failed} of {failed + ended} attempts failed")
    return f"; {', '.join(counts)}" if counts else ""


def ineligible_text(ineligible: Sequence[tuple[Row, str]], vary: Sequence[str] = ()) -> str:
    """A sentence that names configurations that are not compared, with reasons; or empty."""
    return not_covered_text([NotCovered(*pair) for pair in ineligible], vary)


def works_of(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Model and recipe → the points that do this work."""
    works: dict[str, list[Row]] = {}
    for row in rows:
        works.setdefault(", ".join(str(row[axis]) for axis in WORK_AXES), []).append(row)
    return works


def _counted(row: Row) -> Counter[str]:
    """How many runs of a point count and diverged."""
    names = {RunState.OK: "runs", RunState.DIVERGED: "runs_diverged"}
    return Counter({status: row[name] for status, name in names.items() if _is_known(row, name)})


def _is_known(row: Row, name: str) -> bool:
    return name in row and is_known(row[name])
