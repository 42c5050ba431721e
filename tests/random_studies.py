"""Studies at random: platforms, recipes, nodes, prices, questions, runs of known times."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from builders import DIVERGENCE, raw_config, write_failure, write_record
from measured import PRICE
from tfscaling.plan.retries import SlurmSweep
from tfscaling.study import config_validation
from tfscaling.study.config_types import Config
from tfscaling.study.manifest import Manifest, PlannedRun

TITLES = (None, "A100 nodes", "A100 nodes", "<b>|é")
ENDINGS = ("ok", "ok", "ok", "ok", "diverged", "failed", "does_not_fit", "missing", "unfinished")


def random_config(dice: random.Random) -> Config:
    """A configuration with one or two platforms, some nodes, a question, perhaps a search."""
    names = dice.sample(["near", "far"], dice.choice([1, 2]))
    shape = {"launcher": "srun", "nodes_max": 8, "cpus_per_node": 2}
    platforms: dict[str, Any] = {}
    for name in names:
        price = dice.choice([None, 1.0, 2.5])
        priced = {**PRICE, "usd_per_node_hour": price} if price else {}
        title = dice.choice(TITLES)
        platforms[name] = {**shape, **priced, **({"title": title} if title else {})}
    recipes = dice.sample(["weak", "strong"], dice.choice([1, 1, 2]))
    nodes = sorted(dice.sample([1, 2, 3, 4], dice.randint(1, 3)))
    block = {"platform": names, "model": "mnist_cnn", "recipe": recipes,
             "nodes": nodes,
             "repeats": dice.choice([1, 3, 6, 8, 12])}  # fmt: skip
    goal = dice.choice(["execution_time_s", "execution_time_s", "cost_usd", "node_hours"])
    limits = dice.choice(
        [{}, {}, {"test_accuracy": {"at_least": 0.7}}, {"execution_time_s": {"at_most": 90}}]
    )
    question: dict[str, Any] = {"goal": goal, "limits": limits}
    if dice.random() < 0.3:
        question["choose"] = ["nodes"]
    if any(each.get("usd_per_node_hour") is None for each in platforms.values()):
        question["goal"] = "execution_time_s"
    raw = raw_config((("grid",), [block]), (("platforms",), platforms), (("question",), question))
    raw["recipes"]["strong"] = {"global_batch_size": 192, "learning_rate": 0.1, "epochs": 2}
    if dice.random() < 0.25 and len(nodes) > 1 and question["goal"] == "execution_time_s":
        raw["search"] = {}
    elif dice.random() < 0.2:
        raw["question"]["limits"] = {"scaling_efficiency": {"at_least": 0.7}}
    if dice.random() < 0.5:
        raw["question"]["trainings"] = dice.choice([1, dice.randint(2, 500)])
    return config_validation.convert_to_types(raw)


def write_runs(planned: Manifest, folder: Path, dice: random.Random) -> None:
    """Write what each run left: most are valid, some configurations end otherwise."""
    unit = 10 ** dice.uniform(-2, 3)
    start = dice.choice([0.05, 0.05, 0.7])
    points = {run.spec.point: dice.choice([0.0, 0.0, 0.3, 1.0]) for run in planned.runs}
    endings = {point: dice.choice(ENDINGS) for point in points}
    for run in planned.runs:
        point = run.spec.point
        if run.spec.repeat > 4 and run.extra_repeat:
            continue
        ending = endings[point] if dice.random() < points[point] else "ok"
        _write_run(run, folder, ending, unit * dice.uniform(0.95, 1.05) / point.nodes**0.7, start)


def _write_run(run: PlannedRun, folder: Path, ending: str, time_s: float, start: float) -> None:
    """Write the files of a run that ended in this way."""
    output = folder / run.spec.path / "run.json"
    if ending in ("ok", "diverged"):
        write_record(folder, run, time_s, DIVERGENCE * (ending == "diverged"))
    elif ending == "failed":
        write_failure(folder, run)
    elif ending == "does_not_fit":
        SlurmSweep({str(output): run.spec}).report_failure(output, "7", "OUT_OF_MEMORY")
    elif ending == "unfinished":
        (output.parent / "attempt=1").mkdir(parents=True)
