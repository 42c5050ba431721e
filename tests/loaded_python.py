"""Python programs as forks of one process that has loaded their libraries.

Most of the CPU time of a rank of a small training, and of a program that makes a table, is the
import of TensorFlow, pandas or Matplotlib, and the tests make hundreds of them. With `environ()`
in its environment a process that Python starts for one of the programs in loaded/sitecustomize.py
runs it in such a fork instead; programs are loaded anew each time, libraries are not. A process
that has other libraries, variables of libraries, namespaces or limits runs it as always.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

FOLDER = Path(__file__).with_name("loaded")
#: What the programs import besides the workflow's own library.
LIBRARIES = (
    *("tensorflow", "numpy", "pandas", "pyarrow.parquet", "scipy.optimize", "scipy.special"),
    *("matplotlib.figure", "matplotlib.ticker", "matplotlib.backends.backend_svg"),
    *("itables.options", "jinja2", "msgspec.json", "yaml"),
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def environ(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with what a process needs to run its program in a fork."""
    if Path("/dev/nvidiactl").exists():  # what loads a GPU's driver cannot be forked
        return dict(environ)
    path = os.pathsep.join(filter(None, (environ.get("PYTHONPATH"), str(FOLDER))))
    return {**environ, "LOADED_PYTHON": _started(), "PYTHONPATH": path}


@cache
def _started() -> str:
    """The address of the server of this session of tests, with which it ends."""
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    folder = Path(tempfile.gettempdir(), f"loaded-python-{session}")
    folder.mkdir(exist_ok=True)
    owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    address = folder / "socket"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not address.exists():
            log = folder / "log"
            with log.open("w") as stderr:
                server = subprocess.Popen(
                    [sys.executable, __file__, str(address), str(owner)],
                    stdout=subprocess.PIPE, stderr=stderr, cwd="/", text=True,
                    start_new_session=True,
                )  # fmt: skip
            assert server.stdout
            assert server.stdout.readline() == "ready\n", log.read_text()
    return str(address)


class _Call(socketserver.BaseRequestHandler):
    """One program; this process watches it and the one that stands for it."""

    server: _Server

    def handle(self) -> None:
        connection: socket.socket = self.request
        length, streams, _, _ = socket.recv_fds(connection, 8, 3)
        call = json.loads(connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
        if call["surroundings"] != self.server.surroundings:
            connection.sendall(b"n")
            return
        pid = os.fork()
        if pid == 0:
            connection.close()
            self.server.socket.close()
            _run(call, streams)
        for stream in streams:
            os.close(stream)
        connection.sendall(b"y")
        ended = os.pidfd_open(pid)
        waited: list[Any] = [ended, connection]
        while ended not in select.select(waited, [], [])[0]:
            number = b""
            with contextlib.suppress(ConnectionError):
                number = connection.recv(1)  # nothing: it has ended
            _send(pid, number[0] if number else signal.SIGKILL)
            if not number:
                break
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError):
            connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _send(pid: int, number: int) -> None:
    """To the fork with all that it started, once it leads a group."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        os.kill(pid, number)  # not waited for yet, so it is there


def _run(call: dict[str, Any], streams: list[int]) -> NoReturn:
    """Run the program as a process of its own would; never returns."""
    code = 1
    try:
        os.setsid()
        for number in _SIGNALS:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if number in call["ignored"] else usual)
        for target, stream in enumerate(streams):
            os.dup2(stream, target)
            os.close(stream)
        os.sched_setaffinity(0, call["cpus"])
        os.umask(call["umask"])
        os.chdir(call["folder"])
        os.environ.clear()
        os.environ.update(call["environ"])
        sys.argv, sys.executable = call["argv"], call["executable"]
        path = Path(sys.argv[0]).resolve()
        program = str(path / "__main__.py") if path.is_dir() else sys.argv[0]
        sys.path[:] = [str(path if path.is_dir() else path.parent), *call["path"]]
        sys.path_importer_cache.clear()
        sys.modules["numpy"].random.seed()
        main = types.ModuleType("__main__")
        main.__file__ = program
        sys.modules["__main__"] = main
        text = compile(Path(program).read_bytes(), program, "exec")
        try:
            exec(text, main.__dict__)
            code = 0
        except SystemExit as error:
            code = _status(error)
        except BaseException as error:
            traceback.print_exception(error.with_traceback(_own(error)))
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python's own end
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _own(error: BaseException) -> types.TracebackType | None:
    """The traceback below this module."""
    return error.__traceback__ and error.__traceback__.tb_next


def _status(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


class _Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    max_children = 100
    surroundings: str
    owner: int

    def service_actions(self) -> None:
        super().service_actions()
        if select.select([self.owner], [], [], 0)[0]:  # the tests have ended
            sys.exit()


def serve(address: str, owner: int) -> None:
    watched = os.pidfd_open(owner)
    shim = runpy.run_path(str(FOLDER / "sitecustomize.py"))
    surroundings = repr(shim["_surroundings"]())
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    gc.disable()
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
    try:
        with _Server(address, _Call) as server:
            server.surroundings, server.owner = surroundings, watched
            print("ready", flush=True)
            server.serve_forever()
    finally:
        shutil.rmtree(Path(address).parent, ignore_errors=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
