"""One attempt at a job of ranks: its folder, its ranks started and watched, its failure.

Runs and benchmarks use it; the caller interprets the reports of the ranks.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tfscaling.cluster.gpu_allocation import ClusterError
from tfscaling.cluster.slurm_environment import accounting_id, restarts
from tfscaling.files import atomic
from tfscaling.files.outside_text import make_visible
from tfscaling.launch import failures, link, rank_files, slurm_job, supervisor, user_program
from tfscaling.launch.launchers import LAUNCHERS, LaunchRequest, write_setup
from tfscaling.launch.rank_messages import IncompleteError, RankMessageServer
from tfscaling.record import attempts, crashes, run_record, run_states
from tfscaling.record.attempts import Cause, FailureReport
from tfscaling.record.prepared_data import PreparedDataError
from tfscaling.record.run_record import RecordError
from tfscaling.study import run_spec
from tfscaling.study.run_spec import RunRequest, RunSpec

#: File with the launcher's own output. It must match the log name in the rules.
LOG = run_record.LAUNCH_LOG
#: A rank that trains requests huge pages, for fewer misses of the processor's table of pages. And
#: it keeps the memory of a step's tensors for the next step, up to 4 GiB of what is free: else the
#: kernel takes it back and fills thousands of pages with zeros in each step: a seventh of the CPU
#: time of the published network; no difference was measured for dense layers of 512 and 2048 units
#: and for a small convolution. glibc before 2.35 ignores the first setting.
_TUNABLES = "GLIBC_TUNABLES"
_MALLOC_SETTINGS = (
    "glibc.malloc.hugetlb=1"
    f":glibc.malloc.mmap_threshold={1 << 30}"
    f":glibc.malloc.trim_threshold={1 << 32}"
)


@dataclass(frozen=True)
class Attempt:
    """One attempt at a job: its number, its folders and when it began.

    `run_next_attempt` begins one each time that the launcher starts.

    Attributes:
        folder: The job's folder, which gets the results of the attempt that succeeds.
        number: Number of the attempt, from 1.
        begun_s: When the attempt began, by `time.monotonic()`.
    """

    folder: Path
    number: int
    begun_s: float

    @classmethod
    def begin(cls, folder: Path) -> Attempt:
        """Create the folder of the job's next attempt and return the attempt.

        An earlier attempt's `failure.json` in the job's folder is removed; the files in the earlier
        attempt's own folder stay.

        Args:
            folder: The job's folder, which is created if it is missing.
        """
        folder.mkdir(parents=True, exist_ok=True)
        number = 1 + max(attempts.attempt_numbers(folder), default=0)
        while True:
            attempt = cls(folder, number, time.monotonic())
            try:
                attempts.create_attempt(folder, number)
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
        """The attempt's own folder in the job's folder, with logs, events and reports of ranks."""
        return attempts.attempt_folder(self.folder, self.number)

    def run_ranks(
        self,
        script: Path,
        arguments: Sequence[str],
        spec: RunSpec,
        stall_timeout_s: float,
        latency_wait_s: float,
    ) -> Cause | None:
        """Start `script` as every rank and wait until all ranks have ended and their files exist.

        Args:
            script: Python program of a rank. It gets `--spec FILE --folder FOLDER`, then
                `arguments`.
            arguments: Further words of its command line.
            spec: The run.
            stall_timeout_s: Ranks without progress for this many seconds are ended.
            latency_wait_s: Seconds that a shared file system may take to show the ranks' files.

        Returns:
            The cause of a failure; None after success.

        Raises:
            IncompleteError: The ranks succeeded, but some of their files are missing or truncated.
        """
        specification = self.scratch / attempts.SPEC
        atomic.write_private_text(specification, run_spec.encode_spec(spec))
        words = ["--spec", str(specification), "--folder", str(self.scratch), *arguments]
        command = [spec.rank_python or sys.executable, str(script), *words]
        geometry, settings = spec.geometry, spec.measured
        is_local = settings.launcher == "local"
        with contextlib.ExitStack() as stack:
            own_host = "127.0.0.1" if is_local else _reachable_name(os.environ)
            messages = RankMessageServer(self.scratch)
            address = stack.enter_context(messages.serve(own_host, geometry.tasks))
            env = {**_rank_variables(spec, stall_timeout_s), **settings.env, link.VARIABLE: address}
            request = self._make_request(command, spec, env, stack)
            try:
                commands = LAUNCHERS[settings.launcher](request)
            except ClusterError as error:
                return Cause(kind="launch_failed", message=str(error))
            print("$", " ".join(commands[0].argv), flush=True)
            temporary = env.get("TMPDIR") or tempfile.gettempdir()
            stack.callback(rank_files.remove_temporary_folders, self.scratch, temporary)
            grace_s = supervisor.CHECKPOINT_GRACE_S if spec.recipe.writes_checkpoints else None
            cause = supervisor.Supervisor(
                commands, messages, stall_timeout_s, geometry.tasks, grace_s
            ).run()
            messages.update()
            if cause is not None:
                cause = failures.mark_missing_gpus(cause, self.scratch)
                return _mask_secrets(spec, cause)
            messages.wait_for_files(range(geometry.tasks), latency_wait_s)
            return None

    def _make_request(
        self,
        command: Sequence[str],
        spec: RunSpec,
        env: Mapping[str, str],
        resources: contextlib.ExitStack,
    ) -> LaunchRequest:
        """Return the request for the launcher; the lines of `setup` are written to a file.

        Args:
            command: Words of the command of a rank.
            spec: The run.
            env: Variables that are added to the environment of the ranks.
            resources: What must stay open until the ranks have ended.
        """
        settings = spec.measured
        setup = self.scratch / attempts.SETUP if settings.setup else None
        if setup is not None:
            write_setup(setup, settings.setup)
        return LaunchRequest(
            command,
            spec.geometry,
            spec.jobs,
            spec.cpus_per_task,
            self.scratch,
            uses_gpus=spec.uses_gpus,
            setup=setup,
            container=settings.container,
            env=env,
            mpi=settings.mpi if spec.uses_mpi else None,
            binding=settings.srun_binding_options,
            resources=resources,
        )

    def fail(self, spec: RunSpec, cause: Cause) -> NoReturn:
        """Print the cause, write it to failure.json, and end this process with exit status 1.

        Secrets of the run are masked.
        After a preemption, the job is requeued before the exit, if Slurm allows it.
        """
        cause = _mask_secrets(spec, cause)
        print(f"FAILED: {cause.sentence}", file=sys.stderr)
        lines = map(make_visible, cause.last_lines)
        print("\n".join(f"    {line}" for line in lines), file=sys.stderr)
        failure = FailureReport(
            axes=spec.axes,
            attempt=self.number,
            cause=cause,
            wall_time_s=round(time.monotonic() - self.begun_s, 3),
            slurm_job=accounting_id(os.environ),
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


def _mask_secrets(spec: RunSpec, cause: Cause) -> Cause:
    """Return the cause with `***` in place of the secrets of a run that the launcher knows."""
    environ, settings = {**os.environ, **spec.measured.env}, spec.measured
    secrets = crashes.find_secrets(environ, spec.recipe.program, settings.setup)
    return crashes.mask_secrets_of_cause(cause, secrets)


def _reachable_name(environ: Mapping[str, str]) -> str:
    """Return the host name by which other nodes reach this host.

    It is SLURMD_NODENAME if this host cannot resolve its host name.
    """
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror:
        return environ.get("SLURMD_NODENAME", name)
    return name


def run_next_attempt(
    record_file: Path,
    request: RunRequest,
    work: Callable[[Attempt], Cause | None],
    dataset_file: Path | None = None,
) -> None:
    """Run the next attempt at a run, unless an earlier attempt has finished the run.

    If the attempt fails or a signal ends it, the cause is written to failure.json, and the process
    ends with exit status 1.

    Args:
        record_file: The file of the run's record, in the run's folder.
        request: The run, and the number up to which earlier attempts do not count.
        work: Starts the ranks and writes the record; returns the cause of a failure, or None.
        dataset_file: The prepared data that the ranks read, if any.
    """
    spec = request.spec
    if restore_finished_run(record_file, request, dataset_file):
        return
    attempt = Attempt.begin(record_file.parent)
    # from now on no earlier attempt can publish; one may have, just before
    if record_file.exists() and restore_finished_run(record_file, request, dataset_file):
        shutil.rmtree(attempt.scratch)
        return
    if restarts(os.environ):
        _record_restart(attempt, spec)
    previous = {number: signal.signal(number, _raise_cancelled) for number in supervisor.SIGNALS}
    # while there are ranks it is passed on to them
    previous[supervisor.WARNING] = signal.signal(supervisor.WARNING, lambda *_: None)
    try:
        try:
            cause = _call_work(attempt, work)
            _ignore_signals()
        except _CancelledError as error:
            cause = supervisor.cause_of_signal(error.args[0])
        if cause is not None:
            attempt.fail(spec, cause)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def publish_record(
    attempt: Path, record_file: Path, names: Iterable[str] = attempts.FILES_OF_RUN
) -> None:
    """Move the results of a finished attempt from its folder to the job's folder, the record last.

    Files that are no longer needed are removed from the attempt's folder, unless `names` is empty.

    Args:
        attempt: The attempt's folder.
        record_file: Where the record is published.
        names: Names of the other files to publish; empty for a record without measurements.

    Raises:
        OSError: A file cannot be moved.
        SupersededError: A newer attempt has begun.
    """
    for name in names:
        attempts.publish(attempt / name, record_file.with_name(name))
    # with its record the run is finished: a signal makes no failure of it
    for number in supervisor.SIGNALS:
        if signal.getsignal(number) is _raise_cancelled:
            signal.signal(number, signal.SIG_IGN)
    attempts.publish(attempt / attempts.RECORD, record_file)
    if names:  # else the record has no measurement: what is left shows why
        attempts.remove_temporary_files(attempt)


def restore_finished_run(record_file: Path, request: RunRequest, dataset_file: Path | None) -> bool:
    """Restore the run's record if an earlier attempt has finished the run; return whether it did.

    Slurm restarts a job that is requeued, preempted or loses its node, and Snakemake retries a job
    that Slurm reports as failed, although the run may have finished just before.

    Args:
        record_file: The file of the run's record. If it is missing, the record is copied from the
            attempt's folder.
        request: The run, and the number up to which earlier attempts do not count.
        dataset_file: The prepared data, if any.

    Returns:
        False if there is no record, or only a record from other user code or other data.
    """
    spec = request.spec
    try:
        found = run_states.find_record(spec, record_file.parent, request.replaces)
    except RecordError:
        return False
    if found is None or run_states.describe_code_change(spec, found.record):
        return False
    data = [found.record.environment.dataset]
    if dataset_file is not None and any(
        run_states.describe_data_changes(data, dataset_file.parent)
    ):
        return False
    if found.file != record_file:
        attempts.restore_record(found.file, record_file)
    print(f"attempt {found.record.attempt} has finished the run: its record is kept")
    attempts.remove_checkpoints(record_file.parent)
    return True


def _record_restart(attempt: Attempt, spec: RunSpec) -> None:
    """Write the failure report of the previous attempt if its launcher was killed without one.

    Call it in a job that Slurm has restarted. Slurm gives no reason for the restart.

    Args:
        attempt: The present attempt.
        spec: The run.
    """
    last = attempts.attempt_folder(attempt.folder, attempt.number - 1)
    if (last / run_record.FAILURE).exists() or (attempt.folder / run_record.RECORD).exists():
        return
    try:
        earlier = run_spec.read_spec(last / attempts.SPEC)
    except run_spec.SpecError:  # it had not begun
        return
    times_s = [path.stat().st_mtime for path in last.iterdir()]
    text = "Slurm has started the job again, and its launcher could not report why"
    failure = FailureReport(
        axes=earlier.axes,
        attempt=attempt.number - 1,
        cause=Cause(kind="requeued", message=text),
        wall_time_s=round(max(times_s) - (last / attempts.SPEC).stat().st_mtime, 3),
        slurm_job=accounting_id(os.environ),
    )
    with contextlib.suppress(OSError):
        attempts.write_failure(last, failure)


def _call_work(attempt: Attempt, work: Callable[[Attempt], Cause | None]) -> Cause | None:
    """Call `work` with the attempt; return the cause of a failure or exception, else None."""
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
        cause = failures.cause_of_rank(attempt.scratch, "incomplete", error.ranks[0], str(error))
        return failures.find_lost_node(cause, attempt.scratch / "srun.log")
    except Exception as error:
        return failures.cause_of_exception(error)


class _CancelledError(BaseException):
    """The launcher received SIGTERM or a similar signal, whose number is the argument.

    It is a BaseException, so that no `except Exception` in the run's code catches it.
    """


def _raise_cancelled(number: int, _: object) -> NoReturn:
    """Raise _CancelledError in the main thread: the handler of signals that end the launcher."""
    _ignore_signals()
    raise _CancelledError(number)


def _ignore_signals() -> None:
    """Ignore further signals, so that the failure report can be written."""
    for number in supervisor.SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _rank_variables(spec: RunSpec, stall_timeout_s: float) -> dict[str, str]:
    """Return name → value of the environment variables that the launcher adds for a run's ranks.

    Ranks of the trainer get settings of memory allocation, unless the environment has its own.
    Ranks of a program get the interval in seconds at which they report its activity. Where Slurm
    signals only the ranks, they also get a request to forward signals to the program.
    """
    if not spec.recipe.program:
        return {} if _TUNABLES in os.environ else {_TUNABLES: _MALLOC_SETTINGS}
    interval_s = min(user_program.ACTIVITY_INTERVAL_S, stall_timeout_s / 3)
    variables = {user_program.ACTIVITY_INTERVAL_VARIABLE: f"{interval_s:g}"}
    if spec.measured.launcher != "local" and slurm_job.signals_started_processes_only():
        variables[user_program.FORWARDS_VARIABLE] = "1"
    return variables
