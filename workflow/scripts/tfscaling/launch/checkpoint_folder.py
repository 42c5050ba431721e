"""The folder of a run's checkpoints, and the checkpoint from which an attempt resumes.

`<run>/checkpoints/steps=<n>/` has `state.json` and a file of arrays of each rank. It is written
under another name and renamed when it is complete; only the disk can lose a part after that. No
pickle: JSON, and NumPy's npz, whose parts have checksums. The launcher finds the checkpoint to
resume from; `train.checkpoints` reads and writes the arrays.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from tfscaling.files import atomic
from tfscaling.record import attempts, run_record
from tfscaling.record.attempts import Beginning
from tfscaling.record.rank_report import Epoch
from tfscaling.study.run_spec import RunSpec

#: In the folder of checkpoints: the file that identifies the training that wrote them, and the
#: folder with files of a user's program.
IDENTITY, OF_PROGRAM = "training.json", attempts.PROGRAM_CHECKPOINTS
#: In a checkpoint: the file with everything that is no array.
STATE = "state.json"
#: Number of checkpoints that are kept: the newest, and one more in case the disk loses a part of
#: it.
KEPT = 2


class InterruptedTrainingError(RuntimeError):
    """A signal ended the training; before its end, a checkpoint was written if possible.

    Attributes:
        checkpoint: The folder of the checkpoint that was written before the end; None if that
            failed.
    """

    def __init__(self, message: str, checkpoint: Path | None) -> None:
        super().__init__(message)
        self.checkpoint = checkpoint


class CheckpointState(msgspec.Struct, frozen=True, kw_only=True):
    """Position and measurements of a training: everything in a checkpoint that is no array."""

    ranks: Annotated[int, Meta(ge=1)]
    epoch: Annotated[int, Meta(ge=1, description="The epoch to resume with.")]
    step: Annotated[int, Meta(ge=0, description="Steps of this epoch that are done.")]
    steps: Annotated[int, Meta(ge=1, description="Steps of the whole training that are done.")]
    examples: Annotated[int, Meta(ge=0, description="Examples of its steps that are done.")]
    epoch_time_s: Annotated[float, Meta(description="Duration of the begun epoch so far.")]
    trained_s: Annotated[float, Meta(description="Duration of all epochs so far.")]
    train_examples: Annotated[int, Meta(description="Examples of an epoch; 0 if unknown yet.")]
    steps_per_epoch: Annotated[int, Meta(description="Steps of an epoch; 0 if unknown yet.")]
    examples_trained: Annotated[int, Meta(description="Examples trained in all earlier epochs.")]
    epochs: tuple[Epoch, ...]


class TrainingIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which training wrote the checkpoints in a folder; no other training resumes from them.

    Attributes:
        sha256: Checksum of parameters, user code and data.
        first_attempt: Number of the first attempt at this training.
    """

    sha256: str
    first_attempt: int


def checkpoint_name(steps: int) -> str:
    """Return the folder name of a checkpoint after this many steps of the training."""
    return f"steps={steps}"


def arrays_path(checkpoint: Path, rank: int) -> Path:
    """Return the path of the file with a rank's arrays in the folder of a checkpoint."""
    return checkpoint / f"rank-{rank}.npz"


def temporary_folder(folder: Path, steps: int, attempt: int) -> Path:
    """Return the folder in which an attempt writes a checkpoint until the checkpoint is complete.

    Args:
        folder: The folder of the run's checkpoints.
        steps: Number of steps of the training that are done.
        attempt: Number of the attempt.
    """
    return folder / f".{checkpoint_name(steps)}.{attempt}"


def program_folder(beginning: Beginning) -> Path:
    """Return the folder in which a user's program may keep checkpoints from attempt to attempt."""
    return Path(beginning.folder) / OF_PROGRAM


def write_beginning(
    run: Path, attempt: int, spec: RunSpec, checksums: Mapping[str, str]
) -> Beginning:
    """Find the checkpoint from which an attempt resumes, and write it to `beginning.json`.

    Checkpoints from other parameters, user code or data are deleted. A user's program gets the
    folder with its files, and finds its checkpoint there itself.

    Args:
        run: The run's folder.
        attempt: Number of the attempt.
        spec: The run.
        checksums: Checksums of user code and data, by name.

    Returns:
        Where the training begins. Without a complete checkpoint, `checkpoint` is None and `steps`
        is 0. For a user's program whose folder has files, `checkpoint` is `OF_PROGRAM`.
    """
    folder = run / attempts.CHECKPOINTS
    sha256 = hashlib.sha256(
        msgspec.json.encode([spec.parameters_hash, dict(checksums)], order="deterministic")
    ).hexdigest()
    identity = None
    with contextlib.suppress(run_record.RecordError):
        identity = run_record.read_as(folder / IDENTITY, TrainingIdentity)
    if identity is None or identity.sha256 != sha256:
        attempts.remove_checkpoints(run)
        folder.mkdir()
        identity = TrainingIdentity(sha256=sha256, first_attempt=attempt)
        run_record.write_json(folder / IDENTITY, identity)
    for left in folder.glob(".steps=*"):  # half-written, when an attempt ended
        shutil.rmtree(left, ignore_errors=True)
    beginning = Beginning(
        folder=str(folder.resolve()), attempt=attempt, first_attempt=identity.first_attempt
    )
    if spec.recipe.program:
        own = program_folder(beginning)
        own.mkdir(exist_ok=True)
        if attempts.has_program_files(folder):
            beginning = msgspec.structs.replace(beginning, checkpoint=OF_PROGRAM)
    for steps, path in reversed(list_checkpoints(folder)):
        state = read_complete(path, spec.geometry.tasks)
        if state is not None and state.steps == steps:
            beginning = msgspec.structs.replace(beginning, checkpoint=path.name, steps=steps)
            print(f"resuming from {path}: epoch {state.epoch}, after {state.step} steps of it")
            break
        print(f"{path} is incomplete: it is not used")
    run_record.write_json(attempts.attempt_folder(run, attempt) / attempts.BEGINNING, beginning)
    return beginning


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return (steps, path) of each checkpoint in a folder, complete or not, by ascending steps."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            if match := re.fullmatch(r"steps=(\d+)", path.name):
                found.append((int(match[1]), path))
    return sorted(found)


def read_state(checkpoint: Path) -> CheckpointState | None:
    """Read state.json in the folder of a checkpoint; None if it does not exist.

    Raises:
        RecordError: The file is damaged.
    """
    return run_record.read_as(checkpoint / STATE, CheckpointState)


def read_complete(checkpoint: Path, ranks: int) -> CheckpointState | None:
    """Return the state of a checkpoint if a training on `ranks` ranks can resume from it.

    Returns:
        None if a file is missing or damaged, or if another number of ranks wrote the checkpoint.
    """
    try:
        state = read_state(checkpoint)
        if state is None or state.ranks != ranks:
            return None
        for rank in range(ranks):
            with zipfile.ZipFile(arrays_path(checkpoint, rank)) as file:
                if file.testzip() is not None:
                    return None
    except (run_record.RecordError, OSError, zipfile.BadZipFile, EOFError):
        return None
    return state


def finish_checkpoint(temporary: Path, state: CheckpointState) -> Path:
    """Complete a checkpoint whose arrays are all written, and return its final path.

    state.json is written and the folder renamed. Then all checkpoints but the latest `KEPT` are
    deleted.

    Args:
        temporary: The folder with the arrays, from `temporary_folder`.
        state: Position and measurements of the training.
    """
    path = temporary.with_name(checkpoint_name(state.steps))
    run_record.write_json(temporary / STATE, state)
    for written in (temporary / STATE, temporary):
        atomic.flush_to_disk(written)
    if path.exists():  # an incomplete one of an earlier attempt
        shutil.rmtree(path)
    os.replace(temporary, path)
    atomic.flush_to_disk(path.parent)
    for _, old in list_checkpoints(path.parent)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return path
