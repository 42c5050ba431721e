"""Bounds of waits on replayed histories, and the lines of sacct."""

from __future__ import annotations

import datetime
import heapq
import os
import shlex
from pathlib import Path

import numpy as np
import pytest
from builders import raw_config
from fake_programs import program
from msgspec.structs import replace
from submitted import described, plan_of
from tfscaling.plan import costed_plan, queue_waits
from tfscaling.spec import configuration


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
    return np.stack([eligible, eligible + waits, nodes, limit_min], axis=1)


def backfilled(seed: int, load: float, nodes_max: int = 64, jobs: int = 1000) -> np.ndarray:
    """Jobs of days and nights on a cluster that starts them in order, or earlier into gaps."""
    numbers = np.random.default_rng(seed)
    nodes = 2 ** numbers.choice(6, jobs, p=[0.3, 0.2, 0.2, 0.15, 0.1, 0.05])
    limit_s = 600 * 2.0 ** numbers.choice(7, jobs)
    run_s = limit_s * numbers.uniform(0.02, 0.9, jobs)
    gaps = numbers.exponential((nodes * run_s).mean() / load / nodes_max, jobs)
    eligible = np.cumsum(gaps * (1 + 0.6 * np.sin(2 * np.pi * np.cumsum(gaps) / 86_400)))
    start, running, times = np.full(jobs, np.inf), list[tuple[float, int]](), [*eligible]
    while times:
        now_s = heapq.heappop(times)
        running = sorted(each for each in running if start[each[1]] + run_s[each[1]] > now_s)
        free = nodes_max - sum(nodes[n] for _, n in running)
        first_s, spare = np.inf, 0  # when the first that waits starts, and what it leaves
        for n in np.flatnonzero((eligible <= now_s) & np.isinf(start)):
            end_s = now_s + limit_s[n]
            if nodes[n] <= free and (end_s <= first_s or nodes[n] <= spare):
                spare -= nodes[n] * (end_s > first_s)
                free -= nodes[n]
                start[n] = now_s
                running.append((end_s, int(n)))
                heapq.heappush(times, now_s + run_s[n])
            elif np.isinf(first_s):
                running.sort()
                left = free + np.cumsum([nodes[n] for _, n in running])
                place = np.argmax(left >= nodes[n])
                first_s, spare = running[place][0], left[place] - nodes[n]
    return np.stack([eligible, start, nodes, limit_s / 60], axis=1)


def held(jobs: np.ndarray) -> list[bool]:
    """Whether the bound held for jobs of the second half, by what was known when they came."""
    found = []
    for number in range(500, len(jobs), 20):
        now_s, start_s, nodes, limit_min = jobs[number]
        known = jobs[:number].copy()
        known[known[:, 1] > now_s, 1] = np.inf
        bound_s = queue_waits.bound_s(queue_waits.similar(known, nodes, limit_min), now_s)
        assert bound_s is not None
        found.append(bool(start_s - now_s <= bound_s))
    return found


#: Numbers of simulated histories: a few, whose rate scatters more, and many.
FEW, MANY = (4, 0.04), pytest.param(20, 0.02, marks=pytest.mark.full)


@pytest.mark.parametrize(("resemblance", "last_times"), [(0.7, 1), (0.99, 1), (0, 4)])
@pytest.mark.parametrize(("histories", "margin"), [FEW, MANY])
def test_95_of_100_jobs_wait_less_than_the_bound(
    resemblance: float, last_times: float, histories: int, margin: float
) -> None:
    rates = [np.mean(held(made(seed, resemblance, last_times))) for seed in range(histories)]
    assert abs(np.mean(rates) - 0.95) <= margin


@pytest.mark.full
def test_the_bound_holds_where_a_scheduler_fills_gaps() -> None:
    rates = [np.mean(held(backfilled(seed, load=0.9))) for seed in range(10)]
    assert 0.93 <= np.mean(rates) <= 0.97, rates


def test_jobs_that_still_wait_raise_the_bound() -> None:
    jobs = made(1, 0.7)
    now_s = jobs[-1, 0] + 86_400
    waiting = jobs.copy()
    waiting[-60:, 1] = np.inf
    bounds_s = [queue_waits.bound_s(each, now_s) for each in (jobs, jobs[:-60], waiting)]
    assert bounds_s[2] > 2 * max(bounds_s[:2])


def test_too_few_similar_jobs_are_unknown() -> None:
    jobs = made(1, 0)
    assert queue_waits.bound_s(queue_waits.similar(jobs, 1000, 60), jobs[-1, 0]) is None
    assert queue_waits.bound_s(queue_waits.read([]), 0.0) is None


def test_held_and_cancelled_jobs_are_no_waits() -> None:
    day = "2026-11-22T12"
    lines = [
        f"{day}:00:00|{day}:10:00|2|30|COMPLETED", f"{day}:05:00|Unknown|4|UNLIMITED|PENDING",
        "Unknown|Unknown|1|30|PENDING", f"{day}:06:00|None|1|30|CANCELLED by 0",
    ]  # fmt: skip
    jobs = queue_waits.read(line.split("|") for line in lines)
    assert (jobs[:, 1] - jobs[:, 0]).tolist() == [600, np.inf]
    assert jobs[:, 2:].tolist() == [[2, 30], [4, np.inf]]


@pytest.mark.parametrize("partition", ["cpu", None])
def test_rows_with_runs_that_slurm_would_start_get_the_bound_of_their_partition(
    partition: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waits on one and on eight nodes are known; the partition by default is `cpu`, too."""
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=10)
    lines = [
        f"{moment:%Y-%m-%dT%H:%M:%S}|"
        f"{moment + datetime.timedelta(hours=hours):%Y-%m-%dT%H:%M:%S}|"
        f"{nodes}|30|COMPLETED"
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
    config = configuration.validate(raw)
    rows = {row.nodes: row for row in plan_of(config, tmp_path / "runs").rows}
    rows[4] = replace(rows[4], starts=costed_plan.REFUSED)
    assert {nodes for nodes, row in rows.items() if not row.runs} == {99}
    found = {row.nodes: row for row in queue_waits.added(rows.values(), config, described())}
    assert {n: replace(row, wait_bound_s=None) for n, row in found.items()} == rows
    bounds_s = {nodes: row.wait_bound_s for nodes, row in found.items()}
    one_s, eight_s = bounds_s[1] or 0, bounds_s[8] or 0
    assert 3600 <= one_s < 1.2 * 3600 < 3 * 3600 <= eight_s < 3.2 * 3600
    assert bounds_s[16] == bounds_s[8]  # at most twice as many nodes
    assert bounds_s[4] is None and bounds_s[99] is None
