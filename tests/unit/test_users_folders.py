"""What users write into `own/` is no part of the project's checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from project import REPOSITORY


@pytest.mark.parametrize(("folder", "is_checked"), [("own", False), ("workflow", True)])
def test_style_is_checked_outside_of_users_folders(
    tmp_path: Path, folder: str, is_checked: bool
) -> None:
    for name in (".gitignore", "pyproject.toml"):
        (tmp_path / name).write_text((REPOSITORY / name).read_text())
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "training.py").write_text("import os\n")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "."]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ("training.py" in found.stdout) == is_checked
    untracked = ["git", "status", "--short", "--untracked-files=all"]
    status = subprocess.run(untracked, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (f"{folder}/training.py" in status.stdout) == is_checked
