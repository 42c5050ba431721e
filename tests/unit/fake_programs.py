"""Programs of a host that the tests do not have."""

from __future__ import annotations

from pathlib import Path


def fake_nvidia_smi(folder: Path, script: str) -> dict[str, str]:
    """An environment in which ``nvidia-smi`` is the given shell script."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": str(folder)}


def listing(gpus: int) -> str:
    """The script of an nvidia-smi that lists so many GPUs."""
    rows = "".join(f"Tesla T4, GPU-{number}, 535.104.05\n" for number in range(gpus))
    return f"printf '{rows}'"
