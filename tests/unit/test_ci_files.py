"""The files for GitHub and GitLab run what `.ci/run` runs, with each supported Python."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from project import REPOSITORY


def github_job() -> dict[str, Any]:
    """Return the only job for GitHub."""
    text = (REPOSITORY / ".github/workflows/tests.yml").read_text()
    (job,) = yaml.safe_load(text)["jobs"].values()
    return dict(job)


def github() -> tuple[list[str], dict[str, list[str]], str]:
    """Return the commands, the values that they vary over, and the image."""
    job = github_job()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    commands = [command.replace("${{ matrix.target }}", "$TARGET") for command in commands]
    image = job["container"]["image"].replace("${{ matrix.python }}", "$PYTHON")
    return commands, job["strategy"]["matrix"], image


def gitlab() -> tuple[list[str], dict[str, list[str]], str]:
    """Return the commands, the values that they vary over, and the image."""
    job: dict[str, Any] = yaml.safe_load((REPOSITORY / ".gitlab-ci.yml").read_text())["tests"]
    (matrix,) = job["parallel"]["matrix"]
    return job["script"], {name.lower(): values for name, values in matrix.items()}, job["image"]


@pytest.mark.parametrize("read", [github, gitlab])
def test_every_step_is_a_target_with_every_python(read: Any) -> None:
    commands, matrix, image = read()
    assert commands == ["make $TARGET"] and image == "python:$PYTHON-bookworm"
    own = re.findall(r"^make ([\w-]+)", (REPOSITORY / ".ci/run").read_text(), re.MULTILINE)
    assert matrix["target"] == own
    targets = re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert {*own} <= {*targets}
    accepted = (REPOSITORY / "provision/find-python").read_text()
    (names,) = re.findall(r"candidates=\(python3 (.*)\)", accepted)
    assert sorted(matrix["python"]) == sorted(name.removeprefix("python") for name in names.split())


@pytest.mark.parametrize("is_github", [True, False])
def test_git_reads_a_checkout_of_another_user(is_github: bool, tmp_path: Path) -> None:
    """GitHub's checkout belongs to the runner's user, and the container's user is root."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "file").touch()
    environ = {
        **{name: text for name, text in os.environ.items() if not name.startswith("GIT_")},
        **(github_job()["env"] if is_github else {}),
        # what git's own tests use: every folder belongs to somebody else
        "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        ["git", "ls-files", "--others"], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert (done.stdout == "file\n") == is_github, done.stderr
    assert is_github or "dubious ownership" in done.stderr
