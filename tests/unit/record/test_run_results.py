"""The record of a run from the reports of its ranks: metrics, warnings, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import a_record, local_spec
from generator import training_report as report
from tfscaling.record import run_results
from tfscaling.record.rank_report import TrainingReport


@pytest.mark.parametrize(
    ("cpus", "sockets", "warned"), [(4, (0, 1), 1), (6, (0, 1), 0), (4, (0,), 0)]
)
def test_ranks_on_more_sockets_than_they_need_are_named(
    cpus: int, sockets: tuple[int, ...], warned: int
) -> None:
    """A host of two sockets with four CPUs each."""
    facts = msgspec.structs.replace(report(0).host_facts, cpus_online=8, sockets=2)
    reports = [report(0), report(1, cpus=cpus, sockets=sockets, host_facts=facts, cpu_list="0-3")]
    texts = run_results.collect_warnings(local_spec(), reports)
    assert ["rank 1 (CPUs 0-3)" in text for text in texts] == [True] * warned


def test_metrics_are_those_of_the_last_epoch_and_of_steady_steps() -> None:
    found = run_results.compute_metrics([report()], train_time_s=2.0)
    assert (found.loss, found.accuracy) == (0.25, 0.9)
    assert (found.test_loss, found.test_accuracy) == (0.3, 0.88)
    assert found.step_time_s == pytest.approx(0.1)  # the slow first step takes no part
    assert found.throughput_examples_per_s == pytest.approx(5 * 128 / 2.0)
    assert len(found.epochs) == 2


def computing(*seconds: float) -> list[TrainingReport]:
    """Reports of ranks whose computation takes so long, with a first value far off."""
    return [report(rank, compute_steps=[s, 9.0, s]) for rank, s in enumerate(seconds)]


def test_a_step_is_computation_of_the_median_rank_and_the_rest() -> None:
    found = run_results.split_step_time(computing(0.02, 0.03, 0.08), fed_step_time_s=0.1)
    assert found.compute_time_s == pytest.approx(0.03)
    assert found.synchronisation_time_s == pytest.approx(0.07)


@pytest.mark.parametrize("fast", [1, 3])
def test_a_rank_twice_as_slow_as_the_others_has_the_ratio_two(fast: int) -> None:
    found = run_results.split_step_time(computing(*[0.02] * fast, 0.04), fed_step_time_s=0.1)
    assert (found.slowest_rank, found.slowest_host) == (fast, f"node{fast}")
    assert found.straggler_ratio == pytest.approx(2.0)
    assert found.compute_time_s == pytest.approx(0.02)
    # the fast ones wait for the slow one, which is no computation of theirs
    assert found.synchronisation_time_s == pytest.approx(0.08)


def test_input_is_what_the_rank_that_waits_longest_waits_in_each_step() -> None:
    waits = ([0.9, 0.01, 0.03, 0.0], [0.9, 0.02, 0.01, 0.0])
    reports = [
        report(
            rank,
            steps=[(1, step, 1, 0.1, wait_s) for step, wait_s in enumerate(of_rank)],
            compute_steps=[0.05] * 3,
        )
        for rank, of_rank in enumerate(waits)
    ]
    found = run_results.compute_metrics(reports, train_time_s=0.3)
    assert found.input_wait_s == pytest.approx((0.02 + 0.03 + 0.0) / 3)
    assert found.step_time_s == pytest.approx(0.1)
    # steps without it take 0.08, 0.07 and 0.1 s
    assert found.synchronisation_time_s == pytest.approx(0.08 - 0.05)


#: Steps as a rank reports them, examples, seconds of training → seconds of a step, throughput.
STEADY: dict[str, tuple[list[Any], int, float, float | None, float | None]] = {
    "one execution has no steady state": ([(1, 0, 10, 5.0)], 640, 0.0, None, None),
    "executions of several steps": (
        [(1, 0, 20, 9.0), (1, 20, 20, 2.0), (1, 40, 10, 1.0), (2, 0, 20, 4.0)], 70 * 128, 10.0,
        0.1, 50 * 128 / 10.0),
    # epochs of 300 examples in steps of 128: padding is no example
    "the last step of an epoch is padded": (
        [(epoch, step, 1, 0.1) for epoch in (1, 2) for step in range(3)], 600, 2.0,
        0.1, (600 - 128) / 2.0),
    "the first execution is the first epoch": (
        [(1, 0, 3, 1.0), (2, 0, 3, 0.3)], 600, 2.0, 0.1, 300 / 2.0),
}  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "examples", "train_s", "step_s", "throughput"), STEADY.values(), ids=STEADY
)
def test_the_first_execution_is_not_part_of_step_time_and_throughput(
    steps: list[Any], examples: int, train_s: float, step_s: float | None, throughput: float | None
) -> None:
    found = run_results.compute_metrics([report(steps=steps, examples_trained=examples)], train_s)
    assert found.step_time_s == pytest.approx(step_s)
    assert found.throughput_examples_per_s == pytest.approx(throughput)
    assert found.loss == 0.25


def test_examples_before_a_resumption_are_not_part_of_the_throughput() -> None:
    since = {"epoch": 2, "step": 0, "examples": 384, "trained_s": 9.0, "steps_per_epoch": 3}
    found = run_results.compute_metrics([report(resumed_from=since)], train_time_s=2.0)
    assert found.throughput_examples_per_s == pytest.approx((768 - 384 - 128) / 2.0)
    assert found.examples_trained == 768


def test_steps_of_every_rank_are_written_as_csv(tmp_path: Path) -> None:
    reports = [report(rank, steps=[(1, 0, 2, 0.5), (1, 2, 1, 0.25)]) for rank in range(2)]
    run_results.write_steps(tmp_path, reports)
    assert (tmp_path / "steps.csv").read_text().splitlines() == [
        "rank,epoch,first_step,steps,duration_s,input_wait_s",
        "0,1,0,2,0.500000,0.000000",
        "0,1,2,1,0.250000,0.000000",
        "1,1,0,2,0.500000,0.000000",
        "1,1,2,1,0.250000,0.000000",
    ]
    compute = (tmp_path / "compute_steps.csv").read_text().splitlines()
    assert compute[:3] == ["rank,step,duration_s", "0,1,0.080000", "0,2,0.060000"]
    assert len(compute) == 1 + 2 * 3
    assert len(list(tmp_path.iterdir())) == 2


def test_warnings_of_the_ranks_are_in_the_record_once_each() -> None:
    reports = [report(0, warnings=["a", "b"]), report(1, warnings=["b", "c"]), report(2)]
    assert run_results.collect_warnings(local_spec(), reports) == ("a", "b", "c")
    assert a_record()["warnings"] == []


def test_nothing_is_divided_by_a_time_of_zero_and_no_rest_is_negative() -> None:
    assert run_results.compute_metrics([report()], 0.0).throughput_examples_per_s is None
    still = run_results.split_step_time([report(compute_steps=[0.0])], 0.1)
    assert (still.compute_time_s, still.straggler_ratio) == (0.0, None)
    assert run_results.split_step_time(computing(0.02), 0.019).synchronisation_time_s == 0.0
