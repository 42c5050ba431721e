"""A program in a fork of the process that has its libraries: all that its starter sees is the same.

Each program runs in both ways.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import loaded_python
import pytest
from builders import wait_until

#: Its file has the name of one that is run in a fork.
PROGRAM = "scripts/check_models.py"
#: Its first words say whether it does.
PLACE = "import os, signal, sys, time\nprint(os.getppid() != int(sys.argv[1]), flush=True)\n"


@pytest.fixture(scope="module", params=[True, False], ids=["fork", "process"])
def environ(request: pytest.FixtureRequest) -> Mapping[str, str]:
    if not request.param:
        return os.environ
    forking = loaded_python.environ(os.environ)
    if "LOADED_PYTHON" not in forking:
        pytest.skip("this machine has a GPU")
    return forking


def started(
    folder: Path, code: str, environ: Mapping[str, str], *words: str
) -> subprocess.Popen[str]:
    program = folder / PROGRAM
    program.parent.mkdir()
    program.write_text(PLACE + code)
    process = subprocess.Popen(
        [sys.executable, str(program), str(os.getpid()), *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**environ, "OWN": "variable"}, cwd=folder, start_new_session=True,
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == f"{'LOADED_PYTHON' in environ}\n"
    return process


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [("sys.exit(3)", 3, ""), ("sys.exit('no file')", 1, "no file\n"), ("sys.exit()", 0, "")],
)
def test_it_ends_as_it_says(
    code: str, status: int, said: str, environ: Mapping[str, str], tmp_path: Path
) -> None:
    process = started(tmp_path, code, environ)
    assert process.communicate() == ("", said)
    assert process.returncode == status


def test_an_error_has_the_traceback_of_the_program_alone(
    environ: Mapping[str, str], tmp_path: Path
) -> None:
    process = started(tmp_path, "raise ValueError('wrong')", environ)
    _, said = process.communicate()
    assert process.returncode == 1
    lines = said.splitlines()
    assert lines[0].startswith("Traceback") and lines[-1] == "ValueError: wrong"
    assert [line.split('"')[1] for line in lines if "File" in line] == [str(tmp_path / PROGRAM)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_it_and_end_it(
    number: signal.Signals, environ: Mapping[str, str], tmp_path: Path
) -> None:
    process = started(tmp_path, "time.sleep(600)", environ)
    process.send_signal(number)
    assert process.wait() == -number


def test_a_signal_that_it_takes_ends_nothing(environ: Mapping[str, str], tmp_path: Path) -> None:
    code = (
        "signal.signal(signal.SIGUSR1, lambda *_: print('taken', flush=True))\n"
        "print('ready', flush=True)\nsys.stdin.read()"
    )
    process = started(tmp_path, code, environ)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "taken\n"
    process.communicate()
    assert process.returncode == 0


def test_it_ends_with_the_process_that_was_started(
    environ: Mapping[str, str], tmp_path: Path
) -> None:
    process = started(tmp_path, "print(os.getpid(), flush=True)\ntime.sleep(600)", environ)
    assert process.stdout
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 60)


@pytest.mark.parametrize(("name", "is_fork"), [("OMP_NUM_THREADS", True), ("MALLOC_X", False)])
def test_variables_of_libraries_have_a_process_of_their_own_but_not_those_of_snakemake(
    name: str, is_fork: bool, tmp_path: Path
) -> None:
    program = tmp_path / PROGRAM
    program.parent.mkdir()
    program.write_text(PLACE + "print(sys.executable)")
    python = str(Path(sys.executable).with_name("python3"))  # as rules have it
    words = [python, str(program), str(os.getpid())]
    forking = {**loaded_python.environ(os.environ), name: "1"}
    done = subprocess.run(words, env=forking, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(is_fork), python]
