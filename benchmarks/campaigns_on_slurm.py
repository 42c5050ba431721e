#!/usr/bin/env python3
"""Run campaigns on a virtual Slurm cluster, and compare them with the intervals stated before.

usage: campaigns_on_slurm.py [--partitions N] [--runs N] [--seed N], as root, after
provision/virtual/install.

Each partition has a training of known speed, scatter and faults, and other jobs in its queue. The
workflow measures it in a few runs, and states duration and node-hours of two campaigns. Both are
then carried out as chains of Slurm jobs, each in a separate partition with an equal queue:
`retried` has faults and no checkpoints; `resumed` has a time limit, checkpoints, faults, and
interruptions by scancel. Hours are compressed to minutes: trainings sleep for about four minutes.
The launcher of runs takes seconds, which is a twentieth of that. Jobs of campaigns are started
without it, and sleep for a start-up drawn from the start-ups of all runs. Slurm enforces limits to
the minute, so a job ends itself at its limit. Prints a table of the campaigns, a table of their
parts as measured in the runs and as they were in the campaigns, and ends with 1 if fewer than
SHARE_MIN of the campaigns are inside their intervals of duration or node-hours.
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
from statistics import fmean
from typing import Any, NamedTuple

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


def run_job(campaign: Campaign, number: int, submitted_s: float) -> None:
    """Continue a training in a Slurm job; at its end, submit the next job of this place.

    Args:
        campaign: The campaign.
        number: Number of the training.
        submitted_s: When the job was submitted, in seconds since 1970.
    """
    began_s, folder = time.time(), campaign.training(number)
    due_s = began_s + random.expovariate(campaign.interruptions_per_hour / 3600 or 1e-9)
    startup_s = random.choice(campaign.startups_s)
    job = JobTimes(number, submitted_s, began_s, startup_s)
    write(
        folder / "job.json",
        json.dumps({"id": os.environ["SLURM_JOB_ID"], "due_s": due_s, "times": job}),
    )
    child = os.fork()
    if not child:
        random.seed()  # not the numbers that the parent draws
        kill_at_random(campaign.site.failures_per_hour)
        campaign.train(number, startup_s)
        os._exit(0)
    if campaign.time_limit_s:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, campaign.time_limit_s)
    is_done = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    signal.setitimer(signal.ITIMER_REAL, 0)
    ended_s = time.time()
    if campaign.take_job(number):
        campaign.note_job(job, ended_s)
        if is_done:
            write(folder / "done_s", str(ended_s))
        campaign.submit_next(None if is_done else number)


def write(path: Path, text: str) -> None:
    """Write a file at once, so that no reader sees a part of it."""
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(text)
    part.rename(path)


class JobTimes(NamedTuple):
    """Times of a job of a campaign, in seconds; moments are since 1970."""

    training: int
    submitted_s: float
    began_s: float
    startup_s: float


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
        startups_s: Times before a job trains, of which each job draws one.
    """

    folder: Path
    partition: str
    site: Site
    trainings: int
    at_once: int
    time_limit_s: float
    checkpoint_every_s: float
    interruptions_per_hour: float
    startups_s: list[float]

    @classmethod
    def create(cls, folder: Path, name: str, site: Site, startups_s: list[float]) -> Campaign:
        """Create a campaign of CAMPAIGNS.

        Args:
            folder: Its folder.
            name: Its name.
            site: Its training.
            startups_s: Times before a job trains.
        """
        keys = CAMPAIGNS[name]
        limit_s, every_s = (
            float(keys.get(name, "0 s").removesuffix(" s"))
            for name in ("time_limit", "checkpoint_every")
        )
        per_hour = float(keys.get("spot", {}).get("interruptions_per_hour", 0))
        number, at_once = keys["trainings"], keys["at_once"]
        partition = site.partition(name)
        own = cls(folder, partition, site, number, at_once, limit_s, every_s, per_hour, startups_s)
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

    def train(self, number: int, startup_s: float) -> None:
        """Train what remains of a training, with checkpoints, after a start-up."""
        file = self.training(number) / "left_s"
        left_s = float(file.read_text())
        time.sleep(startup_s)
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

    def note_job(self, job: JobTimes, ended_s: float) -> None:
        """Add an ended job to the file of jobs."""
        with (self.folder / "jobs.csv").open("a") as file:
            file.write(",".join(map(str, (*job, ended_s))) + "\n")

    def submit_next(self, number: int | None = None) -> None:
        """Submit a job that continues a training, or begins the next one if there is one.

        Args:
            number: Number of the training; None for the next one.
        """
        if number is None:
            number = next(filter(self._begin, range(self.trainings)), None)
        if number is not None:
            words = [str(self.folder), str(number), str(time.time())]
            submit(self.partition, sys.executable, __file__, "--job", *words)

    def _begin(self, number: int) -> bool:
        """Return whether a training was not begun before; it is now."""
        folder = self.training(number)
        try:
            folder.mkdir()
        except FileExistsError:
            return False
        training_s = str(self.site.draw_training_s())
        write(folder / "training_s", training_s)
        write(folder / "left_s", training_s)
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
                self.note_job(JobTimes(*job["times"]), time.time())
                self.submit_next(number)

    def trainings_s(self) -> list[float]:
        """Return the seconds that the trainings take without start-ups and repeated parts."""
        return [
            float((self.training(number) / "training_s").read_text())
            for number in range(self.trainings)
        ]

    def ends_s(self) -> list[float]:
        """Return when the trainings that are done ended, in seconds since 1970."""
        files = (self.training(number) / "done_s" for number in range(self.trainings))
        return [float(file.read_text()) for file in files if file.exists()]

    def jobs(self) -> list[tuple[JobTimes, float]]:
        """Return the times of all ended jobs, and when each one ended, in seconds since 1970."""
        lines = csv.reader((self.folder / "jobs.csv").read_text().splitlines())
        return [
            (JobTimes(int(number), *map(float, times[:-1])), float(times[-1]))
            for number, *times in lines
        ]


def submit(partition: str, *words: str) -> None:
    """Submit a job of one node to a partition, as from outside any job."""
    environ = {k: v for k, v in os.environ.items() if k[:5] != "SLURM" or k == "SLURM_CONF"}
    options = [f"--partition={partition}", "--output=/dev/null", "--parsable", "--no-requeue"]
    wrapped = f"--wrap=exec {shlex.join(words)}"
    subprocess.run(
        ["sbatch", *options, wrapped], env=environ, check=True, stdout=subprocess.DEVNULL
    )


class Parts(NamedTuple):
    """Means of what a campaign consists of, in seconds, as runs or as jobs of campaigns have them.

    Attributes:
        wait_s: Wait of a job in the queue.
        startup_s: Time before a job trains.
        training_s: Time of a training without its start-up.
    """

    wait_s: float
    startup_s: float
    training_s: float


class Happened(NamedTuple):
    """How a campaign went.

    Attributes:
        hours: Hours from its start until all trainings were done.
        node_hours: Hours of all jobs.
        jobs: Number of jobs.
        parts: Means of its jobs and trainings.
    """

    hours: float
    node_hours: float
    jobs: int
    parts: Parts

    @classmethod
    def read(cls, campaign: Campaign, started_s: float) -> Happened:
        """Read the files of a campaign that is done.

        Args:
            campaign: The campaign.
            started_s: When it was started, in seconds since 1970.
        """
        jobs = campaign.jobs()
        return cls(
            (max(campaign.ends_s()) - started_s) / 3600,
            sum(ended_s - job.began_s for job, ended_s in jobs) / 3600,
            len(jobs),
            Parts(
                fmean(job.began_s - job.submitted_s for job, _ in jobs),
                fmean(job.startup_s for job, _ in jobs),
                fmean(campaign.trainings_s()),
            ),
        )


def run_campaigns(
    sites: list[Site], startups_s: list[float], folder: Path
) -> dict[tuple[str, str], Happened]:
    """Carry out all campaigns at the same time.

    Args:
        sites: The trainings.
        startups_s: Times before a job trains, of which each job draws one.
        folder: Folder for the campaigns.

    Returns:
        (name of the campaign, name of the site) → how it went.
    """
    campaigns: dict[tuple[str, str], Campaign] = {}
    began_s: dict[tuple[str, str], float] = {}
    due = [(name, site) for site in sites for name in CAMPAIGNS]
    due_s = time.time()
    while due or any(len(each.ends_s()) < each.trainings for each in campaigns.values()):
        if due and time.time() >= due_s:
            name, site = due.pop()
            campaign = Campaign.create(folder / name / site.name, name, site, startups_s)
            campaigns[name, site.name] = campaign
            began_s[name, site.name] = time.time()
            for _ in range(campaign.at_once):
                campaign.submit_next()
            due_s += STAGGER_S
        for campaign in campaigns.values():
            campaign.interrupt_due_jobs()
        time.sleep(POLL_S)
    return {key: Happened.read(each, began_s[key]) for key, each in campaigns.items()}


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

    words = ["python3", "benchmarks/campaigns_on_slurm.py", "--train"]
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
                "program": words,
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
                "repeats": runs,
            }
        ],
        "question": {"campaign": CAMPAIGNS[name]},
    }
    file = folder / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(config))
    # about as many runs at once in a partition as trainings of a campaign
    jobs = str(CAMPAIGNS[name]["at_once"] * len(sites))
    options = ["--profile", "profiles/slurm", "--configfile", str(file), "--jobs", jobs]
    # launchers that start together on one machine would delay each other
    options += ["--retries", "3", "--max-jobs-per-timespan", "12/1m"]
    subprocess.run([sys.executable, "-m", "snakemake", *options], cwd=REPOSITORY, check=True)
    with (folder / "details/conclusions/campaign.csv").open() as table:
        return {row["platform"]: row for row in csv.DictReader(table)}


def read_runs(folder: Path) -> dict[str, tuple[Parts, list[float]]]:
    """Return site → means of its measured runs, and the start-up of each run in seconds.

    Args:
        folder: Folder of the sweep's results.
    """
    by_site: dict[str, list[tuple[float, float, float]]] = {}
    with (folder / "runs.csv").open() as table:
        for row in csv.DictReader(table):
            if row["status"] == "ok":
                names = ("wall_time_s", "train_time_s", "step_time_s", "queue_time_s")
                wall_s, after_first_s, step_s, wait_s = (float(row[name]) for name in names)
                training_s = after_first_s + step_s  # as `conclusions.campaign` has it
                own = by_site.setdefault(row["platform"], [])
                own.append((wait_s, wall_s - training_s, training_s))
    return {
        site: (Parts(*map(fmean, zip(*own, strict=True))), [run[1] for run in own])
        for site, own in by_site.items()
    }


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print rows of equal keys as a table."""
    columns = [*rows[0]]
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        cells = (f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values())
        print(f"| {' | '.join(cells)} |")


def print_results(rows: list[dict[str, Any]]) -> bool:
    """Print the campaigns, and return whether enough are inside their intervals."""
    is_enough = True
    print_table(rows)
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
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        train(Site(**json.loads(os.environ["CAMPAIGN_SITE"])))
    elif args.job:
        folder, number, submitted_s = args.job
        run_job(Campaign.load(Path(folder)), int(number), float(submitted_s))
    else:
        sys.exit(not check(args))


def check(args: argparse.Namespace) -> bool:
    """Measure, state, run and compare; return whether enough campaigns are inside."""
    folder = REPOSITORY / f"results/campaigns-{args.seed}"
    sites = draw_sites(args.partitions, args.seed)
    with start_cluster(sites, args.root), fill_queues(sites):
        time.sleep(OTHER_JOB_S)  # until the queues are about as they stay
        stated = {name: state_intervals(name, sites, folder, args.runs) for name in CAMPAIGNS}
        measured = read_runs(folder)
        startups_s = [each for _, own in measured.values() for each in own]
        happened = run_campaigns(sites, startups_s, folder / "campaigns")
    rows, part_rows = [], []
    for name in CAMPAIGNS:
        for site in sites:
            said, own = stated[name][site.name], happened[name, site.name]
            row = {"campaign": name, **asdict(site)}
            for what, column, value, unit_s in (
                ("hours", "duration_s", own.hours, 3600),
                ("node-hours", "node_hours", own.node_hours, 1),
            ):
                row[what] = value
                for end, suffix in (("low", "_low"), ("median", ""), ("high", "_high")):
                    row[f"{what}, {end}"] = float(said[column + suffix]) / unit_s
            rows.append(row)
            parts = {"jobs, expected": float(said["jobs"]), "jobs": own.jobs}
            for part in Parts._fields:
                parts[f"{part}, runs"] = getattr(measured[site.name][0], part)
                parts[f"{part}, campaign"] = getattr(own.parts, part)
            part_rows.append({"campaign": name, "name": site.name, **parts})
    print_table(part_rows)
    return print_results(rows)


if __name__ == "__main__":
    main()
