"""Ranks that are forks of one process: as ranks that are processes of their own."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from builders import SCRIPTS, wait_until
from tfscaling.launch import supervisor
from tfscaling.launch.launchers import Command
from tfscaling.launch.rank_messages import RankMessageServer
from tfscaling.launch.supervisor import Supervisor
from unit.launch.test_supervisor import WORDS, launched, of_this_test

pytestmark = pytest.mark.timeout(600)
#: Loads, and then runs in each rank the code in its environment.
PROGRAM = f"""
import pathlib, sys
sys.path.insert(0, {str(SCRIPTS)!r})
from tfscaling.launch import forked_ranks

folder, FOLDER, loads = pathlib.Path(sys.argv[1]), sys.argv[1], []

{WORDS}

def load():
    with (folder / "loads").open("a") as file:
        file.write("x")
    if os.environ.get("LOAD") == "slowly":
        (folder / "loading").touch()
        time.sleep(600)
    if os.environ.get("LOAD") == "warned":
        os.kill(os.getpid(), signal.SIGUSR1)
    if os.environ.get("LOAD") == "not":
        raise ImportError("nothing is installed")
    loads.append(os.getpid())

def main():
    global RANK
    RANK = int(os.environ["RANK"])
    exec(os.environ["CODE"])

forked_ranks.fork_all(pathlib.Path(sys.argv[3]), load, main)
"""
SLEEP = "say('start', host='here', pid=os.getpid()); time.sleep(600)"


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "GRACE_S", 0.2)


def ranks(folder: Path, *codes: str, **environment: str) -> list[Command]:
    """A rank for each piece of code."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    argv = (sys.executable, str(program), str(folder))
    return [
        Command(
            argv,
            {"RANK": str(rank), "CODE": code, **environment},
            folder / f"rank-{rank}.log",
            rank,
            is_fork=True,
        )
        for rank, code in enumerate(codes)
    ]


def logs(folder: Path) -> list[str]:
    return [path.read_text() for path in sorted(folder.glob("rank-*.log"))]


def test_no_rank_is_blamed_if_the_process_that_forks_them_is_killed(tmp_path: Path) -> None:
    is_first = "'0' == os.environ['RANK'] and (wait_for(1, 'start'), "
    kill = f"say('start'); {is_first}os.kill(os.getppid(), signal.SIGKILL)); time.sleep(600)"
    cause = Supervisor(ranks(tmp_path, kill, kill), RankMessageServer(tmp_path), 600, 2).run()
    assert cause is not None and (cause.kind, cause.rank) == ("launch_failed", None)
    assert "SIGKILL" in cause.message
    assert of_this_test(tmp_path) == []


def test_ranks_share_what_was_loaded_once_and_have_environments_and_logs_of_their_own(
    tmp_path: Path,
) -> None:
    code = "print(os.environ['RANK'], loads[0] == os.getppid(), sys.stdin.read()); say('end')"
    assert (
        Supervisor(ranks(tmp_path, *[code] * 3), RankMessageServer(tmp_path), 600, 3).run() is None
    )
    assert (tmp_path / "loads").read_text() == "x"
    assert logs(tmp_path) == [f"{rank} True \n" for rank in range(3)]
    assert of_this_test(tmp_path) == []


def test_a_warning_while_the_process_loads_ends_nothing(tmp_path: Path) -> None:
    commands = ranks(tmp_path, *["say('end')"] * 2, LOAD="warned")
    assert Supervisor(commands, RankMessageServer(tmp_path), 600, 2).run() is None


@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no GPU')", 1, "no GPU\n"),
        ("raise ValueError('too few')", 1, "ValueError: too few\n"),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
    ],
)
def test_a_rank_that_ends_otherwise_ends_all_and_is_the_cause(
    tmp_path: Path, ending: str, code: int, said: str
) -> None:
    commands = ranks(tmp_path, SLEEP, f"say('start', host='h1'); {ending}")
    cause = Supervisor(commands, RankMessageServer(tmp_path), 600, len(commands)).run()
    assert cause is not None
    assert (cause.rank, cause.host, cause.exit_code) == (1, "h1", code)
    assert logs(tmp_path)[1].endswith(said)
    assert of_this_test(tmp_path) == []


def test_what_cannot_be_loaded_is_said_by_each_rank(tmp_path: Path) -> None:
    """As a rank alone would: what fails to load fails again where the rank needs it."""
    commands = ranks(tmp_path, *["load()"] * 2, LOAD="not")
    cause = Supervisor(commands, RankMessageServer(tmp_path), 600, len(commands)).run()
    assert cause is not None and cause.exit_code == 1
    assert all(log.endswith("ImportError: nothing is installed\n") for log in logs(tmp_path))


def test_ranks_have_the_signals_of_a_process_of_its_own(tmp_path: Path) -> None:
    """SIGTERM ends a rank that does not handle it, and one that does has time to end."""
    code = (
        "def last(*_): print('saved'); sys.exit(0)\nsignal.signal(signal.SIGTERM, last)\n" + SLEEP
    )
    commands = ranks(tmp_path, code, SLEEP)

    def ask() -> None:
        wait_until(lambda: len(list(tmp_path.glob("rank-*.events.jsonl"))) == 2)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=ask).start()
    cause = Supervisor(
        commands, RankMessageServer(tmp_path), 600, len(commands), grace_s=300.0
    ).run()
    assert cause is not None and cause.kind == "cancelled"
    assert logs(tmp_path)[0] == "saved\n"
    assert of_this_test(tmp_path) == []


def test_ranks_end_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    stops = "say('start'); os.kill(os.getpid(), signal.SIGSTOP)"
    launcher = launched(tmp_path, ranks(tmp_path, *[stops] * 2))
    try:
        wait_until(lambda: len(list(tmp_path.glob("rank-*.events.jsonl"))) == 2)
    finally:
        launcher.kill()
        launcher.wait()
    assert wait_until(lambda: of_this_test(tmp_path) == [])


def test_a_signal_to_the_launcher_while_the_process_loads_ends_it_at_once(tmp_path: Path) -> None:
    launcher = launched(tmp_path, ranks(tmp_path, *[SLEEP] * 2, LOAD="slowly"))
    try:
        wait_until((tmp_path / "loading").exists)
        launcher.send_signal(signal.SIGTERM)
        output, _ = launcher.communicate(timeout=300)
    finally:
        launcher.kill()
    assert json.loads(output)["kind"] == "cancelled"
    assert of_this_test(tmp_path) == []
