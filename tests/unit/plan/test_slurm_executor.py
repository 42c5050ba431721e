"""The executor plugin slurm-sweep with commands of Slurm by hand; tests/slurm has the real ones."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pytest
import snakemake_executor_plugin_slurm_allocation as allocation
import snakemake_executor_plugin_slurm_sweep as plugin
from fake_programs import program
from slurm_executor import COMMENT, Job, Slurm, Start, Sweep, decorated, done, listed, submitted
from snakemake.settings.types import ExecutionSettings
from snakemake_executor_plugin_slurm_sweep import queue
from snakemake_executor_plugin_slurm_sweep.slurm_client import QueuedJob, SlurmClient
from snakemake_interface_common.exceptions import WorkflowError


def excluded(call: list[str]) -> str | None:
    found = [word.partition("=")[2] for word in call if word.startswith("--exclude=")]
    return found[-1] if found else None


# --- submission ---


def test_the_command_arrives_as_it_is(start: Start, slurm: Slurm, tmp_path: Path) -> None:
    slurm.answer(
        "sbatch", f'for word in "$@"; do last="$word"; done; echo "$last" >{tmp_path}/it; echo 1'
    )
    done(start(), Job(["a"]))
    assert (tmp_path / "it").read_text() == '--wrap=echo "1"\n'
    slurm.answer("sbatch", f"cat >{tmp_path}/it; echo 1")
    done(start(pass_command_as_script=True), Job(["a"]))
    assert (tmp_path / "it").read_text() == '#!/bin/sh\necho "1"\n'


def test_unfit_nodes_are_excluded_with_those_of_the_platform(
    start: Start, slurm: Slurm, sweep: Sweep, tmp_path: Path
) -> None:
    (nodes := tmp_path / "nodes").write_text("n1\nn2\n")
    extras = ["", "--exclude=n1 -x 'n[4-5]'", f"--exclude={nodes}"]
    jobs = [Job(["a"], resources={"slurm_extra": extra}) for extra in extras]
    done(start(), *jobs)
    assert [excluded(call) for call in slurm.calls][:2] == [None, "n1"]
    sweep.unfit = ["n3", "n7"]
    done(start(), *jobs)
    assert [excluded(call) for call in slurm.calls[3:]] == [
        "n3,n7", "n[4-5],n3,n7", "n1,n2,n3,n7",
    ]  # fmt: skip
    sweep.unfit = []
    done(start(exclude_failed_nodes="n5, n6"), jobs[0])
    assert set((excluded(slurm.calls[-1]) or "").split(",")) == {"n5", "n6"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a", "b_c"], ["a_b", "c"]),
        (["a/b", "c"], ["a", "b/c"]),
        (["a/b", "c"], ["a_b", "c"]),
        (["a~2f", "b"], ["a/", "b"]),
        (["x%j", "1"], ["x~25j", "1"]),
        (["{a}", "1"], ["_a_", "1"]),
    ],
)
def test_jobs_with_other_wildcards_have_another_comment_and_folder_of_logs(
    one: list[str], other: list[str], start: Start, slurm: Slurm
) -> None:
    jobs = [Job(["a"], one), Job(["b"], other)]
    assert len({plugin.comment_of(job) for job in jobs}) == 2
    done(start(), *jobs)
    logs = [call[call.index("--output") + 1] for call in slurm.calls]
    assert len(set(logs)) == 2
    # sbatch fills in the job's number, and nothing else
    assert all(log.endswith("/%j.log") and log.count("%") == 1 for log in logs)


def test_sbatchs_words_about_a_job_are_kept(start: Start, slurm: Slurm, sweep: Sweep) -> None:
    slurm.answer("sbatch", "echo 'sbatch: error: no' >&2; echo way >&2; exit 1")
    executor = start()
    done(executor, Job(["a"]))
    assert executor.ended == [("a", False)]
    assert [*sweep.refusals.values()] == ["no; way"]


def test_a_job_that_cannot_be_reported_ends_the_sweep(
    start: Start, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, job = start(), Job(["a"])
    monkeypatch.setattr(job, "register", lambda external_jobid: {}[external_jobid])
    done(executor, job)
    (error,) = executor.errors
    assert isinstance(error, KeyError) and executor.ended == []


@pytest.mark.parametrize(
    ("request_of_job", "serves"),
    [("--partition=cpu --mem=5", True), ("--partition=cpu2", False), ("--mem=5", True)],
)
def test_an_own_job_serves_runs_of_its_partition(
    request_of_job: str, serves: bool, slurm: Slurm
) -> None:
    slurm.states("7|RUNNING None")  # in the partition cpu
    assert allocation._is_in_partition(SlurmClient(), 7, request_of_job) == serves


# --- states ---


@pytest.mark.parametrize("command", ["squeue", "sacct"])
def test_a_query_without_an_answer_forgets_no_job(
    command: str, start: Start, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # however long Slurm is silent
    monkeypatch.setattr(queue, "ABSENT_S", 0.0)
    executor = start(status_command=command)
    info = submitted(Job(["a"]), "1", tmp_path)
    slurm.states(command="squeue")
    slurm.states("silent", command=command)
    assert [executor.query(info) for _ in range(4)] == [["1"]] * 4
    assert executor.next_seconds_between_status_checks == 40  # as at the start
    slurm.states("1|RUNNING None", command=command)
    assert [executor.query(info) for _ in range(2)] == [["1"], ["1"]]
    assert len(executor.log.warnings) == 2  # away, and back
    slurm.states("1|COMPLETED", command=command)
    assert executor.query(info) == [] and executor.ended == [("a", True)]


@pytest.mark.parametrize(
    ("state", "kept"),
    [("CANCELLED by 0", "CANCELLED"), ("TIMEOUT", "TIMEOUT"), ("FAILED", "FAILED")],
)
def test_a_failed_job_has_slurms_state_unless_it_has_left_its_record(
    state: str, kept: str, start: Start, slurm: Slurm, sweep: Sweep, tmp_path: Path
) -> None:
    executor = start(status_command="sacct")
    slurm.states(command="squeue")
    slurm.states(f"1|{state}", f"2|{state}", command="sacct")
    sweep.finished = {"2"}
    jobs = [submitted(Job([name]), number, tmp_path) for name, number in (("a", "1"), ("b", "2"))]
    assert executor.query(*jobs) == []
    assert executor.ended == [("a", False), ("b", True)] and sweep.failures == {"1": kept}


def test_a_failed_job_whose_report_is_a_result_has_finished(
    start: Start, slurm: Slurm, sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report of a job that ran out of memory is a record: it does not fit."""
    monkeypatch.setattr(sweep, "report_failure", lambda _, number, *__: sweep.finished.add(number))
    slurm.states("1|OUT_OF_MEMORY None")
    executor = start()
    assert executor.query(submitted(Job(["a"]), "1", tmp_path)) == []
    assert executor.ended == [("a", True)]


def test_a_job_is_gone_if_several_answers_over_a_minute_do_not_have_it() -> None:
    absences = queue.Absences()
    assert [absences.count_absence("1", time_s) for time_s in (0.0, 1.0, 59.0, 60.0)] == [
        False, False, False, True,
    ]  # fmt: skip
    assert not absences.count_absence("2", 0.0) and not absences.count_absence(
        "2", 100.0
    )  # two answers
    absences.mark_listed("2")
    assert not absences.count_absence("2", 200.0)


def test_an_empty_answer_of_squeue_ends_no_job(start: Start, slurm: Slurm, tmp_path: Path) -> None:
    executor, info = start(), submitted(Job(["a"]), "1", tmp_path)
    slurm.states("1|RUNNING None")
    assert executor.query(info) == ["1"]
    slurm.states()
    assert executor.query(info) == ["1"] and executor.ended == []
    assert executor.next_seconds_between_status_checks == 40  # not 180: it is asked for soon


@pytest.mark.parametrize(
    ("accounted", "state"),
    [
        ("echo '2|TIMEOUT'", "TIMEOUT"), ("echo '2|CANCELLED by 0'", "CANCELLED"),
        ("echo '2|COMPLETED'", "COMPLETED"), ("echo '2|RUNNING'", "GONE"), ("", "GONE"),
        ("exit 1", "GONE"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("has_output", [True, False])
@pytest.mark.parametrize("is_adopted", [True, False])
def test_a_job_that_squeue_lists_no_more_has_ended(
    is_adopted: bool, has_output: bool, accounted: str, state: str, start: Start, slurm: Slurm,
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Accounting has its state, else it failed: Slurm forgets jobs after MinJobAge."""
    slurm.answer("sacct", f'case "$*" in *--jobs=2*) {accounted or ":"};; *) exit 1;; esac')
    executor, output = start(), tmp_path / "b"
    jobs = [
        submitted(Job(["a"]), "1", tmp_path),
        submitted(Job([str(output)]), "2", tmp_path),
    ]
    executor._adopted |= {"2"} if is_adopted else set()
    if has_output:
        output.touch()
    program(slurm.folder, "squeue", """case "$*" in
        *--jobs=*) echo slurm_load_jobs error: Invalid job id specified >&2; exit 1;;
        esac""")  # fmt: skip
    sweep.finished = {"1"}  # its record proves its end
    assert executor.query(*jobs) == ["2"] and executor.ended == [("a", True)]
    monkeypatch.setattr(queue, "ABSENT_S", 0.0)
    assert executor.query(jobs[1]) == ["2"] and executor.query(jobs[1]) == []
    # Snakemake waits for an output that is not visible yet, but not if it started without the job
    is_good = has_output or (state == "COMPLETED" and not is_adopted)
    assert executor.ended[1:] == [(str(output), is_good)]
    assert sweep.failures == ({} if is_good else {"2": state})


@pytest.mark.parametrize("answers", [True, False])
def test_jobs_that_vanish_together_are_looked_up_by_one_call_of_sacct(
    answers: bool, start: Start, slurm: Slurm, sweep: Sweep, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It may take a minute to fail."""
    monkeypatch.setattr(queue, "ABSENT_S", 0.0)
    states = random.choices(["TIMEOUT", "FAILED", "NODE_FAIL"], k=random.randint(2, 5))
    numbers = [str(number) for number in range(1, len(states) + 1)]
    rows = "\n".join(map("|".join, zip(numbers, states, strict=True)))
    slurm.states()
    end = f"cat <<'END'\n{rows}\nEND" if answers else "exit 1"
    slurm.answer("sacct", f'echo "$@" >>{tmp_path}/accounted\n{end}')
    executor = start()
    jobs = [submitted(Job([f"r{number}"]), number, tmp_path) for number in numbers]
    found = [executor.query(*jobs) for _ in range(3)]
    assert found == [numbers, numbers, []], states
    (call,) = (tmp_path / "accounted").read_text().splitlines()
    assert f"--jobs={','.join(numbers)}" in call.split()
    expected = states if answers else ["GONE"] * len(states)
    assert [sweep.failures[number] for number in numbers] == expected


@pytest.mark.parametrize("appears", [True, False])
def test_an_adopted_job_has_not_failed_while_its_output_may_be_late(
    appears: bool, start: Start, slurm: Slurm, sweep: Sweep, tmp_path: Path
) -> None:
    """A shared file system shows it within --latency-wait; meanwhile other jobs are followed."""
    executor, output = start(), tmp_path / "a"
    executor.workflow.execution_settings = ExecutionSettings(latency_wait=3600)
    executor._adopted |= {"1"}
    jobs = [submitted(Job([name]), n, tmp_path) for name, n in ((str(output), "1"), ("b", "2"))]
    slurm.states("1|COMPLETED None", "2|COMPLETED None")
    assert executor.query(*jobs) == ["1"] and executor.ended == [("b", True)]
    assert executor.next_seconds_between_status_checks == 40  # as at the start: it is due soon
    if appears:
        output.touch()
    else:
        executor.workflow.execution_settings = ExecutionSettings(latency_wait=0)
    assert executor.query(jobs[0]) == []
    assert executor.ended[1:] == [(str(output), appears)]
    assert sweep.failures == ({} if appears else {"1": "COMPLETED"})


@pytest.mark.parametrize(
    ("age", "longest_s"),
    [("300 sec", 100), ("60 sec", 40), ("3000 sec", 180), ("0 sec", 180), ("", 180)],
)
def test_jobs_are_queried_before_slurm_forgets_them(
    age: str, longest_s: float, start: Start, slurm: Slurm, tmp_path: Path
) -> None:
    """Not more often than at the start, which is after 40 s."""
    slurm.answer("scontrol", f"echo 'MinJobAge = {age}'")
    executor, info = start(), submitted(Job(["a"]), "1", tmp_path)
    executor.wait = False
    executor.wait_thread.join()  # which queries, too
    slurm.states("1|RUNNING None")
    for _ in range(20):
        executor.query(info)
    assert executor.next_seconds_between_status_checks == longest_s


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_job_on_another_cluster_of_a_federation_continues(
    is_finished: bool, start: Start, slurm: Slurm, sweep: Sweep, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its state here stays the same until its end."""
    monkeypatch.setattr(queue, "ABSENT_S", 0.0)
    executor, info = start(), submitted(Job(["a"]), "1", tmp_path)
    slurm.states("1|REVOKED None")
    assert [executor.query(info) for _ in range(4)] == [["1"]] * 4
    assert executor.ended == [] and sweep.failures == {}
    sweep.finished = {"1"} if is_finished else set()
    assert executor.query(info) == ([] if is_finished else ["1"])
    assert executor.ended == [("a", True)] * is_finished


@pytest.mark.parametrize("by_number", ["1|RUNNING None", "1|PENDING Priority", "silent"])
def test_a_job_that_is_not_found_by_its_name_is_asked_for_by_its_number(
    by_number: str, start: Start, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site may rename jobs, and a user's filters may hide them."""
    monkeypatch.setattr(queue, "ABSENT_S", 0.0)
    answer = "exit 1" if by_number == "silent" else f"echo '{listed(by_number)}'"
    slurm.answer("squeue", f'case "$*" in *--jobs=1*) {answer};; esac')
    executor = start()
    assert [executor.query(submitted(Job(["a"]), "1", tmp_path)) for _ in range(4)] == [["1"]] * 4


def test_what_sacct_does_not_know_yet_is_waited_for(
    start: Start, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless squeue does not have it either: the database has lost it then."""
    monkeypatch.setattr(queue, "ABSENT_S", 0.0)
    executor, job = start(status_command="sacct"), submitted(Job(["a"]), "1", tmp_path)
    slurm.states(command="sacct")
    for queued in (["silent"], ["1|RUNNING None"]):
        slurm.states(*queued)
        assert [executor.query(job) for _ in range(4)] == [["1"]] * 4
    slurm.states()
    assert [executor.query(job) for _ in range(3)] == [["1"], ["1"], []]


def test_a_preempted_job_that_slurm_does_not_restart_has_failed(
    start: Start, slurm: Slurm, sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = start()
    jobs = [submitted(Job([name]), number, tmp_path) for name, number in (("a", "1"), ("b", "2"))]
    slurm.states("1|PREEMPTED None", "2|PREEMPTED None")
    assert executor.query(*jobs) == ["1", "2"]
    slurm.states("1|PREEMPTED None", "2|PENDING None")
    assert executor.query(*jobs) == ["1", "2"]
    monkeypatch.setattr(plugin, "PREEMPTED_S", 0.0)
    assert executor.query(*jobs) == ["2"] and sweep.failures == {"1": "PREEMPTED"}


@pytest.mark.parametrize(("is_requeued", "going_on"), [(True, ["1"]), (False, [])])
def test_slurm_may_restart_a_job_that_lost_its_node(
    is_requeued: bool, going_on: list[str], start: Start, slurm: Slurm, tmp_path: Path
) -> None:
    slurm.states("1|NODE_FAIL None")
    assert start(requeue=is_requeued).query(submitted(Job(["a"]), "1", tmp_path)) == going_on


def test_a_run_that_would_fail_again_has_used_up_its_attempts(start: Start, sweep: Sweep) -> None:
    sweep.lasting = {Path("a")}
    jobs = [Job(["a"]), Job(["b"])]
    for job in jobs:
        start().handle_job_error(job)
    assert [job.attempt for job in jobs] == [3, 1]


# --- reasons ---


@pytest.mark.parametrize("command", ["squeue", "sacct"])
def test_why_jobs_wait_is_told_once(
    command: str, start: Start, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = start(status_command=command)
    slurm.states("7|PENDING", "8|PENDING", command="sacct")
    jobs = [submitted(Job([f"runs/{n}/run.json"]), str(n), tmp_path) for n in (7, 8)]
    slurm.states("7|PENDING Resources", "8|PENDING PartitionDown")
    executor.query(*jobs)
    assert executor.log.warnings == []  # most jobs start soon
    monkeypatch.setattr(plugin, "REASONS_AFTER_S", 0.0)
    for _ in range(2):
        executor.query(*jobs)
    usual, lasting = executor.log.warnings
    assert "Resources" in usual and "runs/7" not in usual
    assert "PartitionDown" in lasting and "job 8, runs/8/run.json" in lasting
    assert "scontrol" not in usual + lasting
    held = ["JobHeldUser", "JobHeldAdmin", "job requeued in held state"]
    for number, reason in zip((7, 8), random.sample(held, 2), strict=True):
        slurm.states(f"{number}|PENDING {reason}")
        executor.query(jobs[number - 7])
        assert f"`scontrol release {number}`" in executor.log.warnings[-1]


@pytest.mark.parametrize("status_command", ["squeue", "sacct"])
@pytest.mark.parametrize(
    "state", [*queue.HELD, "PENDING JobHeldUser", "PENDING job requeued in held state"]
)
def test_each_held_job_is_named(
    state: str, status_command: str, start: Start, slurm: Slurm, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A reason that was logged does not release another job."""
    monkeypatch.setattr(plugin, "REASONS_AFTER_S", 0.0)
    executor = start(status_command=status_command)
    slurm.states("7|PENDING", "8|PENDING", "9|PENDING", command="sacct")
    jobs = [submitted(Job([f"runs/{n}/run.json"]), str(n), tmp_path) for n in (7, 8, 9)]

    def query(*held: int) -> None:
        states = {n: state if n in held else "PENDING Priority" for n in (7, 8, 9)}
        slurm.states(*(f"{n}|{words}" for n, words in states.items()))
        executor.query(*jobs)

    def released() -> list[str]:
        found = [line for line in executor.log.warnings if "release" in line]
        return [line.partition("`scontrol release ")[2].partition("`")[0] for line in found]

    query()
    assert released() == []
    query(7)
    query(7)
    assert released() == ["7"]
    query(7, 8, 9)
    assert released() == ["7", "8 9"]
    query(8, 9)
    query(7, 8, 9)  # held once more
    assert released() == ["7", "8 9", "7"]


# --- jobs of an earlier start ---


def queued(*states: str, comment: str = queue.mark_comment(COMMENT)) -> list[QueuedJob]:
    comment = decorated(comment)
    return [
        QueuedJob(str(number), state, name=f"name{number}", start_s=100.0, comment=comment)
        for number, state in enumerate(states, start=1)
    ]


@pytest.mark.parametrize(
    ("state", "is_adopted"),
    [
        ("PENDING", True), ("RUNNING", True), ("REQUEUE_HOLD", True), ("COMPLETING", True),
        ("REVOKED", True),
        ("CANCELLED", False), ("FAILED", False), ("TIMEOUT", False),
    ],
)  # fmt: skip
def test_a_job_that_goes_on_is_adopted_once(
    state: str, is_adopted: bool, start: Start, slurm: Slurm, tmp_path: Path
) -> None:
    executor = start(earlier=queued(state))
    done(executor, Job(["a"]))
    assert len(slurm.calls) == (0 if is_adopted else 1)
    assert executor._adopt(Job(["a"])) is None


def test_of_several_jobs_for_an_output_the_last_unfinished_job_is_adopted() -> None:
    states = {"9": "RUNNING", "10": "PENDING", "11": "COMPLETED", "12": "CANCELLED"}
    marked = queue.mark_comment(COMMENT)
    jobs = [QueuedJob(number, state, comment=marked) for number, state in states.items()]
    assert queue.map_by_comment(jobs)[COMMENT].number == "10"


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("was_missing", [True, False])
@pytest.mark.parametrize("states", [[], ["COMPLETED"]])
def test_an_output_that_came_after_the_planning_counts(
    exists: bool, was_missing: bool, states: list[str], start: Start, slurm: Slurm, tmp_path: Path
) -> None:
    output, executor = tmp_path / "run.json", start(earlier=queued(*states))
    if exists:
        output.touch()
    if was_missing:
        executor.missing.add(str(output))
    counts = exists and was_missing
    done(executor, Job([str(output)]))
    assert len(slurm.calls) == (not counts)
    assert executor.ended == [(str(output), True)] * counts


@pytest.mark.parametrize("exists", [True, False])
def test_an_adopted_job_that_made_nothing_has_failed(
    exists: bool, start: Start, sweep: Sweep, tmp_path: Path
) -> None:
    output, executor = tmp_path / "run.json", start(earlier=queued("PENDING"))
    job = Job([str(output)])
    done(executor, job)
    if exists:
        output.touch()
    executor.report_job_success(submitted(job, "1", tmp_path))
    executor.report_job_success(submitted(job, "2", tmp_path))
    assert sweep.failures == ({} if exists else {"1": "COMPLETED"})
    assert executor.ended == [(str(output), exists), (str(output), True)]


def settled(said: list[str], *queues: dict[str, str]) -> dict[str, str]:
    """The states of jobs in the end, by their numbers, with a query each second.

    The last queue stays as it is.
    """
    ahead, passed_s = list(queues), 0.0

    def query() -> list[QueuedJob]:
        states = ahead.pop(0) if len(ahead) > 1 else ahead[0]
        marked = queue.mark_comment(COMMENT)
        return [QueuedJob(number, state, comment=marked) for number, state in states.items()]

    def sleep(seconds: float) -> None:
        nonlocal passed_s
        passed_s += seconds

    found = queue.wait_for_completing(query, said.append, sleep, lambda: passed_s)
    return {job.number: job.state for job in found}


@pytest.mark.parametrize(
    ("queues", "states"),
    [
        ([{"1": "RUNNING"}], {"1": "RUNNING"}),
        # Slurm restarts it
        ([{"1": "COMPLETING"}, {"1": "COMPLETING"}, {"1": "PENDING"}], {"1": "PENDING"}),
        # and then a different one
        (
            [{"1": "COMPLETING", "2": "RUNNING"}, {"1": "PENDING", "2": "COMPLETING"},
             {"1": "PENDING", "2": "PENDING"}],
            {"1": "PENDING", "2": "PENDING"},
        ),
        # it is gone from the queue
        ([{"1": "COMPLETING", "2": "FAILED"}, {}], {"1": "COMPLETED", "2": "FAILED"}),
        # whether the second one has ended is not known
        (
            [{"1": "COMPLETING", "2": "RUNNING"}] * 50 + [{"1": "COMPLETING", "2": "COMPLETING"}],
            {"1": "COMPLETED", "2": "COMPLETING"},
        ),
    ],
)  # fmt: skip
def test_a_job_that_is_completing_is_waited_for(
    queues: list[dict[str, str]], states: dict[str, str]
) -> None:
    said: list[str] = []
    assert settled(said, *queues) == states
    assert bool(said) == ("COMPLETING" in queues[0].values())


@pytest.mark.parametrize("script", ["echo Socket timed out >&2; exit 1", "exec sleep 5", None])
def test_a_queue_that_slurm_does_not_show_is_not_an_empty_one(
    script: str | None, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{slurm.folder}:/usr/bin:/bin" if script else str(slurm.folder))
    if script:
        slurm.answer("squeue", script)
    waited_s: list[float] = []
    with pytest.raises(WorkflowError, match="squeue"):
        queue.query_jobs("/folder", SlurmClient(timeout_s=0.2), waited_s.append)
    assert len(waited_s) == queue.QUERIES - 1


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_one_empty_answer_loses_no_job_of_an_earlier_start(empty: int, slurm: Slurm) -> None:
    marked = queue.mark_comment(COMMENT)
    line = listed("7|RUNNING", folder="/folder", comment=marked)
    count = f"echo x >>{slurm.folder}/asked; [ $(wc -l <{slurm.folder}/asked) -gt {empty} ]"
    slurm.answer("squeue", f"if {count}; then echo '{line}'; fi")
    waited_s: list[float] = []
    found = queue.query_jobs("/folder", SlurmClient(), waited_s.append)
    assert [job.number for job in found] == ["7"] * (empty < 2)
    assert waited_s == [queue.PAUSE_S] * (empty > 0)


#: The name of a job of an earlier start.
NAME = f"tfscaling_{uuid.UUID(int=7)}"


@pytest.mark.parametrize(
    ("name", "state", "comment", "is_refused"),
    [
        (NAME, "PENDING", "Everyone gets a comment", True),
        (NAME, "RUNNING", "", True),
        (NAME, "COMPLETED", "", False),
        (NAME, "PENDING", "rule_train_wildcards_cpu_x_1", True),  # of the plain executor
        (NAME, "PENDING", f"{COMMENT} uid=3", True),
        (NAME, "PENDING", queue.mark_comment(COMMENT), False),
        (NAME, "RUNNING", f"p=1 {queue.mark_comment(COMMENT)} q", False),
        (NAME, "RUNNING", queue.mark_comment(COMMENT)[:-1], True),  # cut
        ("interactive", "PENDING", "", False),
    ],
)
def test_jobs_whose_comments_the_site_has_changed_are_not_submitted_twice(
    name: str, state: str, comment: str, is_refused: bool, slurm: Slurm
) -> None:
    """A start that cannot assign jobs of the queue to its runs is refused."""
    line = listed(f"7|{state}", name=name, folder="/folder", comment=comment)
    slurm.answer("squeue", f"echo '{line}'")

    def follow() -> None:
        plugin.Executor.follow(Sweep(), "/folder", lambda line: None)

    if is_refused:
        with pytest.raises(WorkflowError, match="scancel 7"):
            follow()
    else:
        follow()
