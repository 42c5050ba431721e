"""What the executor plugin learns about runs; a node that loses its power is in tests/slurm."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest
from builders import manifest_of, record_of, valid_config
from fake_programs import program
from tfscaling.launch import rank_files
from tfscaling.plan.retries import SlurmSweep
from tfscaling.record import attempts, run_record, run_states
from tfscaling.record.attempts import Cause, FailureReport, Kind
from tfscaling.record.run_record import DoesNotFit
from tfscaling.study import run_spec

(RUN, OTHER) = manifest_of(valid_config()).runs


@pytest.fixture
def output(tmp_path: Path) -> Path:
    path = tmp_path / "runs" / RUN.spec.path / "run.json"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def sweep(output: Path, tmp_path: Path) -> SlurmSweep:
    others = tmp_path / "runs" / OTHER.spec.path / "run.json"
    return SlurmSweep({str(output): RUN.spec, str(others): OTHER.spec})


def attempt(output: Path, number: int, spec: str | None = None) -> Path:
    (folder := attempts.attempt_folder(output.parent, number)).mkdir()
    if spec is not None:
        (folder / attempts.SPEC).write_text(spec)
    return folder


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("TIMEOUT", "time_limit"), ("NODE_FAIL", "node_failed"), ("FAILED", "launcher_failed"),
        ("PREEMPTED", "preempted"),
        ("BOOT_FAIL", "node_failed"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("has_begun", [True, False])
@pytest.mark.parametrize("number", ["17", "17.3", "tfscaling-0a1b"])
def test_a_job_without_a_report_has_slurms(
    number: str, state: str, kind: str, has_begun: bool, sweep: SlurmSweep, output: Path
) -> None:
    """A step of an allocation is found by its own number, or its name if it did not begin."""
    folder = attempt(output, 2) if has_begun else output.parent
    sweep.report_failure(output, number, state)
    failure = attempts.read_failure(output.parent)
    assert failure is not None and attempts.read_failure(folder) == failure
    assert (failure.cause.kind, failure.attempt) == (kind, 2 if has_begun else 1)
    assert failure.axes == RUN.spec.axes
    assert f" {number} " in failure.cause.message and state in failure.cause.message
    assert failure.slurm_job == number


@pytest.mark.parametrize("begun", [0, 1, 3])
@pytest.mark.parametrize("listed", ["17", "17.3"])
def test_a_job_without_memory_is_a_result(
    listed: str, begun: int, sweep: SlurmSweep, output: Path
) -> None:
    for number in range(1, begun + 1):
        attempt(output, number)
    sweep.report_failure(output, listed, "OUT_OF_MEMORY")
    assert attempts.read_failure(output.parent) is None
    record = run_record.read_outcome(output)
    assert isinstance(record, DoesNotFit)
    assert (record.attempt, record.parameters_hash) == (begun or 1, RUN.spec.parameters_hash)
    assert record.environment.slurm_job is not None and record.environment.slurm_job.id == "17"
    assert sweep.is_finished(output, listed) and not sweep.is_finished(output, "16")
    found = run_states.find_record(RUN.spec, output.parent)
    assert found is not None and found.record == record


def test_what_the_launcher_reported_stays(sweep: SlurmSweep, output: Path) -> None:
    cause = Cause(kind="stalled", message="no rank made progress")
    reported = FailureReport(axes=RUN.spec.axes, attempt=1, cause=cause)
    for folder in (attempt(output, 1), output.parent):
        attempts.write_failure(folder, reported)
    sweep.report_failure(output, "17", "FAILED")
    assert attempts.read_failure(output.parent) == reported


def test_files_that_are_no_records_have_no_report(sweep: SlurmSweep, tmp_path: Path) -> None:
    sweep.report_failure(tmp_path / "table.csv", "17", "FAILED")
    assert not (tmp_path / "failure.json").exists()


@pytest.mark.parametrize(
    ("record", "is_finished"), [("17", True), ("16", False), ("", False), ("{", False)]
)
def test_a_job_that_has_left_its_record_has_finished(
    record: str, is_finished: bool, sweep: SlurmSweep, output: Path
) -> None:
    """As when its time limit passes while Slurm's controller is away."""
    content = record_of(RUN)
    content["environment"]["slurm_job"] = {"id": record}
    if record:
        output.write_text(json.dumps(content) if record.isdigit() else record)
    assert sweep.is_finished(output, "17") == is_finished


def test_hosts_that_lacked_gpus_are_unfit(sweep: SlurmSweep, output: Path) -> None:
    failures: list[tuple[Kind, str | None]] = [
        ("missing_gpus", "n7"), ("rank_died", "n8"), ("missing_gpus", None), ("missing_gpus", "n6"),
        # names that Slurm would take for other nodes, or refuse
        ("missing_gpus", "n[1-99]"), ("missing_gpus", "n6,n9"), ("missing_gpus", "n 9"),
    ]  # fmt: skip
    assert sweep.nodes_to_avoid(output) == []
    for number, (kind, host) in enumerate(failures, start=1):
        cause = Cause(kind=kind, message="no GPUs", host=host)
        report = FailureReport(axes={}, attempt=number, cause=cause)
        attempts.write_failure(attempt(output, number), report)
    assert sweep.nodes_to_avoid(output) == ["n6", "n7"]
    assert sweep.nodes_to_avoid(output.with_name("table.csv")) == []


def test_what_sbatch_refused_has_failed_with_its_words(sweep: SlurmSweep, output: Path) -> None:
    sweep.report_refusal(output.with_name("other"), "no such run")
    assert attempts.read_failure(output.parent) is None
    sweep.report_refusal(output, "no way")
    failure = attempts.read_failure(output.parent)
    assert failure is not None and failure.cause.kind == "launch_failed"
    assert failure.cause.message.endswith(": no way")


#: The end of a job's log → the error that the cause shows. `LAUNCHED`: of the launcher's log.
LAUNCHED = """RuleException:
CalledProcessError in file "workflow/rules/train.smk", line 36:
Command 'set -euo pipefail; python3 "$SCRIPTS/train.py"' returned non-zero exit status 2.
Error in rule train:
    jobid: 0
"""
LOGS = {
    "InputFunctionException in rule train in file \"train.smk\", line 9:\nError:\n"
    "  WorkflowError:\n    nodes=1/repeat=1 is not in the grid of the configuration: its files were"
    " changed\nWildcards:\n  nodes=1\n": "nodes=1/repeat=1 is not in the grid",
    'WorkflowError in file "globals.smk", line 68:\nsweep.yaml: grid: "x" is not allowed\n\n':
    'sweep.yaml: grid: "x" is not allowed',
    "/slurmd/job7/slurm_script: line 4: /shared/.venv/bin/python: No such file or directory\n":
    "line 4: /shared/.venv/bin/python: No such file or directory",
    "Building DAG of jobs...\nOSError: [Errno 122] Disk quota exceeded: '.snakemake/log'\n":
    "[Errno 122] Disk quota exceeded",
    LAUNCHED: "train.py: error: the record's folder has no request",
    "": "left no report",
}  # fmt: skip


@pytest.mark.parametrize(("text", "error"), LOGS.items())
def test_a_job_that_ended_before_its_launcher_reports_has_the_error_of_its_log(
    text: str, error: str, sweep: SlurmSweep, output: Path, tmp_path: Path
) -> None:
    log = tmp_path / "17.log"
    log.write_text(text)
    launched = "usage: train.py [-h]\ntrain.py: error: the record's folder has no request\n"
    (output.parent / run_record.LAUNCH_LOG).write_text(launched)
    sweep.report_failure(output, "17", "FAILED", log)
    failure = attempts.read_failure(output.parent)
    assert failure is not None and failure.cause.kind == "launcher_failed"
    assert error in failure.cause.message and "job 17" in failure.cause.message


def test_the_error_of_a_jobs_log_has_no_secret(
    sweep: SlurmSweep, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"{random.getrandbits(64):016x}"
    monkeypatch.setenv("HF_TOKEN", secret)
    log = tmp_path / "17.log"
    log.write_text(f"a line with {secret}\nOSError: refused: {secret}\n")
    sweep.report_failure(output, "17", "FAILED", log)
    failure = attempts.read_failure(output.parent)
    assert failure is not None and "OSError: refused: ***" in failure.cause.message
    assert secret not in (output.parent / run_record.FAILURE).read_text()


@pytest.mark.parametrize(
    ("run_time", "wall_time_s"),
    [("00:00:07", 7), ("1-02:03:04", 93_784), ("INVALID", None)],
)
def test_an_attempt_costs_what_slurm_reports(
    run_time: str,
    wall_time_s: float | None,
    sweep: SlurmSweep,
    output: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = f"   RunTime={run_time} TimeLimit=1-00:00:00 TimeMin=N/A"
    program(tmp_path, "scontrol", f"echo 'JobId=17 JobName=x'; echo '{text}'")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    sweep.report_failure(output, "17", "BOOT_FAIL")
    failure = attempts.read_failure(output.parent)
    assert failure is not None and failure.wall_time_s == wall_time_s


@pytest.mark.parametrize("took_s", [0, 7, 36_000])
def test_an_attempt_that_nobody_could_report_has_a_cost(
    took_s: int, sweep: SlurmSweep, output: Path
) -> None:
    folder = attempt(output, 1, run_spec.encode_spec(RUN.spec))
    began_s = time.time() - took_s
    os.utime(folder / attempts.SPEC, (began_s, began_s))
    sweep.report_failure(output, "17", "NODE_FAIL")
    failure = attempts.read_failure(output.parent)
    assert failure is not None and failure.wall_time_s is not None
    assert took_s <= failure.wall_time_s + 0.01 <= time.time() - began_s + 0.02


def test_an_attempt_that_began_no_rank_has_an_unknown_cost(sweep: SlurmSweep, output: Path) -> None:
    attempt(output, 1)
    sweep.report_failure(output, "17", "BOOT_FAIL")
    failure = attempts.read_failure(output.parent)
    assert failure is not None and failure.wall_time_s is None


@pytest.mark.parametrize("state", ["FAILED", "OUT_OF_MEMORY", "NODE_FAIL"])
def test_what_cannot_be_written_is_printed(tmp_path: Path, state: str) -> None:
    """As on a full disk: the run's folder cannot be made."""
    output, printed = tmp_path / "runs" / RUN.spec.path / "run.json", list[str]()
    output.parent.parent.mkdir(parents=True)
    output.parent.symlink_to("nowhere")
    SlurmSweep({str(output): RUN.spec}, printed.append).report_failure(output, "17", state)
    assert printed and all("job 17" in line and "File exists" in line for line in printed)


@pytest.mark.parametrize("left", [run_record.FAILURE, attempts.RECORD])
def test_a_job_that_began_no_attempt_has_its_own_report(
    left: str, sweep: SlurmSweep, output: Path, tmp_path: Path
) -> None:
    """The report and the record of the attempt before it stay as they are."""
    first = attempt(output, 1)
    (first / attempts.RECORD).write_text("{}")
    if left == run_record.FAILURE:
        (first / attempts.RECORD).unlink()
        sweep.report_failure(output, "100", "NODE_FAIL")
    before = {path.name: path.read_bytes() for path in first.iterdir()}
    log = tmp_path / "101.log"
    log.write_text("OSError: [Errno 122] Disk quota exceeded\n")
    sweep.report_failure(output, "101", "FAILED", log)
    failure = attempts.read_failure(output.parent)
    assert failure is not None and (failure.slurm_job, failure.attempt) == ("101", 2)
    assert "Disk quota exceeded" in failure.cause.message
    assert {path.name: path.read_bytes() for path in first.iterdir()} == before
    failed = 2 if left == run_record.FAILURE else 1
    assert attempts.failed_attempts(output.parent).number == failed
    # as the launcher of the next attempt reports
    second = attempt(output, 2)
    cause = Cause(kind="stalled", message="no progress")
    report = FailureReport(axes=RUN.spec.axes, attempt=2, cause=cause, slurm_job="102")
    for folder in (second, output.parent):
        attempts.write_failure(folder, report)
    sweep.report_failure(output, "102", "FAILED")
    assert attempts.read_failure(output.parent) == report


def test_a_job_that_slurm_no_longer_lists_has_a_report(sweep: SlurmSweep, output: Path) -> None:
    sweep.report_failure(output, "17", "GONE")
    cause = attempts.cause_of(output.parent)
    assert cause is not None and "job 17 left the queue" in cause.message


def test_of_a_log_of_gigabytes_the_end_is_read(
    sweep: SlurmSweep, output: Path, tmp_path: Path
) -> None:
    """Otherwise the driver, and a launcher, would need as much memory."""
    log = tmp_path / "17.log"
    with log.open("wb") as file:
        file.seek(1 << 40)
        file.write(b"\nOSError: [Errno 122] Disk quota exceeded\n")
    sweep.report_failure(output, "17", "FAILED", log)
    cause = attempts.cause_of(output.parent)
    assert cause is not None and "Disk quota exceeded" in cause.message
    assert rank_files.last_lines(log, 500) == ("OSError: [Errno 122] Disk quota exceeded",)
