"""The conda environments have the versions of the lock, and the lock names no host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
LOCK = dict(
    re.findall(
        r"^([a-z0-9-]+)==([^ ;\\]+)", (REPOSITORY / "requirements.txt").read_text(), re.MULTILINE
    )
)


@pytest.mark.parametrize("name", ["environment", "environment-cuda"])
def test_conda_environment_has_the_versions_of_the_lock(name: str) -> None:
    content = yaml.safe_load((REPOSITORY / f"workflow/envs/{name}.yaml").read_text())
    packages = next(d["pip"] for d in content["dependencies"] if isinstance(d, dict))
    assert any(package.startswith("tensorflow") for package in packages)
    for package in packages:
        base, _, version = package.partition("==")
        assert LOCK[re.sub(r"\[.*\]", "", base)] == version


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-cuda.txt"])
def test_locks_have_hashes_and_name_no_host(name: str) -> None:
    text = (REPOSITORY / name).read_text()
    assert "://" not in text
    pinned = re.findall(r"^[a-z0-9-]+(?:\[[a-z,-]+\])?==\S+ (?:; .* )?\\$", text, re.MULTILINE)
    entries = re.findall(r"^[a-z0-9-]+(?:\[[a-z,-]+\])?==", text, re.MULTILINE)
    assert len(pinned) == len(entries) > 10
    assert text.count("--hash=sha256:") >= len(entries)
