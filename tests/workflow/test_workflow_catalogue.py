"""The grid for the workflow catalogue as a stranger runs it: a copy, no profile, no plugins."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from project import REPOSITORY

pytestmark = pytest.mark.full

#: The interpreter without the packages of .venv.
PYTHON = Path(sys.base_prefix) / "bin/python3"
PACKAGES = Path(sysconfig.get_path("purelib"))
PLUGINS = "plugins in plugins/"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository's files, without .venv and results."""
    folder = tmp_path_factory.mktemp("stranger")
    words = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(
        ["git", "-C", REPOSITORY, *words], check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name)
    return folder


def call(folder: Path, packages: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Snakemake on `.test`, all output in `stdout`; it finds `packages`, but no link to a package.

    A dry-run of Snakemake prints to stdout what a run prints to stderr.
    """
    environ = {"PATH": os.defpath, "HOME": str(folder), "PYTHONPATH": str(packages)}
    # -S: not the packages that this interpreter may have
    command = [str(PYTHON), "-S", "-m", "snakemake", "--directory", ".test", *words]
    return subprocess.run(
        command,
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_it_is_planned_run_and_reported(copy: Path) -> None:
    planned = call(copy, PACKAGES, "--dry-run")
    assert planned.returncode == 0, planned.stdout
    assert planned.stdout.count(PLUGINS) == 1
    assert "train" in planned.stdout
    done = call(copy, PACKAGES, "--cores", "1")
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.count(PLUGINS) == 1
    text = (copy / ".test/results/test/comparison.csv").read_text()
    assert text.count(",ok,") == 2
    reported = call(copy, PACKAGES, "--report", "report.html")
    assert reported.returncode == 0, reported.stdout
    assert (copy / ".test/report.html").stat().st_size > 10_000


@pytest.mark.parametrize("missing", [["msgspec"], ["msgspec", "scipy"]])
def test_missing_packages_are_named_in_one_line(
    copy: Path, missing: list[str], tmp_path: Path
) -> None:
    for path in PACKAGES.iterdir():
        if path.name not in missing:
            (tmp_path / path.name).symlink_to(path)
    done = call(copy, tmp_path, "--dry-run")
    assert done.returncode == 1
    (line,) = [each for each in done.stdout.splitlines() if "Not installed" in each]
    assert ", ".join(missing) in line and "make setup" in line
    assert "Traceback" not in done.stdout and "ModuleNotFoundError" not in done.stdout
