"""Further repeats go to the points whose interval is too wide, and end at repeats_max."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import generator
import numpy as np
import pytest
from builders import manifest_of, raw_config, write_record
from msgspec.structs import replace
from rows import planned_of
from tfscaling.plan import extra_repeats
from tfscaling.plan.retries import SlurmSweep
from tfscaling.spec import configuration
from tfscaling.spec.manifest import Manifest, PlannedRun
from tfscaling.tables import runs_table
from tfscaling.tables.estimates import median_interval, median_rank

UNTIL = {"relative_interval": 0.05, "repeats_max": 11}
#: Six runs each; their intervals are their ranges.
NARROW, WIDE = (100.0, 101.0, 102.0, 103.0, 104.0, 105.0), (100.0, 110.0, 120.0, 99.0, 98.0, 97.0)


def written(tmp_path: Path, times: dict[int, tuple[float, ...]], **until: Any) -> Manifest:
    """The manifest of a point for each number of nodes, with a record for each of its times."""
    block = {"nodes": list(times), "repeats": 6, "repeat_until": {**UNTIL, **until}}
    planned = planned_of(block)
    for run in planned.runs:
        own = times[run.spec.point.nodes]
        if run.spec.repeat <= len(own):
            time_s = own[run.spec.repeat - 1]
            generator.write_records([run], tmp_path, lambda _, time_s=time_s: time_s, noise=0.0)
    return planned


def paths(planned: Manifest, nodes: int, *numbers: int) -> tuple[str, ...]:
    return tuple(
        run.spec.path for run in planned.runs
        if run.spec.point.nodes == nodes and run.spec.repeat in numbers
    )  # fmt: skip


def test_only_the_point_with_the_wide_interval_is_repeated(tmp_path: Path) -> None:
    planned = written(tmp_path, {1: NARROW, 2: WIDE})
    made = extra_repeats.next_round(planned, tmp_path, [], 1)
    assert made.runs == paths(planned, 2, 7, 8, 9) and made.added == 3
    narrow, wide = made.points
    assert (narrow.nodes, narrow.repeats, narrow.verdict) == (1, 6, extra_repeats.NARROW)
    assert narrow.relative_interval == pytest.approx(5.0 / 102.5)
    assert (wide.nodes, wide.verdict) == (2, extra_repeats.WIDE)
    assert wide.relative_interval == pytest.approx(23.0 / 99.5)


def test_rounds_end_when_the_interval_is_narrow_or_the_repeats_are_used_up(tmp_path: Path) -> None:
    nine = (*WIDE, 99.5, 100.5, 99.0)
    planned = written(tmp_path, {2: nine}, relative_interval=0.2)
    asked = paths(planned, 2, 7, 8, 9)
    made = extra_repeats.next_round(planned, tmp_path, asked, 2)
    assert (made.runs, made.added) == (asked, 0)
    (point,) = made.points
    assert (point.repeats, point.verdict) == (9, extra_repeats.NARROW)
    low, high = median_interval(nine) or (0, 0)
    assert point.relative_interval == pytest.approx((high - low) / point.median_s)

    runs = tuple(replace(run, relative_interval=1e-3) for run in planned.runs)
    strict = replace(planned, runs=runs)
    made = extra_repeats.next_round(strict, tmp_path, asked, 2)
    assert made.added == 2, "11 at most, though 12 would be the next to help"
    last = written(tmp_path, {2: (*nine, 1.0, 1.0)}, relative_interval=1e-3)
    made = extra_repeats.next_round(last, tmp_path, made.runs, 3)
    assert made.added == 0
    assert made.points[0].verdict == extra_repeats.EXHAUSTED


def test_a_point_without_all_its_runs_is_left_alone(tmp_path: Path) -> None:
    planned = written(tmp_path, {1: NARROW[:5], 2: WIDE})
    made = extra_repeats.next_round(planned, tmp_path, [], 1)
    assert [point.nodes for point in made.points] == [2]


@pytest.mark.parametrize("change", ["parameters_hash", "data"])
def test_runs_that_the_tables_do_not_count_are_not_there(tmp_path: Path, change: str) -> None:
    """Records that were copied here, of other parameters or of other data."""
    planned = written(tmp_path, {1: NARROW, 2: WIDE})
    for path in paths(planned, 2, 3, 4):
        file = tmp_path / path / "run.json"
        record = json.loads(file.read_text())
        if change == "data":
            record["environment"]["dataset"]["sha256"] = "e" * 64
        else:
            record["parameters_hash"] = "0" * 16
        file.write_text(json.dumps(record))
    made = extra_repeats.next_round(planned, tmp_path, [], 1)
    assert [point.nodes for point in made.points] == [1]
    assert made.added == 0


@pytest.mark.parametrize(("runs", "more"), [(1, 6), (5, 6), (6, 9), (8, 9), (9, 12), (15, 17)])
def test_the_next_number_of_runs_is_one_that_can_narrow_the_interval(runs: int, more: int) -> None:
    assert extra_repeats.next_number(runs) == more
    assert (median_rank(more) or 0) > (median_rank(runs) or 0)
    assert (median_rank(more - 1) or 0) <= (median_rank(runs) or 0)


def diverge(planned: Manifest, runs_dir: Path, *numbers: int) -> None:
    for run in planned.runs:
        if run.spec.repeat in numbers:
            write_record(runs_dir, run, 1.0, "diverged: loss is NaN from epoch 2")


def went_on(planned: Manifest, runs_dir: Path, *numbers: int) -> None:
    """Let runs be interrupted and go on from a checkpoint: their times are not compared."""
    resumed = {"epoch": 2, "step": 0, "steps_repeated": 3, "trained_before_s": 50.0, "attempts": []}
    for run in planned.runs:
        if run.spec.repeat in numbers:
            file = runs_dir / run.spec.path / "run.json"
            file.write_text(json.dumps({**json.loads(file.read_text()), "resumed": resumed}))


def test_precise_intervals_hold_as_often_as_the_page_says() -> None:
    """Points that scatter by 5 % and are to have intervals of 5 %, with up to 20 runs."""
    dice, held = np.random.default_rng(1), []
    for _ in range(1500):
        times_s, runs = np.exp(0.05 * dice.standard_normal(20)).tolist(), 0
        while (more := extra_repeats.next_number(runs)) <= len(times_s):
            runs = more
            is_narrow = (extra_repeats.relative_interval(times_s[:runs]) or 1.0) <= 0.05
            if is_narrow:
                break
        low, high = median_interval(times_s[:runs]) or (0.0, 0.0)
        held.append((is_narrow, low <= 1 <= high))
    assert 0.83 <= np.mean([holds for is_narrow, holds in held if is_narrow]) <= 0.9
    assert np.mean([holds for _, holds in held]) >= 0.93


def test_runs_that_diverged_are_done_but_have_no_part_in_the_interval(tmp_path: Path) -> None:
    planned = written(tmp_path, {2: NARROW})
    diverge(planned, tmp_path, 3)
    made = extra_repeats.next_round(planned, tmp_path, [], 1)
    (point,) = made.points
    assert (point.repeats, point.diverged, point.median_s) == (6, 1, 103.0)
    assert (point.relative_interval, point.verdict) == (None, extra_repeats.WIDE)
    assert made.runs == paths(planned, 2, 7)  # one more, and six are valid


def test_runs_that_went_on_from_a_checkpoint_have_no_part_in_the_interval(tmp_path: Path) -> None:
    planned = written(tmp_path, {2: NARROW})
    went_on(planned, tmp_path, 3)
    made = extra_repeats.next_round(planned, tmp_path, [], 1)
    (point,) = made.points
    assert (point.repeats, point.diverged, point.median_s) == (6, 0, 103.0)
    assert (point.relative_interval, point.verdict) == (None, extra_repeats.WIDE)
    assert made.runs == paths(planned, 2, 7)


@pytest.mark.parametrize("numbers", [(1, 2, 3), (1, 2, 3, 4, 5, 6)])
def test_a_point_of_which_half_the_runs_diverged_is_not_repeated(
    tmp_path: Path, numbers: tuple[int, ...]
) -> None:
    planned = written(tmp_path, {2: WIDE})
    diverge(planned, tmp_path, *numbers)
    made = extra_repeats.next_round(planned, tmp_path, [], 1)
    (point,) = made.points
    assert (made.added, point.verdict) == (0, extra_repeats.HALF_DIVERGED)
    assert point.diverged == len(numbers)


def test_a_larger_batch_follows_once_all_runs_of_the_smaller_one_fit(tmp_path: Path) -> None:
    raw = raw_config(
        (("recipes", "weak", "per_replica_batch_size"), {"from": 16, "to": 64}),
        (("grid", 0), {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": 1,
                       "repeats": 6, "repeat_until": UNTIL}),
    )  # fmt: skip
    planned = manifest_of(configuration.validate(raw))

    def sized(size: int, *numbers: int) -> tuple[PlannedRun, ...]:
        own = [r for r in planned.runs if r.spec.per_replica_batch_size == size]
        return tuple(run for run in own if run.spec.repeat in numbers)

    def asked(*before: PlannedRun) -> set[str]:
        made = extra_repeats.next_round(planned, tmp_path, [r.spec.path for r in before], 1)
        return {*made.runs} - {run.spec.path for run in before}

    first, second = sized(16, *range(1, 7)), sized(32, *range(1, 7))
    generator.write_records(first[:5], tmp_path, lambda _: 10.0, noise=0.0)
    assert asked() == set()
    generator.write_records(first[5:], tmp_path, lambda _: 10.0, noise=0.0)
    assert asked() == {run.spec.path for run in second}
    generator.write_records(second[1:], tmp_path, lambda _: 10.0, noise=0.0)
    output = tmp_path / second[0].spec.path / "run.json"
    SlurmSweep({str(output): second[0].spec}, tmp_path).failed(output, "7", "OUT_OF_MEMORY")
    assert asked(*second) == set()
    runs, _ = runs_table.run_tables(planned.runs, tmp_path)
    large = runs[runs["per_replica_batch_size"] == 64]
    assert len(large) == 6 and set(large["status"]) == {"does_not_fit"}
    assert all(second[0].spec.path in reason for reason in large["reason"])
