"""The GPUs of this node as NVIDIA's driver lists them, by its program nvidia-smi."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

_TIMEOUT_S = 60
_QUERY = ("--query-gpu=name,uuid,driver_version", "--format=csv,noheader")


class NvidiaSmiError(RuntimeError):
    """nvidia-smi is there, but does not tell the GPUs; says why."""


class Gpu(NamedTuple):
    """A GPU as the driver names it; parts of one (MIG) are not listed."""

    name: str
    uuid: str
    driver_version: str


def gpus(environ: Mapping[str, str]) -> tuple[Gpu, ...] | None:
    """The GPUs in the driver's order; None where there is no nvidia-smi on the PATH of `environ`.

    Raises NvidiaSmiError if nvidia-smi fails.
    """
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *_QUERY], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NvidiaSmiError(str(error)) from error
    output = (done.stdout + done.stderr).strip()
    if done.returncode and "No devices were found" not in output:
        raise NvidiaSmiError(f"exit status {done.returncode}: {output}")
    fields = (line.split(", ") for line in done.stdout.splitlines())
    return tuple(Gpu(*words) for words in fields if len(words) == len(Gpu._fields))
