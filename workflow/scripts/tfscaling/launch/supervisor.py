"""A supervisor that starts the ranks of a launch, watches them, and ends them together.

Everything that it starts ends with the launcher, even if that is killed: a rank that continued
would take the cores of the next measurement.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from tfscaling.cluster.slurm_client import SlurmClient
from tfscaling.launch import failures, forked_ranks, heartbeat, launchers, slurm_job
from tfscaling.launch.launchers import Command
from tfscaling.launch.rank_messages import RankMessageServer
from tfscaling.record.attempts import Cause
from tfscaling.record.events import Event, EventName, RankActivity

#: Seconds that ranks which outlive a failed one get to end by themselves; then SIGTERM, then
#: SIGKILL.
GRACE_S = 10.0
#: The same if a signal ends ranks that write a checkpoint first: less than Slurm gives them.
CHECKPOINT_GRACE_S = 25.0
#: Seconds that programs which are given up get to end and to report where they hung.
GIVEN_UP_S = 10.0
#: Signals that end a launcher in an orderly way: by scancel and time limits, Ctrl-C, a terminal
#: that closes.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: The signal before a time limit: ranks that write checkpoints then write one.
WARNING = signal.SIGUSR1
#: Seconds between two looks at the processes.
_POLL_S = 0.2
#: Seconds within which srun reports that Slurm signals the ranks as well.
_SRUN_REPORT_S = 1.0
#: Kinds of failures that ranks seem to have if Slurm signals them before it preempts the job.
_MAY_BE_PREEMPTED = (
    "rank_died",
    "rank_failed",
    "program_failed",
    "cancelled",
    "launch_failed",
)


class Supervisor:
    """Starts the ranks of one launch, watches them, and ends all of them together.

    Args:
        commands: The commands to start: one srun, or one command for each rank.
        messages: Receives the ranks' events, heartbeats and reports.
        stall_timeout_s: Limit of the stall detector in seconds.
        ranks: Number of ranks.
        grace_s: Seconds that ranks may take to end after a signal to the launcher; None: GRACE_S.
    """

    def __init__(
        self,
        commands: Sequence[Command],
        messages: RankMessageServer,
        stall_timeout_s: float,
        ranks: int,
        grace_s: float | None = None,
    ) -> None:
        self.commands, self.messages, self.stall_timeout_s = commands, messages, stall_timeout_s
        self.folder = messages.folder
        self.grace_s = grace_s
        self._ranks = ranks
        #: The log of srun, if it starts the ranks.
        self._srun_log = commands[0].log if commands[0].rank is None else None
        self._processes: list[subprocess.Popen[bytes]] = []
        #: Processes that have ended, in the order in which that was noticed.
        self._ended: list[subprocess.Popen[bytes]] = []
        self._signal: int | None = None

    def run(self) -> Cause | None:
        """Start all commands and wait until all have ended, one has failed, or the ranks hang.

        On return, no process of the launch is running.

        Returns:
            The cause of a failure; None after success.
        """
        previous = {number: signal.signal(number, self._store_signal) for number in SIGNALS}
        previous[WARNING] = signal.signal(WARNING, self._forward_signal)
        try:
            if self.commands[0].is_fork:
                self._processes.append(
                    forked_ranks.start_forking_process(self.commands, self.folder)
                )
            else:
                for command in self.commands:
                    self._processes.append(launchers.start_process(command))
            cause = self._watch()
        except OSError as error:
            cause = Cause(kind="launch_failed", message=str(error))
        finally:
            self._end_all()
            for number, handler in previous.items():
                signal.signal(number, handler)
        # the ranks get the signal, too
        if self._signal is not None and (
            cause is None
            or cause.kind in ("rank_died", "cancelled", "launch_failed")
            or cause.error == "killed by SIGTERM"
        ):
            return slurm_job.cause_by_slurm(self._srun_log) or cause_of_signal(self._signal)
        if cause is None:
            return None
        may_be = self._srun_log is not None and cause.kind in _MAY_BE_PREEMPTED
        if may_be and slurm_job.is_preempted(os.environ):
            said = "Slurm ended the job: preemption"
            return Cause(kind="preempted", message=said, last_lines=cause.last_lines)
        return failures.find_lost_node(cause, self._srun_log)

    def _poll(self, process: subprocess.Popen[bytes]) -> int | None:
        """Return the exit code of a process of the launch; None while it runs.

        If it has just ended, child processes that it left behind are killed. Later calls kill
        nothing, because its process id may belong to another process.
        """
        code = process.poll()
        if code is not None and process not in self._ended:
            self._ended.append(process)
            _signal_group(process, signal.SIGKILL)
        return code

    def _exits(self) -> dict[int, int | None]:
        """Return rank → exit code, for ranks that srun did not start; None while a rank runs.

        Ranks that have ended come first, in the order in which they ended.
        """
        if self.commands[0].is_fork:
            return {**forked_ranks.read_exit_codes(self.folder)}
        ranks = dict(zip(self._processes, (c.rank for c in self.commands), strict=True))
        codes = {process: self._poll(process) for process in self._processes}
        ordered = dict.fromkeys([*self._ended, *self._processes])
        return {rank: codes[p] for p in ordered if (rank := ranks[p]) is not None}

    def _store_signal(self, number: int, _: Any) -> None:
        """Store a signal that ends the launch: a signal handler."""
        self._signal = number

    def _forward_signal(self, number: int, _: Any) -> None:
        """Forward a warning signal to the ranks: a signal handler."""
        for process in self._processes:
            if self._poll(process) is None:
                _signal_group(process, number)

    def _watch(self) -> Cause | None:
        """Wait until the launch ends, fails or hangs; return the cause of a failure, or None."""
        now_s = time.monotonic()
        watch = heartbeat.StallDetector(self.stall_timeout_s, now_s, self._ranks)
        heard_s, seen_s = float("-inf"), now_s
        codes: list[int | None] = []
        while self._signal is None:
            now_s = time.monotonic()
            is_time = now_s - heard_s >= heartbeat.READ_INTERVAL_S
            stall = None
            try:
                codes = [self._poll(process) for process in self._processes]
                if is_time or None not in codes:
                    codes += self._exits().values()
                if is_time:
                    heard_s = now_s
                    self.messages.update()
                    watch.update(now_s, self.messages.progress, dict(self.messages.beats))
                    stall = watch.find_stall(self._activities)
                seen_s = now_s
            except OSError:  # a shared file system may be away for a while; the ranks may continue
                if now_s - seen_s > self.stall_timeout_s:
                    raise
            if any(codes):  # neither None nor 0
                # peers of a dead rank end by themselves within seconds and report why
                self._wait_for_all(GRACE_S)
                self.messages.receive_rest()
                watch.update(time.monotonic(), self.messages.progress, dict(self.messages.beats))
                if [*self._activities().values()] == [RankActivity.ENDED] * self._ranks:
                    return None  # what came after a rank's last word, as in its exit, is no failure
                return self._find_cause(
                    watch.recently_silent_ranks(self._activities(before_failing=True))
                )
            if codes and all(code == 0 for code in codes):
                return None
            if stall is not None:
                return self._end_stalled(stall)
            time.sleep(_POLL_S)
        return None

    def _end_stalled(self, stall: heartbeat.Stall) -> Cause:
        """Return the cause of a hang, with the lines of code at which the user's programs hang.

        To find these lines, the programs are ended.

        Args:
            stall: The detected hang.
        """
        cause = failures.cause_of_stall(self.folder, stall.message, stall.rank, self._ranks)
        if not failures.is_program_running(self.folder):
            return cause
        self.messages.request_give_up()
        until_s = time.monotonic() + GIVEN_UP_S
        # a silent rank will not report anything more
        while (
            failures.is_program_running(self.folder, ignored_rank=stall.rank)
            and time.monotonic() < until_s
        ):
            time.sleep(_POLL_S)
            self.messages.update()
        return failures.add_hang_lines(cause, self.folder)

    def _activities(self, *, before_failing: bool = False) -> dict[int, RankActivity]:
        """Return rank → its present activity, for ranks that have reported an event.

        Args:
            before_failing: Whether to ignore events `failed`: a failed rank then has its activity
                before the failure.
        """
        self.messages.update(files=True)
        found = {}
        for rank, lines in sorted(dict(self.messages.events).items()):
            seen = [e for e in lines if not before_failing or e.name is not EventName.FAILED]
            if seen:
                found[rank] = find_activity(seen)
        return found

    def _end_all(self) -> None:
        """End all processes of the launch: first by SIGTERM, after the grace period by SIGKILL."""
        grace_s = GRACE_S if self._signal is None else self.grace_s or GRACE_S
        begun_s = time.monotonic()
        if self._terminate_ranks_by_slurm():
            self._wait_for_all(grace_s - (time.monotonic() - begun_s))
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._processes:
                if self._poll(process) is None:
                    _signal_group(process, number)
                    _signal_group(process, signal.SIGCONT)  # a stopped rank gets it only then
            self._wait_for_all(grace_s)
        for process in self._processes:
            process.wait()
            self._poll(process)
        if self._srun_log is not None and any(p.returncode < 0 for p in self._processes):
            self._signal_step("KILL")  # a killed srun ends no rank

    def _wait_for_all(self, limit_s: float) -> None:
        """Wait until all processes have ended, for at most `limit_s` seconds."""
        deadline = time.monotonic() + limit_s
        while any(self._poll(p) is None for p in self._processes) and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _terminate_ranks_by_slurm(self) -> bool:
        """After a signal to the launcher, let Slurm send SIGTERM to the ranks.

        The ranks can then write a checkpoint. A signal to srun itself would kill them at once.

        Returns:
            Whether Slurm has signalled the ranks; False without srun.
        """
        if self._signal is None or self._srun_log is None:
            return False
        self._wait_for_all(_SRUN_REPORT_S)
        if any("CANCELLED" in line for line in slurm_job.read_slurm_messages(self._srun_log)):
            return True  # Slurm has already signalled the ranks
        if all(self._poll(process) is not None for process in self._processes):
            return False
        return self._signal_step("TERM")

    def _signal_step(self, name: str) -> bool:
        """Let Slurm send a signal to the ranks of the step; return whether Slurm has sent it.

        Args:
            name: Name of the signal, such as TERM.
        """
        seen = self.messages.events.values()
        steps = {step for lines in [*seen] if (step := lines[0].details.get("step"))}
        if len(steps) != 1:  # none has started
            return False
        return SlurmClient(GRACE_S).signal(steps, name) is None

    def _find_cause(self, silent_ranks: set[int]) -> Cause:
        """Return the cause after a rank has failed.

        Args:
            silent_ranks: Ranks that missed heartbeats before the failure.
        """
        if ended := slurm_job.cause_by_slurm(self._srun_log):
            return failures.add_rank_of_host(ended, self.folder)
        srun = slurm_job.read_srun_errors(self._srun_log) if self._srun_log else {}
        killed = self._describe_killed_starter()
        cause = failures.find_cause(self.folder, self._exits(), srun, silent_ranks, killed)
        words = slurm_job.read_slurm_messages(self._srun_log)
        own = [] if cause.rank is None else self.messages.events.get(cause.rank, [])
        return failures.add_last_line(failures.mark_out_of_memory(cause, own, words))

    def _describe_killed_starter(self) -> str | None:
        """Return a clause if a signal ended the process that starts all ranks; None if none did."""
        is_fork = self.commands[0].is_fork
        code = self._poll(self._processes[0]) if is_fork or self._srun_log is not None else None
        if code is None or code >= 0:
            return None
        starter = "the process that forks the ranks" if is_fork else "srun"
        return f"{starter} was {failures.describe_exit(code)}"


def cause_of_signal(number: int) -> Cause:
    """Return the cause `cancelled` for a launcher that received the signal with this number."""
    name = signal.Signals(number).name
    return Cause(kind="cancelled", message=f"the launcher received {name}")


def find_activity(events: Sequence[Event]) -> RankActivity:
    """Return the present activity of a rank from its events so far, at least one."""
    last = events[-1]
    if last.name is EventName.END:
        return RankActivity.ENDED
    if any(event.name is EventName.PROGRAM_STARTED for event in events):
        return RankActivity.WAITING
    if last.name is EventName.RENDEZVOUS and last.details.get("serves"):
        return RankActivity.WAITING
    if last.name.activity is RankActivity.TRAINING and _has_pipeline(events):
        return RankActivity.WAITING
    return last.name.activity


def _has_pipeline(events: Sequence[Event]) -> bool:
    """Return whether a rank reads its data from an input pipeline, by its events."""
    return any(e.name is EventName.DATA and e.details.get("pipeline") for e in events)


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the process group of a process, if it still exists."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
