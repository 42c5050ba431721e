"""What many ranks of a sleeping program cost, and how one that dies or is silent is found.

`make scale RANKS=1024` runs the same tests with more ranks.
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
from test_user_program import start
from tfscaling.record import events
from tfscaling.record.events import PROGRAM_STARTED, Event

RANKS = int(os.environ.get("RANKS", "64"))
#: How long programs sleep, how long the launcher is watched, and how many ranks are traced.
SLEEP_S, WATCHED_S, SAMPLE = (240, 30, 16) if RANKS > 64 else (20, 5, RANKS)
pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]
#: Calls that a metadata server of a shared file system answers.
TRACER = ("strace", "--follow-forks", "--seccomp-bpf", "-qqq", "-ttt", "-e", "trace=%file", "-o")
ATTEMPT = "run/attempt=1"


def sleeping(folder: Path, sleep_s: int, **how: object) -> subprocess.Popen[str]:
    program = ["sleep", str(sleep_s)]
    more = {"nodes_max": RANKS, "stall_timeout_s": 1200, **how}
    return start(folder, "", nodes=RANKS, program=program, **more)


def passed(folder: Path, kind: str, number: int) -> list[Event]:
    """At least this many events of this kind."""
    found: list[Event] = []

    def have_come() -> bool:
        lines = events.read(folder / ATTEMPT / events.OF_RANKS)
        found[:] = [event for event in lines if event["event"] == kind]
        return len(found) >= number

    wait_until(have_come)
    return found


def calls_s(trace: Path, folder: Path) -> list[float]:
    """When the run's folder was used, in seconds since the epoch, by the lines of strace."""
    own = re.compile(rb'"(?:run|' + re.escape(str(folder / "run").encode()) + rb")[/\"]")
    lines = trace.read_bytes().splitlines()
    return [float(line.split()[1]) for line in lines if own.search(line)]


def test_ranks_cost_the_file_system_next_to_nothing(tmp_path: Path) -> None:
    """All processes are traced; of many ranks, which strace would slow down, `SAMPLE` of them."""
    traced = [*TRACER, str(tmp_path / "trace")]
    is_sampled = RANKS > 64
    options = ["--detach-on=execve"] if is_sampled else []
    process = sleeping(tmp_path, SLEEP_S, tracer=[traced[0], *options, *traced[1:]])
    of_sample = 0.0
    if is_sampled:
        passed(tmp_path, PROGRAM_STARTED, RANKS)
        pids = [event["pid"] for event in passed(tmp_path, "start", RANKS)][-SAMPLE:]
        attached = [word for pid in pids for word in ("-p", str(pid))]
        sample = [*TRACER, str(tmp_path / "sample"), *attached]
        subprocess.run(["timeout", "--signal=INT", str(WATCHED_S), *sample], check=False)
        lines = (tmp_path / "sample").read_bytes().splitlines()
        assert len({line.split()[0] for line in lines}) >= SAMPLE  # their hearts read /proc
        of_sample = len(calls_s(tmp_path / "sample", tmp_path)) / SAMPLE / WATCHED_S
    output, _ = process.communicate()
    assert process.returncode == 0, output
    calls = calls_s(tmp_path / "trace", tmp_path)
    lines = events.read(tmp_path / "run/events.jsonl")
    begin_s = max(e["time_s"] for e in lines if e["event"] == PROGRAM_STARTED)
    end_s = min(e["time_s"] for e in lines if e["event"] == "program_end")
    while_all_run = sum(begin_s <= call_s <= end_s for call_s in calls)
    per_rank_and_s = while_all_run / RANKS / (end_s - begin_s) + of_sample
    duration_s = max(calls) - min(calls)
    files = [path for path in tmp_path.glob("run/**/*") if path.is_file()]
    print(
        f"{RANKS} ranks: {per_rank_and_s:.4f} operations per rank and second while all run "
        f"({end_s - begin_s:.0f} s); {len(calls) / RANKS:.1f} per rank from start to end "
        f"({duration_s:.0f} s{', launcher only' if is_sampled else ''}); {len(files)} files"
    )
    assert begin_s < end_s
    assert per_rank_and_s <= 0.05
    assert len(calls) <= 10 * RANKS + 10 * duration_s + 200
    assert len(files) <= 12


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def stop(pid: int) -> None:
    """Stop the rank and its program."""
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        process.suspend()


@pytest.mark.parametrize(("fault", "kind"), [(kill, "rank_died"), (stop, "stalled")])
def test_one_of_many_ranks_is_found_and_named(
    tmp_path: Path, fault: Callable[[int], None], kind: str
) -> None:
    process = sleeping(tmp_path, 900)
    try:
        begun = passed(tmp_path, PROGRAM_STARTED, RANKS)
        assert {event["rank"] for event in begun} == set(range(RANKS))
        launcher = psutil.Process(process.pid)
        before, before_s = launcher.cpu_times(), time.monotonic()
        time.sleep(WATCHED_S)
        after, watched_s = launcher.cpu_times(), time.monotonic() - before_s
        used_s = after.user + after.system - before.user - before.system
        victim = RANKS * 2 // 3
        started = {e["rank"]: e["pid"] for e in passed(tmp_path, "start", RANKS)}
        fault_s = time.monotonic()
        fault(started[victim])
        wait_until((tmp_path / "run/failure.json").exists)
        print(
            f"{RANKS} ranks, {kind}: named after {time.monotonic() - fault_s:.1f} s; the launcher "
            f"used {used_s / watched_s:.3f} CPU seconds per second"
        )
        process.communicate()
    finally:
        process.kill()
    cause = json.loads((tmp_path / "run/failure.json").read_text())["cause"]
    assert (cause["kind"], cause["rank"]) == (kind, victim)
    assert (tmp_path / cause["log"]).exists()
    assert used_s / watched_s <= 0.3
