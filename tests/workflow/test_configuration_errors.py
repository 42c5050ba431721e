"""Bad configuration: one clear error that names file, key, value and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest
from project import TINY, Project
from tfscaling.conclusions.base import CONCLUSIONS

BLOCK = {"platform": "laptop", "model": "mnist_cnn", "recipe": "tiny", "nodes": [1, 2]}
GOOD: dict[str, Any] = {"grid": [BLOCK], "recipes": {"tiny": TINY}, "platforms": {"laptop": {}}}


def test_the_unchanged_configuration_is_good(project: Project) -> None:
    odd = "{x} {{ 'a' $(touch hacked) <script>"  # of which Snakemake and shells may make something
    titles = {"comparison": {"title": odd}, "plots": {"speedup": {"title": odd}}}
    project.overlay({**GOOD, **titles})
    assert "to do" in project.snakemake("--dry-run").stdout


def test_bad_configuration(project: Project) -> None:
    good = project.overlay(GOOD)
    (project.folder / "second.yaml").write_text("grid: [{nodez: 1}]\n")
    done = project.snakemake("--dry-run", config=[good, "second.yaml"], check=False)
    assert done.returncode != 0
    (line,) = [line for line in done.stdout.splitlines() if " is not allowed; " in line]
    assert line.startswith("second.yaml: line 1: grid[0].nodez: 1 is not allowed; unknown key; ")
    assert "Traceback" not in done.stdout
    assert not list(project.folder.glob("results/runs"))


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("study.yaml", b"grid: [\n", 2),
        ("study.yaml", b"\tseed: 1\n", 1),
        ("study.yaml", b"study: a\nseed: \xff\n", 2),
        ("study.yaml", None, 0),
        ("config/platforms.yaml", b"grid: [\n", 2),
        ("config/platforms.yaml", b"\xff\n", 1),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    name: str, content: bytes | None, line: int, project: Project
) -> None:
    """Only its message is printed, also where Snakemake reads the file before the workflow."""
    path, study = project.folder / name, project.folder / "study.yaml"
    if path != study:
        study.write_text("study: a\n")
    if content is not None:
        before = path.read_bytes() if path.exists() else b""
        path.write_bytes(before + content)
        line += before.count(b"\n")
    done = project.snakemake("--dry-run", config=["study.yaml"], check=False)
    assert done.returncode != 0
    start = f"{name}: line {line}: " if line else f"{name}: cannot be read: "
    (message,) = [text for text in done.stdout.splitlines() if not text.startswith("Using profile")]
    assert message.startswith(start)


@pytest.mark.parametrize("target", [[], ["plan"]], ids=["sweep", "plan"])
def test_a_cluster_that_no_platform_is_on_is_an_error(target: list[str], project: Project) -> None:
    project.overlay({**GOOD, "platforms": {"laptop": {"cluster": "here"}}})
    done = project.snakemake(*target, "--config", "cluster=hear", check=False)
    assert done.returncode != 0
    text = "cluster: \"hear\" is not allowed; did you mean 'here'? allowed: here"
    assert f"--config: {text}" in done.stdout.splitlines()
    assert not (project.folder / "results/main").exists()
    assert project.snakemake("--dry-run", "--config", "cluster=here").returncode == 0


def test_a_platform_may_have_the_name_of_any_table_or_file(project: Project) -> None:
    names = {"runs", "epochs", "comparison", "warnings", *CONCLUSIONS}
    kinds = {"launcher": "local", "nodes_max": 2, "cpus_per_node": 2}
    names |= {"platforms", "tables", "report", "plots", "grid", "runs.csv"}
    platforms = dict.fromkeys(sorted(names), kinds)
    project.overlay({**GOOD, "grid": [{**BLOCK, "platform": [*platforms]}], "platforms": platforms})
    project.snakemake("partial")
    table = project.table("results/main/partial/comparison.csv")
    assert {row["platform"] for row in table} == names
