#!/usr/bin/env python3
"""Time and memory of the tables of many runs: 10,000 records must be quick to look at.

Makes valid records of --runs runs (tests/generator.py), then runs collect.py, compare.py and
analyse.py on them as the rules do. Prints CPU seconds (user + system), wall time and peak memory
of each program. Exit status 1 if they take together more than --limit-s CPU seconds, or one more
than --limit-mb.
"""

import argparse
import csv
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SCRIPTS = REPOSITORY / "workflow/scripts"
sys.path[:0] = [str(SCRIPTS), str(REPOSITORY / "tests")]

import generator  # noqa: E402
from tfscaling.study import configuration, manifest  # noqa: E402

REPEATS = 6
COLUMNS = ["execution_time_s", "speedup", "scaling_efficiency", "loss", "accuracy", "cost_usd"]
PRICE = {"usd_per_node_hour": 0.5, "price_date": "2026", "price_source": "made up"}


@dataclass
class Usage:
    """What a program used."""

    cpu_s: float
    wall_s: float
    peak_mb: float


def expected_runs(runs: int) -> dict:
    """manifest.json of `runs` runs or a few more: platforms × recipes × nodes × GPUs × repeats."""
    nodes = math.ceil(runs / (2 * 5 * 5 * REPEATS))
    recipe = {"per_replica_batch_size": 64, "learning_rate": 0.1, "epochs": 8}
    recipes = {f"recipe{number}": recipe for number in range(5)}
    platform = {
        "launcher": "srun", "nodes_max": nodes, "cpus_per_node": 8, "gpus_per_node_max": 4,
        **PRICE,
    }  # fmt: skip
    block = {
        "platform": ["a", "b"],
        "model": "mnist_cnn",
        "recipe": list(recipes),
        "nodes": list(range(1, nodes + 1)),
        "gpus_per_node": [0, 1, 2, 3, 4],
        "repeats": REPEATS,
    }
    platforms = {name: {**platform, "cloud": name} for name in ("a", "b")}
    config = {"grid": [block], "recipes": recipes, "platforms": platforms}
    return manifest.expected_runs(configuration.validate(config))


def make(folder: Path, runs: int) -> None:
    """Write manifest.json and a record of every run."""
    expected = expected_runs(runs)
    (folder / "manifest.json").write_text(json.dumps(expected))
    generator.write_records(expected, folder / "runs")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run(script: str, *arguments: str, folder: Path) -> Usage:
    """Run one of the workflow's programs in `folder`; its output is not shown."""
    start = time.perf_counter()
    command = [sys.executable, str(SCRIPTS / script), *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    # of this child alone; getrusage has the peak of the largest child so far
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{script} failed with exit status {process.returncode}")
    wall_s = time.perf_counter() - start
    return Usage(used.ru_utime + used.ru_stime, wall_s, used.ru_maxrss / 1024)


def measure(folder: Path) -> dict[str, Usage]:
    collect = run(
        "collect.py", "--grid=manifest.json", "--runs-dir=runs", "--csv=runs.csv",
        "--parquet=runs.parquet", "--epochs=epochs.csv", folder=folder,
    )  # fmt: skip
    compare = run(
        "compare.py", "--runs=runs.csv", "--grid=manifest.json", "--title=Many runs",
        "--warnings=warnings.json",
        "--published", str(REPOSITORY / "resources/published_results.csv"),
        "--columns", *COLUMNS, "--csv=comparison.csv", "--md=comparison.md",
        "--tex=comparison.tex", "--html=comparison.html", "--platforms", "a.md", "b.md",
        folder=folder,
    )  # fmt: skip
    conclude = run(
        "analyse.py", "--comparison=comparison.csv", "--runs=runs.csv", "--grid=manifest.json",
        "--warnings=warnings.json",
        "--published", str(REPOSITORY / "resources/published_results.csv"),
        "--benchmarks-dir=benchmarks", "--output-dir=.", folder=folder,
    )  # fmt: skip
    return {"collect.py": collect, "compare.py": compare, "analyse.py": conclude}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10000)
    parser.add_argument("--limit-s", type=float, default=15.0)
    parser.add_argument("--limit-mb", type=float, default=1000.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aggregation-") as name:
        folder = Path(name)
        # in a process of its own: a program's peak counts from that of the process it is started by
        making = multiprocessing.Process(target=make, args=(folder, args.runs))
        making.start()
        making.join()
        used = measure(folder)
        runs, points = rows(folder / "runs.csv"), rows(folder / "comparison.csv")
    print(f"{len(runs)} runs, {len(points)} points")
    if any(row["status"] != "ok" for row in runs + points) or len(runs) < args.runs:
        sys.exit("not all runs are in the tables")
    total = Usage(
        sum(usage.cpu_s for usage in used.values()),
        sum(usage.wall_s for usage in used.values()),
        max(usage.peak_mb for usage in used.values()),
    )
    print("program     cpu_s  wall_s  peak_mb")
    for program, usage in {**used, "total": total}.items():
        print(f"{program:10}  {usage.cpu_s:5.1f}  {usage.wall_s:6.1f}  {usage.peak_mb:7.0f}")
    within = total.cpu_s <= args.limit_s and total.peak_mb <= args.limit_mb
    limits = f"{args.limit_s:g} CPU seconds and {args.limit_mb:g} MB"
    print(f"{'within' if within else 'NOT within'} {limits}")
    sys.exit(0 if within else 1)


if __name__ == "__main__":
    main()
