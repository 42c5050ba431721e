"""A sweep inside one allocation: one wait, rotation, a killed driver, a next allocation."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from project import Project
from snakemake_server import KILLED
from virtual_cluster import Cluster, start, wait_for

pytestmark = pytest.mark.full

NODES, REPEATS = (1, 2, 3), 3
#: From which the moments follow at which a driver is killed, and the longest wait before it.
SEED, MOMENT_MAX_S = 17, 3.0
CONTENT: dict[str, Any] = {
    "grid": [
        {"platform": "three", "strategy": "own", "recipe": "nap", "nodes": [*NODES],
         "repeats": REPEATS}
    ],
    "recipes": {
        "nap": {
            "program": ["sleep", "1"], "observe": "nothing", "per_replica_batch_size": 1,
            "epochs": 1,
        }
    },
    "platforms": {
        "three": {
            "launcher": "srun", "partition": "cpu", "nodes_max": 3, "cpus_per_node": 1,
            "runtime_min": 10,
        }
    },
}  # fmt: skip
#: Ranks of this recipe end when the project has the file `gate`.
GATED = {
    **CONTENT["recipes"]["nap"],
    "program": ["sh", "-c", "until test -e gate; do sleep 0.1; done"],
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = start(tmp_path_factory.mktemp("vc"), "--partition", "cpu:3:cpus=1")
    try:
        yield cluster
    finally:
        cluster.tool("down")


def sweep(project: Project, cluster: Cluster, *arguments: str, check: bool = True) -> int:
    """Run the project's sweep; returns snakemake's exit code."""
    done = project.snakemake(*arguments, profile="allocation", environ=cluster.environ, check=check)
    return done.returncode


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
    """One run at a time, so that all nodes are free when a run gets its nodes."""
    dice = random.Random(SEED)
    project = new_project("allocation")
    project.overlay(CONTENT)
    with ThreadPoolExecutor(1) as pool:
        for least in (1, 3, 5):
            driver = pool.submit(
                sweep, project, small, "--slurm-allocation-one-at-a-time", check=False
            )
            wait_for(lambda: bool(project.drivers()), "the driver to begin")
            wait_for(partial(are_finished, project, least), "runs that end")
            time.sleep(dice.uniform(0, MOMENT_MAX_S))
            (pid,) = project.drivers()
            os.kill(pid, signal.SIGKILL)
            assert driver.result() == KILLED
            project.snakemake("--unlock")
    sweep(project, small, "--slurm-allocation-one-at-a-time")
    records = project.records()
    assert len(records) == len(NODES) * REPEATS
    # none lost, none repeated, and one wait for all of them
    assert len([*project.folder.glob("results/runs/**/attempt=*")]) == len(records)
    assert len(allocations(project)) == 1
    assert all(each["phases"]["queue_time_s"] is None for each in records)
    # each node served each size, also with a driver that forgot what its predecessor chose
    for size in NODES:
        of_size = [hosts_of(r) for r in records if r["axes"]["nodes"] == size]
        assert all(len(hosts) == size for hosts in of_size)
        assert len(set().union(*of_size)) == 3
    # nothing is held when the sweep has ended
    wait_for(lambda: not small.run("squeue", "--noheader"), "the allocation's end")


def test_runs_that_do_not_fit_continue_in_the_next_allocation(
    new_project: Callable[[str], Project], small: Cluster
) -> None:
    """The allocation is shortened while its first run has all nodes: no other run fits in it."""
    project = new_project("next")
    block = {**CONTENT["grid"][0], "recipe": "gated", "nodes": 3, "repeats": 2}
    project.overlay({**CONTENT, "grid": [block], "recipes": {"gated": GATED}})
    with ThreadPoolExecutor(1) as pool:
        driver = pool.submit(sweep, project, small)
        try:
            begun = project.folder.glob
            wait_for(lambda: bool([*begun("results/runs/**/attempt=1")]), "the first run")
            (number,) = small.run("squeue", "--noheader", "--format=%i").split()
            small.run("scontrol", "update", f"JobId={number}", "EndTime=now+500")
        finally:
            (project.folder / "gate").touch()
        assert driver.result() == 0
    assert sorted(allocations(project).values()) == [1, 1]
    assert len([*project.folder.glob("results/runs/**/attempt=*")]) == 2


def have_steps(cluster: Cluster, count: int) -> bool:
    names = cluster.run("squeue", "--steps", "--noheader", "--format=%j")
    return names.count("tfscaling-") == count


def test_two_sweeps_in_an_allocation_of_the_users_leave_it_to_them(
    new_project: Callable[[str], Project], small: Cluster
) -> None:
    """Both have the same runs: neither takes the other's steps for its own."""
    projects = [new_project(name) for name in ("given", "given-2")]
    number = small.run(
        "sbatch", "--parsable", "--nodes=3", "--output=/dev/null", "--wrap=sleep 3600"
    ).strip()
    block = {**CONTENT["grid"][0], "recipe": "gated", "nodes": 1, "repeats": 1}
    content = {**CONTENT, "grid": [block], "recipes": {"gated": GATED}}
    words = ("--slurm-allocation-job", number, "--retries", "0")
    drivers = []
    with ThreadPoolExecutor() as pool:
        try:
            for count, project in enumerate(projects, 1):
                project.overlay(content)
                drivers.append(pool.submit(sweep, project, small, *words))
                wait_for(partial(have_steps, small, count), "a step of each sweep")
        finally:
            for project in projects:
                (project.folder / "gate").touch()
        assert [driver.result() for driver in drivers] == [0, 0]
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


@pytest.mark.parametrize("place", [1, 0], ids=["of a rank", "of the launcher"])
def test_a_lost_node_is_the_cause_though_the_allocation_keeps_the_others(
    place: int, new_project: Callable[[str], Project], small: Cluster
) -> None:
    project = new_project(f"lost-{place}")
    block = {**CONTENT["grid"][0], "recipe": "gated", "nodes": 2, "repeats": 1}
    project.overlay({**CONTENT, "grid": [block], "recipes": {"gated": GATED}})
    with ThreadPoolExecutor(1) as pool:
        driver = pool.submit(sweep, project, small, "--retries", "0", check=False)
        try:
            started = project.folder.glob
            wait_for(
                lambda: any("program" in p.read_text() for p in started("**/ranks.events.jsonl")),
                "the ranks to begin",
            )
            (record,) = project.folder.rglob("*.nodes")
            node = record.read_text().split()[place]
            small.tool("kill-node", node)
            states = ("sinfo", "--noheader", f"--nodes={node}", "--format=%T")
            wait_for(lambda: "down" in small.run(*states), "Slurm to notice it")
        finally:
            (project.folder / "gate").touch()
        assert driver.result() == 1
    small.tool("start-node", node)
    (failure,) = project.failures()
    # a rank is silent after 40 s, perhaps before Slurm has noticed
    kinds = ("node_failed", "stalled") if place else ("node_failed",)
    assert failure["cause"]["kind"] in kinds
    # of the run alone, as sacct lists it
    assert re.fullmatch(r"\d+\.\d+", failure["slurm_job"])
