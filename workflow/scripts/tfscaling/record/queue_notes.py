"""What Slurm last said of runs that have no record: why it refused them, or why they wait.

One file beside the folder of the runs, for all studies: a sweep replaces what it says of the runs
of its study, the tables show it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from tfscaling.files import atomic
from tfscaling.spec.run_spec import RunSpec

_FILE = "queue.json"


class QueueNotes(msgspec.Struct, frozen=True):
    """Folder of a run, or of a point for all its runs → Slurm's words."""

    words: dict[str, str] = {}

    def of(self, spec: RunSpec) -> str:
        """What Slurm said of a run, or ""."""
        return self.words.get(spec.path) or self.words.get(spec.point.path) or ""


_DECODER = msgspec.json.Decoder(QueueNotes)


def read(runs_dir: Path) -> QueueNotes:
    """The notes; none if there is no file, or a broken one."""
    try:
        return _DECODER.decode(_beside(runs_dir).read_bytes())
    except (OSError, msgspec.DecodeError):
        return QueueNotes()


def write(runs_dir: Path, runs: Collection[RunSpec], words: Mapping[str, str]) -> None:
    """Replace the notes on these runs and their points; without any notes there is no file."""
    own = {path for spec in runs for path in (spec.path, spec.point.path)}
    others = {path: said for path, said in read(runs_dir).words.items() if path not in own}
    notes = QueueNotes({**others, **words})
    file = _beside(runs_dir)
    if not notes.words:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(file, msgspec.json.encode(notes).decode())


def _beside(runs_dir: Path) -> Path:
    return runs_dir.with_name(_FILE)
