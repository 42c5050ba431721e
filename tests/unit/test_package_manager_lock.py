"""The installation waits for a package manager that is in use, with the real apt-get.

apt has folders of this test's own here: its locks are taken, and nothing is installed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
WAITING = REPOSITORY / "provision/virtual/apt-get-waiting"
#: Of dpkg and of the package lists: the commands that need them.
COMMANDS = {"dpkg/lock-frontend": ["install", "--yes"], "lists/lock": ["update"]}

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="no apt-get here")


@pytest.fixture
def apt(tmp_path: Path) -> Path:
    """The folder of apt's state."""
    for folder in ("lists/partial", "cache/archives/partial", "dpkg", "etc"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "dpkg/status").touch()
    (tmp_path / "apt.conf").write_text(
        f'Dir::State "{tmp_path}";\n'
        f'Dir::State::Lists "{tmp_path}/lists";\n'
        f'Dir::State::status "{tmp_path}/dpkg/status";\n'
        f'Dir::Cache "{tmp_path}/cache";\n'
        f'Dir::Etc "{tmp_path}/etc";\n'
        'APT::Sandbox::User "root";\n'
    )
    return tmp_path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock as apt and dpkg hold theirs."""
    with path.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def start(apt: Path, limit_s: int, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(WAITING), str(limit_s), *arguments],
        env={**os.environ, "APT_CONFIG": str(apt / "apt.conf")},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("lock", COMMANDS)
def test_it_waits_until_the_lock_is_free(apt: Path, lock: str) -> None:
    with locked(apt / lock):
        started = start(apt, 500, *COMMANDS[lock])
        assert started.stderr is not None
        line = started.stderr.readline()
        assert lock in line
        assert f"held by process {os.getpid()} " in line
        assert started.poll() is None
    assert started.wait() == 0


@pytest.mark.parametrize("lock", COMMANDS)
def test_it_names_the_holder_when_it_gives_up(apt: Path, lock: str) -> None:
    with locked(apt / lock):
        _, message = (started := start(apt, 1, *COMMANDS[lock])).communicate()
    assert started.returncode == 1
    assert "still locked after 1 s" in message
    assert f"held by process {os.getpid()} " in message


def test_another_error_is_not_waited_for(apt: Path) -> None:
    _, message = (started := start(apt, 500, "install", "--yes", "no-such")).communicate()
    assert started.returncode == 1
    assert "package no-such" in message
