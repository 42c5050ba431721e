"""The MPI library of a rank: loading it, its communicators, and Slurm's answers to it.

By `srun --mpi=pmi2` ranks exchange their addresses through Slurm: PMI, version 1, one line per
request. Slurm reads at most 1,024 bytes at a time and takes them for one request (handle_pmi1_cmd
in src/plugins/mpi/pmi2/pmi1.c, August 2026), but allows values of 1,024 bytes, whose line is
longer. MPICH 5 publishes 4,096 bytes, its address and the memory behind it, in values as long as
allowed, and packs zeros: it starts where that memory is empty, and fails or hangs where a library
as large as TensorFlow has used it. Shorter values are enough.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Longest value that MPICH may publish: a line has at most 256 bytes besides it.
_VALUE_BYTES = 1024 - 256


@contextlib.contextmanager
def limited_pmi_values() -> Iterator[None]:
    """Lower the length limit of PMI values that Slurm reports to the MPI library in the block.

    Slurm's own limit allows values that Slurm cannot read; see the module's docstring. A thread
    passes the library's requests to Slurm and lowers `vallen_max` in Slurm's answers. So within
    the `with` block, the library must be started by a call that releases the GIL. If PMI_FD is not
    set, Slurm did not start this process, and nothing changes.
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
    """Pass each request of the library to Slurm and Slurm's answer back, until the library ends.

    A thread of `limited_pmi_values` runs this.

    Args:
        library: The socket to the MPI library.
        slurm: File descriptor of the connection to Slurm.
    """
    with library, library.makefile("rb") as requests, open(slurm, "rb", closefd=False) as answers:
        for request in requests:
            os.write(slurm, request)
            library.sendall(_limit_value_length(answers.readline()))


def _limit_value_length(answer: bytes) -> bytes:
    """Return an answer of Slurm, with a lower `vallen_max` if it has one."""
    return re.sub(rb"(?<=vallen_max=)\d+", lambda n: b"%d" % min(int(n[0]), _VALUE_BYTES), answer)


#: Environment variables for MPICH, which polls while it waits: after this many polls without
#: progress it sleeps for a moment. Where ranks share cores, a rank that polls takes the core from
#: the rank that it waits for.
_WAITING = {
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "50",
}


#: Beginning of the file names of MPICH's shared memory. Killed processes leave such files.
_MEMORY = "/dev/shm/mpich_shm_"


class MpiError(RuntimeError):
    """The ranks cannot communicate by MPI."""


def world_communicator(rank: int, ranks: int) -> Any:
    """Return mpi4py's COMM_WORLD; the first call loads the MPI library and waits for all ranks.

    Args:
        rank: This process's rank, by the launcher.
        ranks: Number of ranks.

    Raises:
        MpiError: No MPI library can be loaded, or its ranks differ from the launcher's.
    """
    try:
        import mpi4py
    except ImportError as error:
        raise MpiError(f"{error}; `make setup TRAINER=1` installs mpi4py") from error
    # a rank that fails must end: at its end the library would wait for the others
    mpi4py.rc.finalize = False
    mpi4py.rc.initialize = False
    for variable, value in _WAITING.items():
        os.environ.setdefault(variable, value)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MpiError(
            f"no MPI library can be loaded ({error}). Install the package mpich, or load the "
            "cluster's own in the platform's `setup`, or name its file by MPI4PY_LIBMPI in `env`"
        ) from error
    if not MPI.Is_initialized():
        with limited_pmi_values():
            _initialize(MPI)
    world = MPI.COMM_WORLD
    if (world.rank, world.size) != (rank, ranks):
        raise MpiError(
            f"rank {rank} of {ranks} is rank {world.rank} of {world.size} for the MPI library "
            f"({library_version()}): it does not see the others. With srun the platform's `mpi` "
            "must be a type that both know: pmi2 for MPICH, pmix for Open MPI; see "
            "`srun --mpi=list`"
        )
    return world


def _initialize(mpi: Any) -> None:
    """Initialise MPI by a call that releases the GIL, and wait for the other ranks.

    mpi4py's own initialisation keeps the GIL: the rank would send no heartbeats, and the launcher
    would end it as hanging.

    Args:
        mpi: The module mpi4py.MPI.

    Raises:
        MpiError: The library reports an error.
    """
    init_thread = ctypes.CDLL(mpi.__file__).MPI_Init_thread
    provided = ctypes.c_int()
    # TensorFlow's threads call it, one after the other
    if code := init_thread(None, None, mpi.THREAD_SERIALIZED, ctypes.byref(provided)):
        raise MpiError(f"MPI_Init_thread ended with {code}: {mpi.Get_error_string(code)}")
    # as mpi4py does when it initialises MPI: errors become exceptions
    for own in (mpi.COMM_WORLD, mpi.COMM_SELF):
        own.Set_errhandler(mpi.ERRORS_RETURN)


def node_communicator(world: Any) -> Any:
    """Return mpi4py's communicator of the ranks on this node.

    The file name of MPICH's shared memory is removed, so that killed ranks leave no file.

    Args:
        world: The communicator of all ranks.
    """
    from mpi4py import MPI

    found = world.Split_type(MPI.COMM_TYPE_SHARED)
    found.Barrier()
    for line in Path("/proc/self/maps").read_text().splitlines():
        if _MEMORY in line:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_MEMORY + line.partition(_MEMORY)[2])
    return found


def library_version() -> str | None:
    """Return name and version of the MPI library in one line; None if none is loaded."""
    if "mpi4py.MPI" not in sys.modules:
        return None
    from mpi4py import MPI

    words: str = MPI.Get_library_version()
    return " ".join(words.strip("\0\n").split("\n")[0].split())


def finalize() -> None:
    """Finalise MPI, which `world_communicator` has initialised; all ranks must call this."""
    from mpi4py import MPI

    MPI.Finalize()
