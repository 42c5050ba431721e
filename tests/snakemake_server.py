"""Calls of the program snakemake, each in a fork of one process that has imported it.

Three quarters of a short call's CPU time is this import, and the tests make hundreds of calls.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import importlib
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("snakemake")
#: Seconds after which a call hangs, also on a busy machine.
LIMIT_S = 1200.0
#: The exit code of a call that a signal has ended, whichever it was.
KILLED = -signal.SIGKILL
#: Seconds that a call may take to print its stacks and end.
_ABORT_S = 20.0


class HangError(Exception):
    """A call of snakemake did not end; the text has its output and the stacks of its threads."""


def call(
    arguments: Sequence[str],
    folder: Path,
    environ: Mapping[str, str],
    limit_s: float | None = LIMIT_S,
) -> tuple[int, str]:
    """Run `snakemake ARGUMENTS` in `folder`; returns exit code, and stdout with stderr.

    The exit code is KILLED if a signal has ended the call.

    A call that does not end prints the stacks of its threads and is killed: after `limit_s` seconds
    (HangError), or when the test is interrupted, as by its own limit.
    """
    with tempfile.NamedTemporaryFile("r", errors="replace") as output:
        call = [list(arguments), str(folder), dict(environ), output.name]
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(_started())
            client.sendall(json.dumps(call).encode() + b"\n")
            answer = client.makefile()
            pid = int(answer.readline())
            client.settimeout(limit_s)
            try:
                code = answer.read()
            except TimeoutError:
                _abort(pid, client)
                text = f"snakemake did not end within {limit_s:g} s: {output.read()}"
                raise HangError(text) from None
            except BaseException:
                _abort(pid, client)
                print("snakemake was ended with the test:", output.read())
                raise
        return int(code or KILLED), output.read()


def _abort(pid: int, client: socket.socket) -> None:
    """End a call, which prints the stacks of its threads; returns when it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGABRT)
    client.settimeout(_ABORT_S)
    with contextlib.suppress(TimeoutError):
        client.recv(1)


@cache
def _started() -> str:
    """The address of this process's server, which ends with it."""
    folder = tempfile.TemporaryDirectory()
    address = f"{folder.name}/socket"
    server = subprocess.Popen(
        [sys.executable, __file__, address], stdout=subprocess.PIPE, cwd="/", text=True
    )

    def end() -> None:
        server.kill()
        server.wait()
        folder.cleanup()

    atexit.register(end)
    assert server.stdout
    assert server.stdout.readline() == "ready\n"
    return address


class _Call(socketserver.StreamRequestHandler):
    """One call, in a process of its own."""

    def handle(self) -> None:
        from snakemake.cli import main

        arguments, folder, environ, output = json.loads(self.rfile.readline())
        file = os.open(output, os.O_WRONLY)
        os.dup2(file, 1)
        os.dup2(file, 2)
        faulthandler.enable(file=2)
        self.wfile.write(f"{os.getpid()}\n".encode())
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environ)
        sys.argv = [str(PROGRAM), *arguments]
        sys.path[0] = str(PROGRAM.parent)  # in place of the tests
        atexit._clear()  # what the server has registered
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        if isinstance(code, str):  # as Python does at the end of a program
            print(code, file=sys.stderr)
        atexit._run_exitfuncs()  # a fork that only ends a request runs none
        sys.stdout.flush()
        sys.stderr.flush()
        self.wfile.write(str(1 if isinstance(code, str) else code or 0).encode())


class _Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    max_children = 100
    parent = os.getppid()

    def service_actions(self) -> None:
        super().service_actions()
        if os.getppid() != self.parent:  # killed, it could not end this one
            sys.exit()


#: What snakemake and the workflow's rules import when they are called.
LIBRARIES = (
    *("snakemake.cli", "snakemake.report", "yte", "smart_open", "jinja2", "jsonschema", "numpy"),
    *("pandas", "docutils.core", "pygments.lexers", "PIL.Image", "msgspec.json"),
)


def serve(address: str) -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    with _Server(address, _Call) as server:
        gc.freeze()
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1])
