"""Answers about jobs, and none; tests/slurm has a controller that is away, and real accounting."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest
from tfscaling.sweep import slurm_status
from tfscaling.sweep.slurm_status import Answer

SQUEUE, SACCT = "squeue --name x", "sacct --name x"


class Slurm(SimpleNamespace):
    """The plugin's two questions, each answered from a list."""

    def __init__(
        self, *answers: dict[str, str] | None, ages_s: tuple[int | None, ...] = ()
    ) -> None:
        self.said: list[str] = []
        self.answers, self.ages_s = list(answers), [300, *ages_s]

        async def query_job_status(command: str, logger: logging.Logger) -> Answer:
            states = self.answers.pop(0)
            return states, None if states is None else 0.5

        super().__init__(
            query_job_status=query_job_status,
            get_min_job_age=lambda: self.ages_s.pop(0),
            get_submit_command=lambda: "sbatch",
        )
        slurm_status.install(self, self.said.append)

    def look(self, command: str) -> dict[str, str] | None:
        states, _ = asyncio.run(self.query_job_status(command, logging.getLogger()))
        return states


def test_a_look_without_an_answer_forgets_no_job_and_is_told_once() -> None:
    slurm = Slurm(None, None, {"1": "RUNNING"}, {"1": "RUNNING"}, None)
    assert [slurm.look(SACCT) for _ in range(4)] == [{}, {}, {"1": "RUNNING"}, {"1": "RUNNING"}]
    away, back = slurm.said
    assert "does not answer" in away and "answers again" in back
    assert slurm.look(SACCT) == {} and slurm.said == [away, back, away]


def test_a_state_is_one_word() -> None:
    slurm = Slurm({"1": "CANCELLED by 0", "2": "TIMEOUT", "3": ""})
    assert slurm.look(SACCT) == {"1": "CANCELLED", "2": "TIMEOUT"}


def test_what_squeue_shows_no_more_has_ended() -> None:
    slurm = Slurm({"1": "RUNNING", "2": "PENDING"}, None, {"2": "RUNNING"}, {})
    looks = [slurm.look(SQUEUE) for _ in range(4)]
    assert looks[1:3] == [{}, {"1": "UNKNOWN", "2": "RUNNING"}]
    assert looks[3] == {"1": "UNKNOWN", "2": "UNKNOWN"}


def test_a_job_that_was_preempted_and_is_not_started_again_has_failed() -> None:
    passed_s = [0.0, 10.0, 20.0, 59.0, 90.0]
    states = [
        {"1": "PREEMPTED", "2": "PREEMPTED"},
        {"1": "PREEMPTED", "2": "PENDING"},
        {"1": "PREEMPTED", "2": "PREEMPTED"},
        {"1": "PREEMPTED"},
        {"1": "PREEMPTED"},
    ]
    answers = iter(states)

    async def query(command: str, logger: logging.Logger) -> Answer:
        return next(answers), 0.5

    look = slurm_status.Look(query, lambda: 300, print, iter(passed_s).__next__)
    seen = [asyncio.run(look.query_job_status(SACCT, logging.getLogger()))[0] for _ in states]
    assert seen[:4] == states[:4] and look.preempted == {"1"}
    assert seen[4] == {"1": "FAILED"}


def test_what_sacct_does_not_know_yet_is_waited_for() -> None:
    slurm = Slurm({"1": "RUNNING"}, {})
    assert [slurm.look(SACCT), slurm.look(SACCT)] == [{"1": "RUNNING"}, {}]


@pytest.mark.parametrize(("answers", "known"), [((None,), 300), ((600, None), 600)])
def test_min_job_age_is_remembered(answers: tuple[int | None, ...], known: int) -> None:
    slurm = Slurm(ages_s=answers)
    assert [slurm.get_min_job_age() for _ in answers][-1] == known
