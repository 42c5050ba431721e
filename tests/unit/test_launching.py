"""An attempt at a job of ranks: folders, the ranks' reports, the failure that is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import report
from test_rank import axes_and_settings
from tfscaling.launching import Attempt

RANK = """
import argparse, json, os, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--word")
parser.add_argument("--folder", type=pathlib.Path)
args, others = parser.parse_known_args()
task = json.loads(os.environ["TF_CONFIG"])["task"]
found = {"rank": task["index"], "word": args.word, "others": others}
found["clock"] = os.environ["TFSCALING_CLOCK"]
(args.folder / "rank-0.json").write_text(json.dumps(found))
raise SystemExit(args.word == "bad")
"""


def test_attempts_are_counted_and_an_earlier_failure_is_over(tmp_path: Path) -> None:
    first = Attempt.begin(tmp_path / "new" / "job")
    assert (first.number, first.scratch.name) == (1, "attempt=1")
    (first.folder / "failure.json").write_text("{}")
    second = Attempt.begin(first.folder)
    assert (second.number, second.scratch.is_dir()) == (2, True)
    assert not (first.folder / "failure.json").exists() and first.scratch.is_dir()


def test_ranks_are_started_with_their_flags(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(RANK)
    attempt = Attempt.begin(tmp_path / "job")
    run, settings = axes_and_settings()
    jobs, script = {"worker": 1}, tmp_path / "rank.py"
    cause = attempt.start_ranks(script, ["--word=good"], run.axes, settings, jobs, 60)
    assert cause is None
    (found,) = attempt.reports()
    assert found["word"] == "good" and found["clock"].startswith("127.0.0.1:")
    assert {"--platform=laptop", "--optimizer=sgd"} <= set(found["others"])
    cause = attempt.start_ranks(script, ["--word=bad"], run.axes, settings, jobs, 60)
    assert cause is not None and (cause["kind"], cause["rank"]) == ("rank_died", 0)


SHOW_GPUS = """
import argparse, json, os, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--folder", type=pathlib.Path)
args, _ = parser.parse_known_args()
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
found = {"rank": index, "gpus": os.environ["CUDA_VISIBLE_DEVICES"]}
(args.folder / f"rank-{index}.json").write_text(json.dumps(found))
"""
TWO_NODES = {"nodes": 2, "tasks_per_node": 1, "gpus_per_node": 1}


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
    (tmp_path / "rank.py").write_text(SHOW_GPUS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", around)
    run, settings = axes_and_settings()
    settings |= {"devices": "physical", "env": platform_env}
    attempt = Attempt.begin(tmp_path / "job")
    axes = {**run.axes, **TWO_NODES}
    script, jobs = tmp_path / "rank.py", {"worker": 2}
    assert attempt.start_ranks(script, [], axes, settings, jobs, 60) is None
    assert [found["gpus"] for found in attempt.reports()] == expected


@pytest.mark.parametrize("given", ["", "3", "3,3", "-1"])
def test_no_rank_is_started_without_enough_gpus(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rank.py").write_text(SHOW_GPUS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    run, settings = axes_and_settings()
    attempt = Attempt.begin(tmp_path / "job")
    cause = attempt.start_ranks(
        tmp_path / "rank.py",
        [],
        {**run.axes, **TWO_NODES},
        {**settings, "devices": "physical"},
        {"worker": 2},
        60,
    )
    assert cause is not None and cause["kind"] == "launch_failed"
    assert "CUDA_VISIBLE_DEVICES" in cause["message"]
    assert list(attempt.scratch.iterdir()) == []


def test_reports_are_in_the_order_of_the_ranks(tmp_path: Path) -> None:
    attempt = Attempt.begin(tmp_path)
    for rank in (10, 2, 0):
        (attempt.scratch / f"rank-{rank}.json").write_text(json.dumps(report(rank)))
    assert [found["rank"] for found in attempt.reports()] == [0, 2, 10]


def test_a_failure_is_left_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attempt = Attempt.begin(tmp_path)
    cause = {"kind": "rank_failed", "message": "no memory", "last_lines": ["the last"]}
    with pytest.raises(SystemExit, match="1"):
        attempt.fail({"nodes": 2}, "abc", cause)
    for folder in (tmp_path, attempt.scratch):
        left = json.loads((folder / "failure.json").read_text())
        assert (left["axes"], left["cause"], left["attempt"]) == ({"nodes": 2}, cause, 1)
        assert left["parameters_hash"] == "abc"
    assert "FAILED: rank_failed: no memory\n    the last" in capsys.readouterr().err
