"""Ranks as forks of one process, which has loaded what all of them need.

To load TensorFlow takes seconds of a core: many ranks on few cores would spend most of their start
on it. It can be forked as long as it has no threads of its own, which it starts with its first
operation; so the process does nothing but load. Ranks that use GPUs are not forked: what loads the
driver cannot be.

The launcher and the process talk by a socket, which is the process's standard input: the launcher
writes a line of JSON for each rank, its environment and its log, and the process answers `started
NUMBER PID` and `ended NUMBER CODE`. It ends when all its ranks have.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TextIO

from tfscaling.launch.process_control import ending_with_parent

#: The flag of a program whose process loads, forks its ranks, and is none itself.
FLAG = "--forks-ranks"
_ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: What a rank that was never forked, or whose end nobody saw, ends with.
_LOST = 255


class ForkedRank:
    """A rank in the launcher: of `subprocess.Popen` what the supervisor asks."""

    def __init__(self, parent: Forking) -> None:
        self._parent = parent
        self.code: int | None = None
        self.forked: int | None = None

    @property
    def pid(self) -> int:
        """Its own, or that of the process that is to fork it."""
        return self._parent.process.pid if self.forked is None else self.forked

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        self._parent.hear()
        return self.code

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        while (code := self.poll()) is None:
            self._parent.wait()
        return code


class Forking:
    """The process that forks ranks, as the launcher has it.

    `argv` is the program of a rank; `environments` and `logs` have one entry for each.
    """

    def __init__(
        self, argv: Sequence[str], environments: Sequence[Mapping[str, str]], logs: Sequence[Path]
    ) -> None:
        self._channel, theirs = socket.socketpair()
        shared = set.intersection(*(set(environment.items()) for environment in environments))
        with theirs, logs[0].open("ab") as log:
            self.process = subprocess.Popen(
                [*argv, FLAG],
                env={**os.environ, **dict(shared)},
                stdin=theirs.fileno(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=ending_with_parent(signal.SIGKILL),
            )
        self.ranks = [ForkedRank(self) for _ in environments]
        self._unread = b""
        orders = (
            json.dumps({"env": dict(environment), "log": str(log)}) + "\n"
            for environment, log in zip(environments, logs, strict=True)
        )
        with contextlib.suppress(OSError):  # it has ended: the ranks are lost
            self._channel.sendall("".join(orders).encode())
            self._channel.shutdown(socket.SHUT_WR)

    def hear(self) -> None:
        """Take in what the process has said so far."""
        self._take(socket.MSG_DONTWAIT)

    def wait(self) -> None:
        """Wait until it says something more, or has ended."""
        self._take(0)

    def end(self) -> None:
        """End the process if it has not ended, and with it its ranks."""
        self.process.kill()
        self._lose()

    def _take(self, flags: int) -> None:
        while self._channel.fileno() >= 0:
            try:
                got = self._channel.recv(65536, flags)
            except BlockingIOError:
                return
            except OSError:
                got = b""
            if not got:
                self._lose()
                return
            *lines, self._unread = (self._unread + got).split(b"\n")
            for line in lines:
                said, number, value = line.decode().split()
                rank = self.ranks[int(number)]
                if said == "started":
                    rank.forked = int(value)
                else:
                    rank.code = int(value)
            if flags == 0:
                return

    def _lose(self) -> None:
        """The process has ended: its ranks have, too."""
        self._channel.close()
        code = self.process.wait() or _LOST
        for rank in self.ranks:
            rank.code = code if rank.code is None else rank.code


def is_asked(arguments: Sequence[str]) -> bool:
    """Whether the program's process is to fork ranks."""
    return FLAG in arguments


def fork_all(load: Callable[[], object], main: Callable[[], object]) -> NoReturn:
    """In the process that forks: `load`, fork the ranks that the launcher names, wait for them.

    A rank runs `main` with the program's arguments. If `load` fails the ranks say why, which load
    then by themselves.
    """
    sys.argv.remove(FLAG)
    # a warning that comes before a rank can take it ends nothing
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    channel = socket.socket(fileno=os.dup(0))
    with contextlib.suppress(Exception):
        load()
    # from here on the ranks are asked to end, not the process that tells how they ended
    for asking in _ASKING:
        signal.signal(asking, signal.SIG_IGN)
    lines = channel.makefile("r").readlines()
    running: dict[int, int] = {}
    for number, line in enumerate(lines):
        order = json.loads(line)
        prepare = ending_with_parent(signal.SIGKILL)
        pid = os.fork()
        if pid == 0:
            prepare()
            channel.close()
            _be_rank(main, order["env"], order["log"])
        running[pid] = number
        channel.sendall(f"started {number} {pid}\n".encode())
    while running:
        pid, status = os.wait()
        if pid in running:
            code = os.waitstatus_to_exitcode(status)
            channel.sendall(f"ended {running.pop(pid)} {code}\n".encode())
    os._exit(0)


def _be_rank(main: Callable[[], object], environment: Mapping[str, str], log: str) -> NoReturn:
    """Run as a process of its own would; never returns."""
    code = 1
    try:
        os.setsid()
        for asking in _ASKING:
            signal.signal(asking, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        for target, source in ((0, nothing), (1, output), (2, output)):
            os.dup2(source, target)
        os.environ.update(environment)
        main()
        code = 0
    except SystemExit as error:
        code = _status(error, sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _status(error: SystemExit, stderr: TextIO) -> int:
    """As Python's own end."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    print(error.code, file=stderr)
    return 1
