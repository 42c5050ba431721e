"""Submissions that Slurm refuses for now, loses, or answers in a site's own way."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import snakemake_executor_plugin_slurm_sweep as plugin
from slurm_executor import COMMENT, Job, Slurm, Start, Started, Sweep, decorated, done, listed
from snakemake_executor_plugin_slurm_sweep import queue
from snakemake_executor_plugin_slurm_sweep.slurm_client import QueuedJob

POLICY = "sbatch: error: QOSMaxSubmitJobPerUserLimit"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat requests without a pause."""
    monkeypatch.setattr(plugin, "PAUSES_S", (0.01, 0.02))
    monkeypatch.setattr(plugin, "LOST_NUMBER_S", 0.05)


@pytest.fixture
def waiting(start: Start) -> Iterator[Started]:
    """An executor that is cancelled in the end, whatever it waits for."""
    executor = start()
    yield executor
    executor.cancel()


def in_queue(
    slurm: Slurm, executor: Started, *numbers: str, comment: str = COMMENT, empty: int = 0
) -> None:
    """Let squeue list jobs of this start, after some empty answers."""
    jobs = (listed(f"{n}|PENDING", name=executor.run_uuid, comment=comment) for n in numbers)
    lines = "\n".join(jobs)
    count = f"echo x >>{slurm.folder}/asked; [ $(wc -l <{slurm.folder}/asked) -gt {empty} ]"
    slurm.answer("squeue", f"if {count}; then cat <<'END'\n{lines}\nEND\nfi")


def fails(slurm: Slurm, times: int, words: str, then: str = "echo 7") -> None:
    """Let sbatch fail with these words some times, and succeed then."""
    slurm.answer(
        "sbatch",
        f'echo "$*" >>{slurm.folder}/calls\n'
        f"if [ $(wc -l <{slurm.folder}/calls) -le {times} ]; then echo '{words}' >&2; exit 1; fi\n"
        f"{then}",
    )


@pytest.mark.parametrize(
    "printed", ["7", "7;tc", "--- Welcome ---\nOK\n7", "Submitted batch job 7\nBye"]
)
def test_a_job_has_the_number_that_a_sites_sbatch_prints(
    printed: str, start: Start, slurm: Slurm
) -> None:
    slurm.answer("sbatch", f"cat <<'END'\n{printed}\nEND")
    executor = start()
    done(executor, Job(["a"]))
    assert [*executor._submitted] == ["7"] and executor.ended == []


def test_a_job_without_a_printed_number_is_found_and_not_submitted_twice(
    start: Start, slurm: Slurm
) -> None:
    executor = start()
    fails(slurm, 0, "", "echo Welcome")
    in_queue(slurm, executor, "41")
    done(executor, Job(["a"]))
    assert [*executor._submitted] == ["41"] and len(slurm.calls) == 1


@pytest.mark.parametrize("comment", [queue.mark_comment("rule_train/other"), None])
def test_a_job_that_nobody_finds_is_not_submitted_again(
    comment: str | None, start: Start, slurm: Slurm, sweep: Sweep
) -> None:
    executor, job = start(), Job(["a"])
    fails(slurm, 0, "", "echo Welcome")
    in_queue(slurm, executor, *(["41"] if comment else []), comment=comment or "")
    done(executor, job)
    assert executor.ended == [("a", False)] and Path("a") in sweep.refusals
    executor.handle_job_error(job)
    assert job.attempt > job.restart_times  # Snakemake retries it no more


@pytest.mark.parametrize(
    ("words", "times"),
    [
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", 3),
        # all of them wait alike
        ("sbatch: error: Batch job submission failed: Unexpected message received", 1),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller", 1),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying.", 1),
    ],
)
def test_a_busy_controller_costs_no_attempt(
    words: str, times: int, start: Start, slurm: Slurm, sweep: Sweep
) -> None:
    fails(slurm, times, words)
    slurm.states()
    executor = start()
    done(executor, Job(["a"]))
    assert [*executor._submitted] == ["7"] and len(slurm.calls) == times + 1
    assert executor.ended == [] and not sweep.refusals
    assert len(executor.log.warnings) == 1  # told once


@pytest.mark.parametrize("empty", [0, 1])
def test_a_submission_that_timed_out_and_was_accepted_is_found(
    empty: int, start: Start, slurm: Slurm
) -> None:
    """Also if squeue lists no job at first."""
    executor = start()
    fails(slurm, 9, "Socket timed out on send/recv operation")
    in_queue(slurm, executor, "36", empty=empty)
    done(executor, Job(["a"]))
    assert [*executor._submitted] == ["36"] and len(slurm.calls) == 1
    # the next one of this run is not taken for that
    fails(slurm, 2, "Socket timed out on send/recv operation")
    executor._submitter = type(executor._submitter)(1)
    done(executor, Job(["a"]))
    assert [*executor._submitted] == ["36", "7"]


@pytest.mark.parametrize("site", ["proj=a {0}", "{0};uid=9", "{{{{x}}}} {0} {{{{rule_other}}}}"])
@pytest.mark.parametrize("answer", ["Socket timed out on send/recv operation", ""])
def test_a_job_to_whose_comment_the_site_has_added_is_found(
    site: str, answer: str, start: Start, slurm: Slurm
) -> None:
    """And no job of a run whose name begins alike."""
    executor, alike = start(), site.format(queue.mark_comment(f"{COMMENT}2"))
    if answer:
        fails(slurm, 9, answer)
    else:
        fails(slurm, 0, "", "echo Welcome")
    in_queue(slurm, executor, "36", "35", comment=site.format(queue.mark_comment(COMMENT)))
    executor._numbers.add("35")
    done(executor, Job(["a"]))
    assert [*executor._submitted] == ["36"] and len(slurm.calls) == 1
    in_queue(slurm, executor, "37", comment=alike)
    assert executor._find_by_comment(COMMENT) is None
    assert executor._find_by_comment(f"{COMMENT}2") == "37"


@pytest.mark.parametrize("comment", ["Everyone gets a comment", "", "(null)"])
@pytest.mark.parametrize("answer", ["Socket timed out on send/recv operation", ""])
def test_a_job_whose_comment_the_site_has_changed_is_found(
    comment: str, answer: str, start: Start, slurm: Slurm
) -> None:
    """As by the plugin that Slurm's documentation has as an example."""
    executor = start()
    if answer:
        fails(slurm, 9, answer)
    else:
        fails(slurm, 0, "", "echo Welcome")
    in_queue(slurm, executor, "36", comment=comment)
    done(executor, Job(["a"]))
    assert [*executor._submitted] == ["36"] and len(slurm.calls) == 1
    # another run's job is a new one
    fails(slurm, len(slurm.calls), "")
    executor._submitter = type(executor._submitter)(1)
    done(executor, Job(["b"], ["cpu", "x", "2"]))
    assert [*executor._submitted] == ["36", "7"]


def test_nothing_is_submitted_again_while_the_queue_is_unknown(
    waiting: Started, slurm: Slurm
) -> None:
    fails(slurm, 1, "Socket timed out on send/recv operation")
    asked = slurm.folder / "asked"
    slurm.answer("squeue", f"echo x >>{asked}; [ $(wc -l <{asked}) -gt 4 ]")
    done(waiting, Job(["a"]))
    assert len(slurm.calls) == 2  # submitted again once the queue is known to lack the job
    assert asked.read_text().split()


def test_the_sites_limit_of_jobs_is_waited_for(waiting: Started, slurm: Slurm) -> None:
    full, calls = slurm.folder / "full", slurm.folder / "calls"
    slurm.answer(
        "sbatch",
        f'echo "$*" >>{calls}\n'
        f"if [ -e {full} ]; then echo '{POLICY}' >&2; exit 1; fi\n"
        f"wc -l <{calls}; [ $(wc -l <{calls}) -lt 2 ] || touch {full}",
    )
    slurm.states(*(f"{number}|PENDING Priority" for number in range(1, 9)))
    waiting.run_jobs([Job([name], [name]) for name in "abcd"])
    wait_for(lambda: bool(waiting.log.warnings))
    assert sorted(waiting._submitted) == ["1", "2"] and waiting.ended == []
    full.unlink()
    waiting.report_job_success(waiting._submitted["1"])  # frees a place at once, not in a minute
    wait_for(lambda: len(waiting._submitted) >= 2)
    assert "1" not in waiting._submitted
    wait_for(lambda: len(slurm.calls) == 5)  # the last one is refused as well
    full.unlink()
    waiting.report_job_success(waiting._submitted["2"])
    wait_for(lambda: len(waiting._submitted) == 2 and "2" not in waiting._submitted)
    (warning,) = waiting.log.warnings
    assert "QOSMaxSubmitJobPerUserLimit" in warning and " 2 " in warning


@pytest.mark.parametrize("words", [POLICY, "Socket timed out", "Unable to contact"])
def test_a_sweep_that_waits_for_slurm_is_cancelled_at_once(
    words: str, start: Start, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "PAUSES_S", (3600.0,))
    monkeypatch.setattr(plugin, "LIMIT_PERIOD_S", 3600.0)
    fails(slurm, 1000, words)
    executor = start()
    executor.run_jobs([Job(["a"]), Job(["b"])])
    wait_for(lambda: bool(slurm.calls))
    executor.cancel()
    assert len(slurm.calls) == 1 and executor.ended == []
    # also what Slurm may have accepted without an answer
    assert f"--name={executor.run_uuid}" in slurm.cancelled


def test_jobs_that_may_still_run_are_named_until_they_are_cancelled(
    start: Start, slurm: Slurm
) -> None:
    slurm.answer("sbatch", f"echo x >>{slurm.folder}/calls; echo 4$(wc -l <{slurm.folder}/calls)")
    executor = start(
        earlier=[QueuedJob("7", "RUNNING", comment=decorated(queue.mark_comment(COMMENT)))]
    )
    names = [f"run{number}" for number in range(random.randint(1, 9))]
    done(executor, Job(["a"]), *(Job([name], [name]) for name in names))
    text = executor.describe_remaining()
    assert "scancel 7" in text and f"scancel --name={executor.run_uuid}" in text
    assert all(number in text.split() for number in executor._submitted)
    slurm.answer("scancel", "exit 1")  # Slurm does not answer
    executor.cancel_jobs(list(executor._submitted.values()))
    assert executor.describe_remaining() == text
    slurm.answer("scancel", "exit 0")
    executor.cancel_jobs([executor._submitted["7"]])
    assert "7" not in executor.describe_remaining().split()
    executor.cancel()
    assert executor.describe_remaining() == ""


@pytest.mark.parametrize("words", [POLICY, "Socket timed out", ""])
def test_after_sigterm_nothing_more_is_submitted(
    words: str, start: Start, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that Slurm has continue; the others end, and are left for the next start."""
    monkeypatch.setattr(plugin, "PAUSES_S", (3600.0,))
    monkeypatch.setattr(plugin, "LIMIT_PERIOD_S", 3600.0)
    executor = start()
    done(executor, Job(["a"]))
    executor._submitter = type(executor._submitter)(1)
    slurm.states("1|RUNNING None")
    if words:
        fails(slurm, 1000, words)
        executor.run_jobs([Job(["b"]), Job(["c"])])
        wait_for(lambda: len(slurm.calls) == 2)
        executor.stop_submissions()
    else:
        executor.stop_submissions()
        executor.run_jobs([Job(["b"]), Job(["c"])])
    wait_for(lambda: len(executor.ended) == 2)
    assert executor.ended == [("b", False), ("c", False)]
    assert len(slurm.calls) == 1 + bool(words)
    assert (slurm.cancelled, [*executor._submitted]) == ([], ["1"])
    job = Job(["b"])
    executor.handle_job_error(job)
    assert job.attempt > job.restart_times  # it is not tried again


@pytest.mark.parametrize("extra", ["", "--dependency=singleton", "-d after:3"])
def test_the_next_attempt_waits_for_the_previous_job(
    extra: str, start: Start, slurm: Slurm
) -> None:
    executor, job = start(), Job(["a"], resources={"slurm_extra": extra})
    executor.run_job(job)
    executor.report_job_error(executor._submitted["1"])
    executor.run_job(job)
    done(executor, Job(["b"], ["other"]))
    first, second, other = slurm.calls
    wanted = ",".join(filter(None, [extra.rpartition("=")[2].rpartition(" ")[2], "afterany:1"]))
    assert f"--dependency={wanted}" in second
    assert not any("afterany" in word for word in [*first, *other])


@pytest.mark.parametrize("name", ["SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS"])
def test_inside_a_job_slurm_is_still_found(
    name: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstream deletes all variables of Slurm there."""
    for variable in ("SLURM_JOB_ID", "SLURM_NTASKS", name):
        monkeypatch.setenv(variable, "7")
    start()
    assert os.environ[name] == "7" and "SLURM_NTASKS" not in os.environ


@pytest.mark.parametrize("variable", ["SBATCH_GRES", "SBATCH_QOS", "SBATCH_MEM_PER_CPU"])
def test_a_refusal_names_options_from_the_environment(
    variable: str, start: Start, slurm: Slurm, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "x:1")
    slurm.answer("sbatch", "echo sbatch: error: Requested node configuration >&2; exit 1")
    done(start(), Job(["a"]))
    (words,) = sweep.refusals.values()
    assert f"{variable}=x:1" in words


def wait_for(is_reached: Callable[[], bool]) -> None:
    """Wait until another thread has come to a state."""
    event = threading.Event()
    while not is_reached():
        event.wait(0.01)
