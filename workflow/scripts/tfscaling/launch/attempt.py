"""One attempt at a job of ranks: its folder, its ranks started and watched, its failure.

Used for runs and benchmarks; the caller interprets the reports.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tfscaling.cluster.gpu_allocation import ClusterError
from tfscaling.cluster.slurm_environment import restarts
from tfscaling.files import atomic
from tfscaling.launch import failures, link, slurm_job, supervisor, user_program
from tfscaling.launch.launchers import LAUNCHERS, Request, write_setup
from tfscaling.launch.rank_messages import IncompleteError, RankMessageServer
from tfscaling.record import attempts, run_record, run_states
from tfscaling.record.attempts import Cause, FailureReport
from tfscaling.record.prepared_data import PreparedDataError
from tfscaling.record.run_record import RecordError
from tfscaling.study import run_spec
from tfscaling.study.run_spec import RunRequest, RunSpec

#: The launcher's own output. Must match the rules' log name.
LOG = run_record.LAUNCH_LOG
#: A rank that trains requests huge pages, for fewer misses of the processor's table of pages. And
#: it keeps the memory of a step's tensors for the next step, up to 4 GiB of what is free: else the
#: kernel takes it back and fills thousands of pages with zeros in each step: a seventh of the CPU
#: time of the published network; no difference was measured for dense layers of 512 and 2048 units
#: and for a small convolution. glibc before 2.35 ignores the first setting.
_TUNABLES = "GLIBC_TUNABLES"
_MEMORY = (
    "glibc.malloc.hugetlb=1"
    f":glibc.malloc.mmap_threshold={1 << 30}"
    f":glibc.malloc.trim_threshold={1 << 32}"
)


@dataclass(frozen=True)
class Attempt:
    """`folder` takes the job's results, `scratch` below it the logs and reports of this attempt.

    `begun_s` is by `time.monotonic()`.
    """

    folder: Path
    number: int
    begun_s: float

    @classmethod
    def begin(cls, folder: Path) -> Attempt:
        """Begin the next attempt; an earlier one's failure no longer counts, its files stay."""
        folder.mkdir(parents=True, exist_ok=True)
        number = 1 + max(attempts.numbers(folder), default=0)
        while True:
            attempt = cls(folder, number, time.monotonic())
            try:
                attempts.begin(folder, number)
            except FileExistsError:  # another launcher has just begun: both keep their files
                number += 1
                continue
            (folder / run_record.FAILURE).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # by hand there is none
                # Snakemake removes the log of an attempt before the next
                atomic.link(folder / LOG, attempt.scratch / LOG)
            return attempt

    @property
    def scratch(self) -> Path:
        return attempts.path(self.folder, self.number)

    def run_ranks(
        self,
        script: Path,
        arguments: Sequence[str],
        spec: RunSpec,
        stall_timeout_s: float,
        latency_wait_s: float,
    ) -> Cause | None:
        """Run `script` on all ranks until they have ended and their files are here.

        Ranks are ended after `stall_timeout_s` without a sign of life. A shared file system may
        show their files `latency_wait_s` later.
        Its arguments are `--spec FILE --folder FOLDER` and then `arguments`. Returns the cause of a
        failure, or None. Raises IncompleteError if files do not come.
        """
        specification = self.scratch / attempts.SPEC
        atomic.write_private_text(specification, run_spec.encode(spec))
        words = ["--spec", str(specification), "--folder", str(self.scratch), *arguments]
        command = [sys.executable, str(script), *words]
        geometry, settings = spec.geometry, spec.measured
        is_local = settings.launcher == "local"
        with contextlib.ExitStack() as stack:
            own_host = "127.0.0.1" if is_local else _reachable_name(os.environ)
            messages = RankMessageServer(self.scratch)
            address = stack.enter_context(messages.served(own_host, geometry.tasks))
            setup = self.scratch / attempts.SETUP if settings.setup else None
            if setup is not None:
                write_setup(setup, settings.setup)
            env = {**_variables(spec, stall_timeout_s), **settings.env, link.VARIABLE: address}
            request = Request(
                command,
                geometry,
                spec.jobs,
                spec.cpus_per_task,
                self.scratch,
                gpus=spec.on_gpus,
                setup=setup,
                container=settings.container,
                env=env,
                mpi=settings.mpi if spec.by_mpi else None,
                binding=settings.binding,
                held=stack,
            )
            try:
                commands = LAUNCHERS[settings.launcher](request)
            except ClusterError as error:
                return Cause(kind="launch_failed", message=str(error))
            print("$", " ".join(commands[0].argv), flush=True)
            grace_s = supervisor.CHECKPOINT_GRACE_S if spec.recipe.writes_checkpoints else None
            cause = supervisor.Supervisor(
                commands, messages, stall_timeout_s, geometry.tasks, grace_s
            ).run()
            messages.update()
            if cause is not None:
                return failures.as_missing_gpus(cause, self.scratch)
            messages.wait(range(geometry.tasks), latency_wait_s)
            return None

    def fail(self, spec: RunSpec, cause: Cause) -> NoReturn:
        """Print the cause, leave failure.json with it, and end with exit status 1."""
        print(f"FAILED: {cause.sentence}", file=sys.stderr)
        print("\n".join(f"    {line}" for line in cause.last_lines), file=sys.stderr)
        failure = FailureReport(
            axes=spec.axes,
            attempt=self.number,
            cause=cause,
            wall_time_s=round(time.monotonic() - self.begun_s, 3),
        )
        try:
            attempts.write_failure(self.scratch, failure)
            attempts.publish(self.scratch / run_record.FAILURE, self.folder / run_record.FAILURE)
        except OSError as error:  # as when the disk is full: the printed cause stays
            print(f"{self.folder / run_record.FAILURE}: {error}", file=sys.stderr)
        if cause.kind == "preempted":  # and not an attempt of Snakemake's that failed
            for number in supervisor.SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            slurm_job.requeue_own_job(os.environ)
        sys.exit(1)


def _reachable_name(environ: Mapping[str, str]) -> str:
    """Return the name by which other nodes reach this host: its own, or else Slurm's for it."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror:
        return environ.get("SLURMD_NODENAME", name)
    return name


def run(
    path: Path,
    request: RunRequest,
    work: Callable[[Attempt], Cause | None],
    dataset_file: Path | None = None,
) -> None:
    """Run an attempt at a job that leaves a record.

    Nothing is done if an attempt has finished the run since it was requested. Whatever goes wrong,
    a signal included, failure.json has the cause, and the exit status is 1.

    Args:
        path: The file of the record.
        request: The run.
        work: Trains, and returns the cause of a failure or None.
        dataset_file: The prepared data that the ranks read, if any.
    """
    spec = request.spec
    if is_finished(path, request, dataset_file):
        return
    attempt = Attempt.begin(path.parent)
    # from now on no earlier attempt can publish; one may have, just before
    if path.exists() and is_finished(path, request, dataset_file):
        shutil.rmtree(attempt.scratch)
        return
    if restarts(os.environ):
        _record_restart(attempt, spec)
    previous = {number: signal.signal(number, _cancel) for number in supervisor.SIGNALS}
    # while there are ranks it is passed on to them
    previous[supervisor.WARNING] = signal.signal(supervisor.WARNING, lambda *_: None)
    try:
        try:
            cause = _cause(attempt, work)
            _ignore_signals()
        except _CancelledError as error:
            cause = supervisor.cancelled(error.args[0])
        if cause is not None:
            attempt.fail(spec, cause)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def publish_record(attempt: Path, path: Path, names: Iterable[str] = attempts.FILES_OF_RUN) -> None:
    """Move the files of a finished attempt to the job's folder, last the record to `path`.

    Files that nobody needs are removed. Raises OSError.
    """
    for name in names:
        attempts.publish(attempt / name, path.with_name(name))
    attempts.publish(attempt / attempts.RECORD, path)
    if names:  # else the record has no measurement: what is left shows why
        attempts.tidy(attempt)


def is_finished(path: Path, request: RunRequest, dataset_file: Path | None) -> bool:
    """Whether an attempt has finished the run since it was requested; then its record is in place.

    Slurm restarts a job that is requeued, preempted or loses its node, and Snakemake a job that
    Slurm reports as failed. If the run was finished just before, or by a job of an earlier start,
    an attempt has all of it. Records of other code or data than now do not count.
    """
    spec = request.spec
    try:
        found = run_states.find_record(spec, path.parent, request.replaces)
    except RecordError:
        return False
    if found is None or run_states.other_code(spec, found.record):
        return False
    data = [found.record.environment.dataset]
    if dataset_file is not None and any(run_states.other_data(data, dataset_file.parent)):
        return False
    if found.file != path:
        attempts.restore_record(found.file, path)
    print(f"attempt {found.record.attempt} has finished the run: its record is kept")
    attempts.remove_checkpoints(path.parent)
    return True


def _record_restart(attempt: Attempt, spec: RunSpec) -> None:
    """Leave a cause in the attempt before, if its launcher had no time to, as without power.

    Slurm has started the job again, and gives no reason.
    """
    last = attempts.path(attempt.folder, attempt.number - 1)
    if (last / run_record.FAILURE).exists() or (attempt.folder / run_record.RECORD).exists():
        return
    try:
        earlier = run_spec.read(last / attempts.SPEC)
    except run_spec.SpecError:  # it had not begun
        return
    times_s = [path.stat().st_mtime for path in last.iterdir()]
    text = "Slurm has started the job again, and its launcher could not report why"
    failure = FailureReport(
        axes=earlier.axes,
        attempt=attempt.number - 1,
        cause=Cause(kind="requeued", message=text),
        wall_time_s=round(max(times_s) - (last / attempts.SPEC).stat().st_mtime, 3),
    )
    with contextlib.suppress(OSError):
        attempts.write_failure(last, failure)


def _cause(attempt: Attempt, work: Callable[[Attempt], Cause | None]) -> Cause | None:
    try:
        return work(attempt)
    except PreparedDataError as error:
        return Cause(kind="launch_failed", message=str(error))
    except attempts.SupersededError as error:
        with contextlib.suppress(FileNotFoundError):  # it had made none yet
            made = attempt.scratch / attempts.RECORD
            os.rename(made, made.with_name(attempts.SUPERSEDED_RECORD))
        return Cause(kind="cancelled", message=str(error))
    except IncompleteError as error:
        return failures.cause_of_rank(attempt.scratch, "incomplete", error.ranks[0], str(error))
    except Exception as error:
        return failures.cause_of_exception(error)


class _CancelledError(BaseException):
    """The launcher received a signal to end: no fault of the work, so no Exception."""


def _cancel(number: int, _: object) -> NoReturn:
    _ignore_signals()
    raise _CancelledError(number)


def _ignore_signals() -> None:
    """Ignore further signals, so that the cause is written."""
    for number in supervisor.SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _variables(spec: RunSpec, stall_timeout_s: float) -> dict[str, str]:
    """Return the environment variables that the launcher sets for the ranks of a run."""
    if not spec.recipe.program:
        return {} if _TUNABLES in os.environ else {_TUNABLES: _MEMORY}
    interval_s = min(user_program.SIGNS_INTERVAL_S, stall_timeout_s / 3)
    variables = {user_program.SIGNS_INTERVAL: f"{interval_s:g}"}
    if spec.measured.launcher != "local" and slurm_job.signals_children_alone():
        variables[user_program.PASSES_ON] = "1"
    return variables
