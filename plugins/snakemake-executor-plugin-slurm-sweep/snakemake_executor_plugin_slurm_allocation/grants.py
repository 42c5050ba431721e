"""The submission of allocations: how often each is requested, and how Slurm answers."""

import shlex
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from snakemake_executor_plugin_slurm_sweep import describe_environment_options
from snakemake_executor_plugin_slurm_sweep.queue import executor_text, has_ended
from snakemake_executor_plugin_slurm_sweep.slurm_client import (
    PAUSES_S,
    NoAnswer,
    RefusalKind,
    SlurmClient,
    Submitted,
)
from snakemake_interface_common.exceptions import WorkflowError

#: Name of all allocations, by which the next start of Snakemake finds them.
NAME = "tfscaling-allocation"


class RefusedAllocationError(WorkflowError):
    """sbatch has refused an allocation for good."""


@dataclass
class _Request:
    """The state of a request for an allocation, until Slurm has granted it.

    Attributes:
        attempts: Number of attempts so far that brought no allocation.
        next_s: Earliest time of the next attempt, by `time.monotonic()`.
        may_exist: Whether Slurm may have accepted the allocation although its answer was lost.
        is_submitted: Whether Slurm has accepted the allocation, but its job number is unknown.
    """

    attempts: int = 0
    next_s: float = 0.0
    may_exist: bool = False
    is_submitted: bool = False

    def postpone(self) -> None:
        """Count an attempt without an allocation, and postpone the next by a growing pause."""
        pause_s = PAUSES_S[min(self.attempts, len(PAUSES_S) - 1)]
        self.attempts, self.next_s = self.attempts + 1, time.monotonic() + pause_s


class Grants:
    """Submits allocations; each call makes one attempt, so that the executor never blocks.

    Args:
        slurm: Calls Slurm's programs.
        log: Logs a warning.
    """

    def __init__(self, slurm: SlurmClient, log: Callable[[str], None]) -> None:
        self._slurm, self._log = slurm, log
        self._requests: dict[str, _Request] = {}

    def request_allocation(
        self, comment: str, call: Sequence[str], known: Collection[str]
    ) -> str | None:
        """Submit an allocation if an attempt is due; return its job number, or None.

        None means that no attempt is due yet, or that Slurm has granted nothing yet.

        Args:
            comment: Text in the allocation's comment, by which it is found if Slurm's answer was
                lost.
            call: Command line of sbatch.
            known: Job numbers of the allocations for other requests.

        Raises:
            RefusedAllocationError: Slurm refuses the allocation for good.
            WorkflowError: Slurm has submitted the allocation, but does not list it.
        """
        request = self._requests.setdefault(comment, _Request())
        if time.monotonic() < request.next_s:
            return None
        number = self._find_granted(request, comment, known) or self._submit_once(request, call)
        if number is None:
            request.postpone()
        else:
            del self._requests[comment]
        return number

    def _find_granted(self, request: _Request, comment: str, known: Collection[str]) -> str | None:
        """Look up an allocation whose submission had no clear answer; return its number or None.

        Args:
            request: The request.
            comment: Text in the allocation's comment.
            known: Job numbers of the allocations for other requests.

        Raises:
            WorkflowError: Slurm has accepted the allocation, but does not list it.
        """
        if not request.may_exist and not request.is_submitted:
            return None
        jobs = self._slurm.jobs(names=[NAME])
        if isinstance(jobs, NoAnswer):
            request.may_exist = True  # nothing is submitted while the queue is unknown
            return None
        request.may_exist = False
        fits = (job for job in jobs if executor_text(job.comment) == comment and not has_ended(job))
        number = next((job.number for job in fits if job.number not in known), None)
        if number is None and request.is_submitted and request.attempts >= len(PAUSES_S):
            raise WorkflowError(
                "sbatch printed no number of the allocation, and squeue does not list it; "
                f"`squeue --me --name={NAME}` lists it later"
            )
        return number

    def _submit_once(self, request: _Request, call: Sequence[str]) -> str | None:
        """Submit the allocation once; return its number, or None if Slurm refuses it for now.

        Nothing is submitted if Slurm may already have the allocation. The result is also None if
        sbatch prints no number.

        Args:
            request: The request; it stores whether Slurm may have the allocation.
            call: Command line of sbatch.

        Raises:
            RefusedAllocationError: Slurm refuses it for good.
        """
        if request.may_exist or request.is_submitted:
            return None
        answer = self._slurm.submit(shlex.join(call))
        if isinstance(answer, Submitted):
            request.is_submitted = answer.number is None
            return answer.number
        if answer.kind is RefusalKind.FINAL:
            words = answer.words + describe_environment_options()
            raise RefusedAllocationError(f"sbatch refused the allocation: {words}")
        if not request.attempts:
            self._log(f"Slurm grants no allocation now, and is asked again: {answer.words}")
        request.may_exist = answer.kind is RefusalKind.FOR_NOW
        return None
