"""Ranks as real processes: started, watched and ended together."""

from __future__ import annotations

import errno
import json
import math
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from builders import SCRIPTS, is_gone, wait_until
from fake_programs import program
from tfscaling.launch import heartbeat, rank_files, rank_messages, supervisor
from tfscaling.launch.heartbeat import Heartbeat
from tfscaling.launch.launchers import Command
from tfscaling.launch.rank_messages import RankMessageServer
from tfscaling.launch.supervisor import Supervisor
from tfscaling.record.attempts import Cause
from tfscaling.record.events import Event, EventLog, EventName, RankActivity

pytestmark = pytest.mark.timeout(600)  # a rank that is not ended must not hold up the tests
SLEEP = "say('start', host='here'); time.sleep(600)"
#: A rank that starts a child, writes the child's process id down and then does as it is told.
WITH_CHILD = (
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "open(sys.argv[1], 'w').write(str(child.pid))\n"
)


#: What ranks in tests do: `say` appends to their events, `wait_for` waits for another rank's event.
WORDS = """
import json, os, signal, subprocess, sys, time

def say(event, **details):
    line = {"time_s": time.time(), "rank": RANK, "event": event, **details}
    with open(f"{FOLDER}/rank-{RANK}.events.jsonl", "a") as file:
        file.write(json.dumps(line) + "\\n")

def wait_for(rank, event):
    path = f"{FOLDER}/rank-{rank}.events.jsonl"
    while not os.path.exists(path) or f'"{event}"' not in open(path).read():
        time.sleep(0.02)
    return json.loads(open(path).readline())
"""


def python_rank(folder: Path, rank: int, code: str, *arguments: str) -> Command:
    """A rank that runs Python code after WORDS."""
    code = f"FOLDER, RANK = {str(folder)!r}, {rank}\n{WORDS}\n{code}"
    return Command((sys.executable, "-c", code, *arguments), {}, folder / f"rank-{rank}.log", rank)


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "GRACE_S", 0.2)


def of_this_test(folder: Path) -> list[int]:
    """Processes that have the test's folder in their command line, the test's own left out."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if any(str(folder) in word for word in words) and process.pid != os.getpid():
            found.append(process.pid)
    return found


def test_all_ranks_ending_well_is_a_success_and_their_words_are_in_their_logs(
    tmp_path: Path,
) -> None:
    ranks = [python_rank(tmp_path, n, f"print('I am {n}'); say('end')") for n in range(3)]
    before = signal.getsignal(signal.SIGTERM)
    assert Supervisor(ranks, RankMessageServer(tmp_path), 600, len(ranks)).run() is None
    assert signal.getsignal(signal.SIGTERM) == before
    assert [(tmp_path / f"rank-{n}.log").read_text() for n in range(3)] == [
        f"I am {n}\n" for n in range(3)
    ]


def test_one_rank_exiting_with_an_error_ends_all_and_is_named(tmp_path: Path) -> None:
    ranks = [
        python_rank(tmp_path, 0, SLEEP),
        python_rank(
            tmp_path, 1, "say('start', host='h1'); print('first'); print('no GPU'); sys.exit(3)"
        ),
        python_rank(tmp_path, 2, SLEEP),
    ]
    cause = Supervisor(ranks, RankMessageServer(tmp_path), 600, len(ranks)).run()
    assert cause is not None
    assert (cause.kind, cause.rank, cause.host) == ("rank_died", 1, "h1")
    assert (cause.exit_code, cause.message) == (3, "exit code 3")
    assert cause.last_lines == ("first", "no GPU")
    assert of_this_test(tmp_path) == []


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_rank_that_aborts_because_another_has_ended_is_not_the_cause(
    is_begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher has noticed the end of a process that is no zombie any more."""
    monkeypatch.setattr(supervisor, "GRACE_S", 300.0)  # the other ends by itself
    pid = tmp_path / "pid"
    fails = "say('start', host='h1'); " * is_begun
    fails += f"open({f'{pid}~'!r}, 'w').write(str(os.getpid()))\n"
    fails += f"os.rename({f'{pid}~'!r}, {str(pid)!r}); sys.exit(4)"
    aborts = f"say('start', host='h0')\nwhile not os.path.exists({str(pid)!r}): time.sleep(0.02)\n"
    aborts += f"while os.path.exists('/proc/' + open({str(pid)!r}).read()): time.sleep(0.02)\n"
    ranks = [python_rank(tmp_path, 0, aborts + "os.abort()"), python_rank(tmp_path, 1, fails)]
    cause = Supervisor(ranks, RankMessageServer(tmp_path), 600, len(ranks)).run()
    assert cause is not None
    assert (cause.kind, cause.rank, cause.exit_code) == ("rank_died", 1, 4)


def test_a_rank_that_ends_before_its_first_event_has_its_last_words(tmp_path: Path) -> None:
    ranks = [python_rank(tmp_path, 0, "print('ready'); import nowhere_installed")]
    cause = Supervisor(ranks, RankMessageServer(tmp_path), 600, len(ranks)).run()
    assert cause is not None
    assert (cause.kind, cause.rank, cause.exit_code) == ("rank_died", 0, 1)
    assert "ModuleNotFoundError: No module named 'nowhere_installed'" in cause.message


def test_all_are_ended_when_nothing_moves(tmp_path: Path) -> None:
    for rank, names in enumerate([(EventName.START, EventName.IMPORTED), (EventName.START,)]):
        for name in names:
            EventLog(rank_files.events_path(tmp_path, rank), rank).add(name)
    ranks = [python_rank(tmp_path, rank, "time.sleep(600)") for rank in range(2)]
    cause = Supervisor(ranks, RankMessageServer(tmp_path), 1.0, len(ranks)).run()
    assert cause is not None
    assert (cause.kind, cause.rank) == ("stalled", 1)
    assert of_this_test(tmp_path) == []


BEAT_S = 0.05
#: A rank with a real heart that then does as it is told, without a further event.
BEATING = (
    f"sys.path.insert(0, {str(SCRIPTS)!r})\n"
    "import pathlib\n"
    "from tfscaling.launch import heartbeat, rank_files\n"
    "from tfscaling.record.events import EventLog\n"
    f"heartbeat.FILES_INTERVAL_S = {BEAT_S}\n"
    "say('start', host='h' + str(RANK))\n"
    "path = rank_files.events_path(pathlib.Path(FOLDER), RANK)\n"
    "heartbeat.HeartbeatThread(EventLog(path, RANK), lambda: os._exit(9)).start()\n"
    "def beats():\n"
    "    return path.read_text().count('\"beat\"')\n"
    "def wait_beats(number):\n"
    "    while beats() < number: time.sleep(0.02)\n"
)
#: Thirty heartbeats.
LIMIT_S = 30 * BEAT_S
#: A fifth of a CPU, ten times what counts as work.
WORK = "while beats() < int(sys.argv[1]): sum(range(500_000)); time.sleep(0.05)\nsay('end')"
WAIT = "wait_beats(int(sys.argv[1]))\nsay('end')"


def beating_rank(folder: Path, rank: int, doing: str, beats: int) -> Command:
    """A rank that does this for as many heartbeats."""
    return python_rank(folder, rank, BEATING + doing, str(beats))


class WatchByBeats(heartbeat.StallDetector):
    """A watch whose clock ticks with the heartbeats of the quickest rank, once all ranks beat.

    A busy machine slows ranks and clock alike.
    """

    pace: Callable[..., int] = staticmethod(max)

    def __init__(self, timeout_s: float, _: float, ranks: int) -> None:
        super().__init__(timeout_s, 0.0, ranks)
        self.missing, self.beats, self.beats_before = set(range(ranks)), 0, 0

    def update(self, _: float, progress: object, beats: Mapping[int, Heartbeat]) -> None:
        self.missing -= beats.keys()
        self.beats = self.pace((beat.number for beat in beats.values()), default=0)
        if self.missing:
            self.beats_before = self.beats
        super().update(BEAT_S * (self.beats - self.beats_before), progress, beats)


class WatchBySlowestBeats(WatchByBeats):
    """Ticks with the slowest rank, so that none is late."""

    pace = staticmethod(min)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher reads heartbeats as often as these ranks beat."""
    monkeypatch.setattr(rank_messages, "FILES_INTERVAL_S", BEAT_S)
    monkeypatch.setattr(heartbeat, "READ_INTERVAL_S", BEAT_S)
    monkeypatch.setattr(heartbeat, "StallDetector", WatchByBeats)


@pytest.mark.usefixtures("often")
def test_ranks_that_work_without_an_event_for_longer_than_the_limit_are_let_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second waits for the first, as in a collective."""
    monkeypatch.setattr(heartbeat, "StallDetector", WatchBySlowestBeats)
    ranks = [beating_rank(tmp_path, 0, WORK, 80), beating_rank(tmp_path, 1, WAIT, 80)]
    assert Supervisor(ranks, RankMessageServer(tmp_path), LIMIT_S, len(ranks)).run() is None


@pytest.mark.usefixtures("often")
def test_a_stopped_rank_is_found_and_named(tmp_path: Path) -> None:
    stopped = random.randrange(3)
    stops = "wait_beats(5); os.kill(os.getpid(), signal.SIGSTOP); " + WAIT
    doing = [stops if rank == stopped else WAIT for rank in range(3)]
    ranks = [beating_rank(tmp_path, rank, code, 12_000) for rank, code in enumerate(doing)]
    cause = Supervisor(ranks, RankMessageServer(tmp_path), LIMIT_S, len(ranks)).run()
    assert cause is not None
    assert (cause.kind, cause.rank, cause.host) == ("stalled", stopped, f"h{stopped}")
    assert of_this_test(tmp_path) == []


def passed(*names: EventName, **details: Any) -> list[Event]:
    """Return events with these names; each has the `details`."""
    return [Event(name=name, time_s=0.0, details=details) for name in names]


IMPORTED = (EventName.START, EventName.IMPORTED)
MET = (*IMPORTED, EventName.RENDEZVOUS)
LOADED = (*MET, EventName.DATA)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (passed(EventName.START), RankActivity.LOADING),
        (passed(*IMPORTED), RankActivity.MEETING),
        (passed(*MET), RankActivity.LOADING),
        (passed(*MET, serves=True), RankActivity.WAITING),
        (passed(*LOADED, pipeline=True), RankActivity.LOADING),
        (passed(*LOADED, EventName.BUILT, EventName.EPOCH), RankActivity.TRAINING),
        (passed(*LOADED, EventName.BUILT, EventName.EPOCH, pipeline=True), RankActivity.WAITING),
        (passed(*LOADED, EventName.EPOCH, EventName.PROBED), RankActivity.WAITING),
        (passed(*LOADED, EventName.EPOCH, EventName.PROBED, EventName.END), RankActivity.ENDED),
        (passed(EventName.START, EventName.PROGRAM_STARTED), RankActivity.WAITING),
        (passed(EventName.START, EventName.PROGRAM_STARTED, EventName.END), RankActivity.ENDED),
    ],
)
def test_the_activity_of_a_rank_follows_from_its_events(
    events: list[Event], expected: RankActivity
) -> None:
    assert supervisor.find_activity(events) is expected


class UnreachableServer(RankMessageServer):
    """A server in a file system that does not answer the first `misses` times."""

    def __init__(self, folder: Path, misses: float) -> None:
        super().__init__(folder)
        self.misses = misses

    def update(self, *, files: bool = False) -> None:
        self.misses -= 1
        if self.misses >= 0:
            raise OSError(errno.ESHUTDOWN, "Cannot send after transport endpoint shutdown")
        super().update(files=files)
        (self.folder / "back").touch()


@pytest.mark.parametrize(
    ("misses", "limit_s", "kind"),
    [(5, 600.0, None), (math.inf, 0.5, "launch_failed")],
    ids=["a while", "for ever"],
)
def test_ranks_go_on_while_the_file_system_is_away_from_their_launcher(
    misses: float, limit_s: float, kind: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "READ_INTERVAL_S", 0.05)
    found = UnreachableServer(tmp_path, misses)
    ends = "while not os.path.exists(FOLDER + '/back'): time.sleep(0.02)\nsay('end')"
    cause = Supervisor([python_rank(tmp_path, 0, ends)], found, limit_s, 1).run()
    assert (cause and cause.kind) == kind
    assert of_this_test(tmp_path) == []


def test_a_rank_that_ignores_being_asked_to_end_is_killed(tmp_path: Path) -> None:
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
    ranks = [
        python_rank(tmp_path, 0, deaf),
        python_rank(tmp_path, 1, "wait_for(0, 'start'); sys.exit(1)"),
    ]
    assert Supervisor(ranks, RankMessageServer(tmp_path), 600, len(ranks)).run() is not None
    assert of_this_test(tmp_path) == []


@pytest.mark.parametrize("ending", ["sys.exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_children_that_a_rank_leaves_behind_are_ended(tmp_path: Path, ending: str) -> None:
    pid_file = tmp_path / "pid"
    rank = python_rank(tmp_path, 0, WITH_CHILD + ending, str(pid_file))
    Supervisor([rank], RankMessageServer(tmp_path), 600, 1).run()
    assert wait_until(lambda: is_gone(int(pid_file.read_text())))


def test_a_program_that_does_not_exist_is_a_cause_and_not_a_crash(tmp_path: Path) -> None:
    command = Command(("no-such-launcher", "--nodes=1"), {}, tmp_path / "srun.log", None)
    cause = Supervisor([command], RankMessageServer(tmp_path), 600, 1).run()
    assert cause is not None
    assert cause.kind == "launch_failed"
    assert "no-such-launcher" in cause.message


@pytest.mark.parametrize("ended", [1, 2])
def test_ranks_that_have_all_ended_are_a_success_whatever_their_launcher_says_then(
    tmp_path: Path, ended: int
) -> None:
    for rank in range(2):
        names = ("start", "end") if rank < ended else ("start",)
        lines = [json.dumps({"time_s": 1.0, "rank": rank, "event": name}) for name in names]
        (tmp_path / f"rank-{rank}.events.jsonl").write_text("\n".join(lines) + "\n")
    script = "echo 'srun: error: Timed out waiting for job step to complete' >&2; exit 1"
    command = Command(("sh", "-c", script), {}, tmp_path / "srun.log", None)
    assert (Supervisor([command], RankMessageServer(tmp_path), 600, 2).run() is None) == (
        ended == 2
    )


@pytest.mark.parametrize(
    ("since", "kind"), [("2026-01-02T03:06:00", "preempted"), ("None", "rank_died")]
)
def test_a_rank_that_died_is_of_a_preempted_job_only_if_slurm_preempts_it(
    since: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = f"StartTime=2026-01-02T03:05:54 PreemptTime={since}"
    program(tmp_path, "scontrol", f'printf "JobId=12 JobName=x\\n   {times}\\n"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    EventLog(rank_files.events_path(tmp_path, 0), 0).add(EventName.START)
    script = "echo 'srun: error: node1: task 0: Killed' >&2; exit 137"
    command = Command(("sh", "-c", script), {}, tmp_path / "srun.log", None)
    cause = Supervisor([command], RankMessageServer(tmp_path), 600, 1).run()
    assert cause is not None and cause.kind == kind


@pytest.mark.parametrize("number", ["SIGKILL", "SIGSEGV", "SIGTERM"])
def test_a_killed_srun_is_named_and_no_rank(
    number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm is asked to end its ranks, which would continue."""
    step = f"7.{random.randint(0, 99)}"
    program(tmp_path, "scancel", f'echo "$*" >>{tmp_path}/ended')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for rank in range(random.randint(1, 4)):
        log = EventLog(rank_files.events_path(tmp_path, rank), rank)
        log.add(EventName.START, host="n1", step=step)
    command = Command(("sh", "-c", f"kill -{number[3:]} $$"), {}, tmp_path / "srun.log", None)
    cause = Supervisor([command], RankMessageServer(tmp_path), 600, 4).run()
    assert cause is not None
    assert (cause.kind, cause.rank, cause.host) == ("launch_failed", None, None)
    assert cause.message == f"srun was killed by {number}"
    assert (tmp_path / "ended").read_text() == f"--signal=KILL {step}\n"


LAUNCHER = """
import msgspec, pathlib, pickle, sys
from tfscaling.launch import rank_messages, supervisor
supervisor.GRACE_S = 0.2
folder = pathlib.Path(sys.argv[1])
commands = pickle.loads((folder / "commands").read_bytes())
server = rank_messages.RankMessageServer(folder)
cause = supervisor.Supervisor(commands, server, 600, len(commands)).run()
print(msgspec.json.encode(cause).decode(), flush=True)
"""


def launched(folder: Path, commands: Sequence[Command]) -> subprocess.Popen[str]:
    """A process that is the launcher of these ranks, and prints the cause."""
    (folder / "commands").write_bytes(pickle.dumps(commands))
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(folder)],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_launcher_ends_ranks_and_grandchildren(
    tmp_path: Path, number: signal.Signals
) -> None:
    pid_file = tmp_path / "pid"
    parent = python_rank(tmp_path, 0, WITH_CHILD + SLEEP, str(pid_file))
    launcher = launched(tmp_path, [parent, python_rank(tmp_path, 1, SLEEP)])
    try:
        wait_until(lambda: len(list(tmp_path.glob("rank-*.events.jsonl"))) == 2)
        launcher.send_signal(number)
        output, _ = launcher.communicate(timeout=300)
    finally:
        launcher.kill()
    cause = msgspec.json.decode(output, type=Cause)
    assert cause.kind == "cancelled"
    assert number.name in cause.message
    assert wait_until(lambda: is_gone(int(pid_file.read_text())))
    assert of_this_test(tmp_path) == []


def test_ranks_end_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    code = "say('start', pid=os.getpid()); os.kill(os.getpid(), signal.SIGSTOP)"
    launcher = launched(tmp_path, [python_rank(tmp_path, n, code) for n in range(2)])
    try:
        files = [tmp_path / f"rank-{rank}.events.jsonl" for rank in range(2)]
        wait_until(lambda: all(f.exists() and f.read_text().endswith("\n") for f in files))
        pids = [json.loads(f.read_text())["pid"] for f in files]
    finally:
        launcher.kill()
        launcher.wait()
    assert wait_until(lambda: all(map(is_gone, pids)))
