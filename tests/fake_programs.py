"""Programs of a host that the tests do not have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def program(folder: Path, name: str, script: str) -> Path:
    """A program in the folder that is the given shell script; it may run while it is replaced."""
    path, new = folder / name, folder / f".{name}.new"
    new.write_text(f"#!/bin/sh\n{script}\n")
    new.chmod(0o755)
    return new.replace(path)


def fake_nvidia_smi(folder: Path, script: str) -> dict[str, str]:
    """An environment in which ``nvidia-smi`` is the given shell script."""
    return {"PATH": str(program(folder, "nvidia-smi", script).parent)}


def listing(gpus: int) -> str:
    """The script of an nvidia-smi that lists so many GPUs."""
    rows = "".join(f"Tesla T4, GPU-{number}, 535.104.05\n" for number in range(gpus))
    return f"printf '{rows}'"


def listing_of_slices(model: str, slices: Sequence[Sequence[str]]) -> str:
    """The script of an nvidia-smi that lists for each GPU the profiles of its slices, or none."""
    rows = "".join(f"{model}, GPU-{gpu}, 570.1\n" for gpu in range(len(slices)))
    lines = []
    for gpu, profiles in enumerate(slices):
        lines.append(f"GPU {gpu}: {model} (UUID: GPU-{gpu})")
        for n, profile in enumerate(profiles):
            lines.append(f"  MIG {profile:<12}Device {n:>2}: (UUID: MIG-{gpu}-{n})")
    listed = "".join(f"{line}\n" for line in lines)
    return f"""case "$1" in -L) printf '{listed}';; *) printf '{rows}';; esac"""
