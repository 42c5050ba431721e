"""A job that begins once more after its run was finished, as Slurm and Snakemake do it."""

from __future__ import annotations

import random
from pathlib import Path

import generator
import msgspec
import pytest
from builders import local_spec
from generator import write_dataset_facts
from tfscaling.launch import attempt as launching
from tfscaling.record import attempts, run_record
from tfscaling.study.run_spec import RunRequest, RunSpec


@pytest.fixture
def spec() -> RunSpec:
    return local_spec()


@pytest.fixture
def path(tmp_path: Path, spec: RunSpec) -> Path:
    """Where the record of a run was whose second attempt has finished it."""
    made = generator.record(spec, [generator.training_report()], generator.phases())
    made = msgspec.structs.replace(made, attempt=2)
    for number in (1, 2):
        attempts.create_attempt(tmp_path, number)
        folder = attempts.attempt_folder(tmp_path, number)
        for name in attempts.FILES_OF_RUN:
            (folder / name).touch()
    (attempts.attempt_folder(tmp_path, 1) / run_record.FAILURE).write_text("{}")
    run_record.write_json(attempts.attempt_folder(tmp_path, 2) / attempts.RECORD, made)
    return tmp_path / run_record.RECORD


def restore_finished_run(
    path: Path, spec: RunSpec, replaces: int = 0, data: Path | None = None
) -> bool:
    return launching.restore_finished_run(path, RunRequest(spec=spec, replaces=replaces), data)


def test_a_job_that_failed_after_its_run_was_finished_is_no_lost_attempt(
    path: Path, spec: RunSpec
) -> None:
    for folder in (path.parent, attempts.attempt_folder(path.parent, 2)):
        (folder / run_record.FAILURE).write_text("{}")
    assert restore_finished_run(path, spec)
    assert path.samefile(attempts.attempt_folder(path.parent, 2) / attempts.RECORD)
    failures = path.parent.rglob(run_record.FAILURE)
    assert [each.parent.name for each in failures] == ["attempt=1"]
    assert all((path.parent / name).exists() for name in attempts.FILES_OF_RUN)
    assert restore_finished_run(path, spec)


def test_a_job_that_starts_again_after_its_run_was_finished_starts_no_rank(
    path: Path, spec: RunSpec
) -> None:
    """As after a requeue or a power cut just before the record was in its place."""
    request = RunRequest(spec=spec)
    launching.run_next_attempt(path, request, lambda _: pytest.fail("the run started again"))
    assert path.samefile(attempts.attempt_folder(path.parent, 2) / attempts.RECORD)
    assert attempts.attempt_numbers(path.parent) == [1, 2]


def test_a_run_that_is_asked_for_again_is_made_again(path: Path, spec: RunSpec) -> None:
    assert not restore_finished_run(path, spec, replaces=2)
    assert not path.exists()
    assert not restore_finished_run(path, local_spec(epochs=random.randint(3, 99)))
    assert restore_finished_run(path, spec, replaces=1)
    assert not restore_finished_run(path, spec, replaces=2)  # with the record in place, too


def test_a_record_of_other_data_does_not_finish_the_run(path: Path, spec: RunSpec) -> None:
    write_dataset_facts(path.parent, "mnist", 60000, "0" * 64)
    assert not restore_finished_run(path, spec, data=path.with_name("mnist.npz"))
    assert restore_finished_run(path, spec)


def test_a_later_attempt_that_left_no_record_changes_nothing(path: Path, spec: RunSpec) -> None:
    attempts.create_attempt(path.parent, 3)
    assert restore_finished_run(path, spec)


def test_a_run_that_an_earlier_attempt_finishes_as_the_next_begins_is_not_made_again(
    path: Path, spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, record = (
        attempts.create_attempt,
        attempts.attempt_folder(path.parent, 2) / attempts.RECORD,
    )
    content = record.read_bytes()
    record.unlink()

    def begin_late(where: Path, number: int) -> None:
        record.write_bytes(content)
        launching.publish_record(record.parent, path)
        begin(where, number)

    monkeypatch.setattr(attempts, "create_attempt", begin_late)
    request = RunRequest(spec=spec)
    launching.run_next_attempt(path, request, lambda _: pytest.fail("the run started again"))
    assert path.samefile(record)
    assert attempts.attempt_numbers(path.parent) == [1, 2]
