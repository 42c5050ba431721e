#!/usr/bin/env python3
"""Run campaigns on a virtual Slurm cluster, and compare them with the intervals stated before.

usage: campaigns_on_slurm.py [--partitions N] [--runs N] [--seed N], as root, after
provision/virtual/install.

Each partition has a training of known speed, scatter and faults, and other jobs in its queue. The
workflow measures it in a few runs, and states duration and node-hours of two campaigns. Both are
then carried out as chains of Slurm jobs, each in a separate partition with an equal queue:
`retried` has faults and no checkpoints; `resumed` has a time limit, checkpoints, faults, and
interruptions by scancel. Hours are compressed to minutes: trainings sleep for about four minutes.
The launcher of runs takes seconds, which is a twentieth of that. Jobs of campaigns, which are
started without it, sleep for as long as the runs' start-up took. Slurm enforces limits to the
minute, so a job ends itself at its limit. Prints a table, and ends with 1 if fewer than SHARE_MIN
of the campaigns are inside their intervals of duration or node-hours.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import math
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
CLUSTER = REPOSITORY / "provision/virtual/cluster"
SHARE_MIN = 0.85
#: Nodes of a partition, mean time of the other jobs in its queue, start-up of a training.
NODES, OTHER_JOB_S, STARTUP_S = 5, 150.0, 10.0
STEPS = 20
#: Seconds between two looks at the campaigns, and between the starts of two campaigns.
POLL_S, STAGGER_S = 0.5, 3.0
#: Name of a campaign → question.campaign.
CAMPAIGNS: dict[str, dict[str, Any]] = {
    "retried": {"trainings": 6, "at_once": 3},
    "resumed": {
        "trainings": 6,
        "at_once": 3,
        "time_limit": "120 s",
        "checkpoint_every": "10 s",
        "spot": {"interruptions_per_hour": 5},
    },
}


@dataclass(frozen=True)
class Site:
    """How a training and the queue of its partitions really are.

    Attributes:
        name: Its name.
        training_s: Median time of a training without its start-up.
        scatter: Standard deviation of the logarithm of this time.
        failures_per_hour: Failures of a running job in an hour.
        load: Share of the nodes that other jobs use.
    """

    name: str
    training_s: float
    scatter: float
    failures_per_hour: float
    load: float

    def partition(self, campaign: str) -> str:
        """Return the partition of a campaign, which no other campaign uses."""
        return f"{campaign}-{self.name}"

    def draw_training_s(self) -> float:
        """Return the time of a training without its start-up, in seconds."""
        return self.training_s * math.exp(random.gauss(0, self.scatter))


def draw_sites(number: int, seed: int) -> list[Site]:
    """Return partitions with speed, scatter, faults and load drawn at random."""
    dice = random.Random(seed)
    return [
        Site(
            chr(ord("a") + n),
            dice.uniform(200, 300),
            dice.choice((0.03, 0.1, 0.2)),
            dice.choice((0.0, 2.0)),
            dice.uniform(0.1, 0.4),
        )
        for n in range(number)
    ]


# --- the training, in runs of the sweep and in jobs of a campaign --------------------------------


def train(site: Site) -> None:
    """Train as a program of the workflow."""
    sys.path.insert(0, str(REPOSITORY / "workflow/observe"))
    import observe

    kill_at_random(site.failures_per_hour)
    step_s = site.draw_training_s() / STEPS
    time.sleep(STARTUP_S)
    for _ in observe.steps(range(STEPS), examples=1):
        time.sleep(step_s)
    observe.epoch(loss=0.5)


def kill_at_random(per_hour: float) -> None:
    """Let a signal kill this process at a random time."""
    if per_hour:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, random.expovariate(per_hour / 3600))


def run_job(campaign: Campaign, number: int) -> None:
    """Continue a training in a Slurm job; at its end, submit the next job of this place.

    Args:
        campaign: The campaign.
        number: Number of the training.
    """
    began_s, folder = time.time(), campaign.training(number)
    due_s = began_s + random.expovariate(campaign.interruptions_per_hour / 3600 or 1e-9)
    job = {"id": os.environ["SLURM_JOB_ID"], "began_s": began_s, "due_s": due_s}
    write(folder / "job.json", json.dumps(job))
    child = os.fork()
    if not child:
        kill_at_random(campaign.site.failures_per_hour)
        campaign.train(number)
        os._exit(0)
    if campaign.time_limit_s:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, campaign.time_limit_s)
    is_done = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    signal.setitimer(signal.ITIMER_REAL, 0)
    ended_s = time.time()
    if campaign.take_job(number):
        campaign.note_job(began_s, ended_s)
        if is_done:
            write(folder / "done_s", str(ended_s))
        campaign.submit_next(None if is_done else number)


def write(path: Path, text: str) -> None:
    """Write a file at once, so that no reader sees a part of it."""
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(text)
    part.rename(path)


# --- campaigns -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Campaign:
    """A campaign in a folder that its jobs share.

    Attributes:
        folder: The folder.
        partition: The partition of its jobs.
        site: Its training.
        trainings: Number of trainings.
        at_once: Most trainings at the same time.
        time_limit_s: Time after which a job ends; 0 without a limit.
        checkpoint_every_s: Interval of checkpoints; 0 without checkpoints.
        interruptions_per_hour: Interruptions of a running job in an hour.
        startup_s: Time before a job trains.
    """

    folder: Path
    partition: str
    site: Site
    trainings: int
    at_once: int
    time_limit_s: float
    checkpoint_every_s: float
    interruptions_per_hour: float
    startup_s: float

    @classmethod
    def create(cls, folder: Path, name: str, site: Site, startup_s: float) -> Campaign:
        """Create a campaign of CAMPAIGNS.

        Args:
            folder: Its folder.
            name: Its name.
            site: Its training.
            startup_s: Time before a job trains.
        """
        keys = CAMPAIGNS[name]
        limit_s, every_s = (
            float(keys.get(name, "0 s").removesuffix(" s"))
            for name in ("time_limit", "checkpoint_every")
        )
        per_hour = float(keys.get("spot", {}).get("interruptions_per_hour", 0))
        number, at_once = keys["trainings"], keys["at_once"]
        partition = site.partition(name)
        own = cls(folder, partition, site, number, at_once, limit_s, every_s, per_hour, startup_s)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write(folder / "campaign.json", json.dumps(asdict(own), default=str))
        return own

    @classmethod
    def load(cls, folder: Path) -> Campaign:
        """Load the campaign of a folder."""
        found = json.loads((folder / "campaign.json").read_text())
        return cls(**{**found, "folder": folder, "site": Site(**found["site"])})

    def training(self, number: int) -> Path:
        """Return the folder of a training."""
        return self.folder / f"training={number}"

    def train(self, number: int) -> None:
        """Train what remains of a training, with checkpoints."""
        file = self.training(number) / "left_s"
        left_s = float(file.read_text())
        time.sleep(self.startup_s)
        every_s = self.checkpoint_every_s or left_s
        while left_s > every_s:
            time.sleep(every_s)
            left_s -= every_s
            write(file, str(left_s))
        time.sleep(left_s)

    def take_job(self, number: int) -> bool:
        """Return whether the caller is the one that submits the next job of a training."""
        job = self.training(number) / "job.json"
        try:
            job.rename(job.with_name("ended.json"))
        except FileNotFoundError:
            return False
        return True

    def note_job(self, began_s: float, ended_s: float) -> None:
        """Note the time of an ended job."""
        with (self.folder / "jobs.csv").open("a") as file:
            file.write(f"{ended_s - began_s}\n")

    def submit_next(self, number: int | None = None) -> None:
        """Submit a job that continues a training, or begins the next one if there is one.

        Args:
            number: Number of the training; None for the next one.
        """
        if number is None:
            number = next(filter(self._begin, range(self.trainings)), None)
        if number is not None:
            submit(self.partition, sys.executable, __file__, "--job", str(self.folder), str(number))

    def _begin(self, number: int) -> bool:
        """Return whether a training was not begun before; it is now."""
        folder = self.training(number)
        try:
            folder.mkdir()
        except FileExistsError:
            return False
        write(folder / "left_s", str(self.site.draw_training_s()))
        return True

    def interrupt_due_jobs(self) -> None:
        """Cancel jobs at the time of their interruption, and submit their next ones."""
        for number in range(self.trainings):
            try:
                job = json.loads((self.training(number) / "job.json").read_text())
            except FileNotFoundError:
                continue
            if time.time() >= job["due_s"] and self.take_job(number):
                subprocess.run(["scancel", job["id"]], check=True)
                self.note_job(job["began_s"], time.time())
                self.submit_next(number)

    def ends_s(self) -> list[float]:
        """Return when the trainings that are done ended, in seconds since 1970."""
        files = (self.training(number) / "done_s" for number in range(self.trainings))
        return [float(file.read_text()) for file in files if file.exists()]

    def job_hours(self) -> float:
        """Return the hours of all jobs."""
        return sum(map(float, (self.folder / "jobs.csv").read_text().split())) / 3600


def submit(partition: str, *words: str) -> None:
    """Submit a job of one node to a partition, as from outside any job."""
    environ = {k: v for k, v in os.environ.items() if k[:5] != "SLURM" or k == "SLURM_CONF"}
    options = [f"--partition={partition}", "--output=/dev/null", "--parsable", "--no-requeue"]
    wrapped = f"--wrap=exec {shlex.join(words)}"
    subprocess.run(
        ["sbatch", *options, wrapped], env=environ, check=True, stdout=subprocess.DEVNULL
    )


def run_campaigns(
    sites: list[Site], startups_s: dict[str, float], folder: Path
) -> dict[tuple[str, str], tuple[float, float]]:
    """Carry out all campaigns at the same time.

    Args:
        sites: The trainings.
        startups_s: Name of a site → time before a job trains.
        folder: Folder for the campaigns.

    Returns:
        (name of the campaign, name of the site) → duration in hours, node-hours.
    """
    campaigns: dict[tuple[str, str], Campaign] = {}
    began_s: dict[tuple[str, str], float] = {}
    due = [(name, site) for site in sites for name in CAMPAIGNS]
    due_s = time.time()
    while due or any(len(each.ends_s()) < each.trainings for each in campaigns.values()):
        if due and time.time() >= due_s:
            name, site = due.pop()
            startup_s = startups_s[site.name]
            campaign = Campaign.create(folder / name / site.name, name, site, startup_s)
            campaigns[name, site.name] = campaign
            began_s[name, site.name] = time.time()
            for _ in range(campaign.at_once):
                campaign.submit_next()
            due_s += STAGGER_S
        for campaign in campaigns.values():
            campaign.interrupt_due_jobs()
        time.sleep(POLL_S)
    return {
        key: ((max(each.ends_s()) - began_s[key]) / 3600, each.job_hours())
        for key, each in campaigns.items()
    }


# --- cluster, queue and sweep --------------------------------------------------------------------


@contextlib.contextmanager
def start_cluster(sites: list[Site], root: Path) -> Iterator[None]:
    """Start a cluster with a partition for each campaign; stop it at the end."""
    shape = f"{NODES}:cpus=1"
    partitions = [f"--partition={s.partition(name)}:{shape}" for s in sites for name in CAMPAIGNS]
    try:
        subprocess.run([CLUSTER, "up", "--root", root, *partitions], check=True)
        os.environ["SLURM_CONF"] = str(root / "etc/slurm.conf")
        yield
    finally:
        subprocess.run([CLUSTER, "down", "--root", root], check=True)


@contextlib.contextmanager
def fill_queues(sites: list[Site]) -> Iterator[None]:
    """Submit other jobs at random to all partitions, until the end of the context."""
    is_over = threading.Event()

    def draw_pause_s(site: Site) -> float:
        return random.expovariate(site.load * NODES / OTHER_JOB_S)

    def submit_jobs() -> None:
        due_s = {
            (site, site.partition(name)): time.time() + draw_pause_s(site)
            for site in sites
            for name in CAMPAIGNS
        }
        while not is_over.wait(POLL_S):
            for site, partition in due_s:
                while due_s[site, partition] < time.time():
                    submit(partition, "sleep", f"{random.expovariate(1 / OTHER_JOB_S):.1f}")
                    due_s[site, partition] += draw_pause_s(site)

    thread = threading.Thread(target=submit_jobs)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def state_intervals(
    name: str, sites: list[Site], folder: Path, runs: int
) -> dict[str, dict[str, str]]:
    """Measure the trainings by the workflow, unless they are, and return what it states.

    Args:
        name: Name of the campaigns.
        sites: The partitions.
        folder: Folder for the configuration; its name is the study's.
        runs: Number of runs of each training.

    Returns:
        Partition → row of campaign.csv.
    """
    import yaml

    file = folder / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    # runs queue behind each other as the trainings of a campaign do: as many at once in a partition
    at_once = CAMPAIGNS[name]["at_once"]
    for repeats in (*range(at_once, runs, at_once), runs):
        config = {
            "study": folder.name,
            "platforms": {
                site.name: {
                    "launcher": "srun",
                    "partition": site.partition("retried"),
                    "nodes_max": 1,
                    "cpus_per_node": 1,
                    "env": {"CAMPAIGN_SITE": json.dumps(asdict(site))},
                }
                for site in sites
            },
            "recipes": {
                "sleeps": {
                    "program": ["python3", "benchmarks/campaigns_on_slurm.py", "--train"],
                    "observe": "events",
                    "per_replica_batch_size": 1,
                    "epochs": 1,
                }
            },
            "grid": [
                {
                    "platform": [site.name for site in sites],
                    "strategy": "own",
                    "recipe": "sleeps",
                    "nodes": 1,
                    "repeats": repeats,
                }
            ],
            "question": {"campaign": CAMPAIGNS[name]},
        }
        file.write_text(yaml.safe_dump(config))
        options = ["--profile", "profiles/slurm", "--configfile", str(file), "--retries", "3"]
        # launchers that start together on one machine would delay each other
        options += ["--jobs", str(at_once * len(sites)), "--max-jobs-per-timespan", "12/1m"]
        subprocess.run([sys.executable, "-m", "snakemake", *options], cwd=REPOSITORY, check=True)
    with (folder / "details/conclusions/campaign.csv").open() as table:
        return {row["platform"]: row for row in csv.DictReader(table)}


def print_results(rows: list[dict[str, Any]]) -> bool:
    """Print the campaigns, and return whether enough are inside their intervals."""
    is_enough = True
    columns = [*rows[0]]
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        cells = (f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values())
        print(f"| {' | '.join(cells)} |")
    print("\n| campaigns | number | quantity | inside | below | above |\n|---|--:|---|--:|--:|--:|")
    for name in (*CAMPAIGNS, "all"):
        own = [row for row in rows if name in (row["campaign"], "all")]
        for what in ("hours", "node-hours"):
            below = sum(row[what] < row[f"{what}, low"] for row in own)
            above = sum(row[what] > row[f"{what}, high"] for row in own)
            share = 1 - (below + above) / len(own)
            print(f"| {name} | {len(own)} | {what} | {share:.0%} | {below} | {above} |")
            is_enough &= name != "all" or share >= SHARE_MIN
    return is_enough


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=15, help="at most 26")
    parser.add_argument("--runs", type=int, default=6, help="runs of each training")
    parser.add_argument("--seed", type=int, default=1)
    root = Path(tempfile.gettempdir()) / "tfscaling-campaigns"
    parser.add_argument("--root", type=Path, default=root, help="folder of the cluster")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        train(Site(**json.loads(os.environ["CAMPAIGN_SITE"])))
    elif args.job:
        run_job(Campaign.load(Path(args.job[0])), int(args.job[1]))
    else:
        sys.exit(not check(args))


def check(args: argparse.Namespace) -> bool:
    """Measure, state, run and compare; return whether enough campaigns are inside."""
    folder = REPOSITORY / f"results/campaigns-{args.seed}"
    sites = draw_sites(args.partitions, args.seed)
    with start_cluster(sites, args.root), fill_queues(sites):
        time.sleep(OTHER_JOB_S)  # until the queues are about as they stay
        stated = {name: state_intervals(name, sites, folder, args.runs) for name in CAMPAIGNS}
        startups_s = {name: float(row["startup_s"]) for name, row in stated["retried"].items()}
        happened = run_campaigns(sites, startups_s, folder / "campaigns")
    rows = []
    for name in CAMPAIGNS:
        for site in sites:
            said, (hours, node_hours) = stated[name][site.name], happened[name, site.name]
            row = {"campaign": name, **asdict(site)}
            for what, column, value, unit_s in (
                ("hours", "duration_s", hours, 3600),
                ("node-hours", "node_hours", node_hours, 1),
            ):
                row[what] = value
                for end, suffix in (("low", "_low"), ("median", ""), ("high", "_high")):
                    row[f"{what}, {end}"] = float(said[column + suffix]) / unit_s
            rows.append(row)
    return print_results(rows)


if __name__ == "__main__":
    main()
