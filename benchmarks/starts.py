#!/usr/bin/env python3
"""CPU time and memory of a large study: its tables and page, a start without work, and a plan.

The first study has 500 configurations with four finished runs each (tests/generator.py).
`snakemake` makes its tables and page, and is then started again, with nothing to do. The second
study has 1,000 configurations with 50 runs each, none of them finished: `snakemake -- plan`. Prints
the CPU seconds (user + system, with all processes that were started) and the memory of the largest
process, the median of --rounds. With --against PATH, another checkout of the repository does the
same in turns. --share 0.1 makes a tenth of the runs, without limits.

Exit status 1 if this checkout exceeds a limit.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import aggregation
from aggregation import PRICE, REPOSITORY, Usage

SNAKEMAKE = Path(sys.executable).parent / "snakemake"
#: Writes records of all runs of overlay.json with the code of a checkout.
WRITE_RECORDS = """
import json, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1] + "/workflow/scripts", sys.argv[1] + "/tests"]
import generator
from tfscaling.datasets.catalogue import DATASETS
from tfscaling.study import acceptance, config_validation
from tfscaling.study.registries import Registries
from tfscaling.train.models import MODELS
from tfscaling.train.strategies import STRATEGIES

raw = json.loads(Path("overlay.json").read_text())
config = config_validation.convert_to_types(raw)
planned = acceptance.plan_grid(config, Registries(MODELS, STRATEGIES, DATASETS))
generator.write_records(planned.runs, Path("results/runs"))
"""


@dataclass(frozen=True)
class Start:
    """A start of Snakemake that is measured.

    Attributes:
        name: What it does.
        recipes: Number of recipes of its study, with 100 configurations each.
        repeats: Number of runs of a configuration.
        arguments: Further arguments of `snakemake`.
        cpu_s_max: Limit of its CPU seconds.
        mb_max: Limit of the memory of its largest process, in MB.
    """

    name: str
    recipes: int
    repeats: int
    arguments: Sequence[str] = ()
    cpu_s_max: float = math.inf
    mb_max: float = math.inf

    @property
    def study(self) -> str:
        """Name of the study's folder."""
        return f"{self.recipes * 100 * self.repeats}"


STARTS = (
    # 20 s of the tables and the page, and a start of Snakemake
    Start("tables and page", 5, 4, cpu_s_max=24.0),
    Start("nothing to do", 5, 4, cpu_s_max=4.0),
    Start("plan", 10, 50, ("--", "plan"), cpu_s_max=20.0, mb_max=300.0),
)


def overlay(recipes: int, repeats: int) -> dict[str, Any]:
    """Return the configuration of a study with 100 configurations for each recipe."""
    recipe = {"per_replica_batch_size": 64, "learning_rate": 0.1, "epochs": 8}
    named = {f"recipe{number}": recipe for number in range(recipes)}
    block = {
        "platform": ["a", "b"],
        "model": "mnist_cnn",
        "recipe": list(named),
        "nodes": list(range(1, 11)),
        "gpus_per_node": [0, 1, 2, 3, 4],
        "repeats": repeats,
    }
    platform = {"launcher": "local", "devices": "logical", "nodes_max": 10, "cpus_per_node": 8}
    platform |= {"gpus_per_node_max": 4, **PRICE}
    platforms = {name: {**platform, "cloud": name} for name in ("a", "b")}
    shown = {"title": "Many runs", "columns": list(aggregation.COLUMNS)}
    return {"grid": [block], "recipes": named, "platforms": platforms, "comparison": shown}


def prepare(checkout: Path, folder: Path, starts: Sequence[Start]) -> None:
    """Write the studies of these starts below `folder`, and the records of the first one."""
    for start in starts:
        study = folder / start.study
        if study.exists():
            continue
        shutil.copytree(checkout / "config", study / "config")
        (study / "overlay.json").write_text(json.dumps(overlay(start.recipes, start.repeats)))
        if not start.arguments:
            command = [sys.executable, "-c", WRITE_RECORDS, str(checkout)]
            subprocess.run(command, cwd=study, check=True)


def measure(checkout: Path, folder: Path, start: Start) -> Usage:
    """Run a start with the code of a checkout."""
    if start.name == STARTS[0].name:
        shutil.rmtree(folder / start.study / "results/main", ignore_errors=True)
    command = [str(SNAKEMAKE), "--snakefile", str(checkout / "Snakefile")]
    command += ["--profile", str(checkout / "profiles/local"), "--configfile", "overlay.json"]
    command += start.arguments
    return aggregation.run(command, folder / start.study, subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--against", type=Path, help="another checkout of the repository")
    parser.add_argument("--share", type=float, default=1.0, help="share of the runs, below 1")
    args = parser.parse_args()
    starts: Sequence[Start] = STARTS
    if args.share < 1:
        starts = [
            replace(
                each,
                recipes=math.ceil(each.recipes * args.share),
                cpu_s_max=math.inf,
                mb_max=math.inf,
            )
            for each in STARTS
        ]
    checkouts = [each.resolve() for each in filter(None, (REPOSITORY, args.against))]
    found: dict[tuple[str, Path], list[Usage]] = {}
    with tempfile.TemporaryDirectory(prefix="starts-") as name:
        folders = {each: Path(name, str(number)) for number, each in enumerate(checkouts)}
        for checkout, folder in folders.items():
            prepare(checkout, folder, starts)
        for _ in range(args.rounds):
            for start in starts:
                for checkout, folder in folders.items():
                    used = measure(checkout, folder, start)
                    found.setdefault((start.name, checkout), []).append(used)
    print("start            checkout  cpu_s  peak_mb")
    problems = []
    for start in starts:
        for checkout in checkouts:
            used_of = found[start.name, checkout]
            cpu_s = median(used.cpu_s for used in used_of)
            peak_mb = median(used.peak_mb for used in used_of)
            whose = "this" if checkout == checkouts[0] else "other"
            print(f"{start.name:15}  {whose:8}  {cpu_s:5.1f}  {peak_mb:7.0f}")
            if whose == "this" and cpu_s > start.cpu_s_max:
                problems.append(f"{start.name}: more than {start.cpu_s_max:g} CPU seconds")
            if whose == "this" and peak_mb > start.mb_max:
                problems.append(f"{start.name}: more than {start.mb_max:g} MB")
    sys.exit("; ".join(problems) or 0)


if __name__ == "__main__":
    main()
