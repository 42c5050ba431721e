"""A soak: many short runs on a virtual cluster while faults happen, all of them from one seed.

What is asked at the end: each run is valid or failed of what was done to it, none is missing, none
was made by two jobs at once or again after it was finished, and the numbers are those of a sweep
in peace.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import snakemake_server
from fake_programs import program
from project import REPOSITORY, Project
from virtual_cluster import Cluster, wait_for

#: The runs' program: nothing but Python. A fault happens to a run once, or always if it is `exit`.
PROGRAM = """
import json, os, pathlib, re, signal, socket, subprocess, sys, time

folder, seed, rank = sys.argv[1], int(sys.argv[2]), int(os.environ["RANK"])
axes = [re.search(f"{name}=([^/]*)/", folder)[1] for name in ("platform", "nodes", "repeat")]
key = "-".join(axes)
fault = json.loads(pathlib.Path("faults.json").read_text()).get(key)
if rank != int(os.environ["WORLD_SIZE"]) - 1 or pathlib.Path("happened", key).exists():
    fault = None
time.sleep(1)
if fault == "exit":
    sys.exit(3)
if fault:
    pathlib.Path("happened", key).touch()
job = os.environ["SLURM_JOB_ID"]
if fault == "killed":
    os.kill(os.getppid(), signal.SIGKILL)
elif fault == "cancelled":
    subprocess.run(["scancel", job])
elif fault == "requeued":
    subprocess.run(["scontrol", "requeue", job])
elif fault in ("power", "slurmd", "full"):
    pathlib.Path("asked", f"{fault}-{socket.gethostname()}").touch()
if fault and fault not in ("slurmd", "full"):
    time.sleep(600)
value = seed
for _ in range(1000):
    value = (1103515245 * value + 12345) % 2**31
metrics = {"loss": value / 2**31, "accuracy": seed % 100 / 100}
with open(os.environ["TFSCALING_EVENTS"], "a") as file:
    for event in ({"event": "steps"}, {"event": "epoch", "epoch": 1, "metrics": metrics}):
        file.write(json.dumps({**event, "time_s": time.time(), "steps": 1}) + "\\n")
"""
#: What is done to a run → how it may end; None: valid.
FAULTS: dict[str, str | None] = {
    "exit": "program_failed",
    "killed": None,
    "cancelled": None,
    "requeued": None,
    "power": None,
    "slurmd": None,
    "full": None,
    "limit": "time_limit",
}
#: What happens to the cluster, the site's programs, the driver, or a finished record.
DISTURBANCES = (
    *("SIGKILL", "busy", "controller", "partial", "SIGHUP", "limit", "truncated", "preempt"),
    *("SIGTERM", "banner", "empty", "SIGINT"),
)
#: How many of the next calls of sbatch or squeue a disturbance of the site's programs changes.
CALLS = {"busy": 3, "banner": 4, "limit": 4, "empty": 1}
#: sbatch with the oddities of a site: a file in `folder` for each of the next odd calls.
SBATCH = """
case "$*" in *--test-only*) exec {real} "$@";; esac
take() {{
    for each in {folder}/$1.*; do
        if rm "$each" 2>/dev/null; then echo "$1" >>{folder}/taken; return 0; fi
    done
    return 1
}}
if take busy; then
    case $(($(wc -l <{folder}/taken) % 3)) in
        0) {real} "$@" >/dev/null 2>&1  # accepted, and the answer is lost
           echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv" >&2;;
        1) echo "sbatch: error: Slurm temporarily unable to accept job, sleeping" >&2;;
        2) echo "sbatch: error: Unable to contact slurm controller (connect failure)" >&2;;
    esac
    exit 1
fi
if ls {folder}/limit.* >/dev/null 2>&1 && [ $({squeue} --me --noheader | wc -l) -ge {limit} ]; then
    take limit
    echo "sbatch: error: AssocMaxSubmitJobLimit" >&2
    echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy" >&2
    exit 1
fi
if take banner; then
    echo "------ Welcome to cluster 7 ------"
    {real} "$@" || exit $?
    echo "Have a nice day"
    exit 0
fi
exec {real} "$@"
"""
SQUEUE = """
for each in {folder}/empty.*; do
    if rm "$each" 2>/dev/null; then echo empty >>{folder}/taken; exit 0; fi
done
exec {real} "$@"
"""
#: Jobs that the site allows while its limit applies.
LIMIT = 3
#: A soak in which no run ends for this long is given up.
STUCK_S = 1800.0
#: Takes a minute and more until Slurm sees it: only in soaks of so many runs.
LIMIT_RUNS_MIN = 100
FULL_S, AWAY_S, RESULTS_MB = 3.0, 8.0, 64
_PREEMPTION = """
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=urgent Nodes=cpu[1-6] State=UP PriorityTier=10 PreemptMode=OFF
"""


def numbers(seed: int) -> tuple[float, float]:
    """Loss and accuracy of a run with this seed, as its program has them."""
    value = seed
    for _ in range(1000):
        value = (1103515245 * value + 12345) % 2**31
    return value / 2**31, seed % 100 / 100


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of its own, which can be filled; to be there before the cluster's nodes are."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ("-t", "tmpfs", "-o", f"size={RESULTS_MB}m", "soak", str(folder))
    subprocess.run(["mount", *options], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@dataclass
class Soak:
    """`number` runs and what happens to them, by the seed."""

    project: Project
    cluster: Cluster
    number: int
    seed: int
    planned: set[str] = field(default_factory=set)
    #: Run → what happens to it.
    faults: dict[str, str] = field(default_factory=dict)
    disturbed: list[str] = field(default_factory=list)
    starts: int = 0
    #: Record → its text when it was first seen.
    seen: dict[Path, str] = field(default_factory=dict)
    #: Damaged record → its text after the damage.
    truncated: dict[Path, str] = field(default_factory=dict)
    _over: bool = False
    #: Faults that runs asked for, done one after the other.
    _faults: list[Future[None]] = field(default_factory=list)

    def prepare(self) -> None:
        """The grid, the program and the plan of faults."""
        dice, folder = random.Random(self.seed), self.project.folder
        pairs = max(1, self.number // 10)
        limited = int(self.number >= LIMIT_RUNS_MIN)
        shape = {"cpu-1": self.number - pairs - limited, "cpu-2": pairs}
        shape |= {"short-1": limited} if limited else {}
        keys = [f"{point}-{k}" for point, many in shape.items() for k in range(1, many + 1)]
        self.planned = set(keys)
        for key in keys:
            if key.startswith("short"):
                self.faults[key] = "limit"
            elif dice.random() < 0.5:
                names = [name for name in FAULTS if name != "limit"]
                self.faults[key] = names[len(self.faults) % len(names)]
        for name in ("happened", "asked", "site"):
            (folder / name).mkdir()
        self._wrap("sbatch", SBATCH)
        self._wrap("squeue", SQUEUE)
        for name in CALLS:  # most submissions are among the first
            self._disturbance(name)
        (folder / "faults.json").write_text(json.dumps(self.faults))
        (folder / "soaked.py").write_text(PROGRAM)
        usual = {"launcher": "srun", "partition": "cpu", "nodes_max": 2, "cpus_per_node": 1}
        block = {"strategy": "own", "recipe": "soaked"}
        self.project.overlay({
            "grid": [
                {**block, "platform": point.partition("-")[0], "nodes": int(point[-1]),
                 "repeats": many}
                for point, many in shape.items()
            ],
            "recipes": {"soaked": {
                "program": ["python3", "soaked.py", "{folder}", "{seed}"], "observe": "events",
                "per_replica_batch_size": 1, "epochs": 1,
            }},
            "platforms": {
                "cpu": {**usual, "runtime_min": 30}, "short": {**usual, "runtime_min": 1},
            },
        })  # fmt: skip
        conf = self.cluster.root / "etc/slurm.conf"
        conf.write_text(conf.read_text() + _PREEMPTION)
        self._restart_controller(0.0)
        # at the same shares of finished runs, whatever the machine's speed
        many = max(len(DISTURBANCES), self.number // 10)
        order = [DISTURBANCES[k % len(DISTURBANCES)] for k in range(many)]
        shares = sorted(dice.uniform(0.05, 0.7) for _ in order)
        self._to_come = [(int(s * self.number), n) for s, n in zip(shares, order, strict=True)]

    def go(self) -> None:
        """Sweep, with all that happens, until no run is missing."""
        missing, changed_s = self.planned, time.monotonic()
        with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as faults:
            disturber = pool.submit(self._disturb, faults)
            disturber.add_done_callback(self.project.end_if_failed)
            try:
                while (self._to_come or self.missing()) and not self._is_broken(disturber):
                    self.starts += 1
                    if list(self.project.folder.glob(".snakemake/locks/*")):
                        self._snakemake("--unlock", log=f"unlock-{self.starts}")
                    pause = ("--slurm-sweep-init-seconds-before-status-checks", "3")
                    self._snakemake(*pause, log=f"driver-{self.starts}")
                    # without it each further start would be refused at once
                    wait_for(lambda: bool(self.cluster.run("scontrol", "ping")), "the controller")
                    if self.missing() != missing:
                        missing, changed_s = self.missing(), time.monotonic()
                    stuck = f"no run has ended for {STUCK_S:g} s: {sorted(missing)} are missing, "
                    stuck += f"{self._to_come} still to happen"
                    assert time.monotonic() - changed_s < STUCK_S, stuck
            finally:
                self._over = True
            for happening in (disturber, *self._faults):
                happening.result()

    def _is_broken(self, disturber: Future[None]) -> bool:
        """Whether something that should happen could not be done; its future has the reason."""
        return any(each.done() and each.exception() for each in (disturber, *self._faults))

    def _snakemake(self, *words: str, log: str) -> int:
        files = [str(REPOSITORY / "Snakefile"), "overlay.yaml", str(REPOSITORY / "profiles/slurm")]
        named = zip(("--snakefile", "--configfile", "--profile"), files, strict=True)
        call = [word for pair in named for word in pair]
        folder = self.project.folder
        path = f"{folder / 'site'}:{os.environ['PATH']}"
        environ = {**os.environ, **self.cluster.environ, "PATH": path}
        code, output = snakemake_server.call([*call, *words], folder, environ, limit_s=None)
        (folder / f"{log}.log").write_text(output)
        return code

    def _wrap(self, name: str, script: str) -> None:
        """Put a program of the site's in front of one of Slurm's, for the driver."""
        folder, real = self.project.folder / "site", shutil.which(name)
        text = script.format(folder=folder, real=real, squeue=shutil.which("squeue"), limit=LIMIT)
        program(folder, name, text)

    def missing(self) -> set[str]:
        """The runs that have neither a complete record nor the failure that was injected."""
        records = self._of("run.json")
        complete = {key for key, path in records.items() if path not in self._truncated()}
        return self.planned - complete - self._failed_as_injected()

    def _truncated(self) -> set[Path]:
        """The records that are still as a disturbance has left them."""
        damaged = set()
        for path, text in self.truncated.items():
            with contextlib.suppress(FileNotFoundError):  # it is being restored
                damaged |= {path} if path.read_text() == text else set()
        return damaged

    def _failed_as_injected(self) -> set[str]:
        return {
            key
            for key, path in self._of("failure.json").items()
            if (kind := _kind(path)) is not None and kind == FAULTS.get(self.faults.get(key, ""))
        }

    def _of(self, name: str) -> dict[str, Path]:
        """The files of this name in the runs' folders, by the runs' keys."""
        found = {}
        pattern = f"results/runs/**/repeat=*/*/{name}"
        # Path.glob fails where a folder goes while it looks
        for path in map(
            self.project.folder.joinpath,
            glob.glob(pattern, root_dir=self.project.folder, recursive=True),
        ):
            axes = dict(p.split("=") for p in path.parts if "=" in p)
            found[f"{axes['platform']}-{axes['nodes']}-{axes['repeat']}"] = path
        return found

    def _disturb(self, faults: ThreadPoolExecutor) -> None:
        """What the runs ask for, and what comes at its share of finished runs."""
        while not self._over:
            for path in self._of("run.json").values():
                with contextlib.suppress(FileNotFoundError):
                    self.seen.setdefault(path, path.read_text())
            for asked in (self.project.folder / "asked").iterdir():
                fault, _, host = asked.name.partition("-")
                asked.unlink()
                self._faults.append(faults.submit(self._happen, fault, host))
                self._faults[-1].add_done_callback(self.project.end_if_failed)
            self._start_requeued()
            if self._to_come and len(self.seen) >= self._to_come[0][0]:
                name = self._to_come[0][1]
                if self._disturbance(name):
                    self.disturbed.append(name)
                    self._to_come.pop(0)
            time.sleep(0.5)

    def _start_requeued(self) -> None:
        """Slurm lets a job that it has requeued wait for two minutes, which shows nothing more."""
        words = ("--noheader", "--states=PENDING", "--format=%i %r")
        try:
            for line in self.cluster.run("squeue", *words).splitlines():
                if line.endswith(" BeginTime"):
                    self.cluster.run(
                        "scontrol", "update", f"JobId={line.split()[0]}", "StartTime=now"
                    )
        except subprocess.CalledProcessError:  # the controller is away
            self.cluster.revive_controller()

    def _happen(self, fault: str, host: str) -> None:
        if fault == "full":
            self._fill()
            return
        self.cluster.tool({"power": "kill-node", "slurmd": "kill-slurmd"}[fault], host)
        if fault == "power":
            wait_for(lambda: self._is_lost(host), f"Slurm to notice that {host} is away")
        self.cluster.tool("start-node", host)
        wait_for(lambda: not self._is_lost(host), f"{host} to return")

    def _is_lost(self, host: str) -> bool:
        state = self.cluster.run("sinfo", "--noheader", f"--nodes={host}", "--format=%T")
        return "down" in state or "*" in state

    def _fill(self) -> None:
        file = self.project.folder / "results/filling"
        with contextlib.suppress(OSError), file.open("wb", buffering=0) as out:
            while True:
                out.write(bytes(1 << 20))
        time.sleep(FULL_S)
        file.unlink()

    def _disturbance(self, name: str) -> bool:
        """Whether it could be done now."""
        if name == "controller":
            self._restart_controller(AWAY_S)
        elif name == "preempt":
            shape = ("--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null")
            words = ("sbatch", *shape, "--wrap=sleep 3")
            wait_for(lambda: bool(self.cluster.run(*words)), "sbatch to answer")
        elif name in CALLS:
            for number in range(1, CALLS[name] + 1):
                (self.project.folder / "site" / f"{name}.{number}").touch()
        elif name == "truncated":
            return self._truncate()
        elif name == "partial":
            self._make_partial()
        else:
            for pid in self.project.drivers():
                with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                    os.kill(pid, signal.Signals[name])
                    return True
            return False
        return True

    def _truncate(self) -> bool:
        """Cut a finished record, as a full disk or a bad copy does; its attempt keeps its own."""
        complete = {path: text for path, text in self.seen.items() if path not in self.truncated}
        if not complete:
            return False
        path, text = random.Random(self.seed).choice([*complete.items()])
        damaged, half = path.with_name("damaged"), text[: len(text) // 2]
        try:
            damaged.write_text(half)
        except OSError:  # the disk is full just now, as another fault
            damaged.unlink(missing_ok=True)
            return False
        self.truncated[path] = half
        damaged.replace(path)
        return True

    def _make_partial(self) -> None:
        """Make tables of what has finished, next to the sweep that runs."""
        locks = set(self.project.folder.glob(".snakemake/locks/*"))
        drivers = self.project.drivers()
        code = self._snakemake("partial", "--nolock", log=f"partial-{self.starts}")
        assert code == 0, (self.project.folder / f"partial-{self.starts}.log").read_text()[-5000:]
        if drivers and self.project.drivers() == drivers:  # the sweep goes on, with its lock
            assert locks <= set(self.project.folder.glob(".snakemake/locks/*"))

    def _restart_controller(self, away_s: float) -> None:
        self.cluster.stop_controller()
        time.sleep(away_s)
        self.cluster.start_controller()

    def problems(self) -> list[str]:
        """What is not as it should be."""
        records, failures = self._of("run.json"), self._of("failure.json")
        found = [f"{key} is missing" for key in sorted(self.missing())]
        for key, path in records.items():
            text = path.read_text()
            record = json.loads(text)
            got = (record["metrics"]["loss"], record["metrics"]["accuracy"])
            if got != numbers(record["parameters"]["seed"]):
                found.append(f"{key} has the numbers {got}")
            if FAULTS.get(self.faults.get(key, "")) == "program_failed":
                found.append(f"{key} is valid, and should have failed")
            if text != self.seen.get(path, text):
                found.append(f"{key} was rerun")
            if len(finished := list(path.parent.glob("attempt=*/record.json"))) != 1:
                found.append(f"{key} was finished by {len(finished)} attempts")
        for key in failures.keys() - records.keys() - self._failed_as_injected():
            cause = json.loads(failures[key].read_text())["cause"]
            found.append(f"{key} ({self.faults.get(key)}) failed: {cause}")
        for key, path in (failures | records).items():
            found += [f"{key}: {text}" for text in _overlapping(path.parent)]
        rows = Counter(
            "-".join((row["platform"], row["nodes"], row["repeat"])) for row in self._table()
        )
        found += [f"{key} has {n} rows" for key, n in rows.items() if n > 1]
        found += [f"{key} has no row" for key in self.planned - rows.keys()]
        return found

    def _taken(self) -> dict[str, int]:
        """How many calls of sbatch and squeue each disturbance of them has changed."""
        taken = self.project.folder / "site/taken"
        return dict(Counter(taken.read_text().split())) if taken.exists() else {}

    def _table(self) -> list[dict[str, str]]:
        names = ("results/main/partial/runs.csv", "results/main/runs.csv")
        existing = [name for name in names if (self.project.folder / name).exists()]
        if not existing:
            return []
        return self.project.table(
            max(existing, key=lambda name: (self.project.folder / name).stat().st_mtime)
        )

    def summary(self) -> dict[str, Any]:
        """What was done and what came of it."""
        attempts = list(self.project.folder.glob("results/runs/**/attempt=*"))
        failures = self.project.folder.glob("results/runs/**/attempt=*/failure.json")
        kinds = Counter(map(_kind, failures))
        return {
            "seed": self.seed, "runs": self.number, "valid": len(self._of("run.json")),
            "failed": len(self._of("failure.json").keys() - self._of("run.json").keys()),
            "faults": dict(Counter(self.faults.values())),
            "disturbances": dict(Counter(self.disturbed)), "changed answers": self._taken(),
            "starts of snakemake": self.starts, "attempts": len(attempts),
            "causes of failed attempts": dict(kinds),
            "attempts without a cause": len(attempts)
            - kinds.total()
            - len(list(self.project.folder.glob("results/runs/**/attempt=*/record.json"))),
        }  # fmt: skip


def _kind(failure: Path) -> str | None:
    """The kind of cause; None if the next attempt has removed the file meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return str(json.loads(failure.read_text())["cause"]["kind"])
    return None


def _overlapping(folder: Path) -> list[str]:
    """Attempts that began before the ranks of the one before had ended."""
    begun: dict[int, float] = {}
    ended: dict[int, float] = {}
    for attempt in folder.glob("attempt=*"):
        number = int(attempt.name.partition("=")[2])
        if (attempt / "spec.json").exists():
            begun[number] = (attempt / "spec.json").stat().st_mtime
            signs = [p.stat().st_mtime for p in attempt.glob("rank*") if p.is_file()]
            ended[number] = max(signs, default=begun[number])
    pairs = itertools.pairwise(sorted(begun))
    return [f"attempt {b} began before {a} ended" for a, b in pairs if begun[b] < ended[a] - 0.5]
