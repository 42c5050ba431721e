"""`snakemake archive` on timings of a file: nothing is run, and roc-validator accepts the crate."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import pytest
from project import Project
from tools_of_tests import validate_crate

pytestmark = pytest.mark.full


def test_the_archive_of_timings_is_a_valid_crate(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    lines = [f"{nodes},64,{random.uniform(10, 90):.3f}" for nodes in (1, 2, 4)]
    text = "\n".join(["nodes,global_batch_size,execution_time_s", *lines, ""])
    (project.folder / "mine.csv").write_text(text)
    (project.folder / "mine.yaml").write_text("study: mine\ntimings: mine.csv\n")
    done = project.snakemake("archive", config=["mine.yaml"])
    path = project.folder / "results/mine/archive/mine.zip"
    assert "results/mine/archive/mine.zip" in done.stdout
    assert validate_crate(path, tmp_path / "cache") == ""
    with zipfile.ZipFile(path) as archive:
        page = (project.folder / "results/mine/report.html").read_bytes()
        assert archive.read("report.html") == page
