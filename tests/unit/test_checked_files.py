"""Style and types of all programs are checked, except those that users write into `own/`."""

from __future__ import annotations

import subprocess
import sys
import tomllib
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


def programs() -> list[str]:
    """The project's files of Python, by their endings or their first lines."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    found = []
    for name in listed.stdout.splitlines():
        path = REPOSITORY / name
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                first = file.readline()
            if path.suffix == ".py" or (first.startswith(b"#!") and b"python" in first):
                found.append(name)
    return found


def test_types_of_every_program_are_checked() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["mypy"]
    given = [Path(name) for name in settings["files"]]
    missing = []
    for path in map(Path, programs()):
        # in a folder mypy finds names with an ending, and no hidden ones
        is_found = path.suffix == ".py" and not path.parts[0].startswith(".")
        if not {path, *(path.parents if is_found else ())}.intersection(given):
            missing.append(path)
    assert missing == []


def test_style_of_every_program_is_checked() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--show-files", "."]
    shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    checked = {Path(line).relative_to(REPOSITORY) for line in shown.stdout.splitlines()}
    assert [p for p in programs() if Path(p) not in checked] == []
