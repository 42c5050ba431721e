"""Whether ranks can load an MPI library, as far as this machine knows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

from tfscaling.study.config import Config
from tfscaling.study.run_spec import JobSpec

#: Loads what a rank loads, without meeting other ranks. In a process of its own: a library that
#: does not fit may end it.
_LOAD = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI"
_TIMEOUT_S = 60.0


def problem(specs: Iterable[JobSpec], config: Config) -> str | None:
    """Why the ranks of these jobs could not talk by MPI, or None.

    Nothing is said of platforms that have a `setup`, which may load a module, or an `env`, which
    may name the library.
    """
    wanting = [
        spec.point.platform
        for spec in specs
        if spec.by_mpi
        and not config.platforms[spec.point.platform].setup
        and not config.platforms[spec.point.platform].env
    ]
    if not wanting or (error := _error()) is None:
        return None
    names = ", ".join(dict.fromkeys(wanting))
    return (
        f"Runs need an MPI library ({len(wanting)} of platform {names}), and none can be loaded: "
        f"{error}\n"
        "  1. `make setup` installs mpi4py and MPICH.\n"
        "  2. Or the nodes have one: load it in the platform's `setup`, as `module load mpich`, or "
        "name its file by MPI4PY_LIBMPI in `env`."
    )


def _error() -> str | None:
    """What is said last when the library is loaded, or None if it can be."""
    done = subprocess.run(
        [sys.executable, "-c", _LOAD],
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return lines[-1] if done.returncode else None
