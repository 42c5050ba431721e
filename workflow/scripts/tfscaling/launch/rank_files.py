"""The files of ranks in an attempt's folder: logs, reports, events.

The launcher writes events and reports of the ranks that have a connection; others write their own.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from tfscaling.files import log_files
from tfscaling.record import run_record
from tfscaling.record.rank_report import RankReport

#: Number of lines at the end of a rank's log that a failure report has.
LAST_LINES = 30
#: File with the reports of ranks that have a connection, one a line.
REPORTS = "ranks.reports.jsonl"


def rank_log(folder: Path, rank: int | str) -> Path:
    """Return the path of a rank's log.

    Args:
        folder: The attempt's folder.
        rank: The rank; `%t` in a path for srun, which replaces it by the rank.
    """
    return folder / f"rank-{rank}.log"


def last_lines(log: Path, count: int = LAST_LINES) -> tuple[str, ...]:
    """Return up to `count` lines at the end of a log; () if the log does not exist."""
    return log_files.last_lines(log, count)


def report_path(folder: Path, rank: int) -> Path:
    """Return the path of the report that a rank without a connection to the launcher writes."""
    return folder / f"rank-{rank}.json"


def events_path(folder: Path, rank: int) -> Path:
    """Return the path of the events that a rank without a connection to the launcher writes."""
    return folder / f"rank-{rank}.events.jsonl"


def observed_path(folder: Path, rank: int) -> Path:
    """Return the path of the file to which a user's program writes its events itself."""
    return folder / f"rank-{rank}.observed.jsonl"


def make_temporary_folder(folder: Path) -> Path:
    """Make a private folder for this rank's temporary files, which Python's `tempfile` then uses.

    TensorFlow writes the code of each compiled function to a temporary file, and removes it only
    when Python ends in the usual way, which a rank does not.

    Args:
        folder: The attempt's folder.

    Raises:
        OSError: No folder can be made.
    """
    tempfile.tempdir = None  # a process from which this one was forked may have had another TMPDIR
    tempfile.tempdir = tempfile.mkdtemp(prefix=_temporary_prefix(folder))
    return Path(tempfile.tempdir)


def remove_temporary_folders(folder: Path, temporary: str) -> None:
    """Remove the temporary folders that killed ranks of an attempt have left on this host.

    Args:
        folder: The attempt's folder.
        temporary: The folder in which they are, such as /tmp.
    """
    for each in Path(temporary).glob(f"{_temporary_prefix(folder)}*"):
        shutil.rmtree(each, ignore_errors=True)


def _temporary_prefix(folder: Path) -> str:
    """Return the prefix of the names of the temporary folders that an attempt's ranks make."""
    return f"tfscaling-{hashlib.sha256(bytes(folder.resolve())).hexdigest()[:12]}-"


_REPORT: type[RankReport] = RankReport  # type: ignore[assignment]  # a union is no class


def read_reports(folder: Path) -> list[RankReport]:
    """Read the reports of all ranks of an attempt, by ascending rank.

    Raises:
        RecordError: A report is damaged.
    """
    path = folder / REPORTS
    lines = path.read_bytes().splitlines() if path.exists() else []
    found = [run_record.parse_record(line, path, _REPORT) for line in lines]
    alone = (run_record.read_as(path, _REPORT) for path in folder.glob("rank-*.json"))
    by_rank = {report.rank: report for report in (*found, *alone) if report is not None}
    return [by_rank[rank] for rank in sorted(by_rank)]
