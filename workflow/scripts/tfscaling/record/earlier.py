"""Backup of an output while it is regenerated.

Snakemake removes a job's output before the job begins, and after it failed. A second name of the
file outlives both, and the end of Snakemake. It exists only while the output is regenerated: a
record that its user deletes does not come back.
"""

from __future__ import annotations

from pathlib import Path

from tfscaling.files import atomic

PREFIX = "earlier."


def beside(path: Path) -> Path:
    """Where the earlier file is kept."""
    return path.with_name(f"{PREFIX}{path.name}")


def keep(path: Path) -> None:
    """Keep the file if it exists; otherwise an earlier backup stays."""
    if path.exists():
        atomic.link(path, beside(path))


def bring_back(path: Path) -> None:
    """Put the kept file in its place; it stays kept, as a job may be about to remove it again.

    Raises FileNotFoundError if none is kept.
    """
    atomic.link(beside(path), path)


def drop(path: Path) -> None:
    """The file in its place is the one that counts: keep no other."""
    beside(path).unlink(missing_ok=True)
