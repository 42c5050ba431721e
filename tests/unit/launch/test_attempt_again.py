"""A job that begins once more after its run was finished, as Slurm and Snakemake do it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import generator
import msgspec
import pytest
from builders import local_spec
from fake_programs import program
from generator import write_dataset_facts
from tfscaling.launch import attempt as launching
from tfscaling.record import attempts, run_record
from tfscaling.spec.run_spec import RunSpec

FIRST = "2026-11-20T10:00:00"


@pytest.fixture
def in_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Lets this process be in the job of a number that was started again so often.

    The controller is away.
    """
    (programs := tmp_path / "programs").mkdir()
    program(programs, "scontrol", "exit 1")
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)

    def enter(number: str, restarts: int) -> None:
        monkeypatch.setenv("SLURM_JOB_ID", number)
        monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))

    return enter


@pytest.fixture
def spec() -> RunSpec:
    return local_spec()


@pytest.fixture
def path(tmp_path: Path, spec: RunSpec) -> Path:
    """Where the record of a run was that its second attempt, of job 77, has finished."""
    made = generator.record(spec, [generator.training_report()], generator.phases())
    job = run_record.SlurmJob(id="77", start=f"{FIRST}+00:00")
    environment = msgspec.structs.replace(made.environment, slurm_job=job)
    made = msgspec.structs.replace(made, attempt=2, environment=environment)
    for number in (1, 2):
        (folder := attempts.path(tmp_path, number)).mkdir()
        for name in (run_record.STEPS, run_record.EVENTS, run_record.COMPUTE_STEPS):
            (folder / name).touch()
    (attempts.path(tmp_path, 1) / run_record.FAILURE).write_text("{}")
    run_record.write_json(attempts.path(tmp_path, 2) / attempts.RECORD, made)
    return tmp_path / run_record.RECORD


def test_a_job_that_failed_after_its_run_was_finished_is_no_lost_attempt(
    path: Path, spec: RunSpec
) -> None:
    assert launching.restore_record(path, spec, None, {}) is None
    for folder in (path.parent, attempts.path(path.parent, 2)):
        (folder / run_record.FAILURE).write_text("{}")
    assert launching.restore_record(path, spec, None, {}) == 2
    assert run_record.read(path) is not None
    failures = path.parent.rglob(run_record.FAILURE)
    assert [each.parent.name for each in failures] == ["attempt=1"]
    path.unlink()
    assert launching.restore_record(path, spec, None, {}) is None


def test_a_job_that_failed_for_a_run_that_is_asked_for_again_makes_it_again(
    path: Path, spec: RunSpec
) -> None:
    (attempts.path(path.parent, 2) / run_record.FAILURE).write_text("{}")
    attempts.backup_of(path).write_text("")  # what is to be replaced
    assert launching.restore_record(path, spec, None, {}) is None


def test_what_another_start_has_kept_does_not_make_the_job_do_its_run_again(
    path: Path, spec: RunSpec, in_job: Callable[[str, int], None]
) -> None:
    """It may have found the record while it planned, before Slurm started the job again."""
    record = attempts.path(path.parent, 2) / attempts.RECORD
    attempts.backup_of(path).hardlink_to(record)
    in_job("77", 1)
    assert launching.restore_record(path, spec, None, os.environ) == 2
    assert path.samefile(record)
    assert not attempts.backup_of(path).exists()


@pytest.mark.parametrize(("restarts", "brought_back"), [(1, None), (2, 2)])
def test_only_what_an_earlier_start_of_the_job_made_is_brought_back(
    restarts: int,
    brought_back: int | None,
    path: Path,
    spec: RunSpec,
    in_job: Callable[[str, int], None],
) -> None:
    """A sweep inside a job that was started again may have its record deleted, and made again."""
    file = attempts.path(path.parent, 2) / attempts.RECORD
    made = run_record.read(file)
    assert made is not None and made.environment.slurm_job is not None
    job = msgspec.structs.replace(made.environment.slurm_job, restarts=1)
    environment = msgspec.structs.replace(made.environment, slurm_job=job)
    run_record.write_json(file, msgspec.structs.replace(made, environment=environment))
    in_job("77", restarts)
    assert launching.restore_record(path, spec, None, os.environ) == brought_back


def test_a_run_that_is_asked_for_again_is_made_again(
    path: Path, spec: RunSpec, in_job: Callable[[str, int], None]
) -> None:
    in_job("77", 0)
    assert launching.restore_record(path, spec, None, os.environ) is None
    in_job("77", 1)
    assert launching.restore_record(path, local_spec(epochs=7), None, os.environ) is None
    in_job("78", 1)  # its user wants the run again
    assert launching.restore_record(path, spec, None, os.environ) is None
    in_job("77", 1)
    write_dataset_facts(path.parent, "mnist", 60000, "0" * 64)
    assert launching.restore_record(path, spec, path.with_name("mnist.npz"), os.environ) is None
    assert launching.restore_record(path, spec, None, os.environ) == 2


def test_a_run_that_was_finished_while_its_job_was_in_the_queue_is_not_made_again(
    path: Path, spec: RunSpec, in_job: Callable[[str, int], None], tmp_path: Path
) -> None:
    """An earlier start's job, which Slurm had started again after this job was submitted."""
    in_job("78", 0)
    for submitted, brought_back in (("2036-11-20T10:00:00", None), (FIRST, 2)):
        program(tmp_path / "programs", "scontrol", f"echo SubmitTime={submitted}")
        assert launching.restore_record(path, spec, None, os.environ) == brought_back


def test_a_run_that_an_earlier_attempt_finishes_as_the_next_begins_is_not_made_again(
    path: Path, spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, folder = attempts.begin, attempts.path(path.parent, 2)

    def begin_late(where: Path, number: int) -> None:
        attempts.reopen(folder)
        launching.publish_record(folder, path)
        begin(where, number)

    monkeypatch.setattr(attempts, "begin", begin_late)
    launching.run(path, spec, lambda _: pytest.fail("the run started again"))
    assert path.samefile(folder / attempts.RECORD)
    assert attempts.numbers(path.parent) == [1, 2]


def test_an_attempt_after_the_finished_one_counts(
    path: Path, spec: RunSpec, in_job: Callable[[str, int], None]
) -> None:
    in_job("77", 1)
    attempts.path(path.parent, 3).mkdir()
    assert launching.restore_record(path, spec, None, os.environ) is None
