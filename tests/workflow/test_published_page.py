"""A CSV with the times of the published study gives the page that the documentation shows."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import make as screenshots
import pytest
from project import REPOSITORY, Project

pytestmark = pytest.mark.full

TIMINGS = "resources/published_results.csv"
#: As docs/timings.md has the command.
CONFIG = (
    "config/platforms.yaml",
    "provision/clouds/platforms.yaml",
    "studies/published/config.yaml",
    "studies/published/timings.yaml",
)
#: Columns that a file of timings may have: docs/timings.md.
COLUMNS = (
    *("platform", "model", "strategy", "nodes", "gpus_per_node", "tasks_per_node"),
    *("global_batch_size", "execution_time_s", "loss", "accuracy", "examples_trained"),
)


def test_somebodys_csv_of_the_published_times_gives_the_published_page(tmp_path: Path) -> None:
    """Its columns are in another order, without what timings do not need, and with a note."""
    project = Project(tmp_path / "project")
    with (REPOSITORY / TIMINGS).open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = random.sample(COLUMNS, len(COLUMNS))
    with (project.folder / TIMINGS).open("w", newline="") as file:
        writer = csv.DictWriter(file, [*columns, "my note"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**row, "my note": str(random.random())} for row in rows)
    project.snakemake(config=[str(REPOSITORY / name) for name in CONFIG])
    # the page of the documentation, at the same place of a folder with the published file
    reference = Project(tmp_path / "reference")
    example = screenshots.EXAMPLES["published"]._replace(project=reference.folder)
    page = screenshots.make(example, reference.folder / "results/published-2020")
    found = project.folder / "results/published-2020/report.html"
    assert found.read_bytes() == page.read_bytes()
