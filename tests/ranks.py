"""Ranks of trainings as processes on this machine, and TensorFlow programs in processes.

All are forks of the process that has loaded TensorFlow (loaded_python.py), where that is possible.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import loaded_python
from builders import SCRIPTS
from tfscaling.launch.launchers import LAUNCHERS, LaunchRequest
from tfscaling.study.geometry import Geometry

#: A deadlock is a failure.
LIMIT_S = 900
#: Python of the ranks; `make versions` names the Pythons of environments with older TensorFlow.
PYTHON = os.environ.get("TRAINER_PYTHON", sys.executable)
#: MPI takes the loopback device: links of virtual clusters vanish while it starts.
_OWN = {
    "PYTHONPATH": str(SCRIPTS),
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "UCX_NET_DEVICES": "lo",
}
Found = dict[str, Any]


@contextmanager
def on_one_cpu() -> Iterator[None]:
    """Let processes that start within the context use only one CPU, drawn at random."""
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {random.choice(sorted(usual))})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usual)


class RankFailedError(AssertionError):
    """A process has failed: `log` is its own, the message has the ends of all."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


class Ranks:
    """Processes of one program; the last word of each is the file for what it found."""

    def __init__(self, program: ModuleType, stack: ExitStack) -> None:
        self._program, self._stack = str(program.__file__), stack
        self._running: dict[Path, subprocess.Popen[bytes]] = {}

    def start(self, output: Path, *words: str, environ: Mapping[str, str] | None = None) -> None:
        """Start a process."""
        log = self._stack.enter_context(output.with_suffix(".log").open("w"))
        self._running[output] = subprocess.Popen(
            [PYTHON, self._program, *words, str(output)],
            env=loaded_python.environ({**os.environ, **(environ or {}), **_OWN}),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        self._stack.callback(self._running[output].wait)
        self._stack.callback(self._running[output].kill)

    def start_job(
        self, folder: Path, geometry: Geometry, jobs: Mapping[str, int], *words: str
    ) -> None:
        """Start the ranks of a job as the local launcher does; rank N writes `folder`/N.json.

        Each may use one CPU, as with Slurm's default of one CPU for a task.
        """
        request = LaunchRequest([], geometry, jobs, 1, folder, False, mpi="", resources=self._stack)
        for command in LAUNCHERS["local"](request):
            with on_one_cpu():
                self.start(folder / f"{command.rank}.json", *words, environ=command.env)

    def _logs(self) -> str:
        """The ends of the logs of all ranks: the first to fail is not the first to be noticed."""
        logs = [output.with_suffix(".log") for output in self._running]
        return "\n".join(f"--- {log}\n{log.read_text()[-4000:]}" for log in logs)

    def _failed(self) -> dict[Path, int]:
        """Output of each process that has failed → its exit code, below 0 if a signal ended it."""
        codes = {output: process.poll() for output, process in self._running.items()}
        return {output: code for output, code in codes.items() if code}

    def found(self, limit_s: float = LIMIT_S) -> list[Found]:
        """Wait for all processes; what each found. The first that fails ends the wait of others."""
        deadline_s = time.monotonic() + limit_s
        while not self._failed() and any(p.poll() is None for p in self._running.values()):
            assert time.monotonic() < deadline_s, self._logs()
            time.sleep(0.05)
        if self._failed():
            time.sleep(1)  # ranks that lose another one fail, too: the cause is one by a signal
            failed = self._failed()
            output = min(failed, key=failed.__getitem__)
            message = f"{output} ended with {failed[output]}\n{self._logs()}"
            raise RankFailedError(message, output.with_suffix(".log").read_text())
        return [json.loads(output.read_text()) for output in self._running]


@contextmanager
def ranks_of(program: ModuleType) -> Iterator[Ranks]:
    """Processes of a program, which end with the context."""
    with ExitStack() as stack:
        yield Ranks(program, stack)


def run_tensorflow(
    code: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python code that loads TensorFlow, as `builders.run_python` does."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "loaded/program.py")  # loaded/sitecustomize.py knows the name
        program.parent.mkdir()
        program.write_text(code)
        return subprocess.run(
            [sys.executable, str(program), *arguments],
            env=loaded_python.environ({**os.environ, **_OWN, **environment}),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
