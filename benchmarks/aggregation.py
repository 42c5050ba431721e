#!/usr/bin/env python3
"""CPU time and memory of the tables of many runs: 10,000 records must be quick to look at.

Makes valid records of --runs runs (tests/generator.py), then runs the stages collect, compare
and analyse on them, each as a program, --rounds times, in turns with a floor: a Python program that
reads and parses the same records and does nothing with them. Prints the median of the CPU seconds
(user + system) and the peak memory of each program, and how many times the floor they take. With
--against PATH, another checkout of the repository makes the same tables of its own records in the
same turns, and the ratio of the medians is printed with its 95 % interval (bootstrap).

Exit status 1 if they take more than --limit-mb, more than --limit-s CPU seconds where that is
given, or with --against more than --limit-ratio of the other checkout's CPU seconds; and if the
page of the study has more than --limit-page-mb for each 1,000 configurations (or less).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parents[1]
SCRIPTS = REPOSITORY / "workflow/scripts"
sys.path[:0] = [str(SCRIPTS), str(REPOSITORY / "tests")]
#: Stages of one round, in their order.
PROGRAMS = ("collect", "compare", "analyse")
COLUMNS = ("execution_time_s", "speedup", "scaling_efficiency", "loss", "accuracy", "cost_usd")
PRICE = {"usd_per_node_hour": 0.5, "price_date": "2026", "price_source": "made up"}
REPEATS = 6
#: Reads and parses every record with the standard library.
FLOOR = """
import json, pathlib
for path in pathlib.Path("runs").glob("**/run.json"):
    json.loads(path.read_bytes())
"""
#: Makes the records, or the tables, with the code of a checkout.
OF_CHECKOUT = """
import dataclasses, json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1] + "/benchmarks")
import aggregation
if sys.argv[2] == "make":
    aggregation.make(Path("."), int(sys.argv[3]))
else:
    used = aggregation.measure(Path("."))
    print(json.dumps([dataclasses.asdict(usage) for usage in used.values()]))
"""


@dataclass(frozen=True)
class Usage:
    """What a program used."""

    cpu_s: float
    wall_s: float
    peak_mb: float


@dataclass(frozen=True)
class Checkout:
    """A checkout of the repository, and the folder with the records that it made."""

    repository: Path
    folder: Path

    def make(self, runs: int) -> None:
        self._call("make", str(runs))

    def measure(self) -> dict[str, Usage]:
        used = json.loads(self._call("measure"))
        return {name: Usage(**usage) for name, usage in zip(PROGRAMS, used, strict=True)}

    def _call(self, *arguments: str) -> str:
        command = [sys.executable, "-c", OF_CHECKOUT, str(self.repository), *arguments]
        done = subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.PIPE)
        return done.stdout.decode()


def measure(folder: Path) -> dict[str, Usage]:
    """Make the tables of the records in `folder` once, with the programs of this checkout."""
    program = str(SCRIPTS / "tfscaling")
    return {
        stage: run([sys.executable, program, stage, "--study", "study"], folder)
        for stage in PROGRAMS
    }


def run(command: Sequence[str], folder: Path, stderr: int | None = None) -> Usage:
    """Run a program in `folder`; its output is not shown, its errors unless `stderr` is DEVNULL."""
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=stderr)
    # of this child alone; getrusage has the peak of the largest child so far
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command[:2])} failed with exit status {process.returncode}")
    wall_s = time.perf_counter() - start
    return Usage(used.ru_utime + used.ru_stime, wall_s, used.ru_maxrss / 1024)


def total(used: dict[str, Usage]) -> Usage:
    values = used.values()
    return Usage(
        sum(usage.cpu_s for usage in values),
        sum(usage.wall_s for usage in values),
        max(usage.peak_mb for usage in values),
    )


def ratio(own: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """(ratio of the medians, low, high): the interval by bootstrap, without a claim below 4."""
    draw = random.Random(0)

    def resampled(values: Sequence[float]) -> float:
        return median(draw.choices(values, k=len(values)))

    ratios = sorted(resampled(own) / resampled(others) for _ in range(1999))
    return median(own) / median(others), ratios[49], ratios[-50]


def make(folder: Path, runs: int) -> None:
    """Write a study of about this many runs, and a record of each."""
    import generator
    import msgspec
    from tfscaling.datasets.catalogue import DATASETS
    from tfscaling.study import acceptance, config_validation
    from tfscaling.study.registries import Registries
    from tfscaling.train.models import MODELS
    from tfscaling.train.strategies import STRATEGIES

    nodes = min(34, -(-runs // (2 * 5 * 5 * REPEATS)))
    of_recipe = 2 * 5 * nodes * REPEATS
    recipe = {"per_replica_batch_size": 64, "learning_rate": 0.1, "epochs": 8}
    recipes = {f"recipe{number}": recipe for number in range(max(5, runs // of_recipe))}
    platform = {"launcher": "srun", "nodes_max": nodes, "cpus_per_node": 8, "gpus_per_node_max": 4}
    block = {
        "platform": ["a", "b"],
        "model": "mnist_cnn",
        "recipe": list(recipes),
        "nodes": list(range(1, nodes + 1)),
        "gpus_per_node": [0, 1, 2, 3, 4],
        "repeats": REPEATS,
    }
    platforms = {name: {**platform, **PRICE, "cloud": name} for name in ("a", "b")}
    shown = {"title": "Many runs", "columns": list(COLUMNS)}
    published = {"path": str(REPOSITORY / "resources/published_results.csv")}
    raw = {"grid": [block], "recipes": recipes, "platforms": platforms}
    raw |= {"comparison": shown, "published": published}
    config = config_validation.convert_to_types(raw)
    made = acceptance.plan_grid(config, Registries(MODELS, STRATEGIES, DATASETS))
    (folder / "study/details").mkdir(parents=True)
    (folder / "study/details/config.json").write_bytes(msgspec.json.encode(config))
    made.write(folder / "study/details/manifest.json")
    generator.write_records(made.runs, folder / "runs")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def report(name: str, rounds: Sequence[dict[str, Usage]], floor_s: float) -> Usage:
    """Print what the programs of a checkout used, the median of the rounds; return their sum."""
    used = {
        program: Usage(
            *(
                median(getattr(one[program], key) for one in rounds)
                for key in ("cpu_s", "wall_s", "peak_mb")
            )
        )
        for program in PROGRAMS
    }
    print(f"{name:12}  cpu_s  wall_s  peak_mb")
    for program, usage in {**used, "total": total(used)}.items():
        print(f"{program:12}  {usage.cpu_s:5.1f}  {usage.wall_s:6.1f}  {usage.peak_mb:7.0f}")
    print(f"{total(used).cpu_s / floor_s:.2f} times the floor of {floor_s:.1f} CPU seconds")
    return total(used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--against", type=Path, help="another checkout of the repository")
    parser.add_argument("--limit-s", type=float)
    parser.add_argument("--limit-ratio", type=float, default=1.0)
    parser.add_argument("--limit-page-mb", type=float, default=5.0)
    parser.add_argument("--limit-mb", type=float, default=1000.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aggregation-") as name:
        checkouts = []
        for number, path in enumerate(filter(None, (REPOSITORY, args.against))):
            checkout = Checkout(path.resolve(), Path(name, str(number)))
            checkout.folder.mkdir()
            checkout.make(args.runs)
            checkouts.append(checkout)
        floors: list[float] = []
        rounds: list[list[dict[str, Usage]]] = [[] for _ in checkouts]
        for _ in range(args.rounds):
            floors.append(run([sys.executable, "-c", FLOOR], checkouts[0].folder).cpu_s)
            for checkout, measured in zip(checkouts, rounds, strict=True):
                measured.append(checkout.measure())
        folder = checkouts[0].folder
        runs, points = (rows(folder / f"study/{name}.csv") for name in ("runs", "comparison"))
        run([sys.executable, str(SCRIPTS / "tfscaling"), "report", "--study", "study"], folder)
        page_mb = (folder / "study/report.html").stat().st_size / 1e6
    print(f"{len(runs)} runs, {len(points)} configurations, page of {page_mb:.2f} MB")
    if any(row["status"] != "ok" for row in runs + points) or len(runs) < 0.99 * args.runs:
        sys.exit("not all runs are in the tables")
    floor_s = median(floors)
    used = report("program", rounds[0], floor_s)
    problems = []
    if page_mb > args.limit_page_mb * max(1, len(points) / 1000):
        problems.append(f"a page of more than {args.limit_page_mb:g} MB per 1,000 configurations")
    if used.peak_mb > args.limit_mb:
        problems.append(f"more than {args.limit_mb:g} MB")
    if args.limit_s is not None and used.cpu_s > args.limit_s:
        problems.append(f"more than {args.limit_s:g} CPU seconds")
    if args.against:
        report("other", rounds[1], floor_s)
        own, others = ([total(one).cpu_s for one in measured] for measured in rounds)
        value, low, high = ratio(own, others)
        print(f"{value:.2f} ({low:.2f}–{high:.2f}) of the CPU seconds of {args.against}")
        if value > args.limit_ratio:
            problems.append(f"more than {args.limit_ratio:g} of its CPU seconds")
    sys.exit("; ".join(problems) or 0)


if __name__ == "__main__":
    main()
