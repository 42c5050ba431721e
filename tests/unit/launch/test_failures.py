"""The first cause among many complaints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import rank_events, write_events
from tfscaling.launch import failures
from tfscaling.launch.checkpoint_folder import InterruptedTrainingError
from tfscaling.record.attempts import Cause
from tfscaling.train import parameter_server

SRUN_LINES: dict[str, tuple[str, dict[int, str]]] = {
    "killed": ("srun: error: cpu2: task 1: Killed", {1: "Killed (on cpu2)"}),
    "exit_code": (
        "srun: error: tfbench-cpu-0: task 12: Exited with exit code 1",
        {12: "Exited with exit code 1 (on tfbench-cpu-0)"},
    ),
    "out_of_memory": ("srun: error: cpu2: task 0: Out Of Memory", {0: "Out Of Memory (on cpu2)"}),
    "segmentation_fault": (
        "srun: error: cpu2: task 3: Segmentation fault (core dumped)",
        {3: "Segmentation fault (core dumped) (on cpu2)"},
    ),
    "range_of_tasks": (
        "srun: error: cpu3: tasks 2-3: Exited with exit code 1",
        {2: "Exited with exit code 1 (on cpu3)", 3: "Exited with exit code 1 (on cpu3)"},
    ),
    "list_of_tasks": (
        "srun: error: cpu3: tasks 0,2,4-5: Killed",
        dict.fromkeys((0, 2, 4, 5), "Killed (on cpu3)"),
    ),
    "ended_by_srun_itself": ("srun: error: cpu2: task 1: Terminated", {}),
    "several_ended_by_srun_itself": ("srun: error: cpu2: tasks 0-1: Terminated", {}),
    "cancelled_step": (
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "slurmstepd: error: *** STEP 12.0 ON cpu1 CANCELLED AT 2026-01-02T03:04:05 ***\n"
        "srun: launch/slurm: _step_signal: Terminating StepId=12.0",
        {},
    ),
    "allocation": (
        "srun: error: Unable to create step for job 5: Requested nodes are busy", {}),
    "memory_event": (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have "
        "been OOM Killed.", {}),
    "first_cause_among_noise": (
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "srun: error: cpu2: task 1: Killed\n"
        "srun: error: cpu1: task 0: Terminated\n",
        {1: "Killed (on cpu2)"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), SRUN_LINES.values(), ids=list(SRUN_LINES))
def test_ranks_and_words_of_srun(text: str, expected: dict[int, str], tmp_path: Path) -> None:
    log = tmp_path / "srun.log"
    log.write_text(text)
    assert failures.srun_errors(log) == expected


def test_no_log_of_srun_says_nothing(tmp_path: Path) -> None:
    assert failures.srun_errors(tmp_path / "srun.log") == {}


RAN = {"start": 1.0, "imported": 2.0}
LOST_PEER = {"error": "UnavailableError", "message": "Socket closed"}


def running(rank: int, **times: float) -> list[dict[str, Any]]:
    return rank_events(rank, {**RAN, **times}, host=f"node{rank}")


def complaining(rank: int, time_s: float, **error: str) -> list[dict[str, Any]]:
    lines = running(rank)
    return [*lines, {"time_s": time_s, "rank": rank, "event": "failed", **LOST_PEER, **error}]


def folder_with(tmp_path: Path, *ranks: list[dict[str, Any]]) -> Path:
    for lines in ranks:
        write_events(tmp_path, lines[0]["rank"], lines)
        log = tmp_path / f"rank-{lines[0]['rank']}.log"
        log.write_text("\n".join(f"line {number}" for number in range(100)))
    return tmp_path


def test_a_rank_that_died_silently_comes_before_those_that_complained(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, complaining(0, 3.0), running(1), complaining(2, 4.0))
    cause = failures.find_cause(folder, {0: 1, 1: -9, 2: 1}, {})
    assert (cause.kind, cause.rank, cause.host) == ("rank_died", 1, "node1")
    assert (cause.message, cause.exit_code) == ("killed by SIGKILL", -9)
    assert cause.reached == "imported"
    assert list(cause.last_lines) == [f"line {number}" for number in range(70, 100)]


def test_a_training_of_which_a_rank_was_asked_to_end_is_cancelled(tmp_path: Path) -> None:
    asked = {"error": InterruptedTrainingError.__name__, "message": "interrupted after 7 steps"}
    folder = folder_with(tmp_path, complaining(0, 3.0, **asked), complaining(1, 3.0, **asked))
    cause = failures.find_cause(folder, {0: 1, 1: 1}, {})
    assert (cause.kind, cause.rank, cause.error) == ("cancelled", 0, asked["error"])


def test_a_rank_that_died_before_its_first_event_comes_before_complaints(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, complaining(0, 3.0))
    cause = failures.find_cause(folder, {0: 1, 1: -9}, {})
    assert (cause.kind, cause.rank) == ("rank_died", 1)
    assert cause.message == "killed by SIGKILL"


def test_the_same_of_a_rank_that_srun_started(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, complaining(0, 3.0))
    cause = failures.find_cause(
        folder, {}, {1: "Killed (on node1)", 0: "Exited with exit code 1 (on node0)"}
    )
    assert (cause.rank, cause.message) == (1, "Killed (on node1)")


def test_a_rank_that_is_still_running_is_no_cause_if_another_complained(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, running(0), complaining(1, 3.0))
    cause = failures.find_cause(folder, {0: None, 1: 1}, {})
    assert (cause.kind, cause.rank) == ("rank_failed", 1)
    assert cause.message == "UnavailableError: Socket closed"
    assert cause.reached == "failed"


def test_the_earliest_complaint_is_the_cause(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, complaining(0, 5.0), complaining(1, 4.0), complaining(2, 6.0))
    assert failures.find_cause(folder, {0: 1, 1: 1, 2: 1}, {}).rank == 1


def test_words_of_srun_about_a_silent_rank_are_the_message(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, complaining(0, 3.0), running(1))
    said = {0: "Exited with exit code 1 (on node0)", 1: "Out Of Memory (on node1)"}
    cause = failures.find_cause(folder, {}, said)
    assert (cause.rank, cause.message) == (1, "Out Of Memory (on node1)")
    assert cause.exit_code is None


def test_a_rank_that_ended_well_is_no_cause(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, running(0, end=9.0), running(1))
    assert failures.find_cause(folder, {0: 0, 1: -11}, {}).rank == 1


def test_a_node_that_is_lost_without_a_word_leaves_its_rank_as_the_cause(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, running(0, end=9.0), running(1))
    cause = failures.find_cause(folder, {}, {})
    assert (cause.rank, cause.message) == (1, "the rank ended without a report")


def test_a_launcher_that_started_no_rank_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "srun.log").write_text("noise\nsrun: error: invalid partition specified: v100\n")
    cause = failures.find_cause(tmp_path, {}, {})
    assert (cause.kind, cause.rank) == ("launch_failed", None)
    assert cause.message == "srun: error: invalid partition specified: v100"
    assert cause.last_lines[0] == "noise"


def test_a_launcher_that_said_nothing_is_told_apart(tmp_path: Path) -> None:
    assert "without a message" in failures.find_cause(tmp_path, {}, {}).message


def test_a_stall_names_the_rank_that_moved_last_the_longest_ago(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, running(0, progress=9.0), running(1, progress=7.0))
    cause = failures.stalled(folder, "nothing moves")
    assert (cause.kind, cause.rank, cause.host) == ("stalled", 1, "node1")
    assert cause.message == "nothing moves"
    assert cause.reached == "progress"


def test_a_stall_is_not_blamed_on_a_rank_that_has_finished(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, running(0, end=7.0), running(1, evaluated=8.0))
    assert failures.stalled(folder, "nothing moves").rank == 1


def test_a_silent_rank_is_the_cause_of_a_stall_wherever_it_is(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, running(0, progress=9.0), running(1, progress=7.0))
    assert failures.stalled(folder, "silent", 0).rank == 0
    assert failures.stalled(folder, "silent", 2).rank == 2  # before its first event


def behind(lines: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """The same events by a host whose clock is behind the launcher's."""
    found = [{**line, "time_s": line["time_s"] - seconds} for line in lines]
    found[0]["offset_s"] = seconds
    return found


def test_a_host_whose_clock_is_behind_is_not_blamed_for_that(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, behind(complaining(0, 5.0), 3.0), complaining(1, 4.0))
    assert failures.find_cause(folder, {0: 1, 1: 1}, {}).rank == 1
    (tmp_path / "stalled").mkdir()
    folder = folder_with(
        tmp_path / "stalled", behind(running(0, progress=9.0), 3.0), running(1, progress=7.0)
    )
    assert failures.stalled(folder, "nothing moves").rank == 1


@pytest.mark.parametrize("said", [{}, {1: "Killed (on node1)"}], ids=["local", "srun"])
def test_a_stopped_rank_comes_before_those_that_complain_about_it(
    tmp_path: Path, said: dict[int, str]
) -> None:
    """It is alive when its peers end, or killed by srun because they did."""
    folder = folder_with(tmp_path, complaining(0, 40.0), running(1, progress=9.0), running(2))
    cause = failures.find_cause(folder, {0: 1}, said, {1})
    assert (cause.kind, cause.rank, cause.host) == ("stalled", 1, "node1")
    assert "UnavailableError: Socket closed" in cause.message


def test_a_stopped_rank_that_goes_on_and_complains_last_is_the_cause(tmp_path: Path) -> None:
    """Slurm sends SIGCONT before SIGTERM."""
    folder = folder_with(tmp_path, complaining(0, 40.0), complaining(1, 41.0))
    said = {n: f"Exited with exit code 1 (on node{n})" for n in (0, 1)}
    cause = failures.find_cause(folder, {}, said, {1})
    assert (cause.kind, cause.rank) == ("stalled", 1)


@pytest.mark.parametrize(
    ("exits", "said"), [({0: 1, 2: -9}, {}), ({}, {2: "Killed (on node2)", 1: "Killed (on node1)"})]
)
def test_a_rank_that_died_comes_before_one_whose_heartbeat_is_late(
    tmp_path: Path, exits: dict[int, int | None], said: dict[int, str]
) -> None:
    folder = folder_with(tmp_path, complaining(0, 40.0), running(1), running(2))
    cause = failures.find_cause(folder, exits, said, {1})
    assert (cause.kind, cause.rank) == ("rank_died", 2)


def test_a_rank_that_complains_itself_is_not_taken_for_stopped(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, complaining(0, 3.0), running(1))
    cause = failures.find_cause(folder, {0: 1, 1: None}, {}, {0})
    assert (cause.kind, cause.rank) == ("rank_failed", 0)


@pytest.mark.parametrize(
    ("error", "kind", "rank"),
    [
        ({"error": "ValueError", "message": "too few examples"}, "rank_failed", 0),
        ({"error": "ResourceExhaustedError", "message": "out of memory"}, "rank_failed", 0),
        ({"error": "InvalidArgumentError", "message": "Collective ops is aborted by: "},
         "stalled", 1),
        ({"error": parameter_server.CoordinatorSilentError.__name__}, "stalled", 1),
    ],
)  # fmt: skip
def test_a_late_heartbeat_is_no_cause_of_an_error_of_the_ranks_own(
    tmp_path: Path, error: dict[str, str], kind: str, rank: int
) -> None:
    """A shared file system may show heartbeats ten seconds late."""
    folder = folder_with(tmp_path, complaining(0, 40.0, **error), running(1), running(2))
    cause = failures.find_cause(folder, {0: 1}, {}, {1})
    assert (cause.kind, cause.rank) == (kind, rank)


def test_an_exception_of_the_launcher_is_a_cause() -> None:
    try:
        {}["built"]
    except KeyError as error:
        cause = failures.of_exception(error)
    assert (cause.kind, cause.message) == ("launcher_failed", "KeyError: 'built'")
    assert any("test_failures" in line for line in cause.last_lines)


def test_a_stall_before_any_rank_spoke(tmp_path: Path) -> None:
    cause = failures.stalled(tmp_path, "nothing moves")
    assert (cause.rank, cause.message) == (None, "nothing moves")


def test_bytes_in_a_log_that_are_no_text_do_not_hide_the_cause(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"fine\n\xff\xfe broken\n")
    lines = failures.last_lines(tmp_path / "log")
    assert lines[0] == "fine"
    assert lines[1].endswith(" broken")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (None, "the rank ended without a report"),
        (3, "exit code 3"),
        (-9, "killed by SIGKILL"),
        (-11, "killed by SIGSEGV"),
        (-40, "killed by signal 40"),
    ],
)
def test_exit_codes_in_words(code: int | None, text: str) -> None:
    assert failures.exit_text(code) == text


@pytest.mark.parametrize("teller", ["srun.log", "rank-1.log"])
@pytest.mark.parametrize(
    ("due", "kind"),
    [
        (" DUE TO TIME LIMIT", "time_limit"),
        (" DUE TO PREEMPTION", "preempted"),
        (" DUE TO JOB REQUEUE", "requeued"),
        (" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "node_failed"),
        ("", None),
    ],
)
def test_slurms_reason_is_told_from_a_users_scancel(
    due: str, kind: str | None, teller: str, tmp_path: Path
) -> None:
    log = tmp_path / "srun.log"
    log.touch()
    assert failures.ended_by_slurm(log) is None
    when = "2026-11-22T19:36:54"
    line = f"slurmstepd-n2: error: *** STEP 7.0 ON n2 CANCELLED AT {when}{due} ***"
    (tmp_path / teller).write_text(f"epoch 1\n{line}\nsrun: error: n2: task 1: Killed\n")
    cause = failures.ended_by_slurm(log)
    assert (None if cause is None else cause.kind) == kind


def test_a_node_that_failed_is_named_with_its_first_rank(tmp_path: Path) -> None:
    for rank, host in enumerate(["n1", "n2", "n2"]):
        write_events(tmp_path, rank, [{"time_s": 1.0, "event": "start", "host": host}])
    log = tmp_path / "srun.log"
    log.write_text("srun: error: Node failure on n2\nsrun: Job step aborted\n")
    cause = failures.ended_by_slurm(log)
    assert cause is not None
    named = failures.with_rank_of_host(cause, tmp_path)
    assert (named.kind, named.rank, named.host) == ("node_failed", 1, "n2")
    silent = Cause(kind="stalled", message="rank 1 gave no sign of life for 40 s", rank=1)
    assert failures.of_a_lost_node(silent, log) == named
    own = Cause(kind="program_failed", message="exit code 3", rank=0)
    assert failures.of_a_lost_node(own, log) == own


@pytest.mark.parametrize(
    ("reached", "rank", "said"),
    [
        ([["imported"], ["imported"]], 2, "rank 2 did not start"),
        ([["imported"], [], ["imported"]], 1, "rank 1 did not come to the rendezvous"),
        ([["imported"]] * 3, 0, "ranks 0, 1, 2 did not find the others in the rendezvous"),
        ([["imported", "rendezvous", "built"]] * 3, 0, ""),
    ],
)
def test_ranks_that_a_rendezvous_lacks_are_named(
    reached: list[list[str]], rank: int, said: str, tmp_path: Path
) -> None:
    for number, names in enumerate(reached):
        lines = [{"time_s": float(at), "event": n} for at, n in enumerate(["start", *names])]
        write_events(tmp_path, number, lines)
    cause = failures.stalled(tmp_path, "no rank made progress for 50 s", None, 3)
    assert (cause.kind, cause.rank) == ("stalled", rank)
    assert cause.message == "; ".join(filter(None, ["no rank made progress for 50 s", said]))
