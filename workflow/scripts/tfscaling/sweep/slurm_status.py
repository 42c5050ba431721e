"""How the Slurm executor plugin asks for its jobs: none is lost, and none waited for in vain.

The plugin (2.8.0) forgets all jobs that it has submitted when a look fails, as it does while
Slurm's controller restarts, and waits for ever. If the controller is silent at the moment of a
look, it asks sacct instead of squeue, which knows nothing on a cluster without accounting. It does
not know sacct's state `CANCELLED by 0`, nor that a job which squeue shows no more has ended long
ago. It waits for ever for a job that was preempted and is not started again. What it would submit
while the controller is away fails.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol

from tfscaling.sweep import slurm_limits

#: (job → its state, seconds that the answer took), or (None, None) without an answer.
Answer = tuple[dict[str, str] | None, float | None]
#: The plugin's word for a job that has ended, nobody knows how: its output files tell.
_ENDED = "UNKNOWN"
#: Slurm's word for a job that it took the nodes of; one that it starts again is pending soon.
_PREEMPTED, _STARTED_AGAIN_S = "PREEMPTED", 60.0
#: The plugin's word for a job that failed.
_FAILED = "FAILED"
#: Of arrays of jobs, which no job here is of; the plugin wants a number that is not small.
_ARRAY_SIZE = 1000
#: How a shell waits for the controller.
_WHEN_THERE = f"until {' '.join(slurm_limits.PING)} >/dev/null 2>&1; do sleep 5; done; "


class Plugin(Protocol):
    """The names in the plugin's module by which it asks Slurm."""

    query_job_status: Callable[[str, logging.Logger], Awaitable[Answer]]
    get_min_job_age: Callable[[], int | None]
    get_submit_command: Callable[..., str]


def install(plugin: Plugin, say: Callable[[str], None]) -> Collection[str]:
    """Let the plugin ask through a `Look`, and submit when Slurm is there; `say` prints a line.

    Returns the numbers of jobs that Slurm has preempted for good, those to come too.
    """
    look = Look(plugin.query_job_status, plugin.get_min_job_age, say)
    plugin.query_job_status = look.query_job_status
    plugin.get_min_job_age = look.get_min_job_age
    submit_command = plugin.get_submit_command

    def when_slurm_is_there(*args: Any, **settings: Any) -> str:
        return _WHEN_THERE + submit_command(*args, **settings)

    if slurm_limits.ping().is_answered:  # where it never says so, it is not waited for
        plugin.get_submit_command = when_slurm_is_there
    return look.preempted


def spare(plugin: Any) -> None:
    """Let the plugin ask nothing at its start where Slurm does not answer.

    Of what it asks only warnings come, and a size of arrays; each question would wait anew.
    """
    size, validate = plugin.get_max_array_size, plugin.validate_status_command_settings

    def get_max_array_size() -> int:
        return _ARRAY_SIZE if slurm_limits.ping().silence else size()

    def validate_status_command_settings(settings: Any, logger: logging.Logger) -> None:
        if not slurm_limits.ping().silence:
            validate(settings, logger)

    plugin.get_max_array_size = get_max_array_size
    plugin.validate_status_command_settings = validate_status_command_settings


class Look:
    """The plugin's two questions: the states of its jobs, and how long squeue knows of them."""

    def __init__(
        self,
        query: Callable[[str, logging.Logger], Awaitable[Answer]],
        min_job_age: Callable[[], int | None],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._query, self._ask_min_job_age, self._say = query, min_job_age, say
        self._min_job_age_s = min_job_age()
        self._listed: set[str] = set()
        self._is_silent = False
        self._clock = clock
        #: Number of a job → when it was first seen preempted.
        self._preempted_at: dict[str, float] = {}
        #: The numbers of those that Slurm did not start again.
        self.preempted: set[str] = set()

    async def query_job_status(self, command: str, logger: logging.Logger) -> Answer:
        """The states of the jobs by their numbers; without an answer none, so that all go on."""
        states, took_s = await self._query(command, logger)
        if (states is None) != self._is_silent:
            self._is_silent = states is None
            silent = "Slurm does not answer; jobs go on, and it is asked again and again"
            self._say(silent if self._is_silent else "Slurm answers again")
        if states is None:
            return {}, 0.0
        found = {job: state.split()[0] for job, state in states.items() if state}
        if command.startswith("squeue"):
            self._listed |= found.keys()
            found |= dict.fromkeys(self._listed - found.keys(), _ENDED)
        return found | dict.fromkeys(self._not_started_again(found), _FAILED), took_s

    def _not_started_again(self, states: Mapping[str, str]) -> set[str]:
        """Those that have been preempted for so long that Slurm will not start them again."""
        now = self._clock()
        seen = (job for job, state in states.items() if state == _PREEMPTED)
        self._preempted_at = {job: self._preempted_at.get(job, now) for job in seen}
        found = {job for job, at in self._preempted_at.items() if now - at >= _STARTED_AGAIN_S}
        self.preempted |= found
        return found

    def get_min_job_age(self) -> int | None:
        """Seconds; if Slurm does not answer now, as it last said."""
        age_s = self._ask_min_job_age()
        if age_s is not None:
            self._min_job_age_s = age_s
        return self._min_job_age_s
