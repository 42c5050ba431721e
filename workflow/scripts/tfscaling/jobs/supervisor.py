"""Starting the ranks, watching them, ending them together.

What is started ends with the launcher, even if that is killed: a rank that goes on would take the
cores of the next measurement.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfscaling.jobs import failures, hangs, heartbeat
from tfscaling.jobs.launchers import Command
from tfscaling.jobs.process_control import ending_with_parent
from tfscaling.records.failure_report import Cause

#: Ranks that outlive a failed one get this long to end by themselves, then SIGTERM, then SIGKILL.
GRACE_S = 10.0
#: The same when a signal ends ranks that write a checkpoint first: less than Slurm gives them.
CHECKPOINT_GRACE_S = 25.0
#: What ends a launcher in an orderly way: scancel and time limits, Ctrl-C, a terminal that closes.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: What says that a time limit is near: ranks that write checkpoints write one.
WARNING = signal.SIGUSR1
_POLL_S = 0.2


class Supervisor:
    """Runs the commands of one launch until all ended, one failed, or nothing moves.

    `folder` has the ranks' events and heartbeats, `stall_timeout_s` is the limit for
    `heartbeat.Watch`; `grace_s` is how long ranks may take to end when a signal ends the launch, if
    that is not GRACE_S.
    """

    def __init__(
        self,
        commands: Sequence[Command],
        folder: Path,
        stall_timeout_s: float,
        grace_s: float | None = None,
    ) -> None:
        self.commands, self.folder, self.stall_timeout_s = commands, folder, stall_timeout_s
        self.grace_s = grace_s
        self._processes: list[subprocess.Popen[bytes]] = []
        self._signal: int | None = None

    def run(self) -> Cause | None:
        """Start everything and wait: None after success, else the cause of the failure.

        Afterwards no process of the launch is left.
        """
        previous: dict[int, Any] = {}
        for caught in SIGNALS:
            previous[caught] = signal.signal(caught, self._remember)
        previous[WARNING] = signal.signal(WARNING, self._pass_on)
        try:
            for command in self.commands:
                self._processes.append(_start(command))
            cause = self._watch()
        except OSError as error:
            cause = Cause(kind="launch_failed", message=str(error))
        finally:
            self._end_all()
            for number, handler in previous.items():
                signal.signal(number, handler)
        if cause is None and self._signal is not None:  # it came while the last processes ended
            return cancelled(self._signal)
        return cause

    def _remember(self, number: int, _: Any) -> None:
        self._signal = number

    def _pass_on(self, number: int, _: Any) -> None:
        for process in self._processes:
            if process.poll() is None:
                _signal_group(process, number)

    def _watch(self) -> Cause | None:
        now_s = time.monotonic()
        watch, beats, heard_s = heartbeat.Watch(self.stall_timeout_s, now_s), {}, -math.inf
        while True:
            if self._signal is not None:
                return cancelled(self._signal)
            codes = [process.poll() for process in self._processes]
            now_s = time.monotonic()
            if now_s - heard_s >= heartbeat.READ_INTERVAL_S:
                beats, heard_s = heartbeat.read(self.folder), now_s
            watch.see(now_s, self._progress(), beats)
            if any(codes):  # neither None nor 0
                self._wait_for_the_others()
                return self._why(watch.lately_silent())
            if all(code == 0 for code in codes):
                return None
            if stall := watch.stall(self._ended):
                cause = failures.stalled(self.folder, stall.message, stall.rank)
                return hangs.with_places(cause, self.folder)
            time.sleep(_POLL_S)

    def _progress(self) -> int:
        """Grows with every event of every rank."""
        return sum(path.stat().st_size for path in self.folder.glob("rank-*.events.jsonl"))

    def _ended(self) -> set[int]:
        seen = failures.rank_events(self.folder)
        return {rank for rank, lines in seen.items() if lines[-1]["event"] == "end"}

    def _wait_for_the_others(self) -> None:
        """Peers of a dead rank end by themselves within seconds and say why; let them."""
        deadline = time.monotonic() + GRACE_S
        while any(p.poll() is None for p in self._processes) and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _end_all(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._processes:
                if process.poll() is None:
                    _signal_group(process, number)
            grace_s = GRACE_S if self._signal is None else self.grace_s or GRACE_S
            deadline = time.monotonic() + grace_s
            while any(p.poll() is None for p in self._processes) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        for process in self._processes:
            process.wait()
            _signal_group(process, signal.SIGKILL)  # children that a dead rank left behind

    def _why(self, silent: set[int]) -> Cause:
        exits = {
            command.rank: process.poll()
            for command, process in zip(self.commands, self._processes, strict=True)
            if command.rank is not None
        }
        srun = {} if exits else failures.srun_errors(self.commands[0].log)
        return failures.find_cause(self.folder, exits, srun, silent)


def cancelled(number: int) -> Cause:
    """The cause when the launcher received a signal."""
    name = signal.Signals(number).name
    return Cause(kind="cancelled", message=f"the launcher received {name}")


def _start(command: Command) -> subprocess.Popen[bytes]:
    # srun ends its step when it is asked to; a rank, as it may be stopped, is not asked
    number = signal.SIGTERM if command.rank is None else signal.SIGKILL
    with command.log.open("ab") as log:
        return subprocess.Popen(
            command.argv,
            env={**os.environ, **command.env},
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=ending_with_parent(number),
        )


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
