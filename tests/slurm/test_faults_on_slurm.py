"""Faults on a real Slurm, all at once: what is kept, made again and said, and how soon.

A sweep of runs that another attempt would or would not change, and beside it jobs of the launcher
alone, to each of which something else happens: Slurm starts them again, or does not.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from project import QUICK, REPOSITORY, SMALL_MODEL, Project
from tfscaling.record import events
from tfscaling.study import acceptance, config_validation, run_spec
from tfscaling.study.registries import Registries
from tfscaling.study.run_spec import RunSpec
from tfscaling.train.models import MODELS
from tfscaling.train.strategies import STRATEGIES
from virtual_cluster import Cluster, start, wait_for

pytestmark = pytest.mark.full

NODES = 24
#: Of a job on a node.
MEMORY_MB = 600
#: A partition of all nodes whose jobs have so long to end when they are preempted.
PATIENT, GRACE_S = "patient", 60


class Fault(NamedTuple):
    """What is done to a run on so many nodes, and what is known of it afterwards.

    `kinds` are the causes that the first attempt may leave; none: it continues. `is_retried`: there
    is another attempt; `valid`: the last one counts.
    """

    nodes: int
    kinds: tuple[str, ...]
    is_retried: bool
    valid: bool


#: What the sweep decides: whether there is another attempt.
BY_SWEEP = {
    "exit": Fault(2, ("program_failed",), False, False),
    "memory": Fault(1, (), False, True),  # a result: it does not fit
    "killed": Fault(2, ("rank_died",), True, True),
}
#: Slurm knows of a lost node when it has not heard of it for 15 s. A rank is silent after 40 s,
#: which is sooner on a busy machine: the launcher ends then, and the sweep makes another attempt.
OF_A_NODE = ("node_failed", "stalled")
#: What Slurm decides. It looks at time limits every 30 s.
BY_SLURM = {
    "stopped": Fault(2, ("stalled",), False, False),
    "limit": Fault(1, ("time_limit",), False, False),
    "requeued": Fault(2, ("requeued",), True, True),
    "preempted": Fault(1, ("preempted",), True, True),
    "warned": Fault(1, ("preempted",), True, True),  # a grace time before the preemption
    "power": Fault(2, OF_A_NODE, True, True),
    "writing": Fault(1, (), False, True),  # the run was finished
    "slurmd": Fault(1, (), False, True),
}
#: The last rank of a run has its fault in the first attempt. It notes when.
PROGRAM = """
import os, pathlib, signal, socket, subprocess, sys, time

fault, job = sys.argv[1], os.environ["SLURM_JOB_ID"]
mark = pathlib.Path("happened", fault)
if fault == "writing" or mark.exists():
    sys.exit()
if os.environ["RANK"] != str(int(os.environ["WORLD_SIZE"]) - 1):
    time.sleep(600)
time.sleep(1)
mark.touch()
if fault == "exit":
    sys.exit(1)
elif fault == "memory":
    held = b"x" * (700 << 20)
elif fault in ("killed", "stopped"):
    os.kill(os.getppid(), {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}[fault])
elif fault == "requeued":
    subprocess.run(["scontrol", "requeue", job])
else:
    pathlib.Path("asked", f"{fault},{socket.gethostname()},{job}").touch()
time.sleep(600 if fault != "slurmd" else 8)
"""
#: Each Python begins with it: the launcher of one run waits for its end with the record on the
#: disk, and not yet in its place; a rank of another waits with its first checkpoint written, and
#: uses a little of its core meanwhile, as one that works.
SITE = """
import os, pathlib, socket, sys, time

def hold(event, arguments):
    if event != "os.rename":
        return
    place = str(arguments[1])
    if "/writing/" in place and place.endswith("/run.json") and is_first("writing"):
        job = os.environ["SLURM_JOB_ID"]
        pathlib.Path("asked", f"writing,{socket.gethostname()},{job}").touch()
        time.sleep(600)
    if "/training/checkpoints/steps=" in place and is_first("training"):
        os.rename(*arguments[:2])
        while True:
            sum(range(200_000))
            time.sleep(0.05)

def is_first(name):
    mark = pathlib.Path("happened", name)
    if mark.exists():
        return False
    mark.touch()
    return True

sys.addaudithook(hold)
"""


@dataclass
class Injector:
    """Does to the cluster what runs ask for in the folder `asked`; jobs wait for no restart."""

    cluster: Cluster
    folder: Path
    lost: list[str] = field(default_factory=list)
    _over: bool = False

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        with ThreadPoolExecutor(1) as pool:
            working = pool.submit(self._work)
            try:
                yield
            finally:
                self._over = True
                working.result()

    def _work(self) -> None:
        while not self._over:
            for asked in (self.folder / "asked").iterdir():
                asked.unlink()
                self._happen(*asked.name.split(","))
            self._start_requeued()
            time.sleep(0.5)

    def _happen(self, fault: str, host: str, job: str) -> None:
        if fault in ("power", "writing"):
            self.lose(host)
        elif fault == "slurmd":
            self.cluster.tool("kill-slurmd", host)
            self.cluster.tool("start-node", host)
        elif fault == "limit":
            self.cluster.run("scontrol", "update", f"JobId={job}", "EndTime=now+1")
        elif fault in ("preempted", "warned"):
            where = ("--partition=urgent", f"--nodelist={host}", "--exclusive")
            words = ("sbatch", *where, "--output=/dev/null", "--wrap=sleep 1")
            wait_for(lambda: bool(self.cluster.run(*words)), "sbatch to answer")

    def lose(self, host: str) -> None:
        """The node loses its power, and gets none again."""
        self.lost.append(host)
        self.cluster.tool("kill-node", host)

    def _start_requeued(self) -> None:
        """Slurm lets a job that it has requeued wait for two minutes, which shows nothing more."""
        words = ("--noheader", "--states=PENDING", "--format=%i %r")
        for line in self.cluster.run("squeue", *words).splitlines():
            if line.endswith(" BeginTime"):
                with contextlib.suppress(subprocess.CalledProcessError):  # it has just begun
                    job = f"JobId={line.split()[0]}"
                    self.cluster.run("scontrol", "update", job, "StartTime=now")


class Launch:
    """The launcher in a job of its own, which Slurm may start again."""

    def __init__(self, project: Project, cluster: Cluster, spec: RunSpec) -> None:
        name = spec.point.recipe.partition("=")[2] or spec.point.platform
        self._cluster, self.folder = cluster, project.folder / "launched" / name
        self.folder.mkdir(parents=True)
        specification = self.folder / "asked.json"
        specification.write_text(run_spec.encode_spec(spec))
        words = [sys.executable, str(REPOSITORY / "workflow/scripts/train.py")]
        words += ["--spec", str(specification), "--record", str(self.folder / "run.json")]
        if spec.dataset is not None:
            words += ["--dataset-file", str(project.folder / "results/datasets/mnist.npz")]
        nodes = spec.point.nodes
        shape = (f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1")
        places = (f"--output={self.folder}/job.log", f"--chdir={project.folder}")
        partition = f"--partition={PATIENT if name == 'warned' else 'cpu'}"
        options = (*shape, *places, partition, "--open-mode=append", "--parsable")
        self._command = (*options, "--wrap", shlex.join(words))
        self._submit()

    def _submit(self, *options: str) -> None:
        self.job = self._cluster.run("sbatch", *options, *self._command).strip()

    def has(self, rank: int, event: str) -> bool:
        """Whether the rank has passed this event in the first attempt."""
        lines = events.read_events_by_rank(self.folder / "attempt=1").get(rank, [])
        return any(line.name == event for line in lines)

    @property
    def restarts(self) -> str:
        shown = self._cluster.run("scontrol", "show", "job", self.job)
        words = (word.partition("=") for word in shown.split())
        return next(value for name, _, value in words if name == "Restarts")

    @property
    def is_over(self) -> bool:
        return not self._cluster.run("squeue", "--noheader", f"--jobs={self.job}")

    def wait_for_another_start(self, injector: Injector) -> None:
        """By Slurm, or, if the launcher has found the silent rank sooner, as the sweep does it."""
        wait_for(lambda: self.restarts == "1" or self.is_over, f"{self.folder.name} to start again")
        if self.restarts == "0":
            self._submit(f"--exclude={','.join(injector.lost)}")

    def lose_power(self, injector: Injector) -> str:
        """The node of rank 1, which is not that of the launcher."""
        nodes = self._cluster.run("squeue", "--noheader", "--format=%N", f"--jobs={self.job}")
        _, host = self._cluster.run("scontrol", "show", "hostnames", nodes.strip()).split()
        injector.lose(host)
        return host


def specified(grid_of: list[dict[str, Any]], **setups: list[str]) -> list[RunSpec]:
    """The runs of these blocks; platforms differ by what ranks do first."""
    usual = {"launcher": "srun", "nodes_max": 2, "cpus_per_node": 1}
    raw = {
        "grid": [{**block, "repeats": 1} for block in grid_of],
        "recipes": RECIPES,
        "platforms": {name: {**usual, "setup": lines} for name, lines in setups.items()},
    }
    config = config_validation.convert_to_types(raw)
    return [run.spec for run in acceptance.plan_grid(config, Registries(MODELS, STRATEGIES)).runs]


def blocks(faults: dict[str, Fault], platform: str) -> list[dict[str, Any]]:
    return [
        {"platform": platform, "strategy": "own", "nodes": fault.nodes,
         "recipe": f"faulty+fault={name}"}
        for name, fault in faults.items()
    ]  # fmt: skip


#: Tenths of seconds each: more than the time in which a signal comes on a busy machine.
EPOCHS = 150
RECIPES = {
    "faulty": {
        "program": ["python3", "faulty.py", "{parameters.fault}"], "observe": "nothing",
        "per_replica_batch_size": 1, "epochs": 1, "parameters": {"fault": [*BY_SWEEP, *BY_SLURM]},
    },
    # long enough to be interrupted; no checkpoint is written that nobody asks for
    "long": {**QUICK, "epochs": EPOCHS, "checkpoint_every_epochs": 1000},
}  # fmt: skip
TRAINED = {"model": SMALL_MODEL, "recipe": "long", "nodes": 2}


@dataclass
class Seen:
    """What the faults have left."""

    project: Project
    code: int
    launches: dict[str, Launch]
    #: Training → the node that lost its power.
    lost: dict[str, str]

    def run(self, fault: str) -> Path:
        if fault in self.launches:
            return self.launches[fault].folder
        return next(
            self.project.folder.glob(f"results/runs/**/recipe=faulty+fault={fault}/**/repeat=1/*")
        )

    def attempts(self, fault: str) -> list[Path]:
        """Those in which it could happen: on a busy machine Slurm may refuse to begin a step."""
        attempts = sorted(self.run(fault).glob("attempt=*"))
        return [folder for folder in attempts if not _is_without_ranks(folder)]


def _is_without_ranks(attempt: Path) -> bool:
    """Whether it was given up before a rank began, and for nothing that is done here."""
    report = attempt / "failure.json"
    begun = bool(events.read_events_by_rank(attempt))
    return not begun and report.exists() and read(report)["cause"]["kind"] == "cancelled"


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    options = ("--partition", f"cpu:{NODES}:cpus=1", "--memory-limits", "--urgent")
    cluster = start(tmp_path_factory.mktemp("vc"), *options)
    limits = ("Nodes=ALL", f"GraceTime={GRACE_S}", "PreemptMode=REQUEUE")
    cluster.run("scontrol", "create", f"PartitionName={PATIENT}", *limits)
    try:
        yield cluster
    finally:
        cluster.tool("down")


@pytest.fixture(scope="module")
def seen(new_project: Callable[[str], Project], faulty: Cluster) -> Iterator[Seen]:
    """All faults, side by side."""
    project = new_project("faulty")
    folder = project.folder
    for name in ("happened", "asked", "site"):
        (folder / name).mkdir()
    (folder / "faulty.py").write_text(PROGRAM)
    (folder / "site/sitecustomize.py").write_text(SITE)
    usual = {
        "launcher": "srun", "partition": "cpu", "nodes_max": 2, "cpus_per_node": 1,
        "mem_mb": MEMORY_MB, "runtime_min": 10,
    }  # fmt: skip
    project.overlay({
        "grid": blocks(BY_SWEEP, "cpu"),
        "recipes": {"faulty": RECIPES["faulty"]},
        "platforms": {"cpu": usual},
    })  # fmt: skip
    injector = Injector(faulty, folder)

    def sweep() -> int:
        often = ("--slurm-sweep-init-seconds-before-status-checks", "3")
        done = project.snakemake(*often, profile="slurm", environ=faulty.environ, check=False)
        return done.returncode

    late = 'if [ "$SLURM_PROCID" = 1 ]; then sleep 600; fi'
    trained = [{**TRAINED, "platform": name} for name in ("training", "rendezvous")]
    with contextlib.chdir(folder):  # of the model
        specs = specified(
            [*blocks(BY_SLURM, "cpu"), *trained], cpu=[], training=[], rendezvous=[late]
        )
    seen = Seen(project, 0, {}, {})
    with (
        ThreadPoolExecutor() as pool,
        injector.at_work(),
        pytest.MonkeyPatch.context() as patched,
    ):
        swept = pool.submit(sweep)
        patched.setenv("PYTHONPATH", str(folder / "site"))
        launches = [Launch(project, faulty, spec) for spec in specs]
        seen.launches.update({launch.folder.name: launch for launch in launches})
        try:
            started = pool.submit(seen.launches["power"].wait_for_another_start, injector)
            interrupt(faulty, seen, injector)
            started.result()
            for name, fault in BY_SLURM.items():
                name_of_end = "run.json" if fault.valid else "failure.json"
                wait_for((seen.run(name) / name_of_end).exists, f"the end of {name}")
            seen.code = swept.result()
            yield seen
        except AssertionError as error:
            error.add_note(faulty.run("squeue") + faulty.run("sinfo", "--long", "--Node"))
            raise
        finally:
            faulty.run("scancel", *(launch.job for launch in launches))


def interrupt(cluster: Cluster, seen: Seen, injector: Injector) -> None:
    """Power cuts while a rank waits for the others, and after a checkpoint of a training."""
    training, rendezvous = seen.launches["training"], seen.launches["rendezvous"]
    wait_for(lambda: rendezvous.has(0, "imported"), "a rank that waits for others")
    seen.lost["rendezvous"] = rendezvous.lose_power(injector)
    wait_for(lambda: training.has(1, "epoch"), "training")
    cluster.run("scancel", "--signal=USR1", training.job)
    checkpoints = training.folder / "checkpoints"
    wait_for(lambda: bool([*checkpoints.glob("steps=*")]), "a checkpoint")
    seen.lost["training"] = training.lose_power(injector)
    training.wait_for_another_start(injector)
    wait_for(lambda: rendezvous.restarts == "1", "Slurm to start it again")
    cluster.run("scancel", rendezvous.job)  # as the training is
    wait_for((training.folder / "run.json").exists, "the record")


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


@pytest.mark.parametrize("name", [*BY_SWEEP, *BY_SLURM])
def test_a_fault_has_its_cause_and_what_may_pass_is_made_again(seen: Seen, name: str) -> None:
    fault, run = {**BY_SWEEP, **BY_SLURM}[name], seen.run(name)
    attempts = seen.attempts(name)
    assert (len(attempts) > 1) == fault.is_retried
    assert (run / "run.json").exists() == fault.valid
    assert (run / "failure.json").exists() != fault.valid
    if fault.valid:
        assert f"attempt={read(run / 'run.json')['attempt']}" == attempts[-1].name
    report = attempts[0] / "failure.json"
    assert report.exists() == bool(fault.kinds)
    if fault.kinds:
        failure = read(report)
        assert failure["cause"]["kind"] in fault.kinds, failure
        assert failure["wall_time_s"] > 0


@pytest.mark.parametrize("name", ["exit", "killed", "stopped"])
def test_the_rank_and_its_host_are_named(seen: Seen, name: str) -> None:
    attempt = seen.attempts(name)[0]
    cause = read(attempt / "failure.json")["cause"]
    begun = events.read_events_by_rank(attempt)[1][0]
    assert (cause["rank"], cause["host"]) == (1, begun.details["host"])


def test_the_tables_have_what_failed_and_what_was_lost(seen: Seen) -> None:
    assert seen.code != 0
    rows = seen.project.table("results/main/partial/runs.csv")
    assert {row["recipe"].partition("=")[2]: row["status"] for row in rows} == {
        "exit": "failed",
        "memory": "does_not_fit",
        "killed": "ok",
    }
    for row in rows:
        failed = seen.run(row["recipe"].partition("=")[2]).glob("attempt=*/failure.json")
        assert int(row["failed_attempts"]) == len([*failed])
        assert bool(int(row["failed_attempts"])) == (row["status"] != "does_not_fit")
        if row["status"] == "does_not_fit":
            assert float(row["memory_limit_gb"]) == pytest.approx(MEMORY_MB * 2**20 / 1e9)


@pytest.mark.parametrize("name", ["rendezvous", "training"])
def test_a_training_whose_node_loses_its_power_says_which(seen: Seen, name: str) -> None:
    host = seen.lost[name]
    report = seen.launches[name].folder / "attempt=1/failure.json"
    cause = read(report)["cause"]
    assert cause["kind"] in (OF_A_NODE if name == "training" else ("node_failed",))
    assert cause["host"] == host


def test_it_goes_on_from_its_checkpoint_on_another_node(seen: Seen) -> None:
    """SIGUSR1 to the job's step is what sbatch's `--signal` sends before a time limit."""
    folder = seen.launches["training"].folder
    record = read(folder / "run.json")
    resumed = record["resumed"]
    (first,) = resumed["attempts"]
    assert (record["attempt"], first["attempt"]) == (2, 1)
    assert 0 <= resumed["steps_repeated"] < first["steps"]
    assert [epoch["epoch"] for epoch in record["metrics"]["epochs"]] == [*range(1, EPOCHS + 1)]
    assert record["metrics"]["examples_trained"] == EPOCHS * QUICK["train_examples_max"]
    assert record["phases"]["checkpoint_time_s"] > 0
    assert not (folder / "checkpoints").exists()
    assert seen.lost["training"] not in {rank["host"] for rank in record["ranks"]}
