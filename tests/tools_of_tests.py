"""Programs that tests run from environments of their own, which `make tools` makes."""

from __future__ import annotations

from pathlib import Path

from project import REPOSITORY


def program(environment: str, name: str) -> Path:
    """The program `name` of `.tools/<environment>`."""
    path = REPOSITORY / ".tools" / environment / "bin" / name
    assert path.exists(), f"{path} is missing: `make tools`"
    return path
