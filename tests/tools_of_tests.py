"""Programs that tests run from environments of their own, which `make tools` makes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from project import REPOSITORY


def program(environment: str, name: str) -> Path:
    """The program `name` of `.tools/<environment>`."""
    path = REPOSITORY / ".tools" / environment / "bin" / name
    assert path.exists(), f"{path} is missing: `make tools`"
    return path


def validate_crate(archive: Path, cache: Path) -> str:
    """What roc-validator prints about a Workflow Run Crate; "" if it is valid.

    `cache` is the path of a new HTTP cache: the validator has no network.
    """
    python = program("roc-validator", "python")
    fill = Path(__file__).with_name("fill_crate_cache.py")
    subprocess.run([python, fill, cache], check=True)
    words = ["validate", "--offline", "--cache-path", str(cache), "--skip-availability-check"]
    words += ["--no-paging", "--verbose", "--profile-identifier", "workflow-run-crate"]
    validator = program("roc-validator", "rocrate-validator")
    done = subprocess.run([validator, *words, archive], capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode else ""
