"""`repeat_until` on the real workflow: extra repeats where the interval is wide, nowhere else."""

from __future__ import annotations

import json
from typing import Any

import generator
from project import QUICK, SMALL_MODEL, Project
from tfscaling.spec.manifest import Manifest

CONTENT: dict[str, Any] = {
    "grid": [
        {"platform": "laptop", "model": SMALL_MODEL, "recipe": ["narrow", "wide"], "nodes": 1,
         "repeats": 6, "repeat_until": {"relative_interval": 0.05, "repeats_max": 7}},
    ],
    "recipes": {"narrow": QUICK, "wide": {**QUICK, "learning_rate": 0.005}},
}  # fmt: skip


def test_the_wide_point_is_repeated_until_its_limit_and_the_narrow_one_is_not(
    project: Project,
) -> None:
    """The first six runs are made up; the extra repeat trains for real."""
    project.overlay(CONTENT)
    project.snakemake("results/main/manifest.json")
    planned = Manifest.read(project.folder / "results/main/manifest.json")
    first = [run for run in planned.runs if not run.extra_repeat]
    generator.write_records(
        first,
        project.folder / "results/runs",
        lambda spec: 10.0 + (spec.repeat if spec.point.recipe == "wide" else 0.0),
        noise=0.0,
    )
    project.snakemake()
    made = {(r["axes"]["recipe"], r["axes"]["repeat"]) for r in project.records()}
    assert len(made) == 13 and ("wide", 7) in made
    rounds = [
        json.loads((project.folder / f"results/main/repeats/round={n}.json").read_text())
        for n in (1, 2)
    ]
    assert [made["added"] for made in rounds] == [1, 0]
    assert {p["recipe"]: p["verdict"] for p in rounds[1]["points"]} == {
        "narrow": "narrow enough",
        "wide": "too wide at repeats_max",
    }
    asked = {
        row["recipe"]: row["runs"] for row in project.table("results/main/tables/comparison.csv")
    }
    assert asked == {"narrow": "6", "wide": "7"}
    assert "Nothing to be done" in project.snakemake().stdout
