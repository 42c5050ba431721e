"""What users type to `make`: the targets of its help, runs and pages."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from project import REPOSITORY

MAKEFILE = REPOSITORY / "Makefile"


def listed(target: str) -> set[str]:
    """The targets that `make TARGET` lists."""
    command = ["make", "--file", str(MAKEFILE), target]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  (\S+) ", shown, re.MULTILINE))


def test_help_has_the_targets_of_users_and_help_dev_all_others() -> None:
    targets = re.search(r"^\.PHONY: (.*)$", MAKEFILE.read_text(), re.MULTILINE)
    assert targets
    users, others = listed("help"), listed("help-dev")
    assert {"demo", "own", "run", "view"} <= users and len(users) <= 8 and not users & others
    unlisted = {"help", "help-dev"}
    assert set(targets[1].split()) - users - others == unlisted


def pytest_command(target: str) -> list[str]:
    """The words of the target's command that starts pytest."""
    words = ["make", "--file", str(MAKEFILE), "--dry-run", "--old-file", ".venv/.installed", target]
    shown = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    (command,) = [line for line in shown.splitlines() if line.startswith("pytest ")]
    return shlex.split(command)[1:]


def test_each_test_is_in_one_circle() -> None:
    """`make test` or `make test-full`, by the marker; or all tests of a folder in a third one."""
    quick, full = pytest_command("test"), pytest_command("test-full")
    expression = {words[words.index("-m") + 1]: words for words in (quick, full)}
    assert expression == {"not full": quick, "full": full}
    folders = [word for word in quick if word.startswith("tests/")]
    assert folders == [word for word in full if word.startswith("tests/")]
    folders += [pytest_command(target)[-1] for target in ("examples", "test-closed")]
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "tests/**test_*.py"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert len(files) > len(folders)
    for file in files:
        assert sum(file.startswith(f"{folder}/") for folder in folders) == 1, file


@pytest.mark.parametrize("given", ["run", "run CONFIG=nowhere.yaml"])
def test_run_without_a_configuration_says_what_to_write(tmp_path: Path, given: str) -> None:
    words = ["make", "--file", str(MAKEFILE), "--old-file", ".venv/.installed", *given.split()]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert any(line.startswith("CONFIG: ") for line in ended.stderr.splitlines())


def test_setup_installs_the_users_packages_within_the_versions_of_the_lock(tmp_path: Path) -> None:
    for name in ("requirements.txt", "own/requirements.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    words = ["make", "--file", str(MAKEFILE), "--dry-run", "setup"]
    shown = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert re.search(
        r"uv pip install .*--requirement own/requirements\.txt .*--constraint requirements\.txt",
        shown.replace("\\\n", " "),
    )


@pytest.mark.parametrize(("given", "study"), [("", "late"), ("STUDY=early", "early")])
def test_view_prints_the_newest_page_or_the_page_of_a_study(
    tmp_path: Path, given: str, study: str
) -> None:
    for number, name in enumerate(("early", "late")):
        page = tmp_path / "results" / name / "report.html"
        page.parent.mkdir(parents=True)
        page.touch()
        os.utime(page, (number, number))
    words = ["make", "--file", str(MAKEFILE), "view", *given.split(), "BROWSER=true"]
    shown = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert Path(shown.splitlines()[-1]) == tmp_path / "results" / study / "report.html"


def test_view_without_a_page_fails(tmp_path: Path) -> None:
    words = ["make", "--file", str(MAKEFILE), "view"]
    assert subprocess.run(words, cwd=tmp_path, capture_output=True, check=False).returncode == 2
