"""The first cause among many complaints."""

from __future__ import annotations

import os
import random
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from builders import rank_events, write_events
from fake_programs import program
from msgspec.structs import replace
from tfscaling.launch import failures, provenance, slurm_job
from tfscaling.launch.checkpoint_folder import InterruptedTrainingError
from tfscaling.record.attempts import Cause, Kind
from tfscaling.record.events import Event, EventName
from tfscaling.record.run_record import SlurmJob
from tfscaling.train import strategies

RAN = {"start": 1.0, "imported": 2.0}
LOST_PEER = {"error": "UnavailableError", "message": "Socket closed"}


def running(rank: int, **times: float) -> list[Event]:
    return rank_events(rank, {**RAN, **times}, host=f"node{rank}")


def failed(rank: int, time_s: float, **details: Any) -> Event:
    return Event(name=EventName.FAILED, time_s=time_s, rank=rank, details=details)


def complaining(rank: int, time_s: float, **error: Any) -> list[Event]:
    return [*running(rank), failed(rank, time_s, **{**LOST_PEER, **error})]


def folder_with(tmp_path: Path, *ranks: list[Event]) -> Path:
    for lines in ranks:
        write_events(tmp_path, lines[0].rank, lines)
        log = tmp_path / f"rank-{lines[0].rank}.log"
        log.write_text("\n".join(f"line {number}" for number in range(100)))
    return tmp_path


def test_a_rank_that_died_silently_comes_before_those_that_complained(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, complaining(0, 3.0), running(1), complaining(2, 4.0))
    cause = failures.find_cause(folder, {0: 1, 1: -9, 2: 1}, {})
    assert (cause.kind, cause.rank, cause.host) == ("rank_died", 1, "node1")
    assert (cause.message, cause.exit_code) == ("killed by SIGKILL", -9)
    assert cause.last_event == "imported"
    assert list(cause.last_lines) == [f"line {number}" for number in range(70, 100)]


#: As TensorFlow 2.21 says it.
MISSED = """Graph execution error:
Collective ops is aborted by: Error reported from /job:worker/task:1: The following tasks are \
unhealthy (stopped sending heartbeats):
/job:worker/replica:0/task:1
The tasks have crashed. Check the task logs for an earlier error."""
INTERRUPTED = {"error": InterruptedTrainingError.__name__, "message": "interrupted after 7 steps"}
EXITED = {rank: f"Exited with exit code 1 (on node{rank})" for rank in range(3)}
KILLED = {rank: f"Killed (on node{rank})" for rank in range(3)}
#: Events of the ranks, their exit codes, what srun says of them, silent ranks; the cause.
CAUSES: dict[str, tuple[list[Any], dict[int, int | None], dict[int, str], set[int], Any]] = {
    "died_before_its_first_event": (
        [complaining(0, 3.0)], {0: 1, 1: -9}, {}, set(), ("rank_died", 1, "killed by SIGKILL")),
    # the others wait for it, abort for it, or are ended by srun for it
    "died_before_its_first_event_while_another_runs": (
        [running(0)], {0: None, 1: 1}, {}, set(), ("rank_died", 1, "exit code 1")),
    "died_before_its_first_event_and_another_aborts": (
        [running(0)], {1: 1, 0: -6}, {}, set(), ("rank_died", 1, "exit code 1")),
    "died_before_another_aborts": (
        [running(0), running(1)], {1: -9, 0: -6}, {}, set(),
        ("rank_died", 1, "killed by SIGKILL")),
    "died_before_its_first_event_and_srun_terminates_another": (
        [running(0), running(2)], {}, {1: EXITED[1]}, set(), ("rank_died", 1, EXITED[1])),
    "died_before_its_first_event_and_srun_kills_another": (
        [running(0), running(2)], {}, {1: EXITED[1], 0: KILLED[0]}, set(),
        ("rank_died", 1, EXITED[1])),
    "died_before_srun_killed_another_that_had_not_begun": (
        [running(1)], {}, {1: EXITED[1], 0: KILLED[0]}, set(), ("rank_died", 1, EXITED[1])),
    # a rank's own error, after which srun or the others' libraries end them
    **{f"own_error_before_{name}": (
        [complaining(0, 3.0, error="ValueError", message="no"), *others], exits, said, set(),
        ("rank_failed", 0, "ValueError: no"))
       for name, others, exits, said in (
        ("srun_kills_another", [running(1)], {}, {0: EXITED[0], 1: KILLED[1]}),
        ("srun_kills_one_that_had_not_begun", [], {}, {0: EXITED[0], 1: KILLED[1]}),
        ("another_aborts", [running(1)], {0: 1, 1: -6}, {}),
        ("one_ends_that_had_not_begun", [], {0: 1, 1: 1}, {}))},
    "own_error_after_another_died": (
        [complaining(0, 3.0, error="ValueError", message="no"), running(1)], {1: -9, 0: 1}, {},
        set(), ("rank_died", 1, "killed by SIGKILL")),
    "complained_while_another_runs": (
        [running(0), complaining(1, 3.0)], {0: None, 1: 1}, {}, set(),
        ("rank_failed", 1, "UnavailableError: Socket closed")),
    "complained_first": (
        [complaining(0, 5.0), complaining(1, 4.0), complaining(2, 6.0)], dict.fromkeys(range(3), 1),
        {}, set(), ("rank_failed", 1, "UnavailableError: Socket closed")),
    "out_of_memory_by_srun": (
        [complaining(0, 3.0), running(1)], {}, {0: EXITED[0], 1: "Out Of Memory (on node1)"}, set(),
        ("rank_died", 1, "Out Of Memory (on node1)")),
    "node_is_lost": (
        [running(0, end=9.0), running(1)], {}, {}, set(),
        ("rank_died", 1, failures.describe_exit(None))),
    "asked_to_end": (
        [complaining(0, 3.0, **INTERRUPTED), complaining(1, 3.0, **INTERRUPTED)], {0: 1, 1: 1}, {},
        set(), ("cancelled", 0, None)),
    # alive when its peers end, or killed by srun because they did
    "stopped": (
        [complaining(0, 40.0), running(1, progress=9.0), running(2)], {0: 1}, {}, {1},
        ("stalled", 1, None)),
    "stopped_and_killed_by_srun": (
        [complaining(0, 40.0), running(1, progress=9.0), running(2)], {0: 1}, {1: KILLED[1]}, {1},
        ("stalled", 1, None)),
    # Slurm sends SIGCONT before SIGTERM
    "stopped_and_complains_last": (
        [complaining(0, 40.0), complaining(1, 41.0)], {}, {0: EXITED[0], 1: EXITED[1]}, {1},
        ("stalled", 1, None)),
    # the launcher has seen its heartbeats late; TensorFlow has not seen any
    "stopped_by_the_words_of_tensorflow": (
        [complaining(0, 40.0, message=MISSED), running(1), complaining(2, 41.0)], {0: 1, 2: 1}, {},
        set(), ("stalled", 1, None)),
    "died_while_another_is_silent": (
        [complaining(0, 40.0), running(1), running(2)], {0: 1, 2: -9}, {}, {1},
        ("rank_died", 2, None)),
    "killed_while_another_is_silent": (
        [complaining(0, 40.0), running(1), running(2)], {}, {2: KILLED[2], 1: KILLED[1]}, {1},
        ("rank_died", 2, None)),
    "complains_itself_though_silent": (
        [complaining(0, 3.0), running(1)], {0: 1, 1: None}, {}, {0}, ("rank_failed", 0, None)),
    # a shared file system may show heartbeats ten seconds late: an error of the rank's own counts
    **{f"{error}_while_another_is_late": (
        [complaining(0, 40.0, error=error, message=message), running(1), running(2)], {0: 1}, {},
        {1}, (*cause, None))
       for error, message, cause in (
           ("ValueError", "too few examples", ("rank_failed", 0)),
           ("ResourceExhaustedError", "out of memory", ("rank_failed", 0)),
           ("InvalidArgumentError", "Collective ops is aborted by: ", ("stalled", 1)),
       )},
}  # fmt: skip


@pytest.mark.parametrize(("ranks", "exits", "said", "silent", "expected"), CAUSES.values(),
                         ids=CAUSES)  # fmt: skip
def test_the_first_cause_is_found(
    ranks: list[Any], exits: dict[int, int | None], said: dict[int, str], silent: set[int],
    expected: tuple[str, int, str | None], tmp_path: Path,
) -> None:  # fmt: skip
    cause = failures.find_cause(folder_with(tmp_path, *ranks), exits, said, silent)
    kind, rank, message = expected
    assert (cause.kind, cause.rank, cause.host or f"node{rank}") == (kind, rank, f"node{rank}")
    assert message in (None, cause.message)


STARTER = f"srun was killed by {random.choice(['SIGKILL', 'SIGSEGV', 'SIGTERM'])}"
LOST_PROGRAM = {"error": "killed by SIGKILL", "message": "killed", "of_program": True}


@pytest.mark.parametrize(
    ("ranks", "said", "expected"),
    [
        ([running(0), running(1), running(2)], {}, ("launch_failed", None)),
        ([running(0), complaining(1, 3.0)], {}, ("launch_failed", None)),
        ([running(0), complaining(1, 3.0, **LOST_PROGRAM)], {}, ("launch_failed", None)),
        ([running(0), complaining(1, 3.0, **INTERRUPTED)], {}, ("launch_failed", None)),
        ([], {}, ("launch_failed", None)),
        # what a rank has done by itself
        ([running(0), complaining(1, 3.0, error="ValueError")], {}, ("rank_failed", 1)),
        ([running(0), running(1)], {1: KILLED[1]}, ("rank_died", 1)),
    ],
    ids=[
        *("silent", "lost peer", "lost program", "interrupted", "no rank", "own error"),
        "named by srun",
    ],
)
def test_no_rank_is_blamed_if_the_process_that_starts_all_ranks_was_killed(
    ranks: list[Any], said: dict[int, str], expected: tuple[str, int | None], tmp_path: Path
) -> None:
    folder = folder_with(tmp_path, *ranks)
    (folder / "srun.log").write_text("srun: a line\n")
    cause = failures.find_cause(folder, {}, said, {0}, STARTER)
    assert (cause.kind, cause.rank) == expected
    assert (cause.message == STARTER) == (cause.rank is None)


ABORTED = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."
FIRST_ERRORS = [
    (
        "srun: error: Task launch for StepId=7.0 failed on node n1: Unable to satisfy cpu bind "
        "request",
        ("srun: error: Application launch failed: Unable to satisfy cpu bind request", ABORTED),
    ),
    (
        "slurmstepd: error: failed to distribute tasks (bind_type:cores) - this should never "
        "happen: Unable to layout tasks on given cpus",
        ("srun: error: Application launch failed", ABORTED),
    ),
    (
        "srun: error: can't find address for host n1, check slurm.conf",
        ("srun: error: Task launch for StepId=7.0 failed", ABORTED,
         "srun: error: Timed out waiting for job step to complete"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("first", "others"), FIRST_ERRORS)
def test_the_first_error_of_srun_is_the_cause(
    first: str, others: tuple[str, ...], tmp_path: Path
) -> None:
    lines = ("srun: job 7 queued and waiting for resources", first, *others)
    (tmp_path / "srun.log").write_text("\n".join(lines))
    cause = failures.find_cause(tmp_path, {}, {})
    assert (cause.kind, cause.message, cause.last_lines) == ("launch_failed", first, lines)


@pytest.mark.parametrize(
    ("srun", "lines", "last"),
    [
        ({1: "Exited with exit code 1 (on cpu1)"}, ["setup: line 2 ended with exit code 1"], True),
        ({1: "Exited with exit code 1 (on cpu1)"}, ["Traceback", "ImportError: x", " "], True),
        ({}, ["ModuleNotFoundError: No module named 'msgspec'"], True),
        ({1: "Exited with exit code 1 (on cpu1)"}, [], False),
        ({1: "Killed (on cpu1)"}, ["ready"], False),
        # a container's engine or a shell reports the signal that killed its command
        *(
            ({1: f"Exited with exit code {128 + number} (on cpu1)"}, ["ready"], False)
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
        ),
        ({1: "Exited with exit code 13 (on cpu1)"}, ["ready"], True),
    ],
)
def test_a_rank_that_ends_before_it_began_has_the_last_line_of_its_log(
    srun: dict[int, str], lines: list[str], last: bool, tmp_path: Path
) -> None:
    (tmp_path / "rank-1.log").write_text("\n".join(lines))
    found = failures.find_cause(tmp_path, {} if srun else {1: 1}, srun)
    cause = failures.add_last_line(found)
    said = [line for line in lines if line.strip()]
    assert (cause.kind, cause.rank) == ("rank_died", 1)
    assert cause.message == found.message + (f"; its last line: {said[-1]}" if last else "")
    # one that has begun reports its own error
    begun = replace(found, last_event="start")
    assert failures.add_last_line(begun) == begun


def test_a_launcher_that_started_no_rank_is_quoted(tmp_path: Path) -> None:
    error = "srun: error: invalid partition specified: v100"
    (tmp_path / "srun.log").write_text(f"noise\n{error}\n")
    cause = failures.find_cause(tmp_path, {}, {})
    assert (cause.kind, cause.rank) == ("launch_failed", None)
    assert cause.message == error
    assert cause.last_lines[0] == "noise"


def test_a_stall_is_not_blamed_on_a_rank_that_has_finished(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, running(0, end=7.0), running(1, evaluated=8.0))
    assert failures.cause_of_stall(folder, "nothing moves").rank == 1


def serving(rank: int) -> list[Event]:
    """The last event of a parameter server, or of a worker of a coordinator."""
    lines = running(rank, rendezvous=3.0)
    return [*lines[:-1], replace(lines[-1], details={**lines[-1].details, "serves": True})]


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_stall_is_not_blamed_on_a_rank_that_only_serves_others(
    has_ended: bool, tmp_path: Path
) -> None:
    """Unless the others have ended."""
    ranks = random.randint(2, 6)
    driver = random.randrange(ranks)
    own = running(driver, rendezvous=3.5, progress=9.0, **({"end": 11.0} if has_ended else {}))
    others = [serving(rank) for rank in range(ranks) if rank != driver]
    cause = failures.cause_of_stall(folder_with(tmp_path, own, *others), "nothing moves")
    assert (cause.rank == driver) is not has_ended, (ranks, driver)


def test_a_silent_rank_is_the_cause_of_a_stall_wherever_it_is(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, running(0, progress=9.0), running(1, progress=7.0))
    assert failures.cause_of_stall(folder, "silent", 0).rank == 0
    assert failures.cause_of_stall(folder, "silent", 2).rank == 2  # before its first event


def behind(lines: list[Event], seconds: float) -> list[Event]:
    """The same events by a host whose clock is behind the launcher's."""
    first, *others = [replace(line, time_s=line.time_s - seconds) for line in lines]
    return [replace(first, details={**first.details, "offset_s": seconds}), *others]


def test_a_host_whose_clock_is_behind_is_not_blamed_for_that(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, behind(complaining(0, 5.0), 3.0), complaining(1, 4.0))
    assert failures.find_cause(folder, {0: 1, 1: 1}, {}).rank == 1
    (tmp_path / "stalled").mkdir()
    folder = folder_with(
        tmp_path / "stalled", behind(running(0, progress=9.0), 3.0), running(1, progress=7.0)
    )
    assert failures.cause_of_stall(folder, "nothing moves").rank == 1


def asks_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, *states: str) -> None:
    """Let this process run in nodes n1, n2, … of an allocation, in these states."""
    nodes = [f"n{number}" for number, _ in enumerate(states, start=1)]
    lines = "\n".join(f"{node}|{state}" for node, state in zip(nodes, states, strict=True))
    program(folder, "sinfo", f"cat <<'END'\n{lines}\nEND")
    program(folder, "scontrol", "printf 'JobId=7 JobName=x\\n   NodeList=n[1-9]\\n'")
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("TFSCALING_NODES", ",".join(nodes))


@pytest.mark.parametrize("state", ["down", "down*", "drained*", "down$"])
@pytest.mark.parametrize("kind", ["incomplete", "stalled", "rank_died", "rank_failed"])
def test_slurm_is_asked_for_a_lost_node_that_srun_did_not_report(
    kind: Kind, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an allocation that keeps its other nodes: srun ends well."""
    size = random.randint(2, 5)
    lost = random.randint(1, size)
    states = ["allocated" if node != lost else state for node in range(1, size + 1)]
    asks_slurm(tmp_path, monkeypatch, *states)
    for rank in range(2 * size):
        write_events(tmp_path, rank, rank_events(rank, RAN, host=f"n{rank // 2 + 1}.domain"))
    (log := tmp_path / "srun.log").touch()
    first = Cause(kind=kind, message="no rank-1.json", rank=0, error="UnavailableError")
    cause = failures.find_lost_node(first, log)
    assert (cause.kind, cause.rank) == ("node_failed", 2 * lost - 2), (size, lost)
    assert f"n{lost}" in cause.message and state in cause.message


@pytest.mark.parametrize(
    ("kind", "error", "states"),
    [
        ("incomplete", None, ("allocated", "mixed*")),  # slurmd may have been restarted
        ("stalled", None, ("allocated", "draining", "failing")),
        ("rank_failed", "ValueError", ("down*", "allocated")),
        ("program_failed", "exit code 3", ("down*", "allocated")),
    ],
)
def test_a_node_that_is_up_or_an_own_error_is_no_lost_node(
    kind: Kind, error: str | None, states: tuple[str, ...], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    asks_slurm(tmp_path, monkeypatch, *states)
    (log := tmp_path / "srun.log").touch()
    own = Cause(kind=kind, message="x", rank=0, error=error)
    assert failures.find_lost_node(own, log) == own


@pytest.mark.parametrize("reason", ["TIME LIMIT", "PREEMPTION", "NODE FAILURE"])
def test_missing_files_of_a_step_that_slurm_ended_have_slurms_reason(
    reason: str, tmp_path: Path
) -> None:
    log = tmp_path / "srun.log"
    log.write_text(
        f"slurmstepd: error: *** STEP 7.1 ON n1 CANCELLED AT 10:00 DUE TO {reason} ***\n"
    )
    missing = Cause(kind="incomplete", message="no rank-1.json", rank=1)
    assert failures.find_lost_node(missing, log).kind == slurm_job._ENDED_BY_SLURM[reason]


def test_a_node_that_failed_is_named_with_its_first_rank(tmp_path: Path) -> None:
    for rank, host in enumerate(["n1", "n2", "n2"]):
        write_events(tmp_path, rank, rank_events(rank, {"start": 1.0}, host=host))
    log = tmp_path / "srun.log"
    log.write_text("srun: error: Node failure on n2\nsrun: Job step aborted\n")
    cause = slurm_job.cause_by_slurm(log)
    assert cause is not None
    named = failures.add_rank_of_host(cause, tmp_path)
    assert (named.kind, named.rank, named.host) == ("node_failed", 1, "n2")
    silent = Cause(kind="stalled", message="rank 1 gave no sign of life for 40 s", rank=1)
    assert failures.find_lost_node(silent, log) == named
    own = Cause(kind="program_failed", message="exit code 3", rank=0)
    assert failures.find_lost_node(own, log) == own


@pytest.mark.parametrize(
    ("reached", "rank", "said"),
    [
        ([["imported"], ["imported"]], 2, "; rank 2 "),
        ([["imported"], [], ["imported"]], 1, "; rank 1 "),
        ([["imported"]] * 3, 0, "; ranks 0, 1, 2 "),
        ([["imported", "rendezvous", "built"]] * 3, 0, "50 s"),
    ],
)
def test_ranks_that_a_rendezvous_lacks_are_named(
    reached: list[list[str]], rank: int, said: str, tmp_path: Path
) -> None:
    for number, names in enumerate(reached):
        passed = {name: float(at) for at, name in enumerate(["start", *names])}
        write_events(tmp_path, number, rank_events(number, passed))
    cause = failures.cause_of_stall(tmp_path, "50 s", None, 3)
    assert (cause.kind, cause.rank) == ("stalled", rank)
    assert said in cause.message and cause.message.startswith("50 s")


@pytest.mark.parametrize(
    ("kind", "message", "exit_code", "before", "host", "found"),
    [
        ("rank_died", "Out Of Memory (on node2)", None, 0, "", "out_of_memory"),
        ("rank_died", "killed by SIGKILL", -9, 2, "", "out_of_memory"),
        ("rank_died", "killed by SIGKILL", -9, 3, "", "rank_died"),
        ("rank_died", "killed by SIGKILL", -9, 2, "another", "rank_died"),
        ("rank_died", "killed by SIGSEGV", -11, 2, "", "rank_died"),
        ("rank_died", "Killed (on node2)", None, 2, "", "rank_died"),
        ("program_failed", "killed by SIGKILL", 137, 2, "", "out_of_memory"),
        ("program_failed", "killed by SIGSEGV", 139, 2, "", "program_failed"),
        ("stalled", "killed by SIGKILL", -9, 2, "", "stalled"),
    ],
)
def test_a_rank_that_had_no_memory_is_named(
    kind: Kind, message: str, exit_code: int | None, before: int, host: str, found: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    """By the counter of the rank's control group, on the host of the rank."""
    counter = tmp_path / "memory.oom_control"
    counter.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    details = {"host": host or socket.gethostname()}
    start = rank_events(1, {"start": 1.0}, oom_counter=str(counter), oom_kills=before, **details)
    cause = Cause(kind=kind, message=message, error=message, rank=1, exit_code=exit_code)
    named = failures.mark_out_of_memory(cause, start)
    assert (named.kind, named.rank) == (found, 1)


def test_the_own_control_group_counts_the_processes_without_memory(tmp_path: Path) -> None:
    """What the kernel ends in other groups of the machine is not counted."""
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    (proc / "self").mkdir(parents=True)
    (proc / "vmstat").write_text("oom_kill 9\n")
    (proc / "self/cgroup").write_text("0::/job\n")
    assert provenance.oom_counter(proc, sys) == proc / "vmstat"
    group = sys / "fs/cgroup/job"
    group.mkdir(parents=True)
    (group / "memory.events").write_text("oom 3\noom_kill 2\noom_group_kill 0\n")
    assert provenance.oom_kills(provenance.oom_counter(proc, sys)) == 2
    (group / "memory.events").rename(group / "memory.oom_control")
    assert provenance.oom_kills(provenance.oom_counter(proc, sys)) == 2
    assert provenance.oom_kills(tmp_path / "missing") == 0


@pytest.mark.parametrize(
    ("kind", "message", "found"),
    [
        ("program_failed", "train.py:69 in step: torch.OutOfMemoryError: CUDA out of memory. Tried"
         " to allocate 24.50 GiB. GPU 0 has a total capacity of 139.80 GiB", "out_of_memory"),
        ("rank_failed", "ResourceExhaustedError: OOM when allocating tensor with shape[512,64]",
         "out_of_memory"),
        ("program_failed", "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to"
         " allocate 9 bytes", "out_of_memory"),
        ("rank_failed", "RESOURCE_EXHAUSTED: Received message larger than max", "rank_failed"),
        ("stalled", "no rank made progress; CUDA out of memory", "stalled"),
    ],
)  # fmt: skip
def test_a_gpu_without_memory_is_named(kind: Kind, message: str, found: str) -> None:
    assert failures.mark_out_of_memory(Cause(kind=kind, message=message, rank=1)).kind == found


BEGUN, IMPORTED = {"start": 1.0}, {"start": 1.0, "imported": 2.0}
PROGRAM = {"start": 1.0, "program_start": 2.0}
HOST = "n2.cluster.example"


def told(rank: int, host: str, passed: dict[str, float], job: str = "worker") -> list[Event]:
    return rank_events(rank, passed, host=host, job=job)


def lacking(rank: int, host: str, seen: int = 3, error: str = "DeviceError") -> list[Event]:
    message = strategies.describe_wrong_gpus(4, seen, {})
    return [*told(rank, host, BEGUN), failed(rank, 9.0, error=error, message=message)]


def cause_of(folder: Path, *ranks: list[Event]) -> Cause:
    for events in ranks:
        write_events(folder, events[0].rank, events)
    exits = {events[0].rank: 1 for events in ranks if events[-1].name is EventName.FAILED}
    found = failures.find_cause(folder, exits, {})
    return failures.mark_missing_gpus(found, folder)


@pytest.fixture
def on_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_job, "describe_job", lambda _: SlurmJob(id="7", nodes="n[1-3]"))


@pytest.mark.usefixtures("on_slurm")
@pytest.mark.parametrize("passed", [IMPORTED, PROGRAM])
@pytest.mark.parametrize("seen", [0, 3])
def test_a_host_that_lacks_what_another_has_is_named_and_not_the_installation(
    seen: int, passed: dict[str, float], tmp_path: Path
) -> None:
    waiting, silent = told(0, "n1", passed), told(2, "n3", BEGUN)
    cause = cause_of(tmp_path, waiting, lacking(1, HOST, seen), silent)
    assert (cause.kind, cause.error, cause.rank) == ("missing_gpus", "DeviceError", 1)
    assert cause.host == "n2", "as Slurm calls it"
    assert HOST in cause.message and "make setup" not in cause.message


@pytest.mark.usefixtures("on_slurm")
@pytest.mark.parametrize(
    "others",
    [
        [],
        [told(1, "n1", BEGUN)],
        [lacking(1, "n1")],
        [told(1, HOST, IMPORTED)],
        [told(1, "n1", IMPORTED, job="ps")],
        [lacking(1, "n1"), told(2, "n1", IMPORTED)],
    ],
    ids=["alone", "silent", "all", "same host", "a server", "some of each host"],
)
def test_without_a_host_that_has_them_the_advice_is_that_of_the_rank(
    others: list[list[Any]], tmp_path: Path
) -> None:
    cause = cause_of(tmp_path, lacking(0, HOST, 0), *others)
    assert (cause.kind, cause.error, cause.host) == ("rank_failed", "DeviceError", HOST)
    assert "make setup CUDA=1" in cause.message
