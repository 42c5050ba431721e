"""The page of a large study: its size, and what its plots leave to the tables."""

from __future__ import annotations

import re
from pathlib import Path

import aggregation
import pytest
from tfscaling.page import plot_figure
from tfscaling.stages import write_page
from tfscaling.stages.study_folder import StudyFolder

CONFIGURATIONS = 500
PAGE_MB_MAX = 5.0


@pytest.mark.full
def test_a_page_of_500_configurations_has_at_most_five_megabytes(tmp_path: Path) -> None:
    """Records with known times, six of each configuration, eight epochs in each."""
    aggregation.make(tmp_path, CONFIGURATIONS * aggregation.REPEATS)
    study = StudyFolder(tmp_path / "study")
    for stage in write_page.STAGES:
        stage(study)
    page = (study.folder / "report.html").read_bytes()
    assert len(study.read_table("comparison")) == CONFIGURATIONS
    assert len(page) <= PAGE_MB_MAX * 1e6
    plots = re.findall(r"<svg.*?</svg>", page.decode(), re.DOTALL)
    lines = [len(set(re.findall(r'data-line="([^"]*)"', plot))) for plot in plots]
    assert max(lines) == plot_figure.LINES_DRAWN_MAX
    assert any(f"{CONFIGURATIONS - max(lines)} other lines" in plot for plot in plots)
