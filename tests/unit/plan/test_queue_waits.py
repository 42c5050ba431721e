"""Bounds of waits on replayed histories, and the lines of sacct."""

from __future__ import annotations

import datetime
import os
import random
import shlex
from pathlib import Path

import numpy as np
import pytest
from builders import raw_config
from fake_programs import program
from msgspec.structs import replace
from scipy.stats import binom
from special_cases import backfilled, bound_holds, queued_group
from submitted import described, plan_of
from tfscaling.plan import costed_plan, queue_waits
from tfscaling.study import config_validation


def made(seed: int, resemblance: float, last_times: float = 1.0, jobs: int = 1000) -> np.ndarray:
    """Jobs whose waits resemble the wait before, and grow with nodes; later ones take longer."""
    numbers = np.random.default_rng(seed)
    eligible = np.cumsum(numbers.exponential(600, jobs))
    level = np.empty(jobs)
    level[0] = numbers.normal()
    for n, change in enumerate(numbers.normal(size=jobs - 1), 1):
        level[n] = resemblance * level[n - 1] + np.sqrt(1 - resemblance**2) * change
    nodes, limit_min = 2.0 ** numbers.choice(5, jobs), 10 * 2.0 ** numbers.choice(6, jobs)
    waits = 300 * np.exp(1.5 * level) * nodes**0.4
    waits[600:] *= last_times
    return np.stack([eligible, eligible + waits, nodes, limit_min, np.full(jobs, np.inf)], axis=1)


#: Numbers of simulated histories, and the lowest and highest rate: of a few the rate scatters more.
FEW, MANY = (4, 0.91, 0.99), pytest.param(20, 0.93, 0.97, marks=pytest.mark.full)
#: In how many cases the bound holds after groups of jobs were submitted.
HOLDS_AFTER_GROUPS_MIN = 0.92


@pytest.mark.parametrize(("resemblance", "last_times"), [(0.7, 1), (0.99, 1), (0, 4)])
@pytest.mark.parametrize(("histories", "lowest", "highest"), [FEW, MANY])
def test_95_of_100_jobs_wait_less_than_the_bound(
    resemblance: float, last_times: float, histories: int, lowest: float, highest: float
) -> None:
    rates = [np.mean(bound_holds(made(seed, resemblance, last_times))) for seed in range(histories)]
    assert lowest <= np.mean(rates) <= highest


@pytest.mark.full
def test_the_bound_holds_where_a_scheduler_fills_gaps() -> None:
    rates = [np.mean(bound_holds(backfilled(seed, load=0.9))) for seed in range(10)]
    assert 0.93 <= np.mean(rates) <= 0.97, rates


def test_jobs_that_still_wait_raise_the_bound() -> None:
    jobs = made(1, 0.7)
    now_s = jobs[-1, 0] + 86_400
    waiting = jobs.copy()
    waiting[-60:, 1] = np.inf
    bounds_s = [queue_waits.wait_bound_s(each, now_s) for each in (jobs, jobs[:-60], waiting)]
    assert bounds_s[2] > 2 * max(bounds_s[:2])


@pytest.mark.parametrize("later", [1, 60, 500])
def test_jobs_that_may_only_begin_later_show_no_wait(later: int) -> None:
    """As with `--begin`: they count neither as waits nor among the jobs that a bound needs."""
    jobs = made(1, 0.7)
    now_s = jobs[-1, 0]
    to_come = jobs[-later:].copy()
    to_come[:, 0] = now_s + 3600 + np.arange(later)
    to_come[:, 1] = np.inf
    assert queue_waits.wait_bound_s(np.concatenate([jobs, to_come]), now_s) == (
        queue_waits.wait_bound_s(jobs, now_s)
    )
    few = np.concatenate([jobs[-queue_waits.JOBS_MIN + 1 :], to_come])
    assert queue_waits.wait_bound_s(few, now_s) is None


def test_too_few_similar_jobs_are_unknown() -> None:
    jobs = made(1, 0)
    assert (
        queue_waits.wait_bound_s(queue_waits.select_similar_jobs(jobs, 1000, 60), jobs[-1, 0])
        is None
    )
    assert queue_waits.wait_bound_s(queue_waits.parse_jobs([]), 0.0) is None


def test_held_jobs_are_no_waits_and_cancelled_ones_waited_until_their_end() -> None:
    day = "2026-11-22T12"
    lines = [
        f"{day}:00:00|{day}:10:00|2|30|COMPLETED|{day}:40:00",
        f"{day}:01:00|{day}:02:00|2|30|CANCELLED by 0|{day}:03:00",
        f"{day}:05:00|Unknown|4|UNLIMITED|PENDING|Unknown",
        f"{day}:06:00|None|1|30|CANCELLED by 0|{day}:26:00",
        "Unknown|Unknown|1|30|PENDING|Unknown",
        "Unknown|None|1|30|CANCELLED by 0|Unknown",
    ]
    jobs = queue_waits.parse_jobs(line.split("|") for line in lines)
    assert (jobs[:, 1] - jobs[:, 0]).tolist() == [600, 60, np.inf, np.inf]
    assert (jobs[:, 4] - jobs[:, 0]).tolist() == [np.inf] * 3 + [1200]
    assert jobs[:, 2:4].tolist() == [[2, 30], [2, 30], [4, np.inf], [1, 30]]


@pytest.mark.parametrize(
    ("number", "ago_s"), [(20, 60.0), (30, 60.0), (200, 5.0), (40, 1800.0), (35, -3600.0)]
)
def test_the_bound_holds_after_a_group_was_submitted(number: int, ago_s: float) -> None:
    dice = np.random.default_rng(seed := random.randrange(10**6))
    sets = [queued_group(number, ago_s, dice) for _ in range(30)]
    false_max = binom.ppf(0.999, len(sets), 1 - HOLDS_AFTER_GROUPS_MIN)
    assert sum(each.false for each in sets) <= false_max, seed


@pytest.mark.full
def test_the_bound_holds_where_users_submit_in_groups() -> None:
    rates = [np.mean(bound_holds(backfilled(seed, 0.9, group=60))) for seed in range(6)]
    assert np.mean(rates) >= HOLDS_AFTER_GROUPS_MIN - 0.04  # of few histories


def test_where_no_job_starts_any_more_those_that_wait_raise_the_bound() -> None:
    jobs = made(1, 0)
    now_s = jobs[-1, 0] + 86_400
    stopped = jobs.copy()
    stopped[-40:, 1] = np.inf
    assert queue_waits.wait_bound_s(stopped, now_s) > 2 * queue_waits.wait_bound_s(jobs, now_s)


@pytest.mark.parametrize("partition", ["cpu", None])
def test_rows_with_runs_that_slurm_would_start_get_the_bound_of_their_partition(
    partition: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waits on one and on eight nodes are known; the partition by default is `cpu`, too."""
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=10)
    lines = [
        f"{moment:%Y-%m-%dT%H:%M:%S}|"
        f"{moment + datetime.timedelta(hours=hours):%Y-%m-%dT%H:%M:%S}|"
        f"{nodes}|30|COMPLETED|Unknown"
        for number in range(200)
        for nodes, hours in ((1, 1), (8, 3))
        for moment in [begin + datetime.timedelta(hours=number)]
    ]
    (tmp_path / "jobs").write_text("\n".join(lines))
    program(tmp_path, "sacct", f'case "$*" in *partition=cpu*) cat {tmp_path}/jobs;; esac')
    shown = ["PartitionName=cpu Default=YES", "PartitionName=x Default=NO"]
    program(tmp_path, "scontrol", f"printf '%s\\n' {shlex.join(shown)}")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    raw = raw_config(
        (("grid", 0, "nodes"), [1, 8, 16, 4, 99]), (("platforms", "cluster", "nodes_max"), 64)
    )
    raw["platforms"]["cluster"].update(runtime_min=30, partition=partition)
    config = config_validation.convert_to_types(raw)
    rows = {row.nodes: row for row in plan_of(config, tmp_path / "runs").rows}
    rows[4] = replace(rows[4], starts=costed_plan.REFUSED)
    assert {nodes for nodes, row in rows.items() if not row.runs} == {99}
    found = {
        row.nodes: row for row in queue_waits.add_wait_bounds(rows.values(), config, described())
    }
    assert {n: replace(row, wait_bound_s=None) for n, row in found.items()} == rows
    bounds_s = {nodes: row.wait_bound_s for nodes, row in found.items()}
    one_s, eight_s = bounds_s[1] or 0, bounds_s[8] or 0
    assert 3600 <= one_s < 1.2 * 3600 < 3 * 3600 <= eight_s < 3.2 * 3600
    assert bounds_s[16] == bounds_s[8]  # at most twice as many nodes
    assert bounds_s[4] is None and bounds_s[99] is None
