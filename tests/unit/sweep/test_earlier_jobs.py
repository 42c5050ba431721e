"""Which jobs of Slurm's queue are taken; killed drivers on a real Slurm are in tests/slurm."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tfscaling.records import attempts
from tfscaling.sweep import earlier_jobs
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
    [("PENDING", "1"), ("RUNNING", "1"), ("CANCELLED", None), ("FAILED", None), ("TIMEOUT", None)],
)
def test_a_job_that_goes_on_is_taken_once(state: str, number: str | None, tmp_path: Path) -> None:
    taken = Taken(tmp_path, state, "RUNNING")
    assert [taken.take(), taken.take()] == [number, None]
    assert taken.earlier.names == ["name"] and taken.said == []


def looked_at(*queues: dict[str, str]) -> tuple[dict[str, str], int]:
    """The states of jobs in the end, by their numbers, and how often the queue was looked at.

    The last queue stays as it is.
    """
    looks = 0

    def look() -> list[Queued]:
        nonlocal looks
        looks += 1
        states = queues[min(looks, len(queues)) - 1]
        return [Queued(number, state, "name", None, COMMENT) for number, state in states.items()]

    found = earlier_jobs.settled(look, lambda _: None)
    return {job.number: job.state for job in found}, looks


@pytest.mark.parametrize(
    ("queues", "states", "looks"),
    [
        ([{"1": "RUNNING"}], {"1": "RUNNING"}, 1),
        # Slurm starts it again
        ([{"1": "COMPLETING"}, {"1": "COMPLETING"}, {"1": "PENDING"}], {"1": "PENDING"}, 3),
        # others are completing by now, and it is gone
        ([{"1": "COMPLETING"}, {"2": "COMPLETING"}], {"2": "COMPLETING"}, 2),
        ([{"1": "COMPLETING"}], {"1": "COMPLETING"}, earlier_jobs.COMPLETING_S + 1),
    ],
)
def test_a_job_that_is_completing_is_waited_for(
    queues: list[dict[str, str]], states: dict[str, str], looks: int
) -> None:
    assert looked_at(*queues) == (states, looks)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("was_missing", [True, False])
def test_a_job_that_has_just_ended_counts_if_its_output_came(
    there: bool, was_missing: bool, tmp_path: Path
) -> None:
    taken = Taken(tmp_path, "COMPLETED")
    if there:
        taken.output.touch()
    assert taken.take(was_missing) == ("1" if there and was_missing else None)


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
