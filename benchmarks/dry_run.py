#!/usr/bin/env python3
"""CPU time of `snakemake -n` against a bare Snakefile with as many jobs, both in turn in one run.

The bare Snakefile has one rule with the same wildcards, one input and one output per job, and the
same list of targets: what Snakemake itself needs for a sweep of this size. Prints one row per size:
jobs, CPU seconds (user + system, median) of both sides, the ratio of the medians, and the interval
of the ratio. With 6 pairs, the range of the paired ratios covers their median with 97 %.
"""

import argparse
import itertools
import json
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
SNAKEMAKE = Path(sys.executable).parent / "snakemake"
RUN = (
    "results/runs/platform={platform}/model={model}/strategy={strategy}/recipe={recipe}/"
    "nodes={nodes}/gpus_per_node={gpus_per_node}/tasks_per_node={tasks_per_node}/repeat={repeat}"
)
BARE = f"""
import json


rule all:
    input:
        json.load(open("targets.json")),


rule train:
    input:
        "results/datasets/mnist.npz",
    output:
        "{RUN}/run.json",
    shell:
        "train --dataset {{input}} >{{output}}"


rule prepare_dataset:
    output:
        "results/datasets/mnist.npz",
    shell:
        "prepare >{{output}}"
"""


def overlay(runs: int) -> dict[str, Any]:
    """Return a grid of `runs` runs over two platforms, ten recipes and up to 50 node counts."""
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


def targets(content: dict[str, Any]) -> list[str]:
    """Return the files that all runs of the grid's block leave."""
    (block,) = content["grid"]
    points = itertools.product(block["platform"], block["recipe"], block["nodes"])
    return [
        f"{RUN}/run.json".format(
            platform=platform, model=block["model"], strategy="multi_worker_mirrored",
            recipe=recipe, nodes=nodes, gpus_per_node=0, tasks_per_node=1, repeat=repeat,
        )
        for platform, recipe, nodes in points
        for repeat in range(1, block["repeats"] + 1)
    ]  # fmt: skip


def dry_run_cpu_s(folder: Path, snakefile: Path, arguments: Sequence[str]) -> float:
    """Return CPU seconds (user + system) of one dry-run in `folder`."""
    profile = REPOSITORY / "profiles/slurm"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [SNAKEMAKE, "--snakefile", snakefile, *arguments, "--profile", profile, "--dry-run"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[1000, 12000])
    parser.add_argument("--pairs", type=int, default=6, help="dry-runs of each side")
    args = parser.parse_args()
    print(" runs  workflow_cpu_s  bare_cpu_s  ratio  interval", flush=True)
    for runs in args.runs:
        with tempfile.TemporaryDirectory() as name:
            folder, content = Path(name), overlay(runs)
            shutil.copytree(REPOSITORY / "config", folder / "config")
            (folder / "overlay.yaml").write_text(yaml.safe_dump(content))
            (folder / "targets.json").write_text(json.dumps(targets(content)))
            (folder / "Bare").write_text(BARE)
            pairs = [
                (
                    dry_run_cpu_s(
                        folder, REPOSITORY / "Snakefile", ["--configfile", "overlay.yaml"]
                    ),
                    dry_run_cpu_s(folder, folder / "Bare", []),
                )
                for _ in range(args.pairs)
            ]
        workflow_s, bare_s = (median(times) for times in zip(*pairs, strict=True))
        ratios = [workflow / bare for workflow, bare in pairs]
        print(
            f"{runs:5}  {workflow_s:14.1f}  {bare_s:10.1f}  {workflow_s / bare_s:5.2f}  "
            f"{min(ratios):.2f}–{max(ratios):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
