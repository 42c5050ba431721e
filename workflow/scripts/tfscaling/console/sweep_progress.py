"""The jobs of a sweep as Snakemake tells of them, and the lines that say how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tfscaling.console import text_lines
from tfscaling.console.run_progress import RunProgress
from tfscaling.records import failure_report, metrics, quality, run_record, short_runs
from tfscaling.records.run_record import RunRecord
from tfscaling.study.config import Quality
from tfscaling.study.run_spec import BenchmarkSpec, JobSpec, Point, RunSpec

#: The end of a log that is read for the cause of a failure.
_LOG_BYTES = 1 << 14
#: How scripts begin what they say of an error.
_ERROR = "ERROR: "


class Estimate(NamedTuple):
    """How long a run takes, None if nothing tells; `is_limit`: at most, for Slurm would end it."""

    duration_s: float | None
    is_limit: bool = False


@dataclass(frozen=True)
class Asked:
    """What the sweep is: its runs and benchmarks by the files of their records.

    `estimate` says how long a run takes as the plan has it.
    """

    study: str
    jobs: Mapping[str, JobSpec]
    estimate: Callable[[RunSpec], Estimate]


@dataclass
class Job:
    """A job that Snakemake has started or submitted; `spec` is that of a run or a benchmark."""

    text: str
    outputs: tuple[str, ...]
    logs: tuple[str, ...]
    since_s: float
    is_dataset: bool = False
    spec: JobSpec | None = None
    progress: RunProgress | None = None
    record_before: tuple[int, int] | None = None
    failure_before: tuple[int, int] | None = None
    #: Its end was told when its record was there, before Snakemake knew.
    is_told: bool = False
    shown_s: float = 0.0

    @property
    def record(self) -> Path:
        """The file that a run or a benchmark leaves."""
        return Path(self.outputs[0])

    @property
    def failure(self) -> Path:
        """The file that one leaves which fails."""
        return self.record.with_name(run_record.FAILURE)

    @property
    def has_record(self) -> bool:
        """Whether its record was written since it was started."""
        return _identity(self.record) not in (None, self.record_before)

    @property
    def has_ended(self) -> bool:
        """Whether it left a record or a failure, of which Snakemake may hear later."""
        return self.has_record or _identity(self.failure) not in (None, self.failure_before)


def _identity(path: Path) -> tuple[int, int] | None:
    """By which a file that was written anew is known."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


@dataclass
class SweepProgress:
    """What has happened so far; each method returns the lines that tell of it.

    Moments are seconds since the epoch.
    """

    asked: Asked
    is_remote: bool = False
    began_s: float = 0.0
    node_hours_spent: float = 0.0
    #: Lines about jobs that failed without being a run or a benchmark, for the end.
    failures: list[str] = field(default_factory=list)
    _due: dict[str, JobSpec] = field(default_factory=dict)
    _finished: set[str] = field(default_factory=set)
    _failed: set[str] = field(default_factory=set)
    #: How often the jobs of these files have failed.
    _failures_of: Counter[str] = field(default_factory=Counter)
    _jobs: dict[int, Job] = field(default_factory=dict)
    _axes: tuple[str, ...] = ()
    _estimates: dict[Point, Estimate] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        """Whether any job is under way."""
        return bool(self._jobs)

    @property
    def has_runs(self) -> bool:
        """Whether a run or a benchmark was to be made."""
        return bool(self._due)

    def begin(self, outputs: Sequence[str], now_s: float, is_remote: bool) -> list[str]:
        """The sweep begins: `outputs` are the files of the jobs to do."""
        self.began_s, self.is_remote = now_s, is_remote
        self._due = {path: self.asked.jobs[path] for path in outputs if path in self.asked.jobs}
        self._axes = text_lines.shown_axes(self.asked.jobs.values())
        if not self._due:
            return []
        runs = sum(isinstance(spec, RunSpec) for spec in self._due.values())
        what = [text_lines.count(runs, "run")] if runs else []
        if others := len(self._due) - runs:
            what.append(text_lines.count(others, "all-reduce benchmark"))
        left = f", {left} node-hours" if (left := self._left(now_s)) else ""
        return [f"study {self.asked.study}: {' and '.join(what)} to do{left}"]

    def start(self, number: int, job: Job) -> None:
        """A job is started or submitted, perhaps once more."""
        job.spec = self.asked.jobs.get(job.outputs[0]) if job.outputs else None
        if job.spec is not None:
            self._due.setdefault(job.outputs[0], job.spec)
            self._failed.discard(job.outputs[0])
            job.record_before = _identity(job.record)
            job.failure_before = _identity(job.failure)
            if isinstance(job.spec, RunSpec):
                job.progress = RunProgress(job.spec, job.record.parent)
        self._jobs[number] = job

    def finish(self, number: int, now_s: float) -> list[str]:
        """A job has ended as it should."""
        job = self._jobs.pop(number, None)
        if job is None or job.is_told:
            return []
        if job.spec is None:
            took = text_lines.duration(now_s - job.since_s)
            return [f"{job.text}: prepared in {took}"] if job.is_dataset else []
        return [self._finish(job, job.spec, now_s)]

    def new_records(self, now_s: float) -> list[str]:
        """Jobs whose record is there although Snakemake does not know yet that they have ended."""
        return [
            self._finish(job, job.spec, now_s)
            for job in self._jobs.values()
            if job.spec is not None and not job.is_told and job.has_record
        ]

    def _finish(self, job: Job, spec: JobSpec, now_s: float) -> str:
        job.is_told = True
        self._finished.add(job.outputs[0])
        self._estimates.pop(spec.point, None)
        self._spend(job, now_s)
        run = f"{self._count()} {self._named(spec)}"
        return f"{run}: {self._result(job, now_s)}; {self._hours(now_s)}"

    def fail(
        self, number: int, job: Job, message: str, attempts_left: int, now_s: float
    ) -> list[str]:
        """A job has failed; `message` is what Snakemake says of it, if anything.

        It is run again while there are attempts left.
        """
        started = self._jobs.pop(number, None)
        job = started or job
        what = f"{self._failed_attempt(job, attempts_left)}: {self._cause(job, message)}"
        if job.spec is not None:
            self._finished.discard(job.outputs[0])
            if not attempts_left:
                self._failed.add(job.outputs[0])
            if started and not started.is_told:
                self._spend(started, now_s)
            return _with_log(what, is_last=not attempts_left)
        log = f" ({job.logs[0]})" if job.logs else ""
        line = text_lines.cut(what, text_lines.WIDTH - len(log)) + log
        self.failures += [] if attempts_left else [line]
        return [line]

    def _failed_attempt(self, job: Job, attempts_left: int) -> str:
        """`FAILED` and the job's name, with its attempts where there is more than one."""
        name = self._named(job.spec) if job.spec else job.text
        file = job.outputs[0] if job.outputs else ""
        self._failures_of[file] += 1
        attempt = self._failures_of[file]
        if attempts_left:
            return f"attempt {attempt} of {attempt + attempts_left} failed, next follows: {name}"
        return f"FAILED {name}" + (f" after {attempt} attempts" if attempt > 1 else "")

    def sign_of_life(self, now_s: float) -> str:
        """One line about what is under way; of several runs each gets its turn."""
        runs = [job for job in self._jobs.values() if job.progress and not job.has_ended]
        for job in runs:
            if job.progress:
                job.progress.update()
        started = [job for job in runs if job.progress and job.progress.started_s is not None]
        others = [job for job in self._jobs.values() if not job.progress]
        if started:
            job = min(started, key=lambda job: job.shown_s)
            job.shown_s = now_s
            # what changes comes first: a narrow terminal has no place for all
            line = f"{self._count()} {self._state(job, now_s)} ({self._named(job.spec)})"
        elif runs and self.is_remote:
            waits = text_lines.duration(now_s - min(job.since_s for job in runs))
            line = f"{self._count()} runs wait to start, the longest for {waits}"
        elif runs:
            line = f"{self._count()} starting ({self._named(runs[0].spec)})"
        elif others:
            job = others[0]
            line = f"{job.text}, {text_lines.duration(now_s - job.since_s)}"
        else:
            line = "waiting for Snakemake"
        if len(runs) > 1:
            waiting = len(runs) - len(started)
            line += f"; {len(started)} running, {waiting} submitted"
        return text_lines.cut(line)

    def end(self, now_s: float) -> list[str]:
        """The sweep is over, well or not."""
        if not self._due:
            return []
        elapsed = text_lines.duration(now_s - self.began_s)
        jobs = f"{len(self._finished)} of {text_lines.count(len(self._due), 'run')}"
        return [f"{jobs} in {elapsed}; {self._hours(now_s)}"]

    def _count(self) -> str:
        return f"[{len(self._finished)}/{len(self._due)}]"

    def _named(self, spec: JobSpec | None) -> str:
        if spec is None:
            return ""
        kind = "all-reduces of " if isinstance(spec, BenchmarkSpec) else ""
        return kind + text_lines.name(spec, self._axes)

    def _state(self, job: Job, now_s: float) -> str:
        run = job.progress
        if run is None or run.started_s is None:
            return "starting"
        words = [run.does]
        if run.loss is not None:
            words.append(f"loss {run.loss:.3g}")
        words.append(text_lines.duration(now_s - run.started_s))
        end_s = run.end_s()
        if end_s is None:
            known = self._estimate(run.spec)
            if known.duration_s is not None and not known.is_limit:
                end_s = run.started_s + known.duration_s
        if end_s is not None and end_s > now_s:
            words.append(f"ends about {text_lines.clock(end_s, now_s)}")
        return ", ".join(words)

    def _result(self, job: Job, now_s: float) -> str:
        """How a run has ended, from its record."""
        if not isinstance(job.spec, RunSpec):
            return f"done in {text_lines.duration(now_s - job.since_s)}"
        try:
            record = run_record.read(job.record)
        except run_record.RecordError as error:
            return str(error)
        if record is None:
            return f"done in {text_lines.duration(now_s - job.since_s)}"
        if record.validity.reason:
            return record.validity.reason
        if (short := record.short_run) and (whole := short_runs.projected(record)):
            steps = f"{short.steps:,} of {short.steps_of_whole:,} steps"
            time_s = whole.phases.execution_time_s
            return f"done, {steps}: execution of the whole is projected, {time_s:.3g} s"
        words = [f"done, execution {record.phases.execution_time_s:.3g} s"]
        loss = record.metrics.loss
        words += [f"loss {loss:.3g}"] if loss is not None else []
        return ", ".join([*words, _quality(record, job.spec.recipe.quality)])

    def _cause(self, job: Job, message: str) -> str:
        """The cause as the job left it, else what Snakemake says, else the end of the log."""
        if job.spec is not None and _identity(job.failure) != job.failure_before:
            try:
                report = failure_report.read(job.record.parent)
            except run_record.RecordError as error:
                return str(error)
            if report is not None:
                return report.cause.sentence
        if message:
            return message
        return next((text for log in job.logs if (text := _end_of(Path(log)))), "no message")

    def _spend(self, job: Job, now_s: float) -> None:
        """Add the node-hours of a job that has ended: of a run by its ranks' own clock."""
        assert job.spec is not None
        if job.progress:
            job.progress.update()
        began_s = job.since_s if not self.is_remote else now_s
        if job.progress and job.progress.started_s is not None:
            began_s = job.progress.started_s
        seconds = max(0.0, now_s - began_s)
        try:
            record = run_record.read(job.record) if isinstance(job.spec, RunSpec) else None
        except run_record.RecordError:
            record = None
        if record is not None:
            seconds = record.phases.wall_time_s
        self.node_hours_spent += job.spec.point.nodes * seconds / 3600.0

    def _hours(self, now_s: float) -> str:
        spent = f"{text_lines.node_hours(self.node_hours_spent)} node-hours spent"
        return f"{spent}, {left} to do" if (left := self._left(now_s)) else spent

    def _left(self, now_s: float) -> str:
        """Node-hours of the runs that are still to do as the plan estimates them, or ""."""
        hours, is_limit = 0.0, False
        ends = {
            job.outputs[0]: job.progress.end_s()
            for job in self._jobs.values()
            if job.progress is not None
        }
        for path, spec in self._due.items():
            if path in self._finished | self._failed or not isinstance(spec, RunSpec):
                continue
            end_s = ends.get(path)
            if end_s is not None:
                seconds = max(0.0, end_s - now_s)
            else:
                known = self._estimate(spec)
                if known.duration_s is None:
                    return ""
                seconds, is_limit = known.duration_s, is_limit or known.is_limit
            hours += spec.point.nodes * seconds / 3600.0
        return f"{'at most ' if is_limit else ''}{text_lines.node_hours(hours)}"

    def _estimate(self, spec: RunSpec) -> Estimate:
        if spec.point not in self._estimates:
            self._estimates[spec.point] = self.asked.estimate(spec)
        return self._estimates[spec.point]


def _quality(record: RunRecord, asked: Quality) -> str:
    """`test accuracy 0.973`: the metric by which the recipe's runs are compared."""
    title = metrics.of_quality(asked).title
    found = quality.of_run(record, asked)
    if found.value is None:
        return f"no {title}: {found.reason}"
    return f"{title} {found.value:.3g}" + (f" {asked.unit}" if asked.unit else "")


def _with_log(failure: str, is_last: bool) -> list[str]:
    """The line of a failure; a log that has no place on it follows, after the last attempt."""
    said, _, log = failure.rpartition("; log: ")
    if len(failure) <= text_lines.WIDTH or not said:
        return [text_lines.cut(failure)]
    return [text_lines.cut(said), *([text_lines.cut(f"log: {log}")] if is_last else [])]


def _end_of(log: Path) -> str:
    """What a log ends with: the error that a script tells, or else the last line."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [place for place, line in enumerate(lines) if line.startswith(_ERROR)]
    return " ".join(lines[told[-1] :]).removeprefix(_ERROR) if told else "".join(lines[-1:])
