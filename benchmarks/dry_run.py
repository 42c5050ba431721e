#!/usr/bin/env python3
"""CPU time of `snakemake -n` for growing grids: the plan must stay quick to look at.

Prints one row per grid: runs, CPU seconds (user + system, median and range of --repeats calls).
"""

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]


def overlay(runs: int) -> dict:
    """A grid of `runs` runs over two platforms, ten recipes and up to 50 node counts."""
    recipe = {"per_replica_batch_size": 64, "learning_rate": 0.1, "epochs": 1}
    recipes = {f"recipe{number}": recipe for number in range(10)}
    nodes = min(50, max(1, runs // 20))
    block = {
        "platform": ["cpu", "gpu"],
        "model": "mnist_cnn",
        "recipe": list(recipes),
        "nodes": list(range(1, nodes + 1)),
        "gpus_per_node": 0,
        "repeats": max(1, runs // (20 * nodes)),
    }
    limits = {"nodes_max": 50}
    return {"grid": [block], "recipes": recipes, "platforms": {"cpu": limits, "gpu": limits}}


def dry_run_cpu_s(folder: Path) -> float:
    """CPU seconds of one dry-run in `folder`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [Path(sys.executable).parent / "snakemake", "--snakefile", REPOSITORY / "Snakefile",
         "--configfile", "overlay.yaml", "--profile", REPOSITORY / "profiles/slurm", "--dry-run"],
        cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    print("runs  cpu_s_median  cpu_s_min  cpu_s_max")
    for runs in args.runs:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            shutil.copytree(REPOSITORY / "config", folder / "config")
            (folder / "overlay.yaml").write_text(yaml.safe_dump(overlay(runs)))
            times = [dry_run_cpu_s(folder) for _ in range(args.repeats)]
        median = statistics.median(times)
        print(f"{runs:5}  {median:12.1f}  {min(times):9.1f}  {max(times):9.1f}", flush=True)


if __name__ == "__main__":
    main()
