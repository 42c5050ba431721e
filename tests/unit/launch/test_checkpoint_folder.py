"""Which checkpoint an attempt takes: the newest that is whole, of its own training."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import local_spec
from msgspec.structs import replace
from tfscaling.launch import checkpoint_folder
from tfscaling.launch.checkpoint_folder import CheckpointState
from tfscaling.record.attempts import Beginning, remove_checkpoints
from tfscaling.study.run_spec import RunSpec

CODE = {"model.py": "a" * 64}


def spec(**recipe: Any) -> RunSpec:
    return local_spec(**{"checkpoint_every_epochs": 1, **recipe})


def write(run: Path, steps: int) -> Path:
    """A checkpoint of the only rank."""
    temporary = checkpoint_folder.temporary_folder(run / "checkpoints", steps, 1)
    temporary.mkdir()
    np.savez(checkpoint_folder.arrays_path(temporary, 0), weights=np.arange(1000))
    state = CheckpointState(
        ranks=1,
        epoch=2,
        step=3,
        steps=steps,
        examples=10,
        epoch_time_s=1.0,
        trained_s=5.0,
        train_examples=7,
        steps_per_epoch=4,
        examples_trained=7,
        epochs=(),
    )
    return checkpoint_folder.finish_checkpoint(temporary, state)


def begin(run: Path, attempt: int, asked: RunSpec | None = None, **of: str) -> Beginning:
    (run / f"attempt={attempt}").mkdir(exist_ok=True)
    return checkpoint_folder.write_beginning(run, attempt, asked or spec(), of or CODE)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run whose first attempt has left two checkpoints."""
    assert begin(tmp_path, 1).checkpoint is None
    for steps in (9, 10):
        write(tmp_path, steps)
    return tmp_path


def test_an_attempt_goes_on_from_the_newest_checkpoint(run: Path) -> None:
    found = begin(run, 2)
    assert (found.checkpoint, found.steps, found.first_attempt) == ("steps=10", 10, 1)


def test_only_the_newest_checkpoints_are_kept(run: Path) -> None:
    write(run, 11)
    kept = checkpoint_folder.list_checkpoints(run / "checkpoints")
    assert [steps for steps, _ in kept] == [10, 11]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["rank-0.npz", "state.json"])
@pytest.mark.parametrize("damage", [cut, spoil, Path.unlink], ids=["cut", "spoilt", "gone"])
def test_a_damaged_checkpoint_is_passed_over(run: Path, name: str, damage: Any) -> None:
    if (name, damage) == ("state.json", spoil):
        (run / "checkpoints/steps=10" / name).write_text("{}")
    else:
        damage(run / "checkpoints/steps=10" / name)
    assert begin(run, 2).checkpoint == "steps=9"


def test_a_half_written_checkpoint_is_never_taken_and_goes(run: Path) -> None:
    half = checkpoint_folder.temporary_folder(run / "checkpoints", 12, 1)
    (run / "checkpoints/steps=10").rename(half)
    assert begin(run, 2).checkpoint == "steps=9"
    assert not half.exists()


@pytest.mark.parametrize(
    ("recipe", "of"), [({"epochs": 9}, CODE), ({}, {"model.py": "b" * 64})], ids=["recipe", "code"]
)
def test_another_training_begins_anew(
    run: Path, recipe: dict[str, Any], of: dict[str, str]
) -> None:
    found = begin(run, 2, spec(**recipe), **of)
    assert (found.checkpoint, found.first_attempt) == (None, 2)
    assert not checkpoint_folder.list_checkpoints(run / "checkpoints")


def test_a_program_finds_what_it_has_written(tmp_path: Path) -> None:
    program = replace(spec(), recipe=replace(spec().recipe, program=("train",)))
    first = begin(tmp_path, 1, program)
    assert first.checkpoint is None
    (checkpoint_folder.program_folder(first) / "newest").write_text("epoch 3")
    second = begin(tmp_path, 2, program)
    assert (second.checkpoint, second.first_attempt) == ("program", 1)
    assert (checkpoint_folder.program_folder(second) / "newest").read_text() == "epoch 3"


def test_a_training_begins_where_files_of_an_earlier_one_cannot_be_removed(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NFS, a file that a process has open stays in its folder."""
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    found = begin(run, 2, spec(epochs=9))
    assert (found.checkpoint, found.first_attempt) == (None, 2)
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["training.json"]
    monkeypatch.undo()
    remove_checkpoints(run)
    assert not any("checkpoints" in path.name for path in run.iterdir())
