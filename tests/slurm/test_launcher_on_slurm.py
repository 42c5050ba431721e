"""A launcher and its ranks on a real Slurm: none outlives the other, a stopped rank is found."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from project import QUICK, REPOSITORY, SMALL_MODEL, Project
from tfscaling.record import events
from tfscaling.study import acceptance, config_validation, run_spec
from tfscaling.study.registries import Registries
from tfscaling.train.models import MODELS
from tfscaling.train.strategies import STRATEGIES
from virtual_cluster import Cluster, wait_for

pytestmark = pytest.mark.full

NODES = 2


#: Recipes of runs that take minutes.
PROGRAM = {"program": ["sleep", "600"], "per_replica_batch_size": 1, "epochs": 1}
TRAINING = {**QUICK, "epochs": 20000}


def specified(folder: Path, strategy: str, **changes: Any) -> Path:
    """The file with the specification of a run on two nodes: of a program if `strategy` is own."""
    recipe = PROGRAM if strategy == "own" else TRAINING
    block = {"platform": "cluster", "recipe": "long", "nodes": NODES, "strategy": strategy}
    block |= {} if strategy == "own" else {"model": SMALL_MODEL}
    platform = {"launcher": "srun", "nodes_max": NODES, "cpus_per_node": 2}
    raw = {
        "grid": [{**block, "repeats": 1}],
        "recipes": {"long": {**recipe, **changes}},
        "platforms": {"cluster": platform},
    }
    config = config_validation.convert_to_types(raw)
    with contextlib.chdir(folder):  # of the model
        (run,) = acceptance.plan_grid(config, Registries(MODELS, STRATEGIES)).runs
    path = folder / "spec.json"
    path.write_text(run_spec.encode_spec(run.spec))
    return path


class Launch:
    """A job whose script starts train.py and goes on after it, as in an interactive allocation."""

    def __init__(self, project: Project, cluster: Cluster, strategy: str, **recipe: Any) -> None:
        self.cluster, self.folder = cluster, project.folder / "run"
        launch = str(REPOSITORY / "workflow/scripts/train.py")
        specification = specified(project.folder, strategy, **recipe)
        words = [sys.executable, launch, "--spec", str(specification)]
        words += ["--record", str(self.folder / "run.json")]
        if strategy != "own":
            words += ["--dataset-file", str(project.folder / "results/datasets/mnist.npz")]
        script = f"{shlex.join(words)} & echo $! >{project.folder}/pid; wait; sleep 600"
        shape = (f"--nodes={NODES}", f"--ntasks={NODES}", "--ntasks-per-node=1")
        options = (*shape, "--cpus-per-task=2", "--partition=cpu", "--parsable")
        places = (f"--output={project.folder}/job.log", f"--chdir={project.folder}")
        self.job = cluster.run("sbatch", *options, *places, "--wrap", script).strip()
        begun = "start" if strategy == "own" else "epoch"
        wait_for(lambda: self.have_all(begun), "its work")
        self.pid = (project.folder / "pid").read_text().strip()
        self.ranks = [
            lines[0] for lines in events.read_events_by_rank(self.folder / "attempt=1").values()
        ]

    def have_all(self, event: str) -> bool:
        """Whether all ranks have passed this event."""
        ranks = events.read_events_by_rank(self.folder / "attempt=1").values()
        return sum(any(e.name == event for e in lines) for lines in ranks) == NODES

    def signal(self, name: str, host: str, pid: str) -> None:
        self.cluster.tool("exec", host, "kill", f"-{name}", pid)

    def is_idle(self) -> bool:
        return all(self.cluster.processes(rank.details["host"]) == [] for rank in self.ranks)


@pytest.fixture
def launched(project: Project, cluster: Cluster) -> Iterator[Callable[..., Launch]]:
    """Starts a launch; its job is cancelled afterwards."""
    started: list[Launch] = []

    def start(strategy: str = "multi_worker_mirrored", **recipe: Any) -> Launch:
        started.append(Launch(project, cluster, strategy, **recipe))
        return started[-1]

    yield start
    for launch in started:
        cluster.run("scancel", launch.job)


def test_ranks_end_with_a_launcher_that_is_killed(launched: Callable[..., Launch]) -> None:
    launch = launched(strategy="own")
    launch.signal("KILL", launch.ranks[0].details["host"], launch.pid)
    wait_for(launch.is_idle, "the nodes to be free")
    # the job itself has not ended
    assert launch.cluster.run("squeue", "--noheader", f"--jobs={launch.job}").strip()


@pytest.mark.parametrize("strategy", ["own", "multi_worker_mirrored"])
def test_a_killed_srun_is_named_and_its_ranks_end(
    strategy: str, launched: Callable[..., Launch]
) -> None:
    """The job continues, as an allocation does for its next run."""
    is_trained = strategy != "own"
    launch = launched(strategy, **({"checkpoint_every_epochs": 100_000} if is_trained else {}))
    host = launch.ranks[0].details["host"]
    launch.cluster.tool("exec", host, "pkill", "-KILL", "-x", "srun")
    failure = launch.folder / "failure.json"
    wait_for(failure.exists, "the failure's report")
    report: dict[str, Any] = json.loads(failure.read_text())
    cause = report["cause"]
    assert (cause["kind"], cause.get("rank")) == ("launch_failed", None), cause
    assert "srun was killed by SIGKILL" in cause["message"]
    assert report["slurm_job"] == launch.job
    wait_for(launch.is_idle, "the nodes to be free")
    assert launch.cluster.run("squeue", "--noheader", f"--jobs={launch.job}").strip()


def test_ranks_write_a_checkpoint_when_their_launcher_is_asked_to_end(
    launched: Callable[..., Launch],
) -> None:
    """As on Ctrl-C in an allocation: no signal of Slurm's reaches the ranks by itself."""
    launch = launched(checkpoint_every_epochs=100_000)
    launch.signal("TERM", launch.ranks[0].details["host"], launch.pid)
    failure = launch.folder / "failure.json"
    wait_for(failure.exists, "the failure's report")
    assert json.loads(failure.read_text())["cause"]["kind"] == "cancelled"
    assert list((launch.folder / "checkpoints").glob("steps=*"))
    wait_for(launch.is_idle, "the nodes to be free")


def test_a_killed_rank_of_an_mpi_job_is_named(launched: Callable[..., Launch]) -> None:
    """Its peer waits for it in the library, on another node."""
    launch = launched(strategy="mpi_all_reduce")
    launch.signal("KILL", launch.ranks[1].details["host"], str(launch.ranks[1].details["pid"]))
    failure = launch.folder / "failure.json"
    wait_for(failure.exists, "the failure's report")
    cause: dict[str, Any] = json.loads(failure.read_text())["cause"]
    assert (cause["kind"], cause["rank"]) == ("rank_died", 1), cause
    assert cause["host"] == launch.ranks[1].details["host"]
    wait_for(launch.is_idle, "the nodes to be free")


#: A rank whose memory is full of what an MPI library's may be when TensorFlow has been loaded.
RANK = """
import os, random, sys

sys.path.insert(0, sys.argv[1])
from tfscaling.train.mpi import library as mpi

sizes = (32, 64, 256, 700, 1500, 4000, 9000)
used = [random.randbytes(random.choice(sizes)) for _ in range(60000)]
del used[::2]
world = mpi.world_communicator(int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"]))
print(world.allreduce(1 << world.rank), mpi.node_communicator(world).size, flush=True)
mpi.finalize()
"""


def test_mpi_ranks_meet_whatever_their_memory_holds(cluster: Cluster, tmp_path: Path) -> None:
    """Slurm cannot read the long addresses that MPICH sends then."""
    (tmp_path / "rank.py").write_text(RANK)
    shape = ("--partition=cpu", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--mpi=pmi2")
    program = (sys.executable, str(tmp_path / "rank.py"), str(REPOSITORY / "workflow/scripts"))
    said = cluster.run("timeout", "300", "srun", *shape, *program).splitlines()
    assert said == ["15 2"] * 4


def test_a_stopped_rank_is_found_and_named(launched: Callable[..., Launch]) -> None:
    launch = launched()  # with the limits that runs have by default
    launch.signal("STOP", launch.ranks[1].details["host"], str(launch.ranks[1].details["pid"]))
    failure = launch.folder / "failure.json"
    wait_for(failure.exists, "the failure's report")
    cause: dict[str, Any] = json.loads(Path(failure).read_text())["cause"]
    assert (cause["kind"], cause["rank"]) == ("stalled", 1), cause
    assert cause["host"] == launch.ranks[1].details["host"]
    wait_for(launch.is_idle, "the nodes to be free")
