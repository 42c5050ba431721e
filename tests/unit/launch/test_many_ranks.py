"""What many ranks of a sleeping program cost, and how one that dies or is silent is found.

`make test` has a few ranks, `make test-full` 64; `make scale RANKS=1024` runs the same tests with
more of them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from builders import wait_until
from program_runs import start
from tfscaling.record import events
from tfscaling.record.events import Event, EventName

FEW, MANY = 6, int(os.environ.get("RANKS", "64"))
#: Above this number strace would slow the ranks down: SAMPLE of them are traced for SAMPLED_S.
TRACED_MAX, SAMPLE, SAMPLED_S = 64, 16, 30
pytestmark = pytest.mark.timeout(1800)
#: Calls that a metadata server of a shared file system answers.
TRACER = ("strace", "--follow-forks", "--seccomp-bpf", "-qqq", "-ttt", "-e", "trace=%file", "-o")
ATTEMPT = "run/attempt=1"


def sleeping(folder: Path, ranks: int, sleep_s: int, **how: object) -> subprocess.Popen[str]:
    program = ["sleep", str(sleep_s)]
    more = {"nodes_max": ranks, "stall_timeout_s": 1200, **how}
    return start(folder, "", nodes=ranks, program=program, **more)


def passed(folder: Path, name: EventName, number: int) -> list[Event]:
    """Return at least this many events with this name."""
    found: list[Event] = []

    def have_come() -> bool:
        lines = events.read_events(folder / ATTEMPT / events.RANKS_EVENTS)
        found[:] = [event for event in lines if event.name is name]
        return len(found) >= number

    wait_until(have_come)
    return found


def calls_s(trace: Path, folder: Path) -> list[float]:
    """When the run's folder was used, in seconds since the epoch, by the lines of strace."""
    own = re.compile(rb'"(?:run|' + re.escape(str(folder / "run").encode()) + rb")[/\"]")
    lines = trace.read_bytes().splitlines()
    return [float(line.split()[1]) for line in lines if own.search(line)]


@pytest.mark.parametrize("ranks", [FEW, pytest.param(MANY, marks=pytest.mark.full)])
def test_ranks_cost_the_file_system_next_to_nothing(ranks: int, tmp_path: Path) -> None:
    """All processes are traced; of very many ranks, `SAMPLE` of them."""
    traced = [*TRACER, str(tmp_path / "trace")]
    is_sampled = ranks > TRACED_MAX
    options = ["--detach-on=execve"] if is_sampled else []
    sleep_s = 240 if is_sampled else 5 if ranks == FEW else 20
    process = sleeping(tmp_path, ranks, sleep_s, tracer=[traced[0], *options, *traced[1:]])
    of_sample = 0.0
    if is_sampled:
        passed(tmp_path, EventName.PROGRAM_STARTED, ranks)
        begun = passed(tmp_path, EventName.START, ranks)[-SAMPLE:]
        pids = [event.details["pid"] for event in begun]
        attached = [word for pid in pids for word in ("-p", str(pid))]
        sample = [*TRACER, str(tmp_path / "sample"), *attached]
        subprocess.run(["timeout", "--signal=INT", str(SAMPLED_S), *sample], check=False)
        sampled = (tmp_path / "sample").read_bytes().splitlines()
        assert len({line.split()[0] for line in sampled}) >= SAMPLE  # their hearts read /proc
        of_sample = len(calls_s(tmp_path / "sample", tmp_path)) / SAMPLE / SAMPLED_S
    output, _ = process.communicate()
    assert process.returncode == 0, output
    calls = calls_s(tmp_path / "trace", tmp_path)
    lines = events.read_events(tmp_path / "run/events.jsonl")
    begin_s = max(e.time_s for e in lines if e.name is EventName.PROGRAM_STARTED)
    end_s = min(e.time_s for e in lines if e.name is EventName.PROGRAM_ENDED)
    while_all_run = sum(begin_s <= call_s <= end_s for call_s in calls)
    rank_seconds = ranks * (end_s - begin_s)
    used = while_all_run + of_sample * rank_seconds
    duration_s = max(calls) - min(calls)
    files = [path for path in tmp_path.glob("run/**/*") if path.is_file()]
    print(
        f"{ranks} ranks: {used / rank_seconds:.4f} operations per rank and second while all run "
        f"({end_s - begin_s:.0f} s); {len(calls) / ranks:.1f} per rank from start to end "
        f"({duration_s:.0f} s{', launcher only' if is_sampled else ''}); {len(files)} files"
    )
    # not by time: else nothing was measured
    assert begin_s < end_s
    # not by time: a slow machine makes fewer of them in a second
    assert used <= 0.05 * rank_seconds + 10  # the launcher's own
    # not by time: likewise
    assert len(calls) <= 10 * ranks + 10 * duration_s + 200
    assert len(files) <= 10


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def stop(pid: int) -> None:
    """Stop the rank and its program."""
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        process.suspend()


@pytest.mark.full
@pytest.mark.parametrize(("fault", "kind"), [(kill, "rank_died"), (stop, "stalled")])
def test_one_of_many_ranks_is_found_and_named(
    tmp_path: Path, fault: Callable[[int], None], kind: str
) -> None:
    ranks, victim = MANY, MANY * 2 // 3
    process = sleeping(tmp_path, ranks, 900)
    try:
        begun = passed(tmp_path, EventName.PROGRAM_STARTED, ranks)
        assert {event.rank for event in begun} == set(range(ranks))
        launcher = psutil.Process(process.pid)
        before, fault_s = launcher.cpu_times(), time.monotonic()
        started = {e.rank: e.details["pid"] for e in passed(tmp_path, EventName.START, ranks)}
        fault(started[victim])
        wait_until((tmp_path / "run/failure.json").exists)
        after, found_s = launcher.cpu_times(), time.monotonic() - fault_s
        used_s = after.user + after.system - before.user - before.system
        print(
            f"{ranks} ranks, {kind}: named after {found_s:.1f} s; the launcher used "
            f"{used_s / found_s:.3f} CPU seconds per second"
        )
        process.communicate()
    finally:
        process.kill()
    cause = json.loads((tmp_path / "run/failure.json").read_text())["cause"]
    assert (cause["kind"], cause["rank"]) == (kind, victim)
    assert (tmp_path / cause["log"]).exists()
