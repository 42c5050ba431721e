"""Which jobs of Slurm's queue are taken; killed drivers on a real Slurm are in tests/slurm."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tfscaling.records import attempts, earlier
from tfscaling.sweep import earlier_jobs, slurm_limits
from tfscaling.sweep.earlier_jobs import EarlierJobs, Queued

COMMENT = "rule_train_wildcards_cpu_x_1"
PLANNED = '{"seed": 1}'


class Taken:
    """Jobs of a queue as they are taken for the output of one job of Snakemake."""

    def __init__(self, folder: Path, *states: str) -> None:
        self.output = folder / "run.json"
        self.said: list[str] = []
        jobs = [
            Queued(str(number), state, "name", time.time(), COMMENT if number == 1 else "other")
            for number, state in enumerate(states, start=1)
        ]
        self.earlier = EarlierJobs(jobs, lambda _: PLANNED, self.said.append)

    def take(self, was_missing: bool = True) -> str | None:
        return self.earlier.take(COMMENT, str(self.output), was_missing)


@pytest.mark.parametrize(
    ("state", "number"),
    [
        ("PENDING", "1"),
        ("RUNNING", "1"),
        ("REQUEUE_HOLD", "1"),
        ("COMPLETING", "1"),
        ("CANCELLED", None),
        ("FAILED", None),
        ("TIMEOUT", None),
    ],
)
def test_a_job_that_goes_on_is_taken_once(state: str, number: str | None, tmp_path: Path) -> None:
    taken = Taken(tmp_path, state, "RUNNING")
    assert [taken.take(), taken.take()] == [number, None]
    assert taken.earlier.names == ["name"] and taken.said == []


def looked_at(said: list[str], *queues: dict[str, str]) -> tuple[dict[str, str], int]:
    """The states of jobs in the end, by their numbers, and how often the queue was looked at.

    It is looked at each second. The last queue stays as it is.
    """
    looks, passed_s = 0, 0.0

    def look() -> list[Queued]:
        nonlocal looks
        looks += 1
        states = queues[min(looks, len(queues)) - 1]
        return [Queued(number, state, "name", None, COMMENT) for number, state in states.items()]

    def sleep(seconds: float) -> None:
        nonlocal passed_s
        passed_s += seconds

    found = earlier_jobs.settled(look, said.append, sleep, lambda: passed_s)
    return {job.number: job.state for job in found}, looks


@pytest.mark.parametrize(
    ("queues", "states", "looks"),
    [
        ([{"1": "RUNNING"}], {"1": "RUNNING"}, 1),
        # Slurm starts it again
        ([{"1": "COMPLETING"}, {"1": "COMPLETING"}, {"1": "PENDING"}], {"1": "PENDING"}, 3),
        # and then another one
        (
            [{"1": "COMPLETING", "2": "RUNNING"}, {"1": "PENDING", "2": "COMPLETING"},
             {"1": "PENDING", "2": "PENDING"}],
            {"1": "PENDING", "2": "PENDING"}, 3,
        ),
        # it is gone from the queue
        ([{"1": "COMPLETING", "2": "FAILED"}, {}], {"1": "COMPLETED", "2": "FAILED"}, 2),
        # whether the second one has ended is not known
        (
            [{"1": "COMPLETING", "2": "RUNNING"}] * 50 + [{"1": "COMPLETING", "2": "COMPLETING"}],
            {"1": "COMPLETED", "2": "COMPLETING"}, earlier_jobs.COMPLETING_S + 1,
        ),
    ],
)  # fmt: skip
def test_a_job_that_is_completing_is_waited_for(
    queues: list[dict[str, str]], states: dict[str, str], looks: int
) -> None:
    assert looked_at(said := [], *queues) == (states, looks)
    assert len(said) == (1 if looks > 1 else 0)


def test_of_several_jobs_for_an_output_the_last_to_come_is_taken(tmp_path: Path) -> None:
    states = {"9": "RUNNING", "10": "PENDING", "11": "COMPLETED", "12": "CANCELLED"}
    queue = [Queued(number, state, "name", None, COMMENT) for number, state in states.items()]
    found = EarlierJobs(queue, lambda _: PLANNED, print)
    assert found.running == 1
    assert found.take(COMMENT, str(tmp_path / "run.json"), was_missing=True) == "10"


@pytest.mark.parametrize("script", ["echo Socket timed out >&2; exit 1", "exec sleep 5", None])
def test_a_queue_that_slurm_does_not_show_is_not_an_empty_one(
    script: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if script else str(tmp_path))
    monkeypatch.setattr(slurm_limits.run, "__kwdefaults__", {"timeout_s": 0.2})
    if script:
        (squeue := tmp_path / "squeue").write_text(f"#!/bin/sh\n{script}\n")
        squeue.chmod(0o755)
    waited_s: list[float] = []
    with pytest.raises(earlier_jobs.SilentQueueError, match="squeue") as caught:
        earlier_jobs.in_queue("/folder", [None], waited_s.append)
    assert len(waited_s) == earlier_jobs.ASKED - 1
    assert "\n" not in str(caught.value)


def test_jobs_of_the_folder_are_read_from_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (squeue := tmp_path / "squeue").write_text(
        "#!/bin/sh\n"
        "echo '5|RUNNING|name|2026-11-23T10:00:00|/folder|a|b'\n"
        "echo '6|PENDING|name|N/A|/elsewhere|c'\n"
    )
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (job,) = earlier_jobs.in_queue("/folder", [None])
    assert (job.number, job.state, job.comment) == ("5", "RUNNING", "a|b")


class Executor:
    """The plugin's executor as far as it is asked here."""

    def __init__(self, folder: Path) -> None:
        self.slurm_logdir, self.logger = folder, logging.getLogger("test")
        self.events: list[tuple[str, str | None]] = []

    def run_job(self, job: Any) -> None:
        self.events.append(("submitted", None))

    def _report_job_submission_threadsafe(self, info: Any) -> None:
        self.events.append(("taken", info.external_jobid))

    def report_job_success(self, info: Any) -> None:
        self.events.append(("done", info.external_jobid))

    def report_job_error(self, info: Any, msg: str = "") -> None:
        self.events.append(("failed", info.external_jobid))

    def _report_job_error_threadsafe(self, info: Any, msg: str) -> None:
        self.events.append((msg, info.external_jobid))


class Plugin(SimpleNamespace):
    """The plugin with an executor, and the job of Snakemake's that makes an output."""

    def __init__(self, folder: Path, jobs: EarlierJobs) -> None:
        executor = type("Own", (Executor,), {})
        super().__init__(
            Executor=executor,
            get_submit_command=lambda *_, **__: "sbatch",
            get_job_wildcards=lambda _: "cpu_x_1",
            query_job_status_squeue=str,
            query_job_status_sacct=str,
            SubmittedJobInfo=lambda job, external_jobid=None, aux=None: SimpleNamespace(
                job=job, external_jobid=external_jobid
            ),
        )
        earlier_jobs.install(self, jobs)
        self.executor = executor(folder)
        self.output = folder / "run.json"
        dag = SimpleNamespace(reason=lambda _: SimpleNamespace(missing_output=[self.output]))
        self.job = SimpleNamespace(
            name="train", jobid=1, output=[str(self.output)], dag=dag, is_group=lambda: False
        )


@pytest.mark.parametrize(("spec", "end"), [(PLANNED, "done"), ('{"seed": 2}', "failed")])
def test_a_pending_job_that_made_something_else_has_failed(
    spec: str, end: str, tmp_path: Path
) -> None:
    """It reads the configuration files that its own start was given."""
    queue = [Queued("7", "PENDING", "name", None, COMMENT)]
    plugin = Plugin(tmp_path, EarlierJobs(queue, lambda _: PLANNED, print))
    plugin.executor.run_job(plugin.job)
    (folder := attempts.path(tmp_path, 1)).mkdir()
    (folder / attempts.SPEC).write_text(spec)
    plugin.output.touch()
    info = SimpleNamespace(job=plugin.job, external_jobid="7")
    plugin.executor.report_job_success(info)
    assert plugin.executor.events == [("taken", "7"), (end, "7")]
    assert plugin.output.exists() == (end == "done")
    own = SimpleNamespace(job=plugin.job, external_jobid="8")
    plugin.executor.report_job_success(own)
    assert plugin.executor.events[-1] == ("done", "8")


def test_a_folder_that_cannot_be_read_is_an_error_of_the_job(tmp_path: Path) -> None:
    class Unreadable(EarlierJobs):
        def take(self, *_: Any) -> str | None:
            raise OSError("stale file handle")

    queue = [Queued("7", "PENDING", "name", None, COMMENT)]
    plugin = Plugin(tmp_path, Unreadable(queue, lambda _: PLANNED, print))
    plugin.executor.run_job(plugin.job)
    assert plugin.executor.events == [("stale file handle", None)]


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("was_missing", [True, False])
def test_a_job_that_has_just_ended_counts_if_its_output_came(
    there: bool, was_missing: bool, tmp_path: Path
) -> None:
    taken = Taken(tmp_path, "COMPLETED")
    if there:
        taken.output.touch()
        earlier.keep(taken.output)  # as another start may have done before it ended
    is_taken = there and was_missing
    assert taken.take(was_missing) == ("1" if is_taken else None)
    assert earlier.beside(taken.output).exists() == (there and not is_taken)


def test_a_job_that_has_just_ended_does_not_count_if_it_made_something_else(tmp_path: Path) -> None:
    """Its configuration was changed while it ran."""
    taken = Taken(tmp_path, "COMPLETED")
    taken.output.touch()
    (folder := attempts.path(tmp_path, 1)).mkdir()
    (folder / attempts.SPEC).write_text('{"seed": 2}')
    assert taken.take() is None
    assert taken.earlier.after == {}


@pytest.mark.parametrize(
    ("spec", "state", "number"),
    [
        (PLANNED, "RUNNING", "1"),
        ('{"seed": 2}', "RUNNING", None),
        ('{"seed": 2}', "PENDING", "1"),  # it reads the configuration when it starts
        (None, "RUNNING", "1"),
    ],
)
def test_a_job_that_makes_something_else_is_waited_for(
    spec: str | None, state: str, number: str | None, tmp_path: Path
) -> None:
    for attempt, text in ((1, "of an earlier job"), (2, spec)):
        if text is not None:
            folder = attempts.path(tmp_path, attempt)
            folder.mkdir()
            (folder / attempts.SPEC).write_text(text)
    taken = Taken(tmp_path, state)
    if spec is None:  # the job has not begun its attempt
        old = time.time() - 3600
        os.utime(attempts.path(tmp_path, 1) / attempts.SPEC, (old, old))
    assert taken.take() == number
    assert taken.earlier.after == ({} if number else {COMMENT: "1"})
    assert len(taken.said) == (0 if number else 1)
