"""What the configurations of the repository plan, with the geometry of each point."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import yaml
from project import REPOSITORY, Project, axis

AXES = ("strategy", "platform", "nodes", "gpus_per_node", "recipe")


def planned(project: Project, file: str) -> Counter[tuple[str, str, int, int, str]]:
    """(strategy, platform, nodes, GPUs per node, recipe) → runs that snakemake would start."""
    runs = project.planned(config=[str(REPOSITORY / file)])
    points = [[axis(path, name) for name in AXES] for path in runs]
    return Counter((strategy, p, int(n), int(g), recipe) for strategy, p, n, g, recipe in points)


def test_the_large_batch_study_reports_a_recipe_that_was_a_candidate(project: Project) -> None:
    batches = (64, 320, 640, 1280)
    assert planned(project, "studies/large-batch/config.yaml") == {
        ("single", "one-worker", 1, 0, f"{name}-{batch}"): 6 * 2  # models
        for name in ("published", "large-batch")
        for batch in batches
    }
    reported = recipes("studies/large-batch/config.yaml")
    chosen = {**reported["large-batch-1280"], "validation_examples": 5000}
    assert chosen in recipes("studies/large-batch/choice.yaml").values()
    # the schedule is the same for every batch; the rate follows the root of the batch
    rate = reported["large-batch-64"]["learning_rate"]
    for batch in batches:
        recipe = reported[f"large-batch-{batch}"]
        assert recipe.pop("learning_rate") == pytest.approx(rate * (batch / 64) ** 0.5, rel=5e-3)
        assert recipe.pop("global_batch_size") == batch
    same = [reported[f"large-batch-{batch}"] for batch in batches]
    assert all(recipe == same[0] for recipe in same)
    # as a recipe for any number of replicas
    general = recipes("config/config.yaml")["large_batch"]
    assert (general["per_replica_batch_size"], general["learning_rate"]) == (64, rate)
    assert general["learning_rate_scaling"] == "sqrt"
    of_one = {key: value for key, value in same[0].items() if key != "steps_per_execution"}
    assert of_one.items() <= general.items()


def test_the_candidates_for_large_batches_do_not_see_the_test_data(project: Project) -> None:
    candidates = recipes("studies/large-batch/choice.yaml")
    assert planned(project, "studies/large-batch/choice.yaml") == {
        ("single", "one-worker", 1, 0, name): 2 * 2 for name in candidates
    }
    assert {recipe["validation_examples"] for recipe in candidates.values()} == {5000}


def recipes(file: str) -> dict[str, dict[str, Any]]:
    """Return the recipes of a configuration, by name."""
    content = yaml.safe_load((REPOSITORY / file).read_text())
    found: dict[str, dict[str, Any]] = content["recipes"]
    return found


def test_the_first_steps_have_enough_runs_for_intervals(project: Project) -> None:
    assert planned(project, "config/first-steps.yaml") == {
        ("multi_worker_mirrored", "virtual", nodes, 0, "tiny"): 6 for nodes in (1, 2)
    }


def test_the_shipped_grid_uses_gpus_wherever_it_asks_for_gpu_nodes(project: Project) -> None:
    asked = {
        (platform, gpus > 0) for _, platform, _, gpus, _ in planned(project, "config/config.yaml")
    }
    assert asked == {("cpu", False), ("gpu", True)}


def test_the_repeats_study_has_enough_runs_for_intervals(project: Project) -> None:
    assert planned(project, "studies/repeats/config.yaml") == {
        ("multi_worker_mirrored", platform, nodes, gpus, "shrunk"): 6
        for platform, gpus in (("virtual-cpu", 0), ("virtual-gpu", 2))
        for nodes in (1, 2, 4)
    }


def test_the_plan_has_the_geometry_of_each_point(project: Project, slurm: dict[str, str]) -> None:
    """Among them: eight GPUs, the quota, as 8 x 1 and as 2 x 4; CUDA need not be installed."""
    files = ("studies/published/config.yaml", "provision/clouds/platforms.yaml")
    config = [str(REPOSITORY / file) for file in files]
    project.snakemake("plan", config=config, profile="slurm", environ=slurm, check=False)
    rows = project.table("results/published/details/plan.csv")
    assert len(rows) == 41 and {row["runs"] for row in rows} == {"6"}
    points = {(row["platform"], row["nodes"], row["gpus_per_node"]): row for row in rows}
    for nodes, gpus, options in (
        ("8", "1", ["--nodes=8", "--gres=gpu:1", "--ntasks-per-node=1"]),
        ("2", "4", ["--nodes=2", "--gres=gpu:4", "--cpus-per-task=2"]),
    ):
        line = points["gcp-n1-v100", nodes, gpus]["submission"]
        assert all(option in line for option in ["-p v100", *options]), line
