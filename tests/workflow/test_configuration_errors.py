"""Bad configuration: one clear error that names file, key, value and what is allowed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from project import TINY, Project
from tfscaling.conclusions.base import CONCLUSIONS

BLOCK = {"platform": "laptop", "model": "mnist_cnn", "recipe": "tiny", "nodes": [1, 2]}
GOOD: dict[str, Any] = {"grid": [BLOCK], "recipes": {"tiny": TINY}, "platforms": {"laptop": {}}}

#: name → (change of the good configuration, what the message must contain)
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "unknown key": ({"grid.0.nodez": [1]}, ["grid[0].nodez", "unknown key", "nodes"]),
    "unknown model": ({"grid.0.model": "vgg"}, ["grid[0].model", "vgg", "mnist_cnn"]),
    "study outside of results": ({"study": "../up"}, ["study", "../up", "letters, digits"]),
}  # fmt: skip


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """The good configuration with `dotted.key: value` set."""
    content = copy.deepcopy(GOOD)
    for dotted, value in changes.items():
        target: Any = content
        *steps, last = dotted.split(".")
        for step in steps:
            target = target[int(step)] if isinstance(target, list) else target.setdefault(step, {})
        if isinstance(target, list):
            target.insert(int(last), value)
        else:
            target[last] = value
    return content


def test_the_unchanged_configuration_is_good(project: Project) -> None:
    odd = "{x} {{ 'a' $(touch hacked) <script>"  # of which Snakemake and shells may make something
    project.overlay(changed({"comparison.title": odd, "plots": {"speedup": {"title": odd}}}))
    assert "train" in project.snakemake("--dry-run").stdout


@pytest.mark.parametrize("name", CASES)
def test_bad_configuration(name: str, project: Project) -> None:
    changes, expected = CASES[name]
    project.overlay(changed(changes))
    done = project.snakemake("--dry-run", check=False)
    assert done.returncode != 0
    lines = [line for line in done.stdout.splitlines() if line.startswith("overlay.yaml: ")]
    assert len(lines) == 1, done.stdout
    for text in expected:
        assert text in lines[0]
    assert "Traceback" not in done.stdout
    assert not list(project.folder.glob("results/runs"))


#: name → (text of an overlay over the good configuration, how the message begins behind its name)
TEXTS = {
    "not finite": ("seed: .inf\n", 'seed: ".inf" is not allowed; '),
    "newline": ('recipes: {"a\\n": {}}\n', 'recipes: "a\\n" is not allowed; '),
    "long name": (f"recipes: {{{'a' * 300}: {{}}}}\n", 'recipes: "aaaaaaa'),
    "option of sbatch": (
        "platforms: {laptop: {extra: --nodes=7}}\n",
        'platforms.laptop.extra: "--nodes=7" is not allowed; ',
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_file_says_is_not_read_as_something_else(name: str, project: Project) -> None:
    text, expected = TEXTS[name]
    good = project.overlay(GOOD)
    (project.folder / "second.yaml").write_text(text)
    done = project.snakemake("--dry-run", config=[good, "second.yaml"], check=False)
    assert done.returncode != 0
    (line,) = [line for line in done.stdout.splitlines() if " is not allowed; " in line]
    assert line.startswith(f"second.yaml: {expected}")
    assert "Traceback" not in done.stdout


def test_a_file_that_is_no_yaml_is_named(project: Project) -> None:
    """Only those in config/: what `--configfile` names is read before the workflow."""
    project.overlay(GOOD)
    path = project.folder / "config/config.yaml"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, "grid: [", ""]))
    done = project.snakemake("--dry-run", check=False)
    assert done.returncode != 0
    place = f"config/config.yaml: line {len(lines) + 2}: "
    assert any(line.startswith(place) for line in done.stdout.splitlines()), done.stdout
    path.write_bytes(b"\xff\n")
    done = project.snakemake("--dry-run", check=False)
    assert any(line.startswith("config/config.yaml: ") for line in done.stdout.splitlines())
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize("target", [[], ["plan"]], ids=["sweep", "plan"])
def test_a_cluster_that_no_platform_is_on_is_an_error(target: list[str], project: Project) -> None:
    project.overlay(changed({"platforms.laptop.cluster": "here"}))
    done = project.snakemake(*target, "--config", "cluster=hear", check=False)
    assert done.returncode != 0
    text = "cluster: \"hear\" is not allowed; did you mean 'here'? allowed: aws, gcp, here"
    assert f"--config: {text}" in done.stdout.splitlines()
    assert not (project.folder / "results/main").exists()
    assert project.snakemake("--dry-run", "--config", "cluster=here").returncode == 0


def test_a_platform_may_have_the_name_of_any_table_or_file(project: Project) -> None:
    names = {"runs", "epochs", "comparison", "warnings", *CONCLUSIONS}
    kinds = {"launcher": "local", "nodes_max": 2, "cpus_per_node": 2}
    names |= {"platforms", "tables", "report", "plots", "grid", "runs.csv"}
    content = changed({"grid.0.platform": sorted(names)})
    content["platforms"] = dict.fromkeys(sorted(names), kinds)
    project.overlay(content)
    project.snakemake("partial")
    table = project.table("results/main/partial/comparison.csv")
    assert {row["platform"] for row in table} == names


def test_the_value_of_the_command_line_is_named(project: Project) -> None:
    project.overlay(GOOD)
    done = project.snakemake("--dry-run", "--config", "seed=-1", check=False)
    assert done.returncode != 0
    assert "--config: seed: -1 is not allowed; allowed: " in done.stdout
