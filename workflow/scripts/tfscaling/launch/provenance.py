"""Where and from what a run was made."""

from __future__ import annotations

import datetime
import socket
import subprocess
from pathlib import Path

from tfscaling.record.run_record import Origin, SlurmJob


def describe(
    source: Path,
    started_s: float,
    slurm_job: SlurmJob | None,
    slurm_settings: dict[str, str] | None,
    user_code: dict[str, str],
) -> Origin:
    """Host, start, commit of the checkout at `source`, Slurm, checksums of the user's code."""
    started = datetime.datetime.fromtimestamp(started_s, datetime.UTC)
    return Origin(
        launcher_host=socket.gethostname(),
        started=started.isoformat(timespec="milliseconds"),
        git_commit=git_commit(source),
        slurm_job=slurm_job,
        slurm_settings=slurm_settings,
        user_code=user_code,
    )


def git_commit(source: Path) -> str | None:
    """The commit, with -dirty after local changes; None outside a checkout or without git.

    The copy of a module from git has it in the file `git_commit`, two folders above its scripts.
    """
    written = source.parents[1] / "git_commit"
    if written.exists():
        return written.read_text().strip()
    command = ["git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return shown.stdout.strip() or None
