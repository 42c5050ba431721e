"""`snakemake scaling_badge` on timings of a file: nothing is run."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET
from pathlib import Path

from project import Project
from seeds import drawn_seed

TEXT = "{http://www.w3.org/2000/svg}text"
SEED = drawn_seed()


def test_the_badge_follows_the_timings(tmp_path: Path) -> None:
    """Two nodes take 0.55 times as long as one, and four nodes as long as two."""
    project, dice = Project(tmp_path / "project"), random.Random(SEED)
    times_s = {1: 1000.0, 2: 550.0, 4: 550.0}
    lines = [
        f"{nodes},64,{time_s * dice.uniform(0.99, 1.01):.3f}"
        for nodes, time_s in times_s.items()
        for _ in range(8)
    ]
    head = "nodes,global_batch_size,execution_time_s"
    (project.folder / "mine.csv").write_text("\n".join([head, *lines, ""]))
    (project.folder / "mine.yaml").write_text("study: mine\ntimings: mine.csv\n")
    done = project.snakemake("scaling_badge", config=["mine.yaml"])
    folder = project.folder / "results/mine/badge"
    assert "results/mine/badge/scaling.svg" in done.stdout
    root = ET.parse(folder / "scaling.svg").getroot()
    assert [each.text for each in root.iter(TEXT)] == ["scaling", "to 2 nodes (95 %)"], SEED
    assert "(scaling.svg)" in (folder / "scaling.md").read_text()
