"""The files for GitHub and GitLab run what `.ci/run` runs, with each supported Python."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from project import REPOSITORY


def github() -> tuple[list[str], dict[str, list[str]], str]:
    """Return the commands, the values that they vary over, and the image."""
    (job,) = yaml.safe_load((REPOSITORY / ".github/workflows/tests.yml").read_text())[
        "jobs"
    ].values()
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
