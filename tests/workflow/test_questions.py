"""Questions whose right answers follow from the known times and accuracies of the runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timed_runs
from project import Project
from shared import made_once
from tfscaling.estimation.run_counts import KEPT_RUNS
from tfscaling.study.run_spec import RunSpec

pytestmark = pytest.mark.full

EXAMPLES, EPOCHS, SEED = 2048, 2, 20261128
DEADLINE_S = 15.3
#: Recipe → batch size, examples per second, accuracy: a large batch is fast and inaccurate.
RECIPES = {
    "usual": (256, 1000 / 3, 0.8),
    "float16": (256, 2000 / 3, 0.8),
    "large": (2048, 2000 / 3, 0.68),
}


def time_s(spec: RunSpec) -> float:
    """Nodes share the computation of a step; each further node costs time in each step."""
    batch, examples_per_s, _ = RECIPES[spec.point.recipe]
    nodes = spec.point.nodes
    step_s = 0.03 + batch / examples_per_s / nodes + 0.2 * (nodes - 1)
    return 4.0 + EPOCHS * EXAMPLES // batch * step_s


BLOCK = {"platform": "paced", "model": "softmax", "strategy": "own", "repeats": KEPT_RUNS}
CONTENT: dict[str, Any] = {
    "grid": [
        {**BLOCK, "recipe": [*RECIPES], "nodes": 1},
        {**BLOCK, "recipe": "usual", "nodes": [2, 4]},
    ],
    "recipes": {
        name: {
            "program": ["python3", timed_runs.FILE, "{epochs}", str(EXAMPLES // batch),
                        "{global_batch_size}", str(accuracy)],
            "observe": "events", "train_examples": EXAMPLES, "global_batch_size": batch,
            "epochs": EPOCHS,
        }
        for name, (batch, _, accuracy) in RECIPES.items()
    },
    # one cent a second
    "platforms": {"paced": {"launcher": "local", "nodes_max": 4, "cpus_per_node": 1,
                            "usd_per_node_hour": 36, "price_date": "2026-11",
                            "price_source": "made up"}},
}  # fmt: skip
#: Study → its question, and what is right: the goal, the recipe, the nodes.
QUESTIONS: dict[str, tuple[dict[str, Any], tuple[str, str, int]]] = {
    # 16.8 s on 1 node, 13.8 s on 2, 17.2 s on 4
    "main": ({}, ("execution_time_s", "usual", 2)),
    # 1 node is cheaper, and too slow
    "deadline": (
        {"goal": "cost_usd", "limits": {"execution_time_s": {"at_most": DEADLINE_S}}},
        ("cost_usd", "usual", 2),
    ),
    # the large batch is faster and misses the accuracy; float32 costs more
    "budget": (
        {
            "choose": ["recipe", "nodes"], "goal": "execution_time_s",
            "limits": {"test_accuracy": {"at_least": 0.7}, "cost_usd": {"at_most": 0.15}},
        },
        ("execution_time_s", "float16", 1),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The runs, made once, and the three questions."""

    def ask(folder: Path) -> None:
        project = Project(folder)
        project.overlay(CONTENT)
        print("seed", SEED)
        timed_runs.make(project, time_s, seed=SEED)
        made = project.made()
        for study, (question, _) in QUESTIONS.items():
            project.overlay({**CONTENT, "study": study, "question": question})
            project.snakemake(f"results/{study}/comparison.csv")
            assert project.made() == made

    return Project(made_once(tmp_path_factory, "questions", ask))


@pytest.mark.parametrize("study", QUESTIONS)
def test_the_right_configuration_is_named(asked: Project, study: str) -> None:
    goal, recipe, nodes = QUESTIONS[study][1]
    rows = asked.table(f"results/{study}/details/conclusions/decision.csv")
    chosen = [row for row in rows if row["goal"] == goal and row["recipe"] == recipe]
    assert [(float(row["nodes"]), row["support"]) for row in chosen] == [(nodes, "supported")]
