"""Which jobs of Slurm's queue are taken; killed drivers on a real Slurm are in tests/slurm."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tfscaling.records import attempts, earlier
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
        # each of them may take so long
        (
            [{"1": "COMPLETING"}] * 50 + [{"2": "COMPLETING"}] * 60 + [{"2": "PENDING"}],
            {"2": "PENDING"}, 111,
        ),
        ([{"1": "COMPLETING"}], {"1": "COMPLETING"}, earlier_jobs.COMPLETING_S + 1),
    ],
)  # fmt: skip
def test_a_job_that_is_completing_is_waited_for(
    queues: list[dict[str, str]], states: dict[str, str], looks: int
) -> None:
    assert looked_at(said := [], *queues) == (states, looks)
    assert len(said) == (1 if looks > 1 else 0)


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
