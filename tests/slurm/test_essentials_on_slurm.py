"""What matters most of a sweep on Slurm, with few trainings: these tests are in `make test`.

Geometry, submission, a failure with its cause, another attempt, a driver that is killed or
interrupted, and all runs in one allocation.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from project import QUICK, SMALL_MODEL, Project
from snakemake_server import KILLED
from sweep_drivers import RUNS, Driver, Submit, Watch, clear, queue
from tfscaling.study import grid
from tfscaling.study.manifest import Manifest
from tfscaling.study.run_spec import run_path
from virtual_cluster import CPUS, Cluster, wait_for

#: A rank of a program. Runs of the recipe `meets` end when all of them run at the same time.
PROGRAM = """
import os, pathlib, signal, sys, time

deed, folder, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
is_last = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
if deed == "meets":
    pathlib.Path("met", os.environ["SLURM_JOB_NUM_NODES"]).touch()
    while len([*pathlib.Path("met").iterdir()]) < runs:
        time.sleep(0.1)
elif deed == "fails" and is_last:
    sys.exit("no data here")
elif deed == "dies" and is_last and "attempt=1" in folder:
    os.kill(os.getppid(), signal.SIGKILL)
elif deed == "fails" or "attempt=1" in folder:
    time.sleep(600)
"""
#: Platform → numbers of nodes of the runs that meet; each platform has six.
MEETING = {"cpu": [1, 3], "gpu": [2]}
RECIPES: dict[str, Any] = {
    deed: {
        "program": ["python3", "rank.py", deed, "{folder}", str(sum(map(len, MEETING.values())))],
        "observe": "nothing", "per_replica_batch_size": 1, "epochs": 1,
    }
    for deed in ("meets", "fails", "dies")
}  # fmt: skip
#: Two tasks on each node, each with a GPU.
ON_GPUS = {"tasks_per_node": 2, "gpus_per_node": 2}


@pytest.fixture(scope="module")
def swept(new_project: Callable[[str], Project], submit: Submit) -> tuple[Project, int, str]:
    """A sweep with a failed run: the project, the exit code, and what was printed."""
    project = new_project("essentials")
    (project.folder / "met").mkdir()
    (project.folder / "rank.py").write_text(PROGRAM)
    own = {"strategy": "own"}
    project.overlay(
        {
            "grid": [
                {**own, "platform": "cpu", "recipe": "meets", "nodes": MEETING["cpu"]},
                {**own, "platform": "gpu", "recipe": "meets", "nodes": MEETING["gpu"], **ON_GPUS},
                {**own, "platform": "cpu", "recipe": ["fails", "dies"], "nodes": 2},
                {"platform": "cpu", "model": SMALL_MODEL, "recipe": "quick", "nodes": 2},
            ],
            "recipes": {**RECIPES, "quick": QUICK},
            "platforms": {"cpu": {"cpus_per_node": CPUS}},
        }
    )
    return project, *submit(project)


def run_of(project: Project, recipe: str, nodes: int = 2) -> dict[str, Any]:
    """The record of a run."""
    (record,) = [
        record
        for record in project.records()
        if (record["axes"]["recipe"], record["axes"]["nodes"]) == (recipe, nodes)
    ]
    return record


def test_each_job_had_exactly_the_geometry_asked_for(swept: tuple[Project, int, str]) -> None:
    """What ranks and Slurm saw from inside the job; the runs that met ran at the same time."""
    for platform, counts in MEETING.items():
        for nodes in counts:
            record = run_of(swept[0], "meets", nodes)
            tasks = record["axes"]["tasks_per_node"]
            hosts = Counter(rank["host"] for rank in record["ranks"])
            assert len(hosts) == nodes and {*hosts.values()} == {tasks}
            assert all(host.startswith(platform) for host in hosts)
            job = record["environment"]["slurm_job"]
            assert (job["partition"], int(job["nodes_allocated"])) == (platform, nodes)
            assert int(job["cpus_allocated"]) == (CPUS if platform == "cpu" else 2) * nodes
            gpus = record["axes"]["gpus_per_node"]
            assert gpus == (2 if platform == "gpu" else 0)
            assert {rank["gpus_given"] for rank in record["ranks"]} == {gpus or None}
            assert str(job.get("tres_per_node", "gpu:0")).endswith(f"gpu:{gpus}")


def test_a_record_has_the_settings_of_its_slurm(swept: tuple[Project, int, str]) -> None:
    settings = run_of(swept[0], "quick")["environment"]["slurm_settings"]
    assert settings["SLURM_VERSION"] and settings["ProctrackType"] == "proctrack/linuxproc"


def test_runs_enter_the_queue_in_the_random_order_that_the_seed_gives(
    swept: tuple[Project, int, str],
) -> None:
    project, _, _ = swept
    planned = Manifest.read(project.folder / "results/main/partial/details/manifest.json")
    ordered = [
        run.spec.path
        for run in grid.randomise_order(planned.runs, planned.order_seed, planned.revisions)
    ]
    entered = sorted(  # a run with several attempts entered it twice
        (int(record["environment"]["slurm_job"]["id"]), path_of(record))
        for record in project.records()
        if record["attempt"] == 1
    )
    paths = [path for _, path in entered]
    assert paths == [path for path in ordered if path in paths] and len(paths) == 4


def path_of(record: dict[str, Any]) -> str:
    """The folder of a record's run, below results/runs."""
    return run_path(record["axes"], record["parameters_hash"])


def test_a_training_learned_and_its_ranks_agree(swept: tuple[Project, int, str]) -> None:
    record = run_of(swept[0], "quick")
    assert record["metrics"]["accuracy"] > 0.3  # chance is 0.1
    assert record["derived"]["replicas"] == len({rank["host"] for rank in record["ranks"]}) == 2
    for fact in ("test_accuracy", "cluster_hash"):
        assert len({rank[fact] for rank in record["ranks"]}) == 1
    assert {rank["cluster_source"] for rank in record["ranks"]} == {"slurm"}


def test_a_failure_has_its_rank_host_and_cause_and_is_not_repeated(
    swept: tuple[Project, int, str],
) -> None:
    project, code, output = swept
    assert code != 0
    (failure,) = project.failures()
    assert (failure["axes"]["recipe"], failure["attempt"]) == ("fails", 1)
    cause = failure["cause"]
    assert (cause["kind"], cause["rank"]) == ("program_failed", 1)
    assert cause["host"].startswith("cpu")
    assert any("no data here" in line for line in cause["last_lines"])
    said = " ".join(output.split())
    assert said.count(" FAILED cpu ") == 1, output
    assert cause["host"] in said
    assert "page: results/main/partial/report.html" in output.splitlines()
    for guess in ("account", "memory", "might or might not"):  # lines of Snakemake's plugin
        assert guess not in said


def test_a_killed_rank_gets_another_attempt(swept: tuple[Project, int, str]) -> None:
    record = run_of(swept[0], "dies")
    (first,) = swept[0].folder.glob("results/runs/**/recipe=dies/**/attempt=1/failure.json")
    cause = json.loads(first.read_text())["cause"]
    assert (cause["kind"], cause["rank"], record["attempt"]) == ("rank_died", 1, 2)


def test_the_tables_have_every_run(swept: tuple[Project, int, str]) -> None:
    rows = swept[0].table("results/main/partial/runs.csv")
    statuses = Counter((row["recipe"], row["status"]) for row in rows)
    ok = {("meets", "ok"): 3, ("dies", "ok"): 1, ("quick", "ok"): 1}
    assert statuses == {**ok, ("fails", "failed"): 1}
    for row in rows:
        if row["status"] == "ok":
            assert float(row["queue_time_s"]) >= 0 and row["slurm_job_id"].isdigit()


def test_only_the_failed_run_is_left_to_do_and_nothing_is_left_on_any_node(
    swept: tuple[Project, int, str], cluster: Cluster
) -> None:
    (planned,) = swept[0].planned()
    assert "recipe=fails" in planned
    assert cluster.run("squeue", "--noheader") == ""
    for number in range(1, 7):
        for partition in ("cpu", "gpu"):
            assert cluster.processes(f"{partition}{number}") == []


def test_a_killed_driver_resumes_and_an_interrupted_one_cancels(
    gated: Project, submit: Submit, cluster: Cluster
) -> None:
    with Watch(gated, cluster) as watch:
        driver = Driver(gated, submit)
        wait_for(lambda: sorted(queue(cluster).values()) == ["PENDING", "RUNNING"], "two jobs")
        (running,) = [job for job, state in queue(cluster).items() if state == "RUNNING"]
        assert driver.end(signal.SIGKILL)[0] == KILLED
        wait_for(lambda: bool([*gated.folder.glob("results/runs/**/attempt=1")]), "a run to begin")
        (attempt,) = gated.folder.glob("results/runs/**/attempt=1")
        (gated.folder / f"gate-{attempt.parent.parent.name}").touch()
        wait_for(lambda: running not in queue(cluster), "a run to end without a driver")
        clear(gated, cluster)

        driver = Driver(gated, submit)
        wait_for(lambda: "continues as SLURM job" in driver.log, "the other job to be taken")
        assert driver.end(signal.SIGINT)[0] != 0
        wait_for(lambda: not queue(cluster), "the job to be cancelled")
        assert len(watch.records()) == 1
        clear(gated, cluster)

        (gated.folder / "gate").touch()
        code, output = submit(gated)
        assert code == 0, output[-3000:]
    assert watch.twice == set()
    assert {path: path.read_text() for path in watch.records()} == watch.seen
    (row,) = gated.table()
    assert (row["status"], row["runs"]) == ("ok", str(RUNS))


def test_all_runs_of_a_sweep_are_in_one_allocation(project: Project, cluster: Cluster) -> None:
    sizes = (1, 3)
    recipe = {**RECIPES["fails"], "program": ["sh", "-c", "true"]}
    block = {"platform": "cpu", "strategy": "own", "recipe": "short", "nodes": [*sizes]}
    platform = {"cpu": {"cpus_per_node": CPUS}}
    project.overlay({"grid": [block], "recipes": {"short": recipe}, "platforms": platform})
    project.snakemake(profile="allocation", environ=cluster.environ)
    records = project.records()
    assert sorted(record["axes"]["nodes"] for record in records) == [*sizes]
    for record in records:
        assert len({rank["host"] for rank in record["ranks"]}) == record["axes"]["nodes"]
        assert record["phases"]["queue_time_s"] is None
    assert len({record["environment"]["slurm_job"]["id"] for record in records}) == 1
    wait_for(lambda: not queue(cluster), "the allocation's end")
