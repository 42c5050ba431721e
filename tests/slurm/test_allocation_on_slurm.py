"""A sweep inside one allocation: one wait, rotation, a killed driver, a next allocation."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from project import Project
from virtual_cluster import Cluster, start, wait_for

pytestmark = pytest.mark.full

NODES, REPEATS = (1, 2, 3), 4
#: A node on which everything takes twice as long.
SLOW = "cpu2"
CONTENT: dict[str, Any] = {
    "grid": [
        {"platform": "three", "strategy": "own", "recipe": "nap", "nodes": [*NODES],
         "repeats": REPEATS}
    ],
    "recipes": {
        "nap": {
            "program": ["bash", "-c", f"sleep $(test $(hostname) = {SLOW} && echo 4 || echo 2)"],
            "observe": "nothing", "per_replica_batch_size": 1,
            "epochs": 1,
        }
    },
    "platforms": {
        "three": {
            "launcher": "srun", "partition": "cpu", "nodes_max": 3, "cpus_per_node": 1,
            "runtime_min": 2,
        }
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = start(tmp_path_factory.mktemp("vc"), "--partition", "cpu:3:cpus=1")
    try:
        yield cluster
    finally:
        cluster.tool("down")


def sweep(project: Project, cluster: Cluster, *arguments: str, check: bool = True) -> None:
    project.snakemake(*arguments, profile="allocation", environ=cluster.environ, check=check)


def hosts_of(record: dict[str, Any]) -> set[str]:
    return {rank["host"] for rank in record["ranks"]}


def allocations(project: Project) -> Counter[str]:
    """Number of a Slurm job → the number of runs that were parts of it."""
    return Counter(each["environment"]["slurm_job"]["id"] for each in project.records())


def are_finished(project: Project, runs: int) -> bool:
    return len(project.records()) >= runs


def test_a_driver_killed_three_times_resumes_in_the_same_allocation(
    new_project: Callable[[str], Project], small: Cluster
) -> None:
    project = new_project("allocation")
    project.overlay(CONTENT)
    for finished in (1, 4, 7):
        thread = threading.Thread(target=lambda: sweep(project, small, check=False))
        thread.start()
        is_due = partial(are_finished, project, finished)
        wait_for(is_due, "runs that end")
        time.sleep(random.uniform(0, 3))
        (pid,) = project.drivers()
        os.kill(pid, signal.SIGKILL)
        thread.join()
        project.snakemake("--unlock")
    sweep(project, small)
    records = project.records()
    assert len(records) == len(NODES) * REPEATS
    # none lost, none repeated, and one wait for all of them
    assert len([*project.folder.glob("results/runs/**/attempt=*")]) == len(records)
    assert len(allocations(project)) == 1
    assert all(each["phases"]["queue_time_s"] is None for each in records)
    for record in records:
        assert len(hosts_of(record)) == record["axes"]["nodes"]
    # each node served each size, also with a driver that forgot what its predecessor chose
    for size in NODES:
        used = Counter(h for r in records if r["axes"]["nodes"] == size for h in hosts_of(r))
        assert len(used) == 3
    nodes = project.table("results/main/details/conclusions/nodes.csv")
    assert [each["node"] for each in nodes if each["is_slow"] == "True"] == [SLOW]
    # nothing is held when the sweep has ended
    wait_for(lambda: not small.run("squeue", "--noheader"), "the allocation's end")


def test_runs_that_do_not_fit_continue_in_the_next_allocation(
    new_project: Callable[[str], Project], small: Cluster
) -> None:
    project = new_project("next")
    platforms = {"three": {**CONTENT["platforms"]["three"], "runtime_min": 1}}
    project.overlay({**CONTENT, "platforms": platforms})
    # of two minutes a run may begin in the first 40 s
    sweep(project, small, "--slurm-allocation-duration-min", "2")
    assert sum(allocations(project).values()) == len(NODES) * REPEATS
    assert len([*project.folder.glob("results/runs/**/attempt=*")]) == len(NODES) * REPEATS


def test_two_sweeps_in_an_allocation_of_the_users_leave_it_to_them(
    new_project: Callable[[str], Project], small: Cluster
) -> None:
    """Both have the same runs: neither takes the other's steps for its own."""
    projects = [new_project(name) for name in ("given", "given-2")]
    number = small.run(
        "sbatch", "--parsable", "--nodes=3", "--output=/dev/null", "--wrap=sleep 600"
    ).strip()
    recipe = {**CONTENT["recipes"]["nap"], "program": ["sleep", "15"]}
    content = {**CONTENT, "recipes": {"nap": recipe}}
    names = ("squeue", "--steps", "--format=%j")
    words = ("--slurm-allocation-job", number, "--retries", "0")
    with ThreadPoolExecutor() as pool:
        for project in projects:
            project.overlay({**content, "grid": [{**CONTENT["grid"][0], "nodes": 1, "repeats": 1}]})
            pool.submit(sweep, project, small, *words)
            wait_for(lambda: "tfscaling-" in small.run(*names), "the first step")
    for project in projects:
        assert allocations(project) == {number: 1}
    assert small.run("squeue", "--noheader", "--format=%i %T").split() == [number, "RUNNING"]
    small.run("scancel", number)


def test_an_allocation_that_waits_for_another_gets_its_turn(
    new_project: Callable[[str], Project], small: Cluster
) -> None:
    project = new_project("turns")
    turns = {**CONTENT["platforms"]["three"], "extra": "--dependency=singleton"}
    platforms = {"first": turns, "second": {**turns, "extra": "--dependency=singleton --nice=1"}}
    block = {**CONTENT["grid"][0], "platform": [*platforms], "nodes": 1, "repeats": 1}
    project.overlay({**CONTENT, "grid": [block], "platforms": platforms})
    sweep(project, small)
    assert len(allocations(project)) == 2
