"""The questions of examples/questions, whose right answers follow from the pace of its program."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from project import REPOSITORY, Project
from shared import made_once

FOLDER = "examples/questions"
#: Overlay → study, goal, and what is right: a configuration that this question must choose.
ANSWERS = {
    "": ("questions", "execution_time_s", "batch256+precision=float32", 2),
    "deadline.yaml": ("questions-deadline", "cost_usd", "batch256+precision=float32", 2),
    "budget.yaml": ("questions-budget", "execution_time_s", "batch256+precision=float16", 1),
}


@pytest.fixture(scope="module")
def asked(mnist: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The runs, made once, and the three questions; the runs wait, so eight share the cores."""

    def ask(folder: Path) -> None:
        project = Project(folder)
        project.link_datasets(mnist)
        shutil.copytree(REPOSITORY / FOLDER, folder / FOLDER)
        made: list[dict[Path, int]] = []
        for overlay in ANSWERS:
            config = [f"{FOLDER}/{name}" for name in ("config.yaml", overlay) if name]
            project.snakemake("--resources", "training_runs=8", config=config)
            made.append({path: time for path, time in project.made().items() if path.stem == "run"})
        assert made[0] == made[1] == made[2]

    return Project(made_once(tmp_path_factory, "questions", ask))


@pytest.mark.parametrize("overlay", ANSWERS)
def test_the_right_configuration_is_named(asked: Project, overlay: str) -> None:
    study, goal, recipe, nodes = ANSWERS[overlay]
    rows = asked.table(f"results/{study}/details/conclusions/decision.csv")
    chosen = [row for row in rows if row["goal"] == goal and row["recipe"] == recipe]
    assert [(float(row["nodes"]), row["support"]) for row in chosen] == [(nodes, "supported")]
