"""The handler of Snakemake's log that prints a sweep in few lines, and signs of life between them.

It is no logger plugin, which would have to be installed before the workflow is read: the workflow
adds it to Snakemake's logger, where it takes the place of the handler that prints. The log file,
and a logger that the user has chosen, stay as they are. If it fails, Snakemake prints again.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TextIO

from tfscaling.console import text_lines
from tfscaling.console.sweep_progress import Job, SweepProgress

#: Name of the handler by which Snakemake prints.
_PRINTER = "DefaultStreamHandler"
_NOTHING = "Nothing to be done"
#: Parts of what is worth reading without being a warning.
_SHOWN = (_NOTHING, "Terminating processes", "Will exit after", "Complete log")
#: Parts of what is not: the command of a job that failed, of which the next record tells, and what
#: the Slurm executor plugin would like to know of each job.
_HIDDEN = (
    *("CalledProcessError in file", "Look above for error messages"),
    *("SLURM account", "job memory information", "wall time information"),
)
#: A sign of life at least so often: a line that says how far it is, or one more dot at its end.
_SIGN_S, _SIGN_TERMINAL_S = 9.5, 5.0
#: Such a line at least so often in the first minutes, then less and less often.
_LINE_S, _LINE_REMOTE_S = 9.5, 60.0
_FIRST_MINUTES_S, _LINE_MAX_S = 300.0, 600.0
_DOT = "."
#: Erases the line of a terminal.
_ERASE = "\r\x1b[2K"


def line_interval_s(elapsed_s: float, is_remote: bool) -> float:
    """After how long the next line says how far a sweep is that has lasted so long; in seconds."""
    least = _LINE_REMOTE_S if is_remote else _LINE_S
    if elapsed_s < _FIRST_MINUTES_S:
        return least
    return max(least, min(elapsed_s / 10.0, _LINE_MAX_S))


class Jobs(Protocol):
    """What Snakemake knows of the jobs of a sweep, as sweep_jobs.SweepJobs has it."""

    @property
    def leave_this_machine(self) -> bool: ...

    def outputs_to_do(self) -> Sequence[str]: ...

    def attempts_left(self, outputs: Sequence[str]) -> int: ...


class Outcome(Protocol):
    """What there is to read of a sweep that is over, as sweep_outcome.SweepOutcome has it."""

    def lines(self, is_partial: bool) -> Sequence[str]: ...

    def has_result(self) -> bool: ...


class Console(logging.Handler):
    """Prints what `sweep` says of Snakemake's records, from the start of a workflow to its end.

    On a terminal a sign of life takes the place of the one before; elsewhere its line stays open
    for the dots that follow."""

    def __init__(self, sweep: SweepProgress, jobs: Jobs, outcome: Outcome) -> None:
        super().__init__()
        self._sweep, self._jobs, self._outcome = sweep, jobs, outcome
        self._stream: TextIO | None = None
        self._is_printing = False
        #: The last line is a status: to be replaced on a terminal, open for dots elsewhere.
        self._status = ""
        self._began_s = self._printed_s = self._line_s = time.monotonic()
        self._seen: set[str] = set()
        self._ended = threading.Event()

    def install(self, logger: logging.Logger) -> None:
        """Take the place of the handler by which Snakemake prints, if there is one."""
        for printer in logger.handlers:
            if printer.name == _PRINTER and isinstance(printer, logging.StreamHandler):
                self._stream = printer.stream
                printer.addFilter(lambda _: not self._is_printing)
                # before it, so that it sees nothing of the record with which this one begins
                logger.handlers.insert(0, self)
                return

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event = str(getattr(record, "event", None) or "")
            if event == "workflow_started":
                self._is_printing = True
                threading.Thread(target=self._signs_of_life, daemon=True).start()
            elif self._is_printing:
                self._record(event, record)
        except Exception as error:
            self._give_up(error)

    def jobs_ended(self) -> None:
        """No job runs any more: no sign of life follows, and others may print."""
        self._ended.set()
        self.acquire()
        try:
            self._end_line()
        finally:
            self.release()

    def end(self, is_partial: bool = False) -> None:
        """The workflow is over: what it took, and what there is to read, of a part if it failed."""
        self.jobs_ended()
        self.acquire()
        try:
            if self._is_printing:
                self._write(self._sweep.failures)
                self._print(self._sweep.end(time.time()))
                self._write(self._outcome.lines(is_partial))
        except Exception as error:
            self._give_up(error)
        finally:
            self.release()

    def close(self) -> None:
        """Snakemake closes its handlers when all is done."""
        self.jobs_ended()
        super().close()

    def _record(self, event: str, record: logging.LogRecord) -> None:
        now_s, fields, sweep = time.time(), record.__dict__, self._sweep
        match event:
            case "run_info":
                outputs, is_remote = self._jobs.outputs_to_do(), self._jobs.leave_this_machine
                self._print(sweep.begin(outputs, now_s, is_remote))
            case "job_info":
                sweep.start(fields["jobid"], _job(fields, fields["rule_msg"], now_s))
            case "job_finished":
                self._print(sweep.finish(fields["job_id"], now_s))
            case "job_error":
                # without the command, which the log file has
                said = str(fields["rule_msg"] or "").partition("sbatch call:")[0].strip()
                job = _job(fields, None, now_s)
                left = self._jobs.attempts_left(job.outputs)
                self._print(sweep.fail(fields["jobid"], job, said, left, now_s))
            case "" | "error":
                self._other(record)

    def _other(self, record: logging.LogRecord) -> None:
        """What is no event of a job: errors, warnings, little else, each once."""
        text = str(record.msg or "")
        is_shown = any(part in text for part in _SHOWN)
        if record.levelno >= logging.WARNING:
            is_shown = not any(part in text for part in _HIDDEN)
        if text in self._seen or not is_shown:
            return
        self._seen.add(text)
        self._write(text_lines.wrapped(text))
        if _NOTHING in text:
            self._write(self._outcome.lines(is_partial=False))
            if not self._outcome.has_result():
                raise SystemExit(1)  # Snakemake calls no onsuccess here

    def _signs_of_life(self) -> None:
        while True:
            silence_s = _SIGN_TERMINAL_S if self._is_terminal else _SIGN_S
            if self._ended.wait(max(0.1, self._printed_s + silence_s - time.monotonic())):
                return
            self.acquire()
            try:
                self._print(self._sweep.new_records(time.time()))
                due = time.monotonic() >= self._printed_s + silence_s
                if due and self._sweep.running and not self._ended.is_set():
                    self._sign_of_life()
                elif due:
                    self._printed_s = time.monotonic()
            except Exception as error:
                self._give_up(error)
            finally:
                self.release()

    @property
    def _is_terminal(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def _sign_of_life(self) -> None:
        """How far the sweep is, or a dot behind what the last line says of it."""
        now_s = time.monotonic()
        has_room = self._status and len(self._status) < text_lines.WIDTH
        interval_s = line_interval_s(now_s - self._began_s, self._jobs.leave_this_machine)
        is_new = now_s < self._line_s + interval_s
        if has_room and is_new and not self._is_terminal:
            self._status += _DOT
            self._put(_DOT)
            return
        line = f"{text_lines.clock(time.time())} {self._sweep.sign_of_life(time.time())}"
        is_terminal = self._is_terminal
        width = shutil.get_terminal_size().columns - 1 if is_terminal else text_lines.WIDTH
        self._end_line()
        # where no run is made, what a rule prints may follow
        self._status = text_lines.cut(line, width) if is_terminal or self._sweep.has_runs else ""
        self._put(self._status or f"{text_lines.cut(line)}\n")
        self._line_s = now_s

    def _print(self, lines: Sequence[str]) -> None:
        """Lines of the sweep with the time."""
        stamp = text_lines.clock(time.time())
        self._write([text_lines.cut(f"{stamp} {line}") for line in lines])

    def _write(self, lines: Sequence[str]) -> None:
        if lines:
            self._end_line()
            self._put("".join(f"{line}\n" for line in lines))

    def _end_line(self) -> None:
        """Nothing more is written on the line of a status."""
        if self._status:
            self._put(_ERASE if self._is_terminal else "\n")
            self._status = ""

    def _put(self, text: str) -> None:
        if self._stream is not None:
            self._stream.write(text)
            self._stream.flush()
            self._printed_s = time.monotonic()

    def _give_up(self, error: Exception) -> None:
        self._is_printing = False
        self._ended.set()
        said = f"the console of this workflow failed ({type(error).__name__}: {error})"
        self._write([text_lines.cut(f"{said}; Snakemake's own lines follow")])


def _job(fields: Mapping[str, Any], message: str | None, now_s: float) -> Job:
    """A job from the fields of a record; `message` is that of the rule."""
    dataset = (fields.get("wildcards") or {}).get("dataset")
    return Job(
        text=f"dataset {dataset}" if dataset else message or fields["rule_name"].replace("_", " "),
        outputs=tuple(fields["output"]),
        logs=tuple(fields["log"]),
        since_s=now_s,
        is_dataset=dataset is not None,
    )


class ShortLines(logging.Formatter):
    """Cuts the lines of another formatter, as of the reasons in a dry-run."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        text = self._formatter.format(record)
        if not text or len(text) <= text_lines.WIDTH:
            return text
        return "\n".join(map(text_lines.clipped, text.split("\n")))


def shorten(logger: logging.Logger) -> None:
    """Let the handler by which Snakemake prints print no line that is longer than others."""
    for printer in logger.handlers:
        if printer.name == _PRINTER and printer.formatter is not None:
            printer.setFormatter(ShortLines(printer.formatter))
