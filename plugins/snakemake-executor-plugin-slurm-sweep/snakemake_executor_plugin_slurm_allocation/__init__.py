"""Executor plugin of Snakemake: a sweep inside one Slurm allocation, each job a step of it.

It extends the executor `slurm-sweep`. The first job submits an allocation as large as the largest
job. Each job runs on its part of the nodes, several on disjoint parts at the same time. A job
starts only if its `runtime` ends before the allocation does; the next allocation has the others.
"""

import hashlib
import itertools
import math
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import snakemake_executor_plugin_slurm_sweep as sweep
from snakemake_executor_plugin_slurm import common_settings
from snakemake_executor_plugin_slurm_sweep import excluded_nodes, output_of, queue
from snakemake_executor_plugin_slurm_sweep.queue import PENDING, PREEMPTED, Absences
from snakemake_executor_plugin_slurm_sweep.slurm_client import (
    CONNECTION_VARIABLES,
    PAUSES_S,
    NoAnswer,
    QueuedStep,
    SlurmClient,
    is_node_down,
)
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from .grants import NAME, Grants, RefusedAllocationError
from .rotation import Rotation

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

#: Environment variable with the node list of a job, which the job's own srun uses.
NODES = "TFSCALING_NODES"
#: Environment variable with the GPUs of a job on each node, `gpu:2`, for the job's own srun.
GRES = "TFSCALING_GRES"
#: Environment variable with JOB.STEP of a job, by which sacct lists it.
STEP = "TFSCALING_STEP"
#: Seconds between two queries of allocation and steps.
_PERIOD_S = 2
#: Seconds of an allocation before its end in which no job may run.
_MARGIN_S = 20
#: Seconds after which an allocation without jobs is returned.
_IDLE_S = 60
#: Shell lines that append the number of the step to the step's record (`$1`), and unset Slurm's
#: variables of the step: srun within a step would take its geometry from them.
_PREPARE_STEP = f"""export {STEP}=$SLURM_JOB_ID.$SLURM_STEP_ID
echo "${STEP}" >>"$1"
""" + """for name in $(env | sed -n 's/^\\(SLURM_[A-Z_]*\\)=.*/\\1/p'); do
    case $name in KEPT|SLURM_JOB_ID) ;; *) unset $name ;; esac
done
""".replace("KEPT", "|".join(CONNECTION_VARIABLES))
#: Ending of the file, next to the log of a step, with the names of the step's nodes in its first
#: line, and JOB.STEP in its second.
_NODES_OF_STEP = ".nodes"
_RUNNING, _COMPLETED, _FAILED, _NODE_FAIL = "RUNNING", "COMPLETED", "FAILED", "NODE_FAIL"
#: State of a step whose allocation Slurm requeued.
_REQUEUED = "REQUEUED"
#: States of an allocation that has ended: a new one is needed.
_ENDED_ALLOCATION = {*queue.FAILED, _COMPLETED, queue.COMPLETING, PREEMPTED}
#: Messages about a step in its log, from srun and Slurm's daemon → the state that they mean.
_STATES_BY_MESSAGE = {
    r"^srun: error: Node failure on ": _NODE_FAIL,
    r"\*\*\* STEP .* CANCELLED AT \S+ DUE TO NODE FAILURE": _NODE_FAIL,
    r"\*\*\* STEP .* CANCELLED AT \S+ DUE TO TIME LIMIT": "TIMEOUT",
    r"\*\*\* STEP .* CANCELLED AT \S+ DUE TO PREEMPTION": PREEMPTED,
    r"\*\*\* STEP .* CANCELLED AT \S+ DUE TO JOB REQUEUE": _REQUEUED,
    # Slurm 26.05 names the signal
    r"\*\*\* STEP .* CANCELLED AT \S+ (?:DUE to SIGNAL .*)?\*\*\*": "CANCELLED",
    r"^srun: error: \S+: task 0: Out Of Memory": "OUT_OF_MEMORY",
}
#: Number of a step in Slurm.
_STEP_ID = re.compile(r"\d+\.\d+")
#: Size of the end of a step's log that is searched for them.
_LOG_END_BYTES = 1 << 16


@dataclass
class ExecutorSettings(sweep.ExecutorSettings):  # type: ignore[misc]  # upstream has no types
    """Settings of the executor: the settings of `slurm`, and the size and use of an allocation.

    Attributes:
        duration_min: Minutes of an allocation; None: the time that all of its jobs need.
        job: Number of a Slurm job that the user has started, whose nodes are used; None: a job is
            submitted.
        one_at_a_time: Whether jobs run one after the other, also if they use different nodes.
    """

    duration_min: Optional[int] = field(  # noqa: UP045  # Snakemake reads this type
        default=None,
        metadata={
            "help": "Minutes of an allocation; by default the time that all jobs need, if each "
            "takes its runtime.",
            "env_var": False,
            "required": False,
        },
    )
    job: Optional[int] = field(  # noqa: UP045
        default=None,
        metadata={
            "help": "Number of your own job that has the nodes, as by salloc. It is used until "
            "it ends, and not cancelled. By default a job is submitted.",
            "env_var": False,
            "required": False,
        },
    )
    one_at_a_time: bool = field(
        default=False,
        metadata={
            "help": "Run one job after the other, where jobs on different nodes would disturb "
            "each other, as on a shared network. By default jobs on disjoint nodes run together.",
            "env_var": False,
            "required": False,
        },
    )


@dataclass
class Step:
    """A job of Snakemake that runs, or will run, as a step of an allocation.

    Attributes:
        name: Name of the step in Slurm, a hash of the job's first output file.
        job: Snakemake's job.
        log: The step's log file.
        command: The shell command that the step runs.
        nodes: Nodes on which the step runs; () while it waits, or while they are unknown because an
            earlier start of Snakemake left no complete record of them.
        process: The process of srun; None while the step waits, or if an earlier start of Snakemake
            began the step.
        state: State of the step in Slurm's words.
        allocation: Number of the Slurm job in which the step runs; "" while it waits.
        number: JOB.STEP of a step that an earlier start of Snakemake began; else "".
    """

    name: str
    job: Any
    log: Path
    command: str = ""
    nodes: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    state: str = PENDING
    allocation: str = ""
    number: str = ""

    @property
    def info(self) -> SubmittedJobInfo:
        """The step as Snakemake's record of a submitted job."""
        return SubmittedJobInfo(self.job, external_jobid=self.name, aux={"slurm_logfile": self.log})

    @property
    def record(self) -> Path:
        """File with the nodes and the number of the step, which a later Snakemake reads."""
        return _record_path(self.log)

    def write_record(self) -> None:
        """Write the nodes of the step to `record`."""
        partial = self.record.with_suffix(".part")
        partial.write_text(" ".join(self.nodes) + "\n")
        partial.replace(self.record)

    @property
    def size(self) -> int:
        """Number of nodes that the job requests."""
        return int(self.job.resources.get("nodes", 1))

    @property
    def runtime_s(self) -> float:
        """Time limit of the job in seconds."""
        return 60.0 * float(self.job.resources.get("runtime", 60))


@dataclass
class Allocation:
    """A Slurm job that holds nodes for steps.

    Attributes:
        number: Job number.
        is_given: Whether it is the user's own job, given by the setting `job`. It is not cancelled.
        state: State in Slurm's words.
        reason: Slurm's reason why it waits.
        nodes: Its nodes in Slurm's order; () before it runs.
        end_s: When its time limit ends, in seconds since the epoch.
        idle_since_s: When it was first found without a step, by `time.monotonic()`; None while it
            has one.
        absences: Counts answers of Slurm that do not list it.
    """

    number: str
    is_given: bool = False
    state: str = PENDING
    reason: str = ""
    nodes: tuple[str, ...] = ()
    end_s: float = math.inf
    idle_since_s: float | None = None

    absences: Absences = field(default_factory=Absences)

    def update_from_queue(self, slurm: SlurmClient) -> None:
        """Update state, reason, nodes and end from squeue.

        Nothing changes if Slurm does not answer. The state becomes FAILED after several answers
        that do not list the allocation.
        """
        answer = slurm.jobs(numbers=[self.number])
        if isinstance(answer, NoAnswer):
            return
        if not answer:
            if self.absences.count_absence(self.number, time.monotonic()):
                self.state = _FAILED
            return
        self.absences.mark_listed(self.number)
        (job, *_) = answer
        self.state, self.reason = job.state, job.reason
        if self.state == _RUNNING:
            nodes = slurm.hostnames(job.nodes)  # in Slurm's order
            self.nodes = self.nodes if isinstance(nodes, NoAnswer) else nodes
            self.end_s = math.inf if job.end_s is None else job.end_s

    def is_idle(self, slurm: SlurmClient) -> bool:
        """Return whether the allocation has had no step for `_IDLE_S` seconds.

        The first call after a step has ended starts the clock. The result is always False for the
        user's own job, and while another Snakemake process has steps in the allocation.
        """
        self.idle_since_s = self.idle_since_s or time.monotonic()
        if self.is_given or time.monotonic() - self.idle_since_s <= _IDLE_S:
            return False
        # another driver of the folder may have jobs in it
        steps = slurm.steps(self.number)
        return not isinstance(steps, NoAnswer) and not any(
            step.name.startswith("tfscaling-") for step in steps
        )


class Executor(sweep.Executor):
    """Executor that runs jobs as steps of allocations; otherwise it works like `slurm-sweep`."""

    # Snakemake's thread reads these attributes before `__post_init__`
    #: Options of sbatch, from `_request_options` → the allocation that was requested with them.
    _allocations: dict[str, Allocation] = {}
    #: Name of a step → step, for the steps that wait or run.
    _steps: dict[str, Step] = {}
    #: Numbers of allocations that are no longer needed and that Slurm has not cancelled yet.
    _to_release: set[str] = set()
    _failed_states = frozenset({*sweep.Executor._failed_states, _REQUEUED})

    def __post_init__(self, test_mode: bool = False) -> None:
        """Prepare the requests for allocations, and read which nodes earlier steps used.

        Snakemake calls this once.
        """
        super().__post_init__(test_mode)
        self._steps, self._to_release = {}, set()
        self._allocations = self._find_earlier_allocations()
        #: Held while a step starts and while steps are cancelled: none starts after that.
        self._start_lock = threading.RLock()
        #: Name of a step → why Slurm grants no allocation for it.
        self._refused: dict[str, str] = {}
        self._grants = Grants(self.slurm, self.logger.warning)
        self._absent_steps = Absences()
        self._given: int | None = self.workflow.executor_settings.job
        self._rotation = Rotation()
        for record in self.slurm_logdir.rglob(f"*{_NODES_OF_STEP}"):
            self._rotation.add(_read_nodes(record))
        #: Name → step that an earlier start left; None: not looked for yet.
        self._left: dict[str, QueuedStep] | None = None

    # Jobs become steps

    def _submit(self, job: Any) -> SubmittedJobInfo | None:
        """Add a waiting step for a job; `_advance` starts it once an allocation has room for it.

        Returns:
            Snakemake's record of the job; None if submissions are stopped.
        """
        if self._is_stopped.is_set():
            return None
        step = self._make_step(job)
        step.log.parent.mkdir(parents=True, exist_ok=True)
        step.command = self.format_job_exec(job)
        self._steps[step.name] = step
        return step.info

    def _make_step(self, job: Any) -> Step:
        """Return a waiting step for a job of Snakemake."""
        output = Path(self.workflow.workdir_init, output_of(job))
        name = f"tfscaling-{hashlib.sha256(bytes(output)).hexdigest()[:16]}"
        return Step(name, job, self._log_path(job, name))

    def _adopt(self, job: Any) -> SubmittedJobInfo | None:
        """Return the step that an earlier Snakemake began for a job and that still runs, or None.

        The step writes the job's output. It is followed, and no second step is started.

        Args:
            job: Snakemake's job.
        """
        step = self._make_step(job)
        if self._left is None:
            self._left = self._find_earlier_steps()
        left = (self._left or {}).pop(step.name, None)
        if left is None:
            return None
        nodes = _read_nodes(step.record)
        step.nodes = nodes if len(nodes) == step.size else ()
        step.state, step.allocation, step.number = _RUNNING, left.job, left.number
        self._steps[step.name] = step
        self._adopted.add(step.name)
        return step.info

    def _find_earlier_steps(self) -> dict[str, QueuedStep] | None:
        """Return name → step for the steps that Slurm runs; query Slurm until it answers.

        If a run's step were not found, the run would start a second time.

        Returns:
            None if submissions are stopped before an answer.
        """
        pauses_s, has_warned = itertools.chain(PAUSES_S, itertools.repeat(PAUSES_S[-1])), False
        while isinstance(steps := self._query_earlier_steps(), NoAnswer):
            if not has_warned:
                has_warned = True
                self.logger.warning(
                    f"Slurm does not list the steps of an earlier start ({steps.why}); the query "
                    "is repeated, and no run starts before"
                )
            if self._is_stopped.wait(next(pauses_s)):
                return None
        return {each.name: each for each in steps}

    def _query_earlier_steps(self) -> list[QueuedStep] | NoAnswer:
        """Return all steps that Slurm lists.

        If there is an allocation, an empty answer is confirmed by a second query.
        """
        if not self._allocations and self._given is None:
            return self.slurm.steps()
        return queue.confirm_empty_answer(self.slurm.steps, self._is_stopped.wait)

    def _queued_number(self, info: SubmittedJobInfo) -> str:
        """Return the number of the allocation for which a step waits, else the step's name."""
        allocation = self._allocations.get(_request_options(info.job))
        return allocation.number if allocation else str(info.external_jobid)

    async def check_active_jobs(
        self, active_jobs: Sequence[SubmittedJobInfo]
    ) -> AsyncIterator[SubmittedJobInfo]:
        """Start waiting steps, report ended ones, yield the others, and release idle allocations.

        Another allocation may wait for the release, for example with `--dependency=singleton`.
        """
        if self._is_stopped.is_set():
            active_jobs = [info for info in active_jobs if not self._drop_waiting(info)]
        are_all_known = (
            not self._unsubmitted
        )  # first: a job becomes a step before it leaves the set
        used = {_request_options(step.job) for step in [*self._steps.values()]}
        for request in [*self._allocations.keys() - used]:
            if are_all_known and self._allocations[request].is_idle(self.slurm):
                self._release(request)
        self._cancel_released()
        async for info in super().check_active_jobs(active_jobs):
            yield info

    def _drop_waiting(self, info: SubmittedJobInfo) -> bool:
        """Remove a job whose step has not started; the next start of Snakemake runs the job.

        Returns:
            Whether it was removed; False if its step runs.
        """
        step = self._steps.get(str(info.external_jobid))
        if step is None or step.state != PENDING:
            return False
        del self._steps[step.name]
        self._remove_submitted(info)
        self._leave_to_next_start(info.job)
        return True

    async def _states(self, numbers: Sequence[str]) -> dict[str, tuple[str, str]] | None:
        """Start all steps that can start, and return the states of all steps.

        A step that has ended is returned once, and then forgotten.

        Args:
            numbers: Not used, because the states of all steps are returned.

        Returns:
            Name of a step → (state, Slurm's reason why its allocation waits, or "None").
        """
        are_all_known = (
            not self._unsubmitted
        )  # first: a job becomes a step before it leaves the set
        due: dict[str, list[Step]] = {}
        for step in sorted(self._steps.values(), key=lambda step: -step.job.priority):
            due.setdefault(_request_options(step.job), []).append(step)
        for request, steps in due.items():
            self._advance(request, steps, are_all_known)
        self.next_seconds_between_status_checks = _PERIOD_S
        found = {}
        for step in [*self._steps.values()]:
            allocation = self._allocations.get(_request_options(step.job))
            state, reason = step.state, "None"
            if allocation and state == PENDING and allocation.state in (PENDING, *queue.HELD):
                state, reason = allocation.state, allocation.reason
            found[step.name] = state, reason
            if step.state not in (PENDING, _RUNNING):
                del self._steps[step.name]
        return found

    def _judge_state(
        self, info: SubmittedJobInfo, answer: dict[str, tuple[str, str]] | None
    ) -> tuple[str, str]:
        """Return the state of a step, and Slurm's reason why its allocation waits.

        A failed step has ended for good, because Slurm does not restart steps. Other states are
        judged as in `slurm-sweep`.

        Args:
            info: Snakemake's record of the step.
            answer: Name → (state, reason), from `_states`.
        """
        state, reason = (answer or {}).get(str(info.external_jobid), ("", ""))
        if state in self._failed_states:
            return state, reason
        judged: tuple[str, str] = super()._judge_state(info, answer)
        return judged

    def _advance(self, request: str, steps: Sequence[Step], are_all_known: bool) -> None:
        """Update the states of steps, get an allocation for them, and start those that fit.

        An allocation is requested once all jobs of Snakemake have become steps, because its size
        and duration depend on all of them. A step fits if enough nodes are free and the allocation
        lasts for its time limit. If no step runs and none fits, the allocation is released. An
        allocation that does not run, but has not ended either, is kept: Slurm boots its nodes, or
        has suspended it.

        Args:
            request: The options of sbatch, from `_request_options`, that all these steps have.
            steps: All steps with these options, by descending priority.
            are_all_known: Whether no job waits to become a step. Only then an allocation is
                requested, because its size and duration follow from all steps.
        """
        for step in steps:
            if step.process is not None and (code := step.process.poll()) is not None:
                step.state = self._state_of_ended(step, code)
            elif step.state == _RUNNING and step.process is None:
                step.state = self._state_of_adopted(step)
        waiting = [step for step in steps if step.state == PENDING]
        running = [step for step in steps if step.state == _RUNNING]
        allocation = self._allocations.get(request)
        if allocation is None and waiting and are_all_known:
            try:
                allocation = self._allocate(request, waiting)
            except RefusedAllocationError as error:
                self._refuse_steps(waiting, error)
            if allocation is not None:
                self._allocations[request] = allocation
        if allocation is None:
            return
        allocation.update_from_queue(self.slurm)
        if allocation.state in _ENDED_ALLOCATION:
            del self._allocations[request]
        elif allocation.state == queue.REVOKED:
            raise WorkflowError(
                f"allocation {allocation.number} runs on another cluster of the federation, where "
                "no run can be started from here: name one cluster by `--clusters` in `extra`"
            )
        elif allocation.state == _RUNNING and allocation.nodes:  # which Slurm may not show at once
            for step in running:
                # its launcher is lost; srun would wait until the allocation ends
                is_here = step.allocation == allocation.number and allocation.nodes
                if is_here and step.nodes and step.nodes[0] not in allocation.nodes:
                    output = output_of(step.job)
                    is_finished = self._sweep.is_finished(output, step.allocation)
                    step.state = _COMPLETED if is_finished else _NODE_FAIL
                    if step.process is not None:
                        step.process.kill()
            running = [step for step in running if step.state == _RUNNING]
            # in their random order: none overtakes a larger one that waits for nodes
            for step in waiting:
                if not self._start(allocation, step, running):
                    break
            allocation.idle_since_s = None
            if waiting and not running:
                # nothing that waits ends before the allocation does, or it lacks fit nodes: the
                # next allocation has the time and other nodes
                self._release(request)

    def _refuse_steps(self, waiting: Sequence[Step], error: RefusedAllocationError) -> None:
        """End steps that must avoid some nodes, after Slurm has refused an allocation for good.

        Without them, an allocation with all nodes may be granted for the other steps.

        Args:
            waiting: The steps for which the allocation was requested.
            error: Slurm's refusal.

        Raises:
            RefusedAllocationError: No step avoids nodes, so that Slurm would refuse all requests.
        """
        limited = [step for step in waiting if self._sweep.nodes_to_avoid(output_of(step.job))]
        if not limited:
            raise error
        for step in limited:
            step.state, self._refused[step.name] = _FAILED, str(error)

    def _report_end(self, info: SubmittedJobInfo, state: str) -> None:
        """Report an ended step to Snakemake; without an allocation, it ends with Slurm's refusal.

        Args:
            info: Snakemake's record of the step.
            state: The final state in Slurm's words.
        """
        words = self._refused.pop(str(info.external_jobid), None)
        if words is None:
            super()._report_end(info, state)
            return
        self._lost.add(output_of(info.job))
        self._sweep.report_refusal(output_of(info.job), words)
        self.report_job_error(info, msg=f"{words}. ")

    def _state_of_adopted(self, step: Step) -> str:
        """Return the state, in Slurm's words, of a step that an earlier Snakemake began."""
        steps = self.slurm.steps()
        if isinstance(steps, NoAnswer):
            return _RUNNING
        if own := next((each for each in steps if each.name == step.name), None):
            self._absent_steps.mark_listed(step.name)
            step.nodes = step.nodes or self._find_nodes(own, steps, step.size)
            return _RUNNING
        if output_of(step.job).exists():
            return _COMPLETED
        has_ended = self._absent_steps.count_absence(step.name, time.monotonic())
        return self._state_of_ended(step, None) if has_ended else _RUNNING

    def _number_in_slurm(self, info: SubmittedJobInfo) -> str:
        """Return JOB.STEP of a step, or its name if it did not begin."""
        return _read_step_id(_record_path(info.aux["slurm_logfile"])) or str(info.external_jobid)

    def _find_nodes(
        self, own: QueuedStep, steps: Sequence[QueuedStep], size: int
    ) -> tuple[str, ...]:
        """Return the nodes of a run that an earlier Snakemake began; () if Slurm shows none.

        Slurm lists two job steps for such a run: the step with the Snakemake of the job, on the
        first node only, and the step with the run's ranks, on all of its nodes.

        Args:
            own: The step with the Snakemake of the job.
            steps: All steps that Slurm lists.
            size: Number of nodes of the run.
        """
        for each in steps:
            nodes = self.slurm.hostnames(each.nodes) if each.job == own.job else ()
            if not isinstance(nodes, NoAnswer) and own.nodes in nodes and len(nodes) == size:
                return nodes
        return ()

    def _state_of_ended(self, step: Step, code: int | None) -> str:
        """Return the final state of a step in Slurm's words.

        Messages in its log and the states of its nodes explain a failure that its launcher cannot
        report: srun may end without an error after the loss of a node.

        Args:
            step: The step.
            code: Exit status of its srun; None if an earlier start of Snakemake began the step.
        """
        output = output_of(step.job)
        if (code == 0 and output.exists()) or self._sweep.is_finished(output, step.allocation):
            return _COMPLETED
        said = _read_end(step.log)
        for message, state in _STATES_BY_MESSAGE.items():
            if re.search(message, said, re.MULTILINE):
                return state
        states = self.slurm.nodes(names=step.nodes) if step.nodes else {}
        if not isinstance(states, NoAnswer) and any(map(is_node_down, states.values())):
            return _NODE_FAIL
        return _COMPLETED if code == 0 else _FAILED

    def _start(self, allocation: Allocation, step: Step, running: list[Step]) -> bool:
        """Start a step if enough nodes are free and the allocation lasts for its time limit.

        Args:
            allocation: The allocation.
            step: The step.
            running: The running steps of the allocation; the started step is added to them.

        Returns:
            Whether the step was started.
        """
        if allocation.state != _RUNNING:
            return False
        if running and self.workflow.executor_settings.one_at_a_time:
            return False
        if not all(each.nodes for each in running):  # it may use any node
            return False
        busy = {node for each in running for node in each.nodes}
        unfit = set(self._sweep.nodes_to_avoid(output_of(step.job)))
        free = [node for node in allocation.nodes if node not in busy | unfit]
        remaining_s = allocation.end_s - time.time() - _MARGIN_S
        if step.size > len(free) or step.runtime_s > remaining_s:
            return False
        with self._start_lock:
            if self._is_stopped.is_set():
                return False
            self._start_process(allocation, step, free)
        running.append(step)
        return True

    def _start_process(self, allocation: Allocation, step: Step, free: Sequence[str]) -> None:
        """Start a step by srun on some of the free nodes.

        Args:
            allocation: The allocation.
            step: The step.
            free: Nodes of the allocation on which it may run.
        """
        step.nodes = self._rotation.choose(allocation.nodes, free, step.size)
        step.allocation = allocation.number
        step.write_record()
        step.log.write_bytes(b"")
        gres = str(step.job.resources.get("gres") or "")
        argv = (
            *("srun", f"--jobid={allocation.number}", "--overlap", "--export=ALL"),
            *("--nodes=1", "--ntasks=1"),
            *([f"--gres={gres}"] if gres else []),
            *(f"--nodelist={step.nodes[0]}", f"--job-name={step.name}", "--unbuffered"),
            # srun's own messages are in the log, too
            *(f"--output={step.log}", "--open-mode=append"),
            *("sh", "-c", _PREPARE_STEP + step.command, "sh", str(step.record)),
        )
        # without options of srun, which the user's shell may have
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("SLURM_") or name in CONNECTION_VARIABLES
        }
        environ = {**inherited, NODES: ",".join(step.nodes), GRES: gres}
        with step.log.open("ab") as log:
            # in a separate session: a signal to the driver does not end the step
            step.process = subprocess.Popen(
                argv,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        step.state = _RUNNING

    # Allocations

    def _allocation_comment(self, request: str) -> str:
        """Return the text of an allocation's comment, by which a later Snakemake recognises it.

        Args:
            request: Options of sbatch, from `_request_options`.
        """
        return f"{self.workflow.workdir_init} {request}"

    def _find_earlier_allocations(self) -> dict[str, Allocation]:
        """Return request → allocation, for allocations of an earlier Snakemake in this directory.

        A request is the text from `_request_options`.

        Raises:
            WorkflowError: Slurm does not list them; nodes could be allocated twice.
        """
        jobs = queue.require_answer(
            lambda: self.slurm.jobs(names=[NAME]), "allocations of an earlier start"
        )
        folder = self._allocation_comment("")
        alive = (job for job in jobs if job.state not in _ENDED_ALLOCATION)
        texts = {queue.executor_text(job.comment): job.number for job in alive}
        return {
            text.removeprefix(folder): Allocation(number)
            for text, number in texts.items()
            if text.startswith(folder)
        }

    def _allocate(self, request: str, steps: Sequence[Step]) -> Allocation | None:
        """Return an allocation for the steps of a request; None while Slurm grants none.

        The user's own job is returned for the first request that fits its partition. In other
        allocations, nodes that any of the steps must avoid are excluded.

        Args:
            request: Options of sbatch that the steps share.
            steps: The waiting steps.

        Raises:
            RefusedAllocationError: Slurm refuses the allocation for good.
            WorkflowError: The setting `duration_min` is shorter than the longest step.
        """
        if self._given is not None and _is_in_partition(self.slurm, self._given, request):
            given, self._given = Allocation(str(self._given), is_given=True), None
            return given
        nodes = max(step.size for step in steps)
        cpus = max(_cpus_per_node(step.job) for step in steps)
        gres = [str(each.job.resources["gres"]) for each in steps if each.job.resources.get("gres")]
        needed_s = sum(step.runtime_s * step.size for step in steps) / nodes
        minutes = self.workflow.executor_settings.duration_min or math.ceil(
            (max(needed_s, *(step.runtime_s for step in steps)) + 2 * _MARGIN_S) / 60
        )
        longest_s = max(step.runtime_s for step in steps)
        if 60 * minutes < longest_s + _MARGIN_S:
            raise WorkflowError(
                f"--slurm-allocation-duration-min {minutes}: no run of {longest_s / 60:g} min "
                f"(runtime_min) fits; expected at least {math.ceil((longest_s + _MARGIN_S) / 60)}"
            )
        avoided = {
            node for step in steps for node in self._sweep.nodes_to_avoid(output_of(step.job))
        }
        given_options = shlex.split(request)
        if avoided:
            # sbatch uses the last one of several such options
            names = ",".join([*excluded_nodes(request), *sorted(avoided)])
            given_options.append(f"--exclude={names}")
        call = (
            *(
                "sbatch",
                "--parsable",
                f"--job-name={NAME}",
                f"--comment={queue.mark_comment(self._allocation_comment(request))}",
            ),
            # its steps would not start again with it
            *("--no-kill", "--no-requeue"),
            *(f"--nodes={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={cpus}"),
            *(f"--time={minutes}", "--output=/dev/null", *given_options),
            *([f"--gres={max(gres, key=_count_gpus)}"] if gres else []),
            "--wrap=exec sleep infinity",
        )
        known = {allocation.number for allocation in self._allocations.values()}
        known |= self._to_release
        number = self._grants.request_allocation(self._allocation_comment(request), call, known)
        if number is None:
            return None
        self.logger.info(f"Allocation {number}: {nodes} nodes for at most {minutes} minutes.")
        return Allocation(number)

    def _release(self, request: str) -> None:
        """Forget an allocation, and let Slurm cancel it unless it is the user's own job.

        Args:
            request: Its options of sbatch.
        """
        allocation = self._allocations.pop(request)
        if not allocation.is_given:
            self._to_release.add(allocation.number)
            self._cancel_released()

    def _cancel_released(self) -> NoAnswer | None:
        """Let Slurm cancel the allocations that are no longer needed.

        Returns:
            NoAnswer if Slurm did not answer; the next call then cancels the remaining allocations.
        """
        for number in sorted(self._to_release):
            if (answer := self.slurm.cancel([number])) is not None:
                return answer
            self._to_release.discard(number)
        return None

    # Ends

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """End the steps of these jobs, also steps that an earlier start of Snakemake began.

        A step that is just being started is ended, too. No step starts later, because submissions
        are stopped before this call.
        """
        with self._start_lock:
            steps = [self._steps.get(str(info.external_jobid)) for info in active_jobs]
            for step in steps:
                if step is not None and step.process is not None:
                    step.process.terminate()
        numbers = [
            step.number
            for step in steps
            if step is not None and step.process is None and step.number
        ]
        if numbers and self._log_cancel_failure(self.slurm.cancel(numbers)):
            self._cancelled.update(numbers)

    def shutdown(self) -> None:
        """Stop the executor and release all allocations."""
        super().shutdown()
        given = {each.number for each in self._allocations.values() if each.is_given}
        self._to_release |= {each.number for each in self._allocations.values()} - given
        self._allocations.clear()
        numbers = set(self._to_release)
        self._log_cancel_failure(self._cancel_released())
        ended = numbers - self._to_release  # their steps end with them
        steps = self._steps.items()
        self._steps = {name: step for name, step in steps if step.allocation not in ended}

    def _describe_remaining(self) -> str:
        """Return which allocations and steps Slurm may still run, and what ends them; "" if none.

        A step ends with its allocation, or with its srun.
        """
        own = {each.number for each in [*self._allocations.values()] if not each.is_given}
        allocations = sorted(own | self._to_release)
        steps = [
            step
            for step in [*self._steps.values()]
            if step.state == _RUNNING
            and step.allocation not in allocations
            and step.number not in self._cancelled
            and (step.process is None or step.process.poll() is None)
        ]
        pids = [str(step.process.pid) for step in steps if step.process is not None]
        adopted = [step.number for step in steps if step.process is None and step.number]
        names = [f"SLURM jobs {' '.join(allocations)}"] if allocations else []
        names += [f"steps {' '.join(step.name for step in steps)}"] if steps else []
        ended_by_slurm = [*allocations, *adopted]
        commands = [f"scancel {' '.join(ended_by_slurm)}"] if ended_by_slurm else []
        commands += [f"kill {' '.join(pids)}"] if pids else []
        return f"{' and '.join(names)} may still run: {'; '.join(commands)}" if names else ""


def _record_path(log: Path) -> Path:
    """Return the path of the record of a step, given its log."""
    return log.with_suffix(_NODES_OF_STEP)


def _read_record(record: Path) -> list[str]:
    """Return the complete lines in the record of a step; [] if it is missing or unreadable."""
    try:
        return record.read_text().split("\n")[:-1]
    except (OSError, UnicodeError):
        return []


def _read_nodes(record: Path) -> tuple[str, ...]:
    """Return the nodes in the record of a step; () if it is missing, unreadable or incomplete."""
    lines = _read_record(record)
    return tuple(lines[0].split()) if lines else ()


def _read_step_id(record: Path) -> str:
    """Return JOB.STEP in the record of a step; "" if the step has not begun."""
    return next((line for line in _read_record(record)[1:] if _STEP_ID.fullmatch(line)), "")


def _read_end(log: Path) -> str:
    """Return the end of a log; "" if it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_END_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _is_in_partition(slurm: SlurmClient, number: int, request: str) -> bool:
    """Return whether a job is in the partition that a request names; True if it names none.

    If Slurm does not answer, the result is False for a request that names a partition.

    Args:
        slurm: Calls Slurm's programs.
        number: Job number.
        request: Options of sbatch.
    """
    jobs = slurm.jobs(numbers=[str(number)])
    partition = "" if isinstance(jobs, NoAnswer) or not jobs else jobs[0].partition
    return f"--partition={partition}" in request.split() or "--partition=" not in request


def _request_options(job: Any) -> str:
    """Return the options of sbatch, in one string, that an allocation for a job must have.

    Jobs with equal options share an allocation. Numbers of nodes, CPUs and GPUs are left out.
    """
    names = {
        "slurm_partition": "partition",
        "slurm_account": "account",
        "qos": "qos",
        "constraint": "constraint",
        "mem_mb": "mem",
        "mem_mb_per_cpu": "mem-per-cpu",
    }
    options = [
        f"--{option}={job.resources[n]}" for n, option in names.items() if job.resources.get(n)
    ]
    extra = shlex.split(str(job.resources.get("slurm_extra") or ""))
    extra = [word for word in extra if not word.startswith("--ntasks-per-node=")]
    return shlex.join([*options, *extra])


def _count_gpus(gres: str) -> int:
    """Return the number of GPUs in a gres such as `gpu:a100:4,nvme:1`, where GPUs are first."""
    return int(gres.partition(",")[0].rpartition(":")[2])


def _cpus_per_node(job: Any) -> int:
    """Return the number of CPUs that a job needs on each node."""
    tasks = math.ceil(int(job.resources.get("tasks", 1)) / int(job.resources.get("nodes", 1)))
    return tasks * int(job.resources.get("cpus_per_task", 1))
