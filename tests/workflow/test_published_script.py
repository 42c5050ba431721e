"""`examples/published_script`: as published under `fit`, and with a few lines more on two nodes."""

from __future__ import annotations

import difflib
from pathlib import Path

import numpy as np
import pytest
from project import REPOSITORY, Project

pytestmark = pytest.mark.full

EXAMPLE = REPOSITORY / "examples/published_script"
EPOCHS, EXAMPLES = 2, 256


def test_ten_lines_of_the_script_are_changed_and_the_page_of_examples_shows_them() -> None:
    before, after = (
        (EXAMPLE / name).read_text().splitlines() for name in ("train.py", "train_loop.py")
    )
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-" and line[2:]]
    shown = (EXAMPLE.parent / "README.md").read_text().split("```diff\n")[1].split("```")[0]
    assert [line[0] + line[2:] for line in changed] == shown.splitlines()
    assert len(changed) <= 10


def test_the_published_script_runs_on_one_node_and_on_two(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    labels = np.arange(EXAMPLES, dtype=np.uint8) % 10
    images = np.zeros((EXAMPLES, 28, 28), np.uint8)
    images[np.arange(EXAMPLES), 2 * labels] = 255  # a line whose place is the digit
    (tmp_path / "results/datasets").mkdir(parents=True)
    np.savez(tmp_path / "results/datasets/mnist.npz", x_train=images, y_train=labels)
    block = {"platform": "laptop", "model": "published_script", "strategy": "own"}
    project.overlay(
        {
            "grid": [
                {**block, "recipe": "fit", "nodes": 1},
                {**block, "recipe": "loop", "nodes": 2},
            ],
            "recipes": {name: {"epochs": EPOCHS} for name in ("fit", "loop")},
        }
    )
    table = "results/published-script/comparison.csv"
    project.snakemake(table, config=[str(EXAMPLE / "config.yaml"), "overlay.yaml"])
    rows = {row["recipe"]: row for row in project.table(table)}
    assert {name: row["status"] for name, row in rows.items()} == {"fit": "ok", "loop": "ok"}
    for row in rows.values():
        assert float(row["examples_trained"]) == EPOCHS * EXAMPLES
        assert float(row["speedup"]) > 0 and float(row["train_time_s"]) > 0
    for record in project.records():
        assert [epoch["epoch"] for epoch in record["metrics"]["epochs"]] == [1, 2]
        assert record["phases"]["import_time_s"] > 0
        first, last = (epoch["loss"] for epoch in record["metrics"]["epochs"])
        assert last < first
