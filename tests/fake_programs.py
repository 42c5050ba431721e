"""Programs of a host that the tests do not have."""

from __future__ import annotations

from pathlib import Path


def program(folder: Path, name: str, script: str) -> Path:
    """A program in the folder that is the given shell script."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def fake_nvidia_smi(folder: Path, script: str) -> dict[str, str]:
    """An environment in which ``nvidia-smi`` is the given shell script."""
    return {"PATH": str(program(folder, "nvidia-smi", script).parent)}


def listing(gpus: int) -> str:
    """The script of an nvidia-smi that lists so many GPUs."""
    rows = "".join(f"Tesla T4, GPU-{number}, 535.104.05\n" for number in range(gpus))
    return f"printf '{rows}'"
