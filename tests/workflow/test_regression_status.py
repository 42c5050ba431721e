"""`snakemake regressions`: a sweep with known times against another one, with an exit status."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
import timed_runs
from project import Project

pytestmark = pytest.mark.full

#: Enough repeats to find an equal time equal.
CONTENT: dict[str, Any] = {
    "grid": [{"platform": "laptop", "strategy": "own", "recipe": "reports", "nodes": 1,
              "repeats": 8}],
    "recipes": {
        "reports": {"program": ["python3", timed_runs.FILE, "{epochs}", "4", "32", "0.8"],
                    "observe": "events", "per_replica_batch_size": 32, "epochs": 1},
    },
}  # fmt: skip
TIME_S = 20.0


def start_on_another_day(folder: Path) -> None:
    """Change when the runs in a study's table started, so that they are not this study's runs."""
    path = folder / "runs.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row | {"started": "2020-01-01T00:00:00+00:00"} for row in rows)


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("regressions"))
    project.overlay(CONTENT)
    timed_runs.make(project, lambda _: TIME_S)
    project.snakemake("results/main/comparison.csv")
    return project


def test_without_another_study_the_target_is_refused(timed: Project) -> None:
    done = timed.snakemake("regressions", "--dry-run", check=False)
    assert done.returncode != 0 and "compare_revisions" in done.stdout
    done = timed.snakemake("--dry-run", "--config", "compare_with=nowhere", check=False)
    assert done.returncode != 0 and "nowhere/details/manifest.json" in done.stdout
    own = "compare_with=results/main"
    assert timed.snakemake("--dry-run", "--config", own, check=False).returncode != 0


def test_a_sweep_against_its_own_runs_and_against_others(timed: Project, tmp_path: Path) -> None:
    project = timed.copy(tmp_path / "project")
    before = shutil.copytree(project.folder / "results/main", project.folder / "before")
    made = project.made()
    words = ("regressions", "--config", "compare_with=before")

    def verdicts() -> set[str]:
        rows = project.table("results/main/details/conclusions/regressions.csv")
        assert len(rows) == len(project.table())
        return {row["verdict"] for row in rows}

    refused = project.snakemake(*words, check=False)
    assert (refused.returncode, verdicts()) == (1, {"not compared"})
    start_on_another_day(before)
    done = project.snakemake(*words)  # changed tables are compared anew
    assert verdicts() == {"same"}
    assert "against before: " in done.stdout
    assert 'id="regressions"' in (project.folder / "results/main/report.html").read_text()
    assert project.made() == made
    timed_runs.set_times(project, lambda record: 1.5 * record["phases"]["execution_time_s"])
    done = project.snakemake(*words, check=False)
    assert (done.returncode, verdicts()) == (1, {"slower"})


def test_revisions_of_one_sweep_run_in_pairs_and_are_compared(project: Project) -> None:
    recipe = CONTENT["recipes"]["reports"]
    names = ["old", "new", "slow"]
    project.overlay({
        "grid": [{**CONTENT["grid"][0], "recipe": names}],
        "recipes": dict.fromkeys(names, recipe),
        "compare_revisions": names,
    })  # fmt: skip
    timed_runs.make(project, lambda run: TIME_S * (1.5 if run.point.recipe == "slow" else 1))
    done = project.snakemake("regressions", check=False)
    rows = project.table("results/main/details/conclusions/regressions.csv")
    verdicts = {row["recipe"]: row["verdict"] for row in rows}
    assert (done.returncode, verdicts) == (1, {"new": "same", "slow": "slower"})
    assert {row["reference"] for row in rows} == {"old"}
    assert 'id="regressions"' in (project.folder / "results/main/report.html").read_text()
