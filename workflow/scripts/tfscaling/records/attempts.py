"""The folders of a job's attempts, below that of the job: `attempt=1`, `attempt=2`, …"""

from __future__ import annotations

import re
from pathlib import Path

#: In an attempt's folder: the specification, as all ranks read it.
SPEC = "spec.json"
#: And of a finished run's last one the record, which has a second name in the run's folder.
RECORD = "record.json"


def path(folder: Path, number: int) -> Path:
    """The folder of an attempt at the job of `folder`."""
    return folder / f"attempt={number}"


def numbers(folder: Path) -> list[int]:
    """The numbers of the attempts that were begun, rising; none if the folder is not there."""
    try:
        names = [re.fullmatch(r"attempt=(\d+)", each.name) for each in folder.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(name[1]) for name in names if name)
