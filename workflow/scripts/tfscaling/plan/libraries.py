"""Whether ranks can load CUDA's libraries and an MPI library, as far as this machine shows."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from tfscaling.spec.config import Config
from tfscaling.spec.run_spec import JobSpec, RunSpec

#: TensorFlow does without GPUs if this library cannot be loaded.
_LIBRARY = "cudnn"


def runs_without_cuda(specs: Iterable[RunSpec], config: Config) -> list[RunSpec]:
    """The runs whose GPUs would not be used, because the libraries are missing.

    Platforms are excluded that have a `setup`, which may load a module, or that set LD_LIBRARY_PATH
    or PATH, and so are programs, which bring their own environment.
    """
    found = []
    for spec in specs:
        platform = config.platforms[spec.point.platform]
        changed = platform.setup or {"LD_LIBRARY_PATH", "PATH"} & set(platform.env)
        on_gpus = spec.point.gpus_per_node > 0 and platform.devices == "physical"
        if on_gpus and not changed and not spec.recipe.program:
            found.append(spec)
    return [] if not found or has_cuda_libraries() else found


def cuda_problem(specs: Iterable[RunSpec], config: Config) -> str:
    """Why the GPUs of these runs would not be used, or ""."""
    platforms = Counter(spec.point.platform for spec in runs_without_cuda(specs, config))
    if not platforms:
        return ""
    runs = ", ".join(f"{number} of platform {name}" for name, number in platforms.items())
    return (
        f"Runs need GPUs ({runs}), and this environment has no CUDA libraries: TensorFlow would "
        "see no GPU.\n"
        "  1. `make setup CUDA=1` installs them.\n"
        "  2. Or the nodes have them: load them in the platform's `setup`, as `module load cuda`. "
        "The NVIDIA driver must be there in any case.\n"
        "  3. Without GPUs, leave these points out; only to try them, `devices: logical` in the "
        "platform splits the CPU."
    )


def has_cuda_libraries() -> bool:
    """Whether this environment has the library, as a package or where the system looks for it."""
    names = (each.metadata["Name"] or "" for each in metadata.distributions())
    if any(name.startswith(f"nvidia-{_LIBRARY}") for name in names):
        return True
    folders = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    found = any(any(Path(folder).glob(f"lib{_LIBRARY}.so*")) for folder in folders)
    return found or ctypes.util.find_library(_LIBRARY) is not None


#: Loads what a rank loads, without meeting other ranks. In a process of its own: a library that
#: does not fit may end it.
_LOAD = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI"
_TIMEOUT_S = 60.0


def mpi_problem(specs: Iterable[JobSpec], config: Config) -> str | None:
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
    if not wanting or (error := _loading_error()) is None:
        return None
    names = ", ".join(dict.fromkeys(wanting))
    return (
        f"Runs need an MPI library ({len(wanting)} of platform {names}), and none can be loaded: "
        f"{error}\n"
        "  1. `make setup` installs mpi4py and MPICH.\n"
        "  2. Or the nodes have one: load it in the platform's `setup`, as `module load mpich`, or "
        "name its file by MPI4PY_LIBMPI in `env`."
    )


def _loading_error() -> str | None:
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
