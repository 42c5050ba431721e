"""A user's model and dataset: the example of docs/configuration/own-model.md, run unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from project import REPOSITORY, Project, axis

pytestmark = pytest.mark.full

SECTION = (
    (REPOSITORY / "docs/configuration/own-model.md")
    .read_text()
    .split("## Example\n")[1]
    .split("\n## ")[0]
)
#: File → content, of the blocks whose first line is a comment with the file's name.
FILES = dict(re.findall(r"```\w+\n# (\S+)\n(.*?)```", SECTION, re.DOTALL))
MODULE, CONFIG = "own/quarters.py", "quarters.yaml"
#: A study of one of two values of a parameter.
FILTERS: dict[str, Any] = {
    "study": "filters",
    "grid": [{"platform": "laptop", "model": "own.quarters:model",
              "recipe": "quarters+filters=4", "nodes": 1}],
    "recipes": {"quarters": {"parameters": {"filters": [4, 8]}}},
}  # fmt: skip


@pytest.fixture(scope="module")
def example(new_project: Callable[[str], Project]) -> Project:
    """The project folder after the example's sweep."""
    project = new_project("own")
    for name, content in FILES.items():
        (project.folder / name).parent.mkdir(exist_ok=True)
        (project.folder / name).write_text(content)
    project.snakemake(config=[CONFIG])
    return project


def test_the_example_has_a_module_and_a_configuration() -> None:
    assert list(FILES) == [MODULE, CONFIG]


def test_runs_of_the_users_model_are_ok_and_learn(example: Project) -> None:
    rows = example.table("results/quarters/comparison.csv")
    assert [(row["model"], row["nodes"], row["status"]) for row in rows] == [
        ("own.quarters:model", "1", "ok"),
        ("own.quarters:model", "2", "ok"),
    ]
    assert all(float(row["test_accuracy"]) > 0.9 for row in rows)


def test_records_and_data_name_the_users_functions(example: Project) -> None:
    for record in example.records():
        assert record["axes"]["model"] == "own.quarters:model"
        assert record["parameters"]["dataset"] == "own.quarters:data"
        assert record["ranks"][0]["model_parameters"] > 0
    provenance = example.folder / "results/datasets/own.quarters:data.json"
    facts = json.loads(provenance.read_text())
    assert facts["source"] == "function"
    assert facts["examples"]["x_train"] == 2000


def test_nothing_is_run_again(example: Project) -> None:
    assert "Nothing to be done" in example.snakemake("--dry-run", config=[CONFIG]).stdout


def test_runs_of_a_parameters_values_are_recipes_of_their_own_and_changed_code_makes_them_stale(
    example: Project, tmp_path: Path
) -> None:
    project = example.copy(tmp_path / "project")
    configs, name = [CONFIG, project.overlay(FILTERS)], "quarters+filters=4"
    project.snakemake(config=configs)
    records = {r["axes"]["recipe"]: r for r in project.records() if r["axes"]["nodes"] == 1}
    small, large = records[name], records["quarters"]
    assert small["parameters"]["parameters"] == {"filters": 4}
    assert small["ranks"][0]["model_parameters"] < large["ranks"][0]["model_parameters"]
    assert small["environment"]["user_code"].keys() == {MODULE}
    tables = "results/filters"
    (row,) = project.table(f"{tables}/comparison.csv")
    # not by time: it is compared with itself
    assert (row["recipe"], row["status"], row["speedup"]) == (name, "ok", "1.0")
    assert "Nothing to be done" in project.snakemake(config=configs).stdout

    module = project.folder / MODULE
    module.write_text(module.read_text() + "EDITED = True\n")
    assert project.planned(config=configs) == set()
    made = project.made()
    for _ in range(2):  # at the second there is nothing to do
        done = project.snakemake(config=configs, check=False)
        assert done.returncode == 1
        assert MODULE in done.stdout
        assert "--config rerun=stale" in done.stdout
    assert project.made() == made
    (row,) = project.table(f"{tables}/runs.csv")
    assert row["status"] == "stale"
    assert MODULE in row["reason"]

    rerun = ("--config", "rerun=stale")
    assert {axis(p, "recipe") for p in project.planned(*rerun, config=configs)} == {name}
    assert len(project.planned(*rerun, config=[CONFIG])) == 2
    project.snakemake(*rerun, config=configs)
    changed = [path for path, made_ns in project.made().items() if made_ns != made[path]]
    assert {path.suffix for path in changed} == {".npz", ".json"}
    (row,) = project.table(f"{tables}/runs.csv")
    assert row["status"] == "ok"
    assert project.planned(*rerun, config=configs) == set()


def test_a_mistake_is_one_line_before_anything_is_run(project: Project) -> None:
    (project.folder / "own").mkdir()
    (project.folder / MODULE).write_text(FILES[MODULE])
    project.overlay(yaml.safe_load(FILES[CONFIG].replace('"own.quarters:data"', "null")))
    done = project.snakemake(check=False)
    assert done.returncode != 0
    (line,) = [line for line in done.stdout.splitlines() if " is not allowed; " in line]
    assert re.match(r"overlay\.yaml: line \d+: recipes\.quarters\.dataset: null ", line)
    assert "model own.quarters:model of grid[0]" in line
    assert "Traceback" not in done.stdout
    assert not (project.folder / "results/runs").exists()
