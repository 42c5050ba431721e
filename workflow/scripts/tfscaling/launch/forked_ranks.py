"""Ranks as forks of one process, which has loaded what all of them need.

To load TensorFlow takes seconds of a core: many ranks on few cores would spend most of their start
on it. It can be forked until it starts threads, with its first operation; so the process only
loads. Ranks that use GPUs are not forked: a loaded driver cannot be.

`multiprocessing`'s forkserver is not used: its `start` blocks while it loads, its ranks outlive a
launcher that is killed, and the time to load would not count for each rank.

Launcher and process talk by a socket, the process's standard input: the launcher writes a line of
JSON for each rank, its environment and its log; the process answers `NUMBER forked PID` and
`NUMBER code CODE`. It ends when all its ranks have.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from tfscaling.launch.launchers import Command, ending_with_parent

#: The flag of a program whose process loads and forks its ranks, and is no rank itself.
FLAG = "--forks-ranks"
_ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: Exit code of a rank that was never forked, or whose end nobody saw.
_LOST = 255


class ForkedRank:
    """A rank in the launcher, with the part of `subprocess.Popen` that the supervisor uses."""

    def __init__(self, forking: subprocess.Popen[bytes]) -> None:
        #: Its process, or the one that is to fork it.
        self.pid = forking.pid
        self._code: int | None = None
        self._has_ended = threading.Event()

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._code

    def wait(self) -> int | None:
        """Its exit code, once it has ended."""
        self._has_ended.wait()
        return self._code

    def hear(self, said: str, value: int) -> None:
        """Take in what the forking process reports of this rank."""
        if said == "forked":
            self.pid = value
        elif self._code is None:
            self._code = value
            self._has_ended.set()


class Forking:
    """The process that forks the ranks of `commands`, as the launcher has it."""

    def __init__(self, commands: Sequence[Command]) -> None:
        shared = set.intersection(*(set(command.env.items()) for command in commands))
        self._channel, theirs = socket.socketpair()
        with theirs, commands[0].log.open("ab") as log:
            self.process = subprocess.Popen(
                [*commands[0].argv, FLAG],
                env={**os.environ, **dict(shared)},
                stdin=theirs.fileno(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=ending_with_parent(signal.SIGKILL),
            )
        self.ranks = [ForkedRank(self.process) for _ in commands]
        orders = [json.dumps({"env": c.env, "log": str(c.log)}) + "\n" for c in commands]
        self._thread = threading.Thread(target=self._talk, args=("".join(orders),), daemon=True)
        self._thread.start()

    def _talk(self, orders: str) -> None:
        with self._channel, contextlib.suppress(OSError):  # it has ended: its ranks are lost
            self._channel.sendall(orders.encode())
            self._channel.shutdown(socket.SHUT_WR)
            with self._channel.makefile("r") as lines:
                for line in lines:
                    number, said, value = line.split()
                    self.ranks[int(number)].hear(said, int(value))
        code = self.process.wait() or _LOST
        for rank in self.ranks:
            rank.hear("code", code)

    def end(self) -> None:
        """End the process if it has not ended, and with it its ranks."""
        self.process.kill()
        self._thread.join()


def is_asked(arguments: Sequence[str]) -> bool:
    """Whether the program's process is to fork ranks."""
    return FLAG in arguments


def fork_all(load: Callable[[], object], main: Callable[[], object]) -> NoReturn:
    """In the process that forks: `load`, fork the ranks that the launcher names, wait for them.

    A rank runs `main` with the program's arguments. If `load` fails, each rank loads by itself and
    reports the error.
    """
    sys.argv.remove(FLAG)
    # a warning that comes before a rank can take it ends nothing
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    channel = socket.socket(fileno=os.dup(0))
    with contextlib.suppress(Exception):
        load()
    # from here on the ranks are asked to end, not the process that reports how they ended
    for asking in _ASKING:
        signal.signal(asking, signal.SIG_IGN)
    running: dict[int, int] = {}
    for number, line in enumerate(channel.makefile("r").readlines()):
        order = json.loads(line)
        prepare = ending_with_parent(signal.SIGKILL)
        pid = os.fork()
        if pid == 0:
            prepare()
            channel.close()
            _be_rank(main, order["env"], order["log"])
        running[pid] = number
        channel.sendall(f"{number} forked {pid}\n".encode())
    while running:
        pid, status = os.wait()
        if pid in running:
            code = os.waitstatus_to_exitcode(status)
            channel.sendall(f"{running.pop(pid)} code {code}\n".encode())
    os._exit(0)


def _be_rank(main: Callable[[], object], environment: Mapping[str, str], log: str) -> NoReturn:
    """Run as a separate process would; never returns."""
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
    except SystemExit as error:  # as Python's own end
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
