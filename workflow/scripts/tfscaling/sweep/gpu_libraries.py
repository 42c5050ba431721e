"""Whether ranks can find TensorFlow's CUDA libraries, as far as this machine knows."""

from __future__ import annotations

import ctypes.util
import os
from collections import Counter
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from tfscaling.study.config import Config
from tfscaling.study.run_spec import RunSpec

#: TensorFlow does without GPUs if this library cannot be loaded.
_LIBRARY = "cudnn"


def without(specs: Iterable[RunSpec], config: Config) -> list[RunSpec]:
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
    return [] if not found or are_here() else found


def problem(specs: Iterable[RunSpec], config: Config) -> str:
    """Why the GPUs of these runs would not be used, or ""."""
    platforms = Counter(spec.point.platform for spec in without(specs, config))
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


def are_here() -> bool:
    """Whether this environment has the library, as a package or where the system looks for it."""
    names = (each.metadata["Name"] or "" for each in metadata.distributions())
    if any(name.startswith(f"nvidia-{_LIBRARY}") for name in names):
        return True
    folders = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    found = any(any(Path(folder).glob(f"lib{_LIBRARY}.so*")) for folder in folders)
    return found or ctypes.util.find_library(_LIBRARY) is not None
