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
STAMP = ".venv/.installed"


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
    words = ["make", "--file", str(MAKEFILE), "--dry-run", f"--old-file={STAMP}-dev"]
    words += [f"--old-file={STAMP}", target]
    shown = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    (command,) = re.findall(r"(?:^|; | )pytest (.*?)(?:; done)?$", shown.replace("\\\n", ""), re.M)
    return shlex.split(command)


def test_each_test_is_in_one_circle() -> None:
    """`make test` or `make test-full`, by the marker; or all tests of a folder in a third one."""
    quick, full = pytest_command("test"), pytest_command("test-full")
    expression = {words[words.index("-m") + 1]: words for words in (quick, full)}
    assert expression == {"not full": quick, "full": full}
    folders = [word for word in quick if word.startswith("tests/")]
    assert folders == [word for word in full if word.startswith("tests/")]
    folders += [pytest_command(target)[-1] for target in ("examples", "test-closed")]
    folders += [word for word in pytest_command("versions") if word.count("/") == 1]
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "tests/**test_*.py"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert len(files) > len(folders)
    for file in files:
        assert sum(file.startswith(f"{folder}/") for folder in folders) == 1, file


@pytest.mark.parametrize("given", ["run", "run CONFIG=nowhere.yaml"])
def test_run_without_a_configuration_says_what_to_write(tmp_path: Path, given: str) -> None:
    words = ["make", "--file", str(MAKEFILE), f"--old-file={STAMP}", *given.split()]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert any(line.startswith("CONFIG: ") for line in ended.stderr.splitlines())


def planned_setup(folder: Path, *words: str) -> tuple[set[str], set[str]]:
    """(locks that the set-up installs, stamps that it touches); empty if all is installed."""
    command = ["make", "--file", str(MAKEFILE), "--dry-run", *words]
    shown = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    # of several stamps the first one is made with the others, which a dry-run cannot see
    synced = {*re.findall(r"uv pip sync .*?--python \S+ (.*?);", shown.replace("\\\n", " "))}
    touched = {*re.findall(r"touch (\.venv/.*)$", shown, re.MULTILINE)}
    assert len(synced) == len(touched) <= 1, shown
    return set(" ".join(synced).split()), set(" ".join(touched).split())


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    """A folder with the locks, older than any environment."""
    for lock in REPOSITORY.glob("requirements*.txt"):
        (tmp_path / lock.name).touch()
        os.utime(tmp_path / lock.name, (0, 0))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("setup", set()),
        ("setup TRAINER=1", {"trainer"}),
        ("setup CUDA=1", {"trainer", "cuda"}),
        ("setup PARQUET=1 TRAINER=1", {"trainer", "parquet"}),
        ("demo", {"trainer"}),
        ("own", {"trainer"}),
        ("run CONFIG=requirements.txt", set()),
        ("lint", {"trainer", "parquet", "dev"}),
        ("check CUDA=1", {"trainer", "parquet", "dev", "cuda"}),
    ],
)
def test_each_target_installs_the_parts_that_it_needs_at_once(
    locks: Path, words: str, parts: set[str]
) -> None:
    installed, stamps = planned_setup(locks, *words.split())
    assert installed == {"requirements.txt", *(f"requirements-{part}.txt" for part in parts)}
    assert stamps == {STAMP, *(f"{STAMP}-{part}" for part in parts)}


@pytest.mark.parametrize("changed", ["requirements.txt", "requirements-trainer.txt"])
@pytest.mark.parametrize("words", ["setup", "demo", "setup PARQUET=1"])
def test_what_is_installed_stays(locks: Path, words: str, changed: str) -> None:
    """A later set-up keeps the other parts, and installs a changed lock for all of them."""
    (locks / ".venv").mkdir()
    for part in ("", "-trainer", "-cuda"):
        (locks / f"{STAMP}{part}").touch()
    kept = {"requirements.txt", "requirements-trainer.txt", "requirements-cuda.txt"}
    added = {"requirements-parquet.txt"} if "PARQUET" in words else set()
    assert planned_setup(locks, *words.split())[0] == (kept | added if added else set())
    os.utime(locks / changed)
    for stamp in (locks / ".venv").iterdir():
        os.utime(stamp, (1, 1))
    assert planned_setup(locks, *words.split())[0] == kept | added


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
