"""Logger plugin of Snakemake: the progress of a sweep in few lines.

The workflow gives its `Sweep` as the attribute `sweep` of log records. The plugin passes each event
of a job to it and prints the lines that it returns; a record that has the attribute is printed as
it is. Warnings and errors are printed once. In a dry-run the `Sweep` gets all jobs at the end.
Everything is printed as by Snakemake itself while no record has named a sweep, and with --verbose,
--debug-dag, --printshellcmds or --quiet.

An error of the configuration is printed alone, without Snakemake's lines around it. If Snakemake
cannot read a file of --configfile, the workflow's program CHECK explains it, with the line.
"""

from __future__ import annotations

import argparse
import logging
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

#: Highest number of columns of a line on a terminal; a longer word, such as a path, stays in one
#: piece. Lines of a log are as long as their text, so that grep finds it.
WIDTH = 100
#: Path of the program that prints what is wrong with configuration files, from the folder of the
#: Snakefile or its parent.
CHECK = "workflow/scripts/check_config.py"
#: Pattern of an error that the workflow's own rules raise: its place, the message, and Snakemake's
#: traceback.
_RAISED = re.compile(
    r'WorkflowError in file "[^"]+", line \d+:\n(.*?)(?:\n  File "[^"]+".*)?', re.DOTALL
)
#: Parts of Snakemake's errors about files of --configfile.
_UNREADABLE = ("Config file is not valid", "Config file must be given", "in _load_configfile")
#: Part of a line that Snakemake prints before each error of a configuration.
_EXTENDED = "is extended by additional config"
#: Control characters except tab, and characters of direction. Texts of programs, Slurm and logs
#: have them (`--show-failed-logs`); they would change the terminal.
_HIDDEN = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
#: Seconds between two looks at the running jobs; and the shortest and longest time between two
#: lines about them where there is no terminal: a tenth of the elapsed time between these bounds.
PERIOD_S, LINE_MIN_S, LINE_MAX_S = 5.0, 60.0, 600.0
JOB_EVENTS = (LogEvent.JOB_INFO, LogEvent.JOB_FINISHED, LogEvent.JOB_ERROR)
NOTHING = "Nothing to be done"
#: Beginning of Snakemake's last message in a dry-run.
DRY_RUN = "This was a dry-run"
ALL_JOBS = "With --printshellcmds Snakemake lists each job, its resources and its reason."
#: Beginnings of messages at level INFO that are printed, in sweeps and for other commands.
SHOWN = (
    *(NOTHING, "Terminating processes", "Will exit after", "Unlock", "Creating report"),
    *("Report created", "Deleting ", "Would delete "),
)
#: Parts of warnings and errors that are not printed: they repeat the sweep's own lines, or are the
#: executor plugin's remarks on each job.
HIDDEN = (
    *("CalledProcessError in file", "Exiting because a job execution failed"),
    *("At least one job did not complete", "SLURM account", "--keep-incomplete mode is set"),
    *("job memory information", "wall time information"),
)


class Sweep(Protocol):
    """Object of the workflow that turns Snakemake's events into lines for this plugin to print.

    Attributes:
        is_over: Whether the sweep has ended; the plugin then prints no status of running jobs.
    """

    is_over: bool

    def on_event(self, event: str, fields: Mapping[str, Any], now_s: float) -> list[str]:
        """Return the lines to print for an event of a job.

        Args:
            event: Name of Snakemake's event.
            fields: Fields of Snakemake's log record.
            now_s: Present time in seconds since the epoch.
        """

    def poll(self, now_s: float) -> list[str]:
        """Return lines about runs that have ended or restarted without an event of Snakemake."""

    def status(self, now_s: float) -> str:
        """Return one line about the running jobs; "" if none is running."""

    def result_lines(self) -> list[str]:
        """Return the lines about the results to print if Snakemake has nothing to do."""

    def preview(self, jobs: list[Mapping[str, Any]]) -> list[str]:
        """Return the lines of a dry-run; each job has the fields of Snakemake's log record."""


def simplify_error(text: str, arguments: Sequence[str]) -> str:
    """Return an error of the configuration without the lines that Snakemake adds to it.

    If a configuration file cannot be read, the error is the message of the workflow's check
    program. Other errors are returned unchanged.

    Args:
        text: The error as Snakemake prints it.
        arguments: Words of Snakemake's command line, which name the configuration files.
    """
    if any(part in text for part in _UNREADABLE):
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--configfile", "--configfiles", nargs="+", default=[])
        parser.add_argument("--snakefile", "-s", type=Path, default=Path("Snakefile"))
        given, _ = parser.parse_known_args(arguments)
        programs = [folder / CHECK for folder in given.snakefile.absolute().parents[:2]]
        program = next((each for each in programs if each.is_file()), None)
        if program and given.configfile:  # else a profile names the files
            command = [sys.executable, str(program), *given.configfile]
            check = subprocess.run(command, capture_output=True, text=True, check=False)
            explained = check.stderr.strip()
            return explained if len(explained.splitlines()) == 1 else text
    raised = _RAISED.fullmatch(text.strip())
    return raised[1] if raised else text


def wrap_text(text: str, width: int | None = WIDTH) -> list[str]:
    """Return a text as lines of at most `width` columns; None: unlimited.

    Table rows and indented lines are not wrapped.
    """
    if width is None:
        return text.splitlines()
    how = textwrap.TextWrapper(
        width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    lines = text.splitlines()
    return [
        part for row in lines for part in ([row] if row.startswith(("|", "  ")) else how.wrap(row))
    ]


class LogHandler(LogHandlerBase):
    """Log handler of Snakemake that prints the lines which the workflow's `Sweep` returns.

    On a terminal the last line is the sweep's status, which is updated.
    """

    def __post_init__(self) -> None:
        """Prepare the handler from Snakemake's settings of output; Snakemake calls this once."""
        from rich.console import Console  # not for the many snakemake processes of jobs
        from rich.live import Live

        given = self.common_settings
        stream = sys.stdout if given.stdout else sys.stderr
        self._console = Console(
            file=stream, no_color=given.nocolor, highlight=False, markup=False, emoji=False
        )
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._is_plain = bool(
            given.verbose or given.debug_dag or given.printshellcmds or given.quiet
        )
        self._sweep: Sweep | None = None
        #: Of a dry-run.
        self._jobs: list[Mapping[str, Any]] = []
        #: What Snakemake said before the workflow could name a sweep.
        self._early: list[logging.LogRecord] = []
        self._seen: set[str] = set()
        self._ended = threading.Event()
        self._began_s = self._line_s = time.monotonic()

    writes_to_stream = True
    writes_to_file = has_filter = has_formatter = needs_rulegraph = False

    def emit(self, record: logging.LogRecord) -> None:
        """Print a log record; after an error in this plugin, print records as Snakemake does."""
        try:
            self._handle_record(record)
        except Exception as error:
            self._is_plain = True
            said = f"{type(error).__name__}: {error}"
            self._print([f"the logger plugin sweep failed ({said}); Snakemake's own lines follow"])

    def close(self) -> None:
        """Stop updating the status."""
        self._ended.set()
        self._live.stop()
        super().close()

    def _handle_record(self, record: logging.LogRecord) -> None:
        """Print a record, or pass its event to the sweep and print the returned lines."""
        sweep, event = getattr(record, "sweep", None), getattr(record, "event", None)
        if sweep is not None and self._sweep is None and not self._is_plain:
            self._sweep = sweep
            if self.common_settings.dryrun:
                return
            threading.Thread(target=self._update_status, args=(sweep,), daemon=True).start()
        text = str(record.msg or "")
        if self._is_plain:
            self._print_plain(record)
        elif self._sweep is None:
            self._early.append(record)
            if event == LogEvent.WORKFLOW_STARTED or record.levelno >= logging.WARNING:
                self._is_plain = event == LogEvent.WORKFLOW_STARTED
                for early in self._early:
                    self._print_early(early)
                self._early.clear()
        elif sweep is not None:
            self._print(wrap_text(text, self._width))
        elif self.common_settings.dryrun and event == LogEvent.JOB_INFO:
            self._jobs.append(record.__dict__)
        elif text.startswith(DRY_RUN):
            self._print(wrap_text("\n".join(self._sweep.preview(self._jobs)), self._width))
            self._print([f"{DRY_RUN}: nothing was started. {ALL_JOBS}"])
        elif event in JOB_EVENTS:
            self._print_now(self._sweep.on_event(str(event), record.__dict__, time.time()))
        elif event in (None, LogEvent.ERROR) and self._is_to_print(text, record.levelno):
            self._print(
                wrap_text(text, self._width), "yellow" * (record.levelno >= logging.WARNING)
            )
            if text.startswith(NOTHING) and not self.common_settings.dryrun:
                self._print(wrap_text("\n".join(self._sweep.result_lines()), self._width))

    def _print_early(self, record: logging.LogRecord) -> None:
        """Print a record that came before the sweep was known to this plugin.

        An error of the configuration is printed without the lines that Snakemake adds to it.
        """
        text = str(record.msg or "")
        if record.levelno < logging.ERROR:
            if _EXTENDED not in text:
                self._print_plain(record)
        elif (explained := simplify_error(text, sys.argv[1:])) != text:
            self._print(wrap_text(explained, self._width), "red")
        else:
            self._print_plain(record)

    def _print_plain(self, record: logging.LogRecord) -> None:
        """Print a record as Snakemake does; in a dry-run, long lines are cut."""
        text = self.format(record) or ""
        if getattr(record, "event", None) == LogEvent.JOB_INFO:
            text = f"\n{text}"
        is_cut = self.common_settings.dryrun and record.levelno < logging.WARNING
        longest = 200 if is_cut else len(text)
        cut = (line if len(line) <= longest else line[:199] + "…" for line in text.splitlines())
        self._print(cut)

    def _is_to_print(self, text: str, level: int) -> bool:
        """Return whether to print a message that is not about a job; False if it came before.

        Args:
            text: The message.
            level: Its level in `logging`.
        """
        counts = text.startswith(SHOWN)
        if level >= logging.WARNING:
            counts = not any(part in text for part in HIDDEN)
        is_new = counts and text not in self._seen
        self._seen.add(text)
        return is_new

    def _update_status(self, sweep: Sweep) -> None:
        """Print ended runs and the status of running jobs periodically, until Snakemake ends.

        This is a thread's function.
        """
        while not self._ended.wait(PERIOD_S):
            with self.lock:  # type: ignore[union-attr]  # emit has it, too
                try:
                    self._print_now(sweep.poll(time.time()))
                    self._print_status("" if sweep.is_over else sweep.status(time.time()))
                except Exception as error:
                    self._print([f"no more progress: {type(error).__name__}: {error}"])
                    return

    def _print_status(self, status: str) -> None:
        """Print the status: as the terminal's last line, else as lines at growing intervals."""
        line = f"{time.strftime('%H:%M:%S')} {status}"
        width = self._width
        if width is not None and len(line) >= width:
            line = line[: width - 2] + "…"
        now_s = time.monotonic()
        interval_s = min(LINE_MAX_S, max(LINE_MIN_S, (now_s - self._began_s) / 10))
        if not status:
            self._live.stop()
        elif self._console.is_terminal:
            self._live.start()
            self._live.update(line, refresh=True)
        elif now_s >= self._line_s + interval_s:
            self._print([line])

    @property
    def _width(self) -> int | None:
        """Width of the terminal in columns, at most WIDTH; None without a terminal."""
        return min(WIDTH, self._console.width) if self._console.is_terminal else None

    def _print_now(self, lines: Iterable[str]) -> None:
        """Print lines with the time of day."""
        now = time.strftime("%H:%M:%S")
        for line in lines:
            self._print(wrap_text(f"{now} {line}", self._width), "red" * (" FAILED " in line))

    def _print(self, lines: Iterable[str], style: str = "") -> None:
        """Print lines in a colour, with control characters written out.

        Args:
            lines: The lines.
            style: The terminal's code of the colour; "" for none.
        """
        self._live.stop()
        for line in lines:
            shown = _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), line)
            self._console.print(shown, style=style or None, soft_wrap=True)
            self._line_s = time.monotonic()
