"""Starting the ranks, watching them, ending them together. Layer 2 (job)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfscaling import failures
from tfscaling.launchers import Command

#: Ranks that outlive a failed one get this long to end by themselves, then SIGTERM, then SIGKILL.
GRACE_S = 10.0
_POLL_S = 0.2


class Supervisor:
    """Runs the commands of one launch until all ended, one failed, or nothing moves.

    `folder` has the ranks' events, `stall_timeout_s` is how long no event may appear.
    """

    def __init__(self, commands: Sequence[Command], folder: Path, stall_timeout_s: float) -> None:
        self.commands, self.folder, self.stall_timeout_s = commands, folder, stall_timeout_s
        self._processes: list[subprocess.Popen[bytes]] = []
        self._signal: int | None = None

    def run(self) -> dict[str, Any] | None:
        """Start everything and wait: None after success, else the cause of the failure.

        Afterwards no process of the launch is left.
        """
        previous: dict[int, Any] = {}
        for caught in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            previous[caught] = signal.signal(caught, self._remember)
        try:
            for command in self.commands:
                self._processes.append(_start(command))
            return self._watch()
        except OSError as error:
            return {"kind": "launch_failed", "message": str(error), "rank": None, "last_lines": []}
        finally:
            self._end_all()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _remember(self, number: int, _: Any) -> None:
        self._signal = number

    def _watch(self) -> dict[str, Any] | None:
        progress, moved_s = self._progress(), time.monotonic()
        while True:
            if self._signal is not None:
                name = signal.Signals(self._signal).name
                return {"kind": "cancelled", "message": f"the launcher received {name}"}
            codes = [process.poll() for process in self._processes]
            if any(codes):  # neither None nor 0
                self._wait_for_the_others()
                return self._why()
            if all(code == 0 for code in codes):
                return None
            if (now := self._progress()) != progress:
                progress, moved_s = now, time.monotonic()
            elif time.monotonic() - moved_s > self.stall_timeout_s:
                return failures.stalled(self.folder, self.stall_timeout_s)
            time.sleep(_POLL_S)

    def _progress(self) -> int:
        """Grows with every event of every rank."""
        return sum(path.stat().st_size for path in self.folder.glob("rank-*.events.jsonl"))

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
            deadline = time.monotonic() + GRACE_S
            while any(p.poll() is None for p in self._processes) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        for process in self._processes:
            process.wait()
            _signal_group(process, signal.SIGKILL)  # children that a dead rank left behind

    def _why(self) -> dict[str, Any]:
        exits = {
            command.rank: process.poll()
            for command, process in zip(self.commands, self._processes, strict=True)
            if command.rank is not None
        }
        srun = {} if exits else failures.srun_errors(self.commands[0].log)
        return failures.find_cause(self.folder, exits, srun)


def _start(command: Command) -> subprocess.Popen[bytes]:
    with command.log.open("ab") as log:
        return subprocess.Popen(
            command.argv,
            env={**os.environ, **command.env},
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
