"""`snakemake regressions`: a sweep against another one, with an exit status."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from project import Project

pytestmark = pytest.mark.full


def started_on_another_day(folder: Path) -> None:
    """Make the runs of a study, as its table has them, other ones than those of its records."""
    path = folder / "runs.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row | {"started": "2020-01-01T00:00:00+00:00"} for row in rows)


def test_a_sweep_against_its_own_runs_and_against_others(copied: Project) -> None:
    before = shutil.copytree(copied.folder / "results/main", copied.folder / "before")
    made = copied.made()
    words = ("regressions", "--config", "compare_with=before")
    refused = copied.snakemake(*words, check=False)
    rows = copied.table("results/main/details/conclusions/regressions.csv")
    assert refused.returncode == 1
    assert {row["verdict"] for row in rows} == {"not compared"}
    assert len(rows) == sum(row["status"] != "excluded" for row in copied.table())
    started_on_another_day(before)
    told = copied.snakemake(*words)  # changed tables are compared anew
    rows = copied.table("results/main/details/conclusions/regressions.csv")
    assert {row["verdict"] for row in rows} == {"cannot be told"}
    assert "against before: " in told.stdout
    assert 'id="regressions"' in (copied.folder / "results/main/report.html").read_text()
    assert copied.made() == made


def test_without_another_study_the_target_is_refused(copied: Project) -> None:
    done = copied.snakemake("regressions", "--dry-run", check=False)
    assert done.returncode != 0 and "compare_with names" in done.stdout
    done = copied.snakemake("--dry-run", "--config", "compare_with=nowhere", check=False)
    assert done.returncode != 0 and "nowhere/details/manifest.json" in done.stdout
    own = "compare_with=results/main"
    assert copied.snakemake("--dry-run", "--config", own, check=False).returncode != 0
