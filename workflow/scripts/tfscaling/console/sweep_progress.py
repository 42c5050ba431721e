"""The state of a sweep, from Snakemake's events and the files of its runs, and lines about it.

The logger plugin `sweep` feeds the state and prints the lines. Moments are seconds since the epoch.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfscaling.console import text_lines
from tfscaling.console.sweep_outcome import NewFiles
from tfscaling.files import atomic
from tfscaling.files.outside_text import make_visible, shorten
from tfscaling.plan import retries
from tfscaling.record import attempts, events, metrics, run_record, step_estimates
from tfscaling.record.attempts import Cause
from tfscaling.record.events import Event, EventName
from tfscaling.record.run_record import DoesNotFit, RunRecord
from tfscaling.study.config_types import Quality
from tfscaling.study.run_spec import RunSpec

#: Beginning of a script's error message.
_ERROR = "ERROR: "
#: Number of failures with one cause that are printed each; of further ones, only each power of ten.
_PRINTED_FAILURES = 3


@dataclass
class RunProgress:
    """Progress of one attempt at a run, from its events; `update` reads new ones.

    Attributes:
        spec: The run.
        scratch: The folder of the attempt, from `attempts.attempt_folder`; its ranks write their
            events there.
        started_s: When the first rank began, in seconds since the epoch by its host's clock; None
            before.
        activity: What the first rank does, in words.
        loss: Last loss; None before the first epoch.
        end_s: Estimated end of the training at the pace since its first step, in seconds since the
            epoch; None while unknown.
    """

    spec: RunSpec
    scratch: Path
    started_s: float | None = None
    activity: str = "starting"
    loss: float | None = None
    end_s: float | None = None
    _trains_s: float = math.nan
    _read: dict[str, int] = field(default_factory=dict)

    def update(self) -> None:
        """Read the events that were written since the last call."""
        for name in (events.RANKS_EVENTS, "rank-0.events.jsonl", "rank-0.observed.jsonl"):
            found, self._read[name] = events.read_new_events(
                self.scratch / name, self._read.get(name, 0)
            )
            for event in found:
                if event.rank == 0:
                    self._on_event(event)

    def _on_event(self, event: Event) -> None:
        """Update the progress by an event of the first rank."""
        recipe, details = self.spec.recipe, event.details
        if self.started_s is None:
            self.started_s = self._trains_s = event.time_s
        self.activity = (
            "the program runs" if recipe.program else event.name.next_step or self.activity
        )
        if event.name is EventName.FIRST_STEP:
            self._trains_s = event.time_s
        elif event.name is EventName.EPOCH:
            done = details["epoch"]
            self.activity = f"epoch {min(done + 1, recipe.epochs)}/{recipe.epochs}"
            self.loss = details.get("loss", details.get("metrics", {}).get("loss", self.loss))
            trained_s = event.time_s - self._trains_s
            self.end_s = self._trains_s + trained_s * max(1.0, recipe.epochs / done)


@dataclass
class Job:
    """A job that Snakemake has started or submitted.

    Attributes:
        text: What the job does, in words.
        outputs: Its output files; for a run the first one is the record.
        logs: Its logs.
        since_s: When it was started or submitted, in seconds since the epoch.
        spec: The run; None for other jobs.
        earlier: Number of the newest attempt when the job was started or submitted; 0 without one.
        attempt: Number of the attempt whose events are read.
        progress: Progress of this attempt; None before it begins.
        is_end_printed: Whether the line about the job's end was printed before Snakemake noticed
            the end.
        shown_s: When the status line last showed this job, in seconds since the epoch.
    """

    text: str
    outputs: tuple[str, ...]
    logs: tuple[str, ...]
    since_s: float
    spec: RunSpec | None = None
    earlier: int = 0
    attempt: int = 0
    progress: RunProgress | None = None
    is_end_printed: bool = False
    shown_s: float = 0.0

    def __post_init__(self) -> None:
        """Follow the newest attempt, if the job is a run."""
        if self.spec is not None:
            self.earlier = self.newest
            self.follow_attempt(self.earlier)

    def follow_attempt(self, attempt: int) -> None:
        """Follow an attempt: only a record or failure report that is written later belongs to it.

        Args:
            attempt: Number of the newest attempt; 0 without one.
        """
        self.attempt = attempt
        names = (self.record.name, run_record.FAILURE)
        self._files = NewFiles(self.record.parent, *names)

    @property
    def newest(self) -> int:
        """Number of the newest attempt; 0 without one."""
        return max(attempts.attempt_numbers(self.record.parent), default=0)

    @property
    def record(self) -> Path:
        """The file of the run's record."""
        return Path(self.outputs[0])

    @property
    def has_record(self) -> bool:
        """Whether the record was written since the attempt began."""
        return self._files.has(self.record.name)

    @property
    def has_ended(self) -> bool:
        """Whether the run has a new record or a new failure report."""
        return self.has_record or self._files.has(run_record.FAILURE) or self.cause is not None

    @property
    def cause(self) -> Cause | None:
        """Why this job has failed; None if it has no failure report.

        The report names its attempt, because an attempt may begin and fail between two calls.
        """
        if self.spec is None:
            return None
        with contextlib.suppress(run_record.RecordError):
            failure = attempts.read_failure(self.record.parent)
            first = max(self.attempt, self.earlier + 1)
            if failure and (failure.attempt >= first or self._files.has(run_record.FAILURE)):
                return failure.cause
        return None


@dataclass
class SweepProgress:
    """The state of a sweep, updated by Snakemake's events, and the lines to print about it.

    Attributes:
        study: Name of the study.
        result_lines: Returns the lines to print if no run is due.
        preview: Returns the lines of a dry-run; its argument has the fields of Snakemake's log
            record for each job.
        is_remote: Whether jobs are submitted to Slurm, which enforces time limits.
        retries: How often Snakemake retries a failed job.
        gives_up: Whether the executor does not retry runs that would fail again.
        due: Record file → run, for the runs to do, conditional runs included.
        has_optional_runs: Whether some of the `due` runs may prove unnecessary.
        is_over: Whether the sweep has ended.
        finished: Record files of finished runs.
        failures: Output file → how often its job has failed.
        failed: Output files whose job has failed and is not tried again.
        other_failures: Lines about failed jobs other than runs.
        causes: (how the job of a run ended, its cause) → how often.
        jobs: Snakemake's id → running job.
    """

    study: str
    result_lines: Callable[[], Sequence[str]]
    preview: Callable[[Sequence[Mapping[str, Any]]], list[str]]
    is_remote: bool = False
    retries: int = 0
    gives_up: bool = False
    due: dict[str, RunSpec] = field(default_factory=dict)
    has_optional_runs: bool = False
    is_over: bool = False
    finished: set[str] = field(default_factory=set)
    failures: Counter[str] = field(default_factory=Counter)
    failed: set[str] = field(default_factory=set)
    other_failures: list[str] = field(default_factory=list)
    causes: Counter[tuple[str, str]] = field(default_factory=Counter)
    jobs: dict[int, Job] = field(default_factory=dict)
    _specs: Mapping[str, RunSpec] = field(default_factory=dict)
    _axes: tuple[str, ...] = ()

    def begin(
        self, specs: Mapping[str, RunSpec], due: Mapping[str, RunSpec], has_optional_runs: bool
    ) -> str:
        """Store the runs of a sweep that starts; return a line about them, or "" if none is due.

        Args:
            specs: All runs of the study, by output file.
            due: Runs of this start, by output file.
            has_optional_runs: Whether some of the `due` runs may prove unnecessary.
        """
        self._specs, self.due, self.has_optional_runs = specs, dict(due), has_optional_runs
        self._axes = text_lines.axes_to_show([spec.axes for spec in specs.values()])
        at_most = "at most " * has_optional_runs
        return (
            f"study {self.study}: {at_most}{text_lines.count_text(len(due), 'run')} to do"
            * bool(due)
        )

    def on_event(self, event: str, fields: Mapping[str, Any], now_s: float) -> list[str]:
        """Update the state by an event of Snakemake and return the lines to print.

        Args:
            event: Name of the event.
            fields: Fields of Snakemake's log record.
            now_s: Present time in seconds since the epoch.
        """
        if event == "job_info":
            self.jobs[fields["jobid"]] = self._make_job(fields, now_s)
            return []
        if event == "job_finished":
            job = self.jobs.pop(fields["job_id"], None)
            return [] if job is None or job.is_end_printed else self._finish(job, now_s)
        job = self.jobs.pop(fields["jobid"], None)
        job = job or self._make_job({**fields, "rule_msg": None}, now_s)
        # without the command, which the log file has
        return self._fail(job, str(fields["rule_msg"] or "").partition("sbatch call:")[0].strip())

    def poll(self, now_s: float) -> list[str]:
        """Return lines about runs that finished or restarted before Snakemake noticed it.

        Args:
            now_s: Present time in seconds since the epoch.
        """
        lines = []
        for job in self.jobs.values():
            if job.spec is not None and not job.is_end_printed:
                lines += self._finish(job, now_s) if job.has_record else self._follow(job)
        return lines

    def status(self, now_s: float) -> str:
        """Return one line about running jobs; "" if no job is running.

        Successive calls show the running runs in turn.

        Args:
            now_s: Present time in seconds since the epoch.
        """
        runs = [job for job in self.jobs.values() if job.spec and not job.has_ended]
        started = [job for job in runs if job.progress and job.progress.started_s is not None]
        if started:
            job = min(started, key=lambda job: job.shown_s)
            job.shown_s = now_s
            assert job.progress
            state = self._describe_state(job.progress, now_s)
            line = f"{self._progress_count()} {self._run_name(job)}: {state}"
        elif runs and self.is_remote:
            waits = text_lines.format_duration(now_s - min(job.since_s for job in runs))
            line = f"{self._progress_count()} no run has started; waiting for {waits}"
        elif runs:
            line = f"{self._progress_count()} {self._run_name(runs[0])}: starting"
        elif others := [job for job in self.jobs.values() if job.spec is None]:
            line = f"{others[0].text}: {text_lines.format_duration(now_s - others[0].since_s)}"
        else:
            return f"{self._progress_count()} waiting for Snakemake" if self.jobs else ""
        if len(runs) > 1:
            line += f"; {len(started)} running, {len(runs) - len(started)} waiting"
        return line

    def _make_job(self, fields: Mapping[str, Any], now_s: float) -> Job:
        """Return the job that an event of Snakemake describes.

        Args:
            fields: Fields of Snakemake's log record.
            now_s: Present time in seconds since the epoch.
        """
        dataset = (fields.get("wildcards") or {}).get("dataset")
        outputs = tuple(map(str, fields["output"]))
        spec = self._specs.get(outputs[0]) if outputs else None
        if spec is not None:
            self.due.setdefault(outputs[0], spec)
            self.failed.discard(outputs[0])
        text = fields["rule_msg"] or str(fields["rule_name"]).replace("_", " ")
        text = f"dataset {dataset}" if dataset else text
        return Job(text, outputs, tuple(map(str, fields["log"])), now_s, spec)

    def _finish(self, job: Job, now_s: float) -> list[str]:
        """Count a finished job and return [line about its result]; [] if it was printed before.

        Args:
            job: The job.
            now_s: Present time in seconds since the epoch.
        """
        job.is_end_printed = True
        result = f"done in {text_lines.format_duration(now_s - job.since_s)}"
        if job.spec is None:
            return [f"{job.text}: {result}"] if job.text.startswith("dataset ") else []
        self.finished.add(job.outputs[0])
        try:
            record = run_record.read_outcome(job.record)
            if isinstance(record, DoesNotFit):
                result = f"does not fit in memory: {shorten(record.reason, job.record)}"
            elif record is not None:
                result = shorten(_describe_result(record, job.spec.recipe.quality), job.record)
        except run_record.RecordError as error:
            result = str(error)
        return [f"{self._progress_count()} {self._run_name(job)}: {result}"]

    def _fail(self, job: Job, message: str) -> list[str]:
        """Count a failed job and return [line about its cause]; [] if nothing new is to be printed.

        Args:
            job: The job.
            message: Snakemake's message about it; "" without one.
        """
        key = job.outputs[0] if job.outputs else job.text
        self.failures[key] += 1
        number, cause = self.failures[key], job.cause
        left = max(0, self.retries + 1 - number)
        if self.gives_up and cause and retries.is_permanent(cause):
            left = 0
        why = cause.sentence if cause else make_visible(message or _find_error(job.logs))
        if cause is None and job.spec is not None:
            report = job.record.with_name(run_record.FAILURE)
            if problem := atomic.find_write_problem(report):
                why = f"its failure report cannot be written: {problem}"
        name = self._run_name(job) if job.spec else job.text
        if left:
            line = f"attempt {number} of {number + left} failed, retrying: {name}: {why}"
            return self._count_cause("retrying", why, line)
        of = f" after {number} attempts" if number > 1 else ""
        word = "stopped" if cause and cause.kind == "cancelled" else "FAILED"
        line = f"{word} {name}{of}: {why}"
        if job.spec is not None:
            self.failed.add(key)
            return self._count_cause(word, why, line)
        line += f" (log: {job.logs[0]})" if job.logs else ""
        self.other_failures.append(line)
        return [line]

    def _count_cause(self, end: str, why: str, line: str) -> list[str]:
        """Count a failed run by its cause, and return the lines to print.

        For the first failures with a cause, the result is `line`. Later ones, which may be
        thousands, are only counted, and the number is printed at 10, 100, 1,000, … Each is
        documented elsewhere: a failed run has a row in runs.csv and on the page, a retried attempt
        has a failure.json.

        Args:
            end: How its job ended: `FAILED`, `stopped` or `retrying`.
            why: Its cause as a sentence.
            line: The complete line about it.
        """
        self.causes[end, text_lines.cause_key(why)] += 1
        number = self.causes[end, text_lines.cause_key(why)]
        if number < _PRINTED_FAILURES:
            return [line]
        if number == _PRINTED_FAILURES:
            is_repeated = end == "retrying"
            where = "attempt=<n>/failure.json has" if is_repeated else "runs.csv and the page have"
            return [line, f"further runs with this cause are only counted; {where} each"]
        is_power_of_ten = number == 10 ** (len(str(number)) - 1)
        return [f"{end}: {number:,} times so far, for one cause: {why}"] * is_power_of_ten

    def _follow(self, job: Job) -> list[str]:
        """Read the newest attempt of a job; return [line] if Slurm restarted the job, else []."""
        folder, lines = job.record.parent, []
        if (newest := job.newest) > job.attempt:
            if job.progress is not None:
                lost = f"attempt {job.attempt} was lost; Slurm started attempt {newest}"
                lines = [f"{self._run_name(job)}: {lost}"]
            job.follow_attempt(newest)
            if job.spec is not None:
                job.progress = RunProgress(job.spec, attempts.attempt_folder(folder, newest))
        if job.progress is not None:
            job.progress.update()
        return lines

    def _progress_count(self) -> str:
        """Return the numbers of finished and of due runs as text: `[3/12]`."""
        separator = " of at most " if self.has_optional_runs else "/"
        return f"[{len(self.finished)}{separator}{len(self.due)}]"

    def _run_name(self, job: Job) -> str:
        """Return the name of a job's run in words, or what another job does."""
        assert job.spec is not None
        return text_lines.run_name(job.spec.axes, self._axes)

    def _describe_state(self, run: RunProgress, now_s: float) -> str:
        """Return what a run does now, its loss and its estimated end, in words.

        Args:
            run: Progress of the run.
            now_s: Present time in seconds since the epoch.
        """
        words = [run.activity] if run.loss is None else [run.activity, f"loss {run.loss:.3g}"]
        if run.end_s is not None and run.end_s > now_s:
            words.append(f"ends about {text_lines.format_time(run.end_s, now_s)}")
        return ", ".join(words)


def _describe_result(record: RunRecord, quality: Quality) -> str:
    """Return how a run ended in words: execution time, loss, and quality.

    Args:
        record: The record of the run.
        quality: The recipe's metric of quality.
    """
    if record.validity.reason:
        return record.validity.reason
    if (short := record.short_run) and (whole := step_estimates.project_training(record)):
        time_s = whole.phases.execution_time_s
        steps = f"{short.steps:,} of {short.steps_of_whole:,} steps"
        return f"done, {steps}; projected execution {time_s:.3g} s"
    words = [f"done, {record.phases.execution_time_s:.3g} s"]
    if record.metrics.loss is not None and quality.metric != "loss":
        words.append(f"loss {record.metrics.loss:.3g}")
    if (value := metrics.quality_of_run(record, quality).value) is not None:
        title = metrics.quality_metric(quality).title
        words.append(f"{title} {value:.3g} {quality.unit or ''}".rstrip())
    return ", ".join(words)


def _find_error(logs: Sequence[str]) -> str:
    """Return the error message that a script printed at the end of one of its logs.

    Only the first existing log is read. Without an error message, return its last line.
    """
    for log in map(Path, logs):
        if log.exists():
            text = log.read_text(errors="replace")
            lines = [line.strip() for line in text.rpartition(_ERROR)[2].splitlines()]
            return shorten(" ".join(filter(None, lines if _ERROR in text else lines[-1:])), log)
    return "no message"
