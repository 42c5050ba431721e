"""Slurm's answers to an MPI library that starts, without the requests that Slurm cannot read.

By `srun --mpi=pmi2` the ranks tell each other their addresses through Slurm: PMI, version 1, a line
for each request. Slurm reads at most 1,024 bytes at a time and takes them for one request (handle_
pmi1_cmd in src/plugins/mpi/pmi2/pmi1.c, also of August 2026), but allows values of 1,024 bytes: the
line of such a value is longer. MPICH 5 publishes 4,096 bytes, its address and the memory behind it,
in values as long as allowed, and packs zeros: it starts where that memory is empty, and fails or
hangs where a library as large as TensorFlow has used it. Shorter values are all that is needed.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections.abc import Iterator

#: A line has at most 256 bytes besides its value: two names, and the words.
_VALUE_BYTES = 1024 - 256


@contextlib.contextmanager
def short_values() -> Iterator[None]:
    """While the context lasts this process's MPI library is told to keep its values short.

    The library must start in a call that gives up the GIL: a thread stands between it and Slurm.
    Does nothing for a process that Slurm has not given a connection, the variable PMI_FD.
    """
    if not (number := os.environ.get("PMI_FD")):
        yield
        return
    used = int(number)
    slurm = os.dup(used)
    relayed, library = socket.socketpair()
    os.dup2(library.fileno(), used, inheritable=True)
    thread = threading.Thread(target=_relay, args=(relayed, slurm), daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.dup2(slurm, used, inheritable=True)
        library.close()  # the last end of the library's side: the thread ends
        thread.join()
        os.close(slurm)


def _relay(library: socket.socket, slurm: int) -> None:
    """Pass each request to Slurm and its answer back, until the library's side ends."""
    with library, library.makefile("rb") as requests, open(slurm, "rb", closefd=False) as answers:
        for request in requests:
            os.write(slurm, request)
            library.sendall(_shortened(answers.readline()))


def _shortened(answer: bytes) -> bytes:
    def smaller(found: re.Match[bytes]) -> bytes:
        return b"vallen_max=%d" % min(int(found[1]), _VALUE_BYTES)

    return re.sub(rb"vallen_max=(\d+)", smaller, answer)
