"""The scaling evidence for an application for compute time."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from project import REPOSITORY, Project

pytestmark = pytest.mark.full

#: pandoc's folder, in the package pypandoc_binary.
PANDOC = ".tools/pandoc/lib/python3*/site-packages/pypandoc/files"


def test_a_proposal_has_the_measured_scaling_and_the_node_hours(
    finished: Project, tmp_path: Path
) -> None:
    (pandoc,) = REPOSITORY.glob(PANDOC)
    project = finished.copy(tmp_path / "project")
    path = {"PATH": f"{pandoc}{os.pathsep}{os.environ['PATH']}"}
    project.snakemake("proposal", environ=path)
    folder = project.folder / "results/main/proposal"
    names = {"md", "tex", "docx"}
    assert {p.suffix[1:] for p in folder.glob("proposal.*")} == names
    text = (folder / "proposal.md").read_text()
    rows = [row for row in project.table() if row["execution_time_s"]]
    head: list[str] = []
    lines: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if cells[1:2] == ["nodes"]:
            head = cells
        elif "[records](" in line and line.startswith("|"):
            lines[line] = dict(zip(head, cells, strict=True))
    assert len(lines) == len(rows)
    for row in rows:
        hours = int(row["nodes"]) * float(row["execution_time_s"]) / 3600
        axes = [f"{axis}={row[axis]}/" for axis in ("recipe", "nodes", "gpus_per_node")]
        (line,) = [line for line in lines if all(axis in line for axis in axes)]
        link = re.search(r"\[records\]\((.*)\)", line)
        assert link and [*(folder / link[1]).glob("repeat=*/*/run.json")]
        # not by time: the text has the table's numbers
        assert float(lines[line]["node-hours"]) == pytest.approx(hours, rel=0.01)
    # the requests: node-hours of a training, one training, a fifth more
    asked = re.findall(r"\): ([\d.e-]+) node-hours.*\*\*([\d.e-]+) node-hours\*\*", text)
    assert len(asked) == 2
    for each, total in asked:
        assert float(total) == pytest.approx(1.2 * float(each), rel=2e-3)
    # each picture of the text exists, and the document holds text and pictures
    pictures = re.findall(r"!\[.*\]\((.*)\)", text)
    assert pictures and all((folder / name).stat().st_size > 10_000 for name in pictures)
    command: list[Any] = [pandoc / "pandoc", folder / "proposal.docx", "--to", "plain"]
    plain = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert plain.count("records") >= len(rows)
