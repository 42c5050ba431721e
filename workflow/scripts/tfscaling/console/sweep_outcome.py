"""What a sweep that is over leaves to read, and what to do where no run of it counts."""

from __future__ import annotations

import csv
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tfscaling.console import text_lines
from tfscaling.records.run_states import FINISHED, RERUN_STALE, RunState
from tfscaling.sweep.sweep_jobs import SweepJobs

#: What of a reason says what to do, which is said once and whole.
_ADVICE = "; make it again"


class _Row(NamedTuple):
    """Of a run in the table of runs."""

    status: str
    reason: str


@dataclass(frozen=True)
class SweepOutcome:
    """`study` is the folder of its results, `command` the words by which snakemake was started."""

    study: str
    jobs: SweepJobs
    command: Sequence[str]

    def lines(self, is_partial: bool) -> list[str]:
        """The headline of the study, or why no run counts, and the path of its page.

        Of what has finished if the sweep failed. Nothing where the page was not asked for.
        """
        folder = Path(self.study, "partial") if is_partial else Path(self.study)
        page, headline = folder / "report.html", folder / "tables/headline.md"
        if not self.jobs.makes(f"{self.study}/report.html") or not page.exists():
            return []
        said = self._without_result(folder)
        if not said and headline.exists():
            said = headline.read_text().splitlines()
        return [*said, f"page: {page}"]

    def has_result(self) -> bool:
        """Whether a run counts, or has diverged; True where the table of runs was not asked for."""
        table = f"{self.study}/tables/runs.csv"
        rows = _rows(Path(table)) if self.jobs.makes(table) else []
        return not rows or _is_result(rows)

    def is_plan_refused(self) -> bool:
        """Whether a plan was asked for, and Slurm refuses a point of it."""
        if not self.jobs.makes(f"{self.study}/logs/plan.log"):
            return False
        from tfscaling.sweep import plan_rows  # loads pandas

        with Path(self.study, "plan.csv").open(newline="", encoding="utf-8") as file:
            return any(row["starts"] == plan_rows.REFUSED for row in csv.DictReader(file))

    def _without_result(self, folder: Path) -> list[str]:
        """That no run counts and why, and how stale ones are made again; nothing if one does."""
        rows = _rows(folder / "tables/runs.csv")
        if not rows or _is_result(rows):
            return []
        number = Counter(row.status for row in rows)
        states = ", ".join(f"{count} {status}" for status, count in number.items())
        lines = [f"No valid run: {states}."]
        reasons = Counter(r.reason.partition(_ADVICE)[0] for r in rows if r.status == _STALE)
        if reasons:
            ((first, _),) = reasons.most_common(1)
            others = f", and {len(reasons) - 1} other reasons" if len(reasons) > 1 else ""
            lines += text_lines.wrapped(f"Stale: {first}{others}. To make them again:")
            lines += command_lines(again(self.command))
        return lines


_STALE = RunState.STALE.value


def _rows(table: Path) -> list[_Row]:
    try:
        with table.open(newline="", encoding="utf-8") as file:
            return [_Row(row["status"], row["reason"]) for row in csv.DictReader(file)]
    except OSError:
        return []


def _is_result(rows: Sequence[_Row]) -> bool:
    return any(row.status in FINISHED for row in rows)


def again(command: Sequence[str]) -> list[str]:
    """The command that makes stale runs again, from the one by which snakemake was started."""
    program, *words = command
    folder = os.path.relpath(program)
    program = "snakemake" if folder.startswith(os.pardir) else folder
    option, value = RERUN_STALE.split()
    given = [place for place, word in enumerate(words) if word in (option, "-C")]
    if not given:
        return [program, *words, option, value]
    place = given[-1] + 1  # of several, Snakemake takes the last
    return [program, *words[:place], value, *words[place:]]


def command_lines(words: Sequence[str]) -> list[str]:
    """The command for a shell in lines that are not too long."""
    lines = ["  "]
    for word in map(shlex.quote, words):
        if len(lines[-1]) + len(word) + 2 > text_lines.WIDTH and lines[-1].strip():
            lines[-1] += "\\"
            lines.append("    ")
        lines[-1] += f"{word} "
    return [line.rstrip() for line in lines]
