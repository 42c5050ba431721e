"""MPI as a rank has it: the library loaded, the ranks together."""

from __future__ import annotations

import os
from typing import Any

#: MPICH polls while it waits: after so many polls without progress it is to sleep for a moment.
#: Where ranks have to share cores, one that polls keeps those that it waits for from theirs.
_WAITING = {
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "50",
}


class MpiError(RuntimeError):
    """The ranks cannot talk by MPI."""


def communicator(rank: int, ranks: int) -> Any:
    """That of all ranks, in which this one has this number: mpi4py's COMM_WORLD.

    Loads the library, and waits for the other ranks. Raises MpiError if there is none, or if it
    knows of other ranks than the launcher. What the environment says of the library is kept.
    """
    try:
        import mpi4py
    except ImportError as error:
        raise MpiError(f"{error}; `make setup` installs mpi4py") from error
    # a rank that fails must end: at its end the library would wait for the others
    mpi4py.rc.finalize = False
    # TensorFlow's threads call it, one after the other
    mpi4py.rc.thread_level = "serialized"
    for variable, value in _WAITING.items():
        os.environ.setdefault(variable, value)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MpiError(
            f"no MPI library can be loaded ({error}). Install the package mpich, or load the "
            "cluster's own in the platform's `setup`, or name its file by MPI4PY_LIBMPI in `env`"
        ) from error
    world = MPI.COMM_WORLD
    if (world.rank, world.size) != (rank, ranks):
        library = MPI.Get_library_version().strip("\0\n").split("\n")[0]
        raise MpiError(
            f"rank {rank} of {ranks} is rank {world.rank} of {world.size} for the MPI library "
            f"({library}): it was not told of the others. With srun the platform's `mpi` must be a "
            "type that both know: pmi2 for MPICH, pmix for Open MPI; see `srun --mpi=list`"
        )
    return world


def end() -> None:
    """End the library after the work, when all ranks do."""
    from mpi4py import MPI

    MPI.Finalize()
