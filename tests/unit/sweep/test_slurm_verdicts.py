"""What Slurm says of jobs that could not report; a node that loses its power is in tests/slurm."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from builders import manifest_of, record_of, valid_config
from tfscaling.records import attempts, failure_report
from tfscaling.records.failure_report import Cause, FailureReport
from tfscaling.sweep import slurm_verdicts
from tfscaling.sweep.slurm_verdicts import SlurmVerdicts

(RUN, *_) = manifest_of(valid_config()).runs
SAID = "SLURM-job '17' failed{}, SLURM status is: '{}'. Consider this."


def hear(folder: Path, said: str, *preempted: str) -> FailureReport | None:
    """The report of the run after Snakemake's log has said this."""
    output = str(folder / "run.json")
    handler = SlurmVerdicts({output: RUN.spec}.get, preempted)
    handler.emit(
        logging.makeLogRecord({"event": "job_error", "rule_msg": said, "output": [output]})
    )
    return failure_report.read(folder)


@pytest.mark.parametrize(
    ("why", "state", "kind"),
    [
        ("", "TIMEOUT", "time_limit"),
        (" due to a node failure", "NODE_FAIL", "node_failed"),
        ("", "OUT_OF_MEMORY", "out_of_memory"),
        ("", "FAILED", "launcher_failed"),
    ],
)
def test_a_job_without_a_report_has_slurms(why: str, state: str, kind: str, tmp_path: Path) -> None:
    attempts.path(tmp_path, 2).mkdir()
    failure = hear(tmp_path, SAID.format(why, state))
    assert failure is not None
    assert (failure.cause.kind, failure.attempt, failure.axes) == (kind, 2, RUN.spec.axes)
    assert "job 17" in failure.cause.message and state in failure.cause.message
    assert failure_report.read(attempts.path(tmp_path, 2)) == failure


def test_a_job_that_was_preempted_is_said_to_have_failed(tmp_path: Path) -> None:
    failure = hear(tmp_path, SAID.format("", "FAILED"), "17")
    assert failure is not None and failure.cause.kind == "preempted"
    assert "PREEMPTED" in failure.cause.message


def test_a_job_that_did_not_begin_has_it_too(tmp_path: Path) -> None:
    failure = hear(tmp_path / "new", SAID.format("", "BOOT_FAIL"))
    assert failure is not None and failure.cause.kind == "node_failed"


def test_what_the_launcher_said_stays(tmp_path: Path) -> None:
    last = attempts.path(tmp_path, 1)
    last.mkdir()
    cause = Cause(kind="stalled", message="no rank made progress")
    told = FailureReport(axes=RUN.spec.axes, attempt=1, cause=cause)
    for folder in (last, tmp_path):
        failure_report.write(folder, told)
    assert hear(tmp_path, SAID.format("", "FAILED")) == told


def test_other_words_are_left_alone(tmp_path: Path) -> None:
    assert hear(tmp_path, "SLURM sbatch failed.") is None


@dataclass
class Job:
    output: list[str]


@dataclass
class Submitted:
    job: Job
    external_jobid: str = "17"


@dataclass
class Executor:
    """What the plugin's has of it."""

    told: list[str] = field(default_factory=list)

    def report_job_success(self, submitted: Submitted) -> None:
        self.told.append("success")

    def report_job_error(self, submitted: Submitted, msg: str | None = None) -> None:
        self.told.append("error")


@pytest.mark.parametrize(
    ("record", "told"), [("17", "success"), ("16", "error"), ("", "error"), ("{", "error")]
)
def test_a_job_that_has_left_its_record_has_not_failed(
    record: str, told: str, tmp_path: Path
) -> None:
    """As when its time limit passes while Slurm's controller is away."""
    output = tmp_path / "run.json"
    content = record_of(RUN)
    content["environment"]["slurm_job"] = {"id": record}
    if record:
        output.write_text(json.dumps(content) if record.isdigit() else record)

    class Plugins(Executor):
        pass

    slurm_verdicts.keep_finished(Plugins)
    executor = Plugins()
    executor.report_job_error(Submitted(Job([str(output)])), msg="SLURM status is: 'TIMEOUT'")
    assert executor.told == [told]
