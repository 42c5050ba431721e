"""Python imports this when it starts, where PYTHONPATH names this folder.

One of _PROGRAMS then runs in a fork of the server of tests/loaded_python.py, and the process that
was started stands for it: it has its standard streams, passes signals on, and ends as it does.
"""

import os
import sys

#: Folder → programs in it; the workflow's own lie in copies of it, too.
_PROGRAMS = {
    "scripts": {
        "run_rank.py", "check_models.py", "tfscaling",
    },
    "tests": {
        "strategy_rank.py", "oracle_rank.py", "pipelines_rank.py",
        "mpi_all_reduce_rank.py",
    },
    "loaded": {"program.py"},
}  # fmt: skip


def _is_served() -> bool:
    folder, name = os.path.split(os.path.abspath(sys.orig_argv[1]))
    return name in _PROGRAMS.get(os.path.basename(folder), ())


def _surroundings() -> "list[object]":
    """What a process has from its parent; if it is the server's, a fork is as good as a start."""
    import resource

    libraries = (
        *("TF_", "XLA_", "KERAS_", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "MPL", "CUDA_", "LD_"),
        *("MALLOC_", "PYTHON", "LC_", "LANG", "TZ"),
    )
    # taken by a fork as it is, or read with the first operation
    own = ["TF_CONFIG", "TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES", "PYTHONPATH"]
    # Snakemake sets them for each rule; TensorFlow has threads of its own
    own += [f"{library}_NUM_THREADS" for library in ("OMP", "MKL", "OPENBLAS")]
    read = {k: v for k, v in os.environ.items() if k.startswith(libraries) and k not in own}
    spaces = [os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "net", "pid", "user")]
    limits = [resource.getrlimit(n) for n in (resource.RLIMIT_FSIZE, resource.RLIMIT_AS)]
    with open("/proc/self/cgroup") as file:
        # `python` and `python3` of an environment are the same
        python = [sys.prefix, os.path.realpath(sys.executable)]
        return [python, sorted(read.items()), spaces, limits, file.read()]


def _run(address: str) -> None:
    """Run this process's program in a fork and end; returns if it is to run here."""
    import contextlib
    import json
    import signal
    import socket

    signals = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1]
    ignored = [number for number in signals if signal.getsignal(number) == signal.SIG_IGN]
    umask = os.umask(0o077)
    os.umask(umask)
    call = {
        "surroundings": repr(_surroundings()), "argv": sys.orig_argv[1:], "folder": os.getcwd(),
        "environ": dict(os.environ), "path": sys.path, "umask": umask, "ignored": ignored,
        "cpus": sorted(os.sched_getaffinity(0)), "executable": sys.executable,
    }  # fmt: skip
    text = json.dumps(call).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)

        def pass_on(number: int, _: object) -> None:
            with contextlib.suppress(OSError):  # the fork has ended
                server.send(bytes([number]))

        socket.send_fds(server, [len(text).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(text)
        if server.recv(1) == b"n":
            return
        for number in set(signals) - set(ignored):
            signal.signal(number, pass_on)
        code = int(server.makefile().read() or 255)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if (_address := os.environ.get("LOADED_PYTHON")) and len(sys.orig_argv) > 1 and _is_served():
    _run(_address)
