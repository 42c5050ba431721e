"""What Slurm and sbatch say of a sweep's jobs; the real queue is in tests/slurm."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest
from tfscaling.sweep import queue_watch, slurm_limits
from tfscaling.sweep.queue_watch import Pending, QueueWatch

RUN = "platform=cpu/model=own.net:model/nodes=2/repeat=1"
COMMENT = "rule_train_wildcards_cpu_own.net:model_2_1"


def test_the_comment_is_that_of_the_plugin() -> None:
    assert queue_watch.comment_of("train", RUN) == COMMENT


def test_only_jobs_of_this_folder_and_sweep_count() -> None:
    lines = [
        f"1|Resources|/here|{COMMENT}", f"2|Resources|/elsewhere|{COMMENT}",
        "3|Priority|/here|rule_train_wildcards_x", "CLUSTER: gcp", "",
        f"4|Nodes required for job are DOWN, DRAINED|/here|{COMMENT}\n",
    ]  # fmt: skip
    found = queue_watch.pending(lines, {COMMENT: RUN}, "/here")
    assert [(job.job, job.reason.split()[0]) for job in found] == [
        ("1", "Resources"),
        ("4", "Nodes"),
    ]
    assert {job.run for job in found} == {RUN}


@pytest.mark.parametrize(("reason", "named"), [("Resources", False), ("PartitionDown", True)])
def test_a_run_is_named_where_its_reason_may_last(reason: str, named: bool) -> None:
    line = queue_watch.told(reason, [Pending("7", reason, RUN)] * 2)
    assert line.startswith(f"2 runs wait in Slurm's queue: {reason}")
    assert (RUN in line) is named


def test_a_lost_node_is_named_with_the_jobs_that_slurm_starts_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {
        "squeue": [f"7|BeginTime|/here|{COMMENT}"],
        "sinfo": ["cpu2|Not responding", "cpu2|Not responding"],  # once for each partition
    }
    monkeypatch.setattr(slurm_limits, "told", lambda command, *_, cluster: answers[command])
    said: list[str] = []
    watch = QueueWatch({COMMENT: RUN}, "/here", [None], said.append, lambda _: None)
    watch.look()
    watch.look()
    answers["squeue"] = [f"8|BeginTime|/here|{COMMENT}"]  # after one more loss
    watch.look()
    assert [line.count("cpu2 (Not responding)") for line in said] == [1, 1]
    assert said[0].endswith(" 7") and said[1].endswith(" 8")


def test_sbatchs_words_about_a_job_are_kept() -> None:
    kept: list[Mapping[str, str]] = []
    watch = QueueWatch({COMMENT: RUN}, "/here", [None], pytest.fail, kept.append)
    said = "SLURM sbatch failed. The error message was 'sbatch: error: no\nway'.\n    call"
    output = [f"results/runs/{RUN}/run.json"]
    record = logging.makeLogRecord({"rule_msg": said, "output": output})
    watch.emit(record)
    watch.emit(record)
    watch.emit(logging.makeLogRecord({"rule_msg": "SLURM-job failed", "output": ["x"]}))
    watch.emit(logging.makeLogRecord({"msg": "hello"}))
    assert kept == [{RUN: "sbatch refused it: no way"}]
