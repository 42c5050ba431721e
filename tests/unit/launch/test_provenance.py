"""Host, start and commit of a run."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
from tfscaling.launch import provenance
from tfscaling.record.run_record import Origin, SlurmJob


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one commit, untouched by the settings of this machine's user."""
    for name in list(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (tmp_path / "file").write_text("one")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.invalid"]
    for words in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "-m", "one"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


def test_the_whole_commit_of_a_clean_checkout(checkout: Path) -> None:
    assert re.fullmatch(r"[0-9a-f]{40}", provenance.git_commit(checkout) or "")


def test_local_changes_are_marked(checkout: Path) -> None:
    clean = provenance.git_commit(checkout)
    (checkout / "file").write_text("two")
    assert provenance.git_commit(checkout) == f"{clean}-dirty"


def test_outside_a_checkout_there_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.git_commit(tmp_path) is None


def test_without_git_there_is_no_commit(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert provenance.git_commit(checkout) is None


def test_environment_of_a_record(checkout: Path) -> None:
    settings = {"TaskPlugin": "none"}
    code = {"own.py": "a1"}
    job = SlurmJob(id="12")
    described = provenance.describe(checkout, 1_700_000_000.25, job, settings, code)
    assert described == Origin(
        launcher_host=socket.gethostname(),
        started="2023-11-14T22:13:20.250+00:00",
        git_commit=provenance.git_commit(checkout),
        slurm_job=SlurmJob(id="12"),
        slurm_settings=settings,
        user_code=code,
    )


def test_a_copy_of_a_module_from_git_knows_its_commit(tmp_path: Path) -> None:
    scripts = tmp_path / "abc/workflow/scripts"
    scripts.mkdir(parents=True)
    (tmp_path / "abc/git_commit").write_text("abc\n")
    assert provenance.git_commit(scripts) == "abc"
