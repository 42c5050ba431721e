"""provision/find-python: a Python that serves, or one line that says how to get one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from project import REPOSITORY

FIND = REPOSITORY / "provision/find-python"
#: This Python, which says that it is another.
FAKE = """#!/bin/sh
exec {python} -S -c 'import sys
sys.version_info = {version}
code, sys.argv = sys.argv[2], ["-c", *sys.argv[3:]]
exec(code)' "$@"
"""


def find(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.run([FIND, *words], env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The first folder of PATH: its Pythons are all too old."""
    for name in ("python3", "python3.13", "python3.12", "python3.11"):
        program = tmp_path / name
        program.write_text(FAKE.format(python=sys.executable, version=(3, 8, 10)))
        program.chmod(0o755)
    return tmp_path


def test_an_old_python_is_named_in_one_line_with_the_ways_out(programs: Path) -> None:
    found = find(programs)
    assert (found.returncode, found.stdout) == (1, "")
    (line,) = found.stderr.splitlines()
    for words in ("3.11", "python3 is Python 3.8.10", "module", "PYTHON=", "closed-network.md"):
        assert words in line


def test_a_newer_python_beside_an_old_one_is_taken(programs: Path) -> None:
    program = programs / "python3.12"
    program.write_text(FAKE.format(python=sys.executable, version=(3, 12, 1)))
    found = find(programs)
    assert (found.returncode, found.stdout.strip()) == (0, str(program))


def test_one_that_is_named_is_taken_or_refused(programs: Path) -> None:
    assert find(programs, sys.executable).stdout.strip() == sys.executable
    assert "Python 3.8.10" in find(programs, str(programs / "python3")).stderr
    assert "there is no nowhere" in find(programs, "nowhere").stderr


def test_one_that_cannot_make_environments_is_refused(programs: Path) -> None:
    code = "import sys\nsys.modules['ensurepip'] = None\n"
    code += "code, sys.argv = sys.argv[2], sys.argv[2:]\nexec(code)"
    (programs / "python3.11").write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    assert "ensurepip" in find(programs, "python3.11").stderr
