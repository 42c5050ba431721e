"""An attempt at a job of ranks: folders, the ranks' reports, the failure that is left."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
from builders import SCRIPTS, local_spec, rank_events, write_events
from fake_programs import program
from tfscaling.files import atomic
from tfscaling.launch import attempt as launching
from tfscaling.launch.attempt import Attempt
from tfscaling.launch.launchers import Command
from tfscaling.launch.rank_messages import IncompleteError, RankMessageServer
from tfscaling.launch.supervisor import Supervisor
from tfscaling.record import attempts, run_record
from tfscaling.record.attempts import Cause, FailureReport
from tfscaling.study import run_spec
from tfscaling.study.run_spec import RunRequest, RunSpec

RANK = """
import argparse, json, os, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--word")
parser.add_argument("--spec", type=pathlib.Path)
parser.add_argument("--folder", type=pathlib.Path)
args = parser.parse_args()
task = json.loads(os.environ["TF_CONFIG"])["task"]
found = {"rank": task["index"], "word": args.word, "spec": json.loads(args.spec.read_text())}
found["tunables"] = os.environ.get("GLIBC_TUNABLES")
found["gpus"] = os.environ.get("CUDA_VISIBLE_DEVICES")
found["launcher"] = os.environ["TFSCALING_LAUNCHER"]
(args.folder / f"rank-{task['index']}.json").write_text(json.dumps(found))
last = "start" if args.word == "bad" else "end"
events = args.folder / f"rank-{task['index']}.events.jsonl"
events.write_text(json.dumps({"event": last, "time_s": 1.0}) + "\\n")
raise SystemExit(args.word == "bad")
"""
#: A rank that is killed, or fails, when it has written a temporary file.
LEAVES = """
import os, pathlib, signal, sys, tempfile
from tfscaling.launch import rank_files
folder = rank_files.make_temporary_folder(pathlib.Path(sys.argv[sys.argv.index("--folder") + 1]))
with tempfile.NamedTemporaryFile(delete=False) as file:
    assert folder == pathlib.Path(file.name).parent
assert folder.stat().st_mode & 0o077 == 0
(folder.parent / "made").touch()
os.kill(os.getpid(), signal.SIGKILL)
"""
WAITS_S = (600.0, 60.0)


def left_by(attempt: Attempt) -> list[dict[str, Any]]:
    """What the ranks have written, in their order."""
    return [json.loads(path.read_text()) for path in sorted(attempt.scratch.glob("rank-*.json"))]


def test_a_superseded_attempt_changes_nothing_but_its_own_folder(tmp_path: Path) -> None:
    """Its launcher was silent, as without a network, while the next attempt ran to its end."""

    def work(old: Attempt) -> Cause | None:
        newer = Attempt.begin(tmp_path)
        for attempt, text in ((newer, "new"), (old, "old")):
            (attempt.scratch / "record.json").write_text(text)
            launching.publish_record(attempt.scratch, tmp_path / "run.json", [])
        return None

    with pytest.raises(SystemExit):
        launching.run_next_attempt(tmp_path / "run.json", RunRequest(spec=local_spec()), work)
    assert (tmp_path / "run.json").read_text() == "new"
    assert attempts.read_failure(tmp_path) is None
    report = attempts.read_failure(tmp_path / "attempt=1")
    assert report is not None and report.cause.kind == "cancelled"
    assert not (tmp_path / "attempt=1/record.json").exists()  # the run was made once
    assert (tmp_path / "attempt=1" / attempts.SUPERSEDED_RECORD).read_text() == "old"


def test_launchers_that_begin_at_once_get_attempts_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has looked at the folder before any has made its own."""
    for name in ("iterdir", "glob"):
        monkeypatch.setattr(Path, name, lambda *_: iter(()))
    assert [Attempt.begin(tmp_path).number for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("variable", "restarts", "kind"),
    [
        ("SLURM_RESTART_COUNT", "1", "requeued"),
        ("TFSCALING_RESTARTS", "2", "requeued"),
        ("TFSCALING_RESTARTS", "", None),
    ],
)
def test_an_attempt_whose_launcher_lost_its_power_has_its_cause_when_slurm_starts_the_job_again(
    variable: str, restarts: str, kind: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = local_spec()
    first = Attempt.begin(tmp_path)
    atomic.write_text(first.scratch / "spec.json", run_spec.encode_spec(spec))
    monkeypatch.setenv(variable, restarts)
    launching.run_next_attempt(tmp_path / "run.json", RunRequest(spec=spec), lambda _: None)
    left = attempts.read_failure(first.scratch)
    assert (None if left is None else left.cause.kind) == kind
    failed = attempts.failed_attempts(tmp_path)
    assert failed.number == (kind is not None)
    assert left is None or left.axes == spec.axes


def failing(error: Exception) -> Callable[[Attempt], None]:
    def work(attempt: Attempt) -> None:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (OSError(28, "No space left on device"), "launcher_failed", "No space left on device"),
        (KeyError("built"), "launcher_failed", "KeyError: 'built'"),
        (IncompleteError("rank 1: no rank-1.json", [1]), "incomplete", "rank 1: no rank-1.json"),
    ],
)
def test_whatever_goes_wrong_leaves_its_cause(
    tmp_path: Path, error: Exception, kind: str, message: str
) -> None:
    spec = local_spec()
    with pytest.raises(SystemExit, match="1"):
        launching.run_next_attempt(tmp_path / "run.json", RunRequest(spec=spec), failing(error))
    left = json.loads((tmp_path / "failure.json").read_text())
    assert left["cause"]["kind"] == kind
    assert message in left["cause"]["message"]
    assert left["axes"] == spec.axes


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_missing_files_of_a_lost_node_are_its_failure(
    lost: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """srun ends well in an allocation that keeps its other nodes."""
    (bin_folder := tmp_path / "bin").mkdir()
    program(bin_folder, "sinfo", f"echo 'n{lost}|down*'")
    monkeypatch.setenv("PATH", str(bin_folder), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("TFSCALING_NODES", "n1,n2,n3")

    def work(attempt: Attempt) -> None:
        (attempt.scratch / "srun.log").touch()
        for rank in range(3):
            events = rank_events(rank, {"start": 1.0}, host=f"n{rank + 1}")
            write_events(attempt.scratch, rank, events)
        raise IncompleteError("rank 0: no rank-0.json", [0, lost - 1])

    folder = tmp_path / "run"
    with pytest.raises(SystemExit, match="1"):
        launching.run_next_attempt(folder / "run.json", RunRequest(spec=local_spec()), work)
    left = attempts.read_failure(folder)
    assert left is not None
    assert (left.cause.kind, left.cause.rank) == ("node_failed", lost - 1)
    assert left.cause.host == f"n{lost}"


class UnhandledError(Exception):
    pass


@pytest.fixture
def unhandled_signals() -> Iterator[Callable[[int, FrameType | None], None]]:
    """The handler around the job: a signal that comes to it would have ended the launcher."""

    def unhandled(number: int, _: FrameType | None) -> None:
        raise UnhandledError

    caught = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, unhandled) for number in caught}
    yield unhandled
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_no_rank_runs_leaves_its_cause(
    tmp_path: Path,
    unhandled_signals: Callable[[int, FrameType | None], None],
    number: signal.Signals,
) -> None:
    """As when the launcher waits for the ranks' files; the time limit may send it repeatedly."""

    def work(attempt: Attempt) -> None:
        command = Command((sys.executable, "-c", "pass"), {}, attempt.scratch / "log", 0)
        assert Supervisor([command], RankMessageServer(attempt.scratch), 600, 1).run() is None
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(number)

    spec = local_spec()
    with pytest.raises(SystemExit, match="1"):
        launching.run_next_attempt(tmp_path / "run.json", RunRequest(spec=spec), work)
    left = json.loads((tmp_path / "failure.json").read_text())
    assert left["cause"]["kind"] == "cancelled" and number.name in left["cause"]["message"]
    assert signal.getsignal(number) is unhandled_signals


@pytest.mark.usefixtures("unhandled_signals")
def test_a_signal_while_the_failure_is_written_does_not_lose_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = run_record.write_json

    def interrupted(path: Path, content: dict[str, object]) -> None:
        signal.raise_signal(signal.SIGTERM)
        write(path, content)

    monkeypatch.setattr(run_record, "write_json", interrupted)
    spec = local_spec()
    with pytest.raises(SystemExit, match="1"):
        launching.run_next_attempt(
            tmp_path / "run.json", RunRequest(spec=spec), failing(ValueError("the cause"))
        )
    left = json.loads((tmp_path / "failure.json").read_text())
    assert left["cause"]["message"] == "ValueError: the cause"


@pytest.mark.parametrize("here", [None, "glibc.malloc.check=0"])
def test_ranks_keep_their_memory_unless_the_user_tunes_glibc(
    here: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if here is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", here)
    (tmp_path / "rank.py").write_text(RANK)
    attempt = Attempt.begin(tmp_path / "job")
    assert attempt.run_ranks(tmp_path / "rank.py", [], local_spec(), *WAITS_S) is None
    (found,) = left_by(attempt)
    if here is None:
        tuned = dict(setting.split("=") for setting in found["tunables"].split(":"))
        assert tuned["glibc.malloc.hugetlb"] == "1"
        # a tensor of 11 MB, as a step of the published network has, is from the heap, and stays
        assert int(tuned["glibc.malloc.mmap_threshold"]) > 11e6
        assert int(tuned["glibc.malloc.trim_threshold"]) > 1e9
    else:
        assert found["tunables"] == here


def on_two_nodes(**measured: Any) -> RunSpec:
    """A run on a physical GPU of each of two nodes."""
    spec = local_spec()
    return msgspec.structs.replace(
        spec,
        point=msgspec.structs.replace(spec.point, nodes=2, tasks_per_node=1, gpus_per_node=1),
        measured=msgspec.structs.replace(spec.measured, devices="physical", **measured),
        jobs={"worker": 2},
    )


@pytest.mark.parametrize(
    ("around", "platform_env", "expected"),
    [
        ("2,3", {}, ["2", "3"]),
        ("2,3,5", {"CUDA_VISIBLE_DEVICES": "7,GPU-8932f937"}, ["7", "GPU-8932f937"]),
    ],
)
def test_local_ranks_take_their_gpus_from_those_that_are_given(
    around: str,
    platform_env: dict[str, str],
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "rank.py").write_text(RANK)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", around)
    attempt, spec = Attempt.begin(tmp_path / "job"), on_two_nodes(env=platform_env)
    assert attempt.run_ranks(tmp_path / "rank.py", [], spec, *WAITS_S) is None
    assert [found["gpus"] for found in left_by(attempt)] == expected
    # only this machine can connect to the launcher
    assert all(found["launcher"].startswith("127.0.0.1:") for found in left_by(attempt))


@pytest.mark.parametrize(
    ("environ", "number"),
    [({}, None), ({"SLURM_JOB_ID": "7"}, "7"),
     ({"SLURM_JOB_ID": "7", "TFSCALING_STEP": "7.12"}, "7.12")],
)  # fmt: skip
def test_a_failure_is_left_and_said(
    environ: dict[str, str], number: str | None, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """With the number of its job or step."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    attempt = Attempt.begin(tmp_path)
    cause = Cause(kind="rank_failed", message="no memory", last_lines=("the last",))
    spec = local_spec()
    with pytest.raises(SystemExit, match="1"):
        attempt.fail(spec, cause)
    for folder in (tmp_path, attempt.scratch):
        found = attempts.read_failure(folder)
        assert found is not None and found.wall_time_s is not None and found.wall_time_s >= 0
        assert msgspec.structs.replace(found, wall_time_s=None) == FailureReport(
            axes=spec.axes, cause=cause, attempt=1, slurm_job=number
        )
    assert "FAILED: rank_failed: no memory\n" in capsys.readouterr().err


def test_a_killed_rank_leaves_no_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SCRIPTS))
    (tmp_path / "rank.py").write_text(LEAVES)
    (temporary := tmp_path / "temporary").mkdir()
    (other := temporary / "tfscaling-0123456789ab-other").mkdir()
    spec = local_spec()
    measured = msgspec.structs.replace(spec.measured, env={"TMPDIR": str(temporary)})
    spec = msgspec.structs.replace(spec, measured=measured)
    cause = Attempt.begin(tmp_path / "job").run_ranks(tmp_path / "rank.py", [], spec, *WAITS_S)
    assert cause is not None and cause.message == "killed by SIGKILL", cause
    assert {*temporary.iterdir()} == {other, temporary / "made"}


@pytest.mark.usefixtures("unhandled_signals")
def test_a_signal_after_the_record_is_published_makes_no_failure(tmp_path: Path) -> None:
    def work(attempt: Attempt) -> None:
        (attempt.scratch / attempts.RECORD).write_text("{}")
        launching.publish_record(attempt.scratch, tmp_path / "run.json", ())
        signal.raise_signal(signal.SIGTERM)

    launching.run_next_attempt(tmp_path / "run.json", RunRequest(spec=local_spec()), work)
    assert (tmp_path / "run.json").exists()
    assert not [*tmp_path.rglob("failure.json")]


@pytest.mark.parametrize("kind", [ValueError, IncompleteError])
def test_exceptions_of_the_launcher_are_masked(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    secret = "4f1c9d7e2b8a"
    monkeypatch.setenv("API_TOKEN", secret)

    def work(attempt: Attempt) -> None:
        (attempt.scratch / "rank-0.log").write_text(f"token {secret}\n")
        raise kind(f"token {secret}", *([[0]] if kind is IncompleteError else []))

    with pytest.raises(SystemExit):
        launching.run_next_attempt(tmp_path / "run.json", RunRequest(spec=local_spec()), work)
    text = (tmp_path / "failure.json").read_text() + capfd.readouterr().err
    assert "token ***" in text and secret not in text
