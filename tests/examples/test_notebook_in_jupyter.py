"""The notebook of the examples, executed by Jupyter in its own environment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import make as screenshots
from project import REPOSITORY

NAME = "study.ipynb"


def test_jupyter_executes_the_notebook(tmp_path: Path) -> None:
    """On the kept runs of the README, with the packages of .venv-notebook alone."""
    screenshots.make(screenshots.PAGES["waiting"], tmp_path / "results/waiting")
    folder = tmp_path / "examples/notebook"
    folder.mkdir(parents=True)
    (tmp_path / "workflow").symlink_to(REPOSITORY / "workflow")
    (folder / NAME).write_bytes((REPOSITORY / "examples/notebook" / NAME).read_bytes())
    jupyter = REPOSITORY / ".venv-notebook/bin/jupyter-execute"
    done = subprocess.run(
        [jupyter, "--inplace", NAME], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cells = json.loads((folder / NAME).read_text())["cells"]
    outputs = [each for cell in cells for each in cell.get("outputs", [])]
    kinds = {kind for each in outputs for kind in each.get("data", ())}
    assert {"text/html", "image/png"} <= kinds
    printed = "".join("".join(each.get("text", "")) for each in outputs)
    assert "waiting: 24 runs, 4 configurations" in printed and "(supported)" in printed
