"""The end of a sweep: its table, what its runs took, the answer, and the path of the page."""

from __future__ import annotations

import csv
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tfscaling.console import text_lines
from tfscaling.files import atomic
from tfscaling.record import attempts
from tfscaling.record.run_states import RERUN_STALE, RunState, status_words
from tfscaling.study.manifest import Manifest

#: End of a stale run's reason, which is printed once, with the complete command.
_ADVICE = "; make it again"
#: File of the plan, in the folder of the study.
PLAN = "details/plan.csv"
#: File in the folder of the study that exists while a start reports again that no run counts or a
#: record is broken.
PROBLEMS = "details/problems"
#: Highest number of rows of a table that is printed; longer tables are only on the page.
_ROWS_MAX = 30
#: Highest number of characters of a cell of a table, in place of Python's 131,072: the names of all
#: hosts of a large run are one cell.
_CELL_MAX = 2**31 - 1
#: Narrowest terminal, in columns, for which tables are fitted.
_COLUMNS_MIN = 80


class NewFiles:
    """Detects which files of a folder were written after this object was made.

    Args:
        folder: The folder.
        *names: Names of the files to watch.
    """

    def __init__(self, folder: Path, *names: str) -> None:
        self._folder = folder
        self._before = {name: _modification_time_ns(folder / name) for name in names}

    def has(self, name: str) -> bool:
        """Return whether a file exists and was written since this object was made."""
        return _modification_time_ns(self._folder / name) not in (0, self._before[name])


def _modification_time_ns(path: Path) -> int:
    """Return the modification time of a file in nanoseconds; 0 if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class SweepOutcome:
    """What a sweep has produced: the files of a study's folder and the lines to print at the end.

    Args:
        study: The folder of the study's results.
    """

    def __init__(self, study: Path) -> None:
        self.study, self._files = study, NewFiles(study, "report.html", PROBLEMS, PLAN)

    def has_output(self) -> bool:
        """Return whether this start of Snakemake wrote the page, or the reasons why there is none.

        Reasons are that no run is valid, or that a record is broken; see PROBLEMS.
        """
        return self._files.has("report.html") or self._files.has(PROBLEMS)

    def remove_problems_file(self) -> None:
        """Remove the file PROBLEMS, so that the next start reports the problems again."""
        (self.study / PROBLEMS).unlink(missing_ok=True)

    def lines(self, is_partial: bool = False, columns: int | None = None) -> list[str]:
        """Return the lines to print at the end: table, spent node-hours, answer, path of the page.

        If the sweep was stopped or no run is valid, the reasons replace the answer.

        Args:
            is_partial: Whether the sweep failed: its files are in the folder `partial`.
            columns: The width of the table, by default the terminal's.

        Returns:
            The lines; [] if the page does not exist.
        """
        folder = self.study / "partial" if is_partial else self.study
        page = folder / "report.html"
        if not page.exists():
            return []
        rows = list(_read_rows(folder / "runs.csv"))
        headline = _read_lines(folder / "details/conclusions/headline.md")
        said = _stop_lines(rows) or self._no_result_lines(rows) or headline
        columns = columns or shutil.get_terminal_size((text_lines.WIDTH, 0)).columns
        table = _fit_table(_read_lines(folder / "details/conclusions/console.md"), columns)
        return [*table, *_spent_lines(rows), *said, f"page: {page}"]

    def remove_study_outputs(self, paths: Iterable[str]) -> None:
        """Remove the files and folders in `paths` that are in the study's folder.

        Runs and data are elsewhere and remain.
        """
        for path in map(Path, paths):
            if self.study in path.parents:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def make_partial(
        self, program: Path, config: str, manifest: Manifest, log: str | None = None
    ) -> None:
        """Write tables, plots and page of the finished runs to the folder `partial`.

        Several processes may do so at the same time.

        Args:
            program: The folder of this library.
            config: Text of the configuration's file.
            manifest: The planned runs.
            log: File to which the output is copied, if any.

        Raises:
            OSError: A file cannot be written, as on a full disk.
            subprocess.CalledProcessError: The process that writes them failed.
        """
        self.study.mkdir(parents=True, exist_ok=True)
        with atomic.folder_replacement(self.study / "partial") as folder:
            (details := folder / "details").mkdir()
            # not the outputs of rules: without its memory Snakemake would not notice outdated ones
            atomic.write_text(details / "config.json", config)
            manifest.write(details / "manifest.json")
            command = shlex.join([sys.executable, str(program), "partial", "--study", str(folder)])
            command += f" 2>&1 | tee {shlex.quote(log)}" if log else ""
            subprocess.run(["bash", "-euo", "pipefail", "-c", command], check=True)

    def has_result(self) -> bool:
        """Return whether the table of runs has a valid run.

        If the table is empty or missing, no run is known to be invalid, and the result is True.
        """
        table = self.study / "runs.csv"  # of large studies only the first rows are read
        return any(row["status"] == RunState.OK for row in _read_rows(table)) or not any(
            _read_rows(table)
        )

    def is_plan_refused(self) -> bool:
        """Return whether this start wrote a plan with a configuration that Slurm refuses."""
        if not self._files.has(PLAN):
            return False
        from tfscaling.plan import costed_plan  # loads pandas

        return any(row["starts"] == costed_plan.REFUSED for row in _read_rows(self.study / PLAN))

    @staticmethod
    def _no_result_lines(rows: Sequence[dict[str, str]]) -> list[str]:
        """Return lines on why no run counts and how to rerun stale runs; [] if a run counts."""
        if not rows or any(row["status"] == RunState.OK for row in rows):
            return []
        number = Counter(status_words(row["status"]) for row in rows)
        lines = [f"No valid run: {', '.join(f'{n} {status}' for status, n in number.items())}."]
        if set(number) == {status_words(RunState.MISSING)}:
            lines[0] += " The same command resumes the sweep."
        stale = [row["reason"] for row in rows if row["status"] == RunState.STALE]
        if reasons := Counter(reason.partition(_ADVICE)[0] for reason in stale):
            ((first, _),) = reasons.most_common(1)
            more = text_lines.count_text(len(reasons) - 1, "other reason")
            others = f", and {more}" if len(reasons) > 1 else ""
            lines += [f"Stale: {first}{others}. `{RERUN_STALE}` reruns them."]
        return lines


def _read_rows(table: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV file, column → text; none if the file does not exist."""
    if table.exists():
        csv.field_size_limit(_CELL_MAX)
        with table.open(newline="", encoding="utf-8") as file:
            yield from csv.DictReader(file)


def _read_lines(table: Path) -> list[str]:
    """Return the lines of a text file; [] if it does not exist."""
    return table.read_text().splitlines() if table.exists() else []


def _fit_table(lines: Sequence[str], columns: int) -> list[str]:
    """Return a table without the columns that do not fit the terminal, and the text below it.

    A table with more than _ROWS_MAX rows is left out, with its text.

    Args:
        lines: Lines of the table in Markdown and of the text.
        columns: Width of the terminal.
    """
    rows = [line for line in lines if line.startswith("|")]
    if len(rows) > _ROWS_MAX:
        return []
    width, shown = max(_COLUMNS_MIN, min(text_lines.WIDTH, columns)), []
    for row in rows:
        while len(row) > width:
            row = row.rstrip("|").rpartition("|")[0] + "|"
        shown.append(row)
    return [*shown, *lines[len(rows) :]]


def _spent_lines(rows: Sequence[dict[str, str]]) -> list[str]:
    """Return [line with valid runs, why others are not valid, and node-hours]; [] without runs.

    Args:
        rows: Rows of the table of runs.
    """
    if not rows:
        return []
    valid, found = sum(row["status"] == RunState.OK for row in rows), attempts.sum_node_hours(rows)
    line = f"{valid} of {text_lines.count_text(len(rows), 'run')} valid"
    if valid and (others := _describe_invalid_runs(rows)):
        line += f" ({others})"
    line += f"; {text_lines.format_node_hours(found.node_hours)} spent"
    if found.failed_attempts:
        lost = text_lines.format_node_hours(found.lost_node_hours)
        line += f", {lost} in {text_lines.count_text(found.failed_attempts, 'failed attempt')}"
    return [f"{line}."]


def _describe_invalid_runs(rows: Sequence[dict[str, str]]) -> str:
    """Return the number of runs of each invalid status, each with its most frequent reason."""
    reasons: dict[str, Counter[str]] = {}
    examples: dict[str, str] = {}
    for row in rows:
        if row["status"] != RunState.OK:
            reason = row["reason"].partition(_ADVICE)[0]
            cause = text_lines.cause_key(reason)
            examples.setdefault(cause, reason)
            reasons.setdefault(row["status"], Counter())[cause] += 1
    texts = []
    for status, found in reasons.items():
        ((cause, _),) = found.most_common(1)
        first = examples[cause]
        others = f", and {text_lines.count_text(len(found) - 1, 'other reason')}" * (len(found) > 1)
        rerun = f"; `{RERUN_STALE}` reruns them" * (status == RunState.STALE)
        texts.append(f"{found.total()} {status_words(status)}: {first}{others}{rerun}")
    return "; ".join(texts)


def _stop_lines(rows: Sequence[dict[str, str]]) -> list[str]:
    """Return [line] if the sweep was stopped: runs were cancelled and none failed; else []."""
    reasons = [row["reason"] for row in rows if row["status"] == RunState.FAILED]
    if not reasons or not all(reason.startswith("cancelled: ") for reason in reasons):
        return []
    runs = text_lines.count_text(len(reasons), "run")
    return [f"Stopped: {runs} cancelled. The same command resumes the sweep."]
