"""Questions to sbatch, Slurm's words, and the limits that sbatch says nothing of."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_programs import program
from submitted import config_of, described
from tfscaling.plan import preflight
from tfscaling.plan.preflight import Request
from tfscaling.spec.run_spec import Point

NOW = datetime.datetime(2026, 11, 22, 12, 0)


def point(**axes: Any) -> Point:
    usual = {"platform": "cluster", "model": "mnist_cnn", "strategy": "multi_worker_mirrored",
             "recipe": "weak", "nodes": 2, "gpus_per_node": 0, "tasks_per_node": 1}  # fmt: skip
    return Point(**{**usual, **axes})


def request_of(asked: Point | None = None, **platform: Any) -> Request:
    (found,) = preflight.requests([asked or point()], config_of(**platform), described()).values()
    return found


def test_the_question_is_the_line_without_what_names_the_job() -> None:
    asked = request_of(point(gpus_per_node=4), partition="v100-x4", account="lab", qos="low")
    assert asked.question == (
        "sbatch --test-only -A lab -p v100-x4 -t 30 --qos=low --nodes=2 --cpus-per-task=8 "
        "--ntasks-per-node=1 --gres=gpu:4 --wrap=true"
    )
    assert asked.nodes == 2
    assert " -p " not in request_of().question


def test_points_that_ask_for_the_same_are_one_question() -> None:
    points = [point(model="a"), point(model="b"), point(nodes=1)]
    assert len(set(preflight.requests(points, config_of(), described()).values())) == 2


SAID = {
    "sbatch: Job 1 to start at 2026-11-22T12:42:23 using 4 processors on nodes cpu[1-2] in "
    "partition cpu\n": "",
    "sbatch: error: invalid partition specified: cpux\n"
    "allocation failure: Invalid partition name specified\n":
        "invalid partition specified: cpux; allocation failure: Invalid partition name specified",
    "sbatch: unrecognized option '--bad'\nTry \"sbatch --help\" for more information\n":
        "unrecognized option '--bad'",
    "": "sbatch ended with exit status 1",
}  # fmt: skip


@pytest.mark.parametrize(("words", "refusal"), SAID.items())
def test_slurms_words_are_the_refusal(words: str, refusal: str) -> None:
    answer = preflight.read(1 if refusal else 0, words)
    assert answer.refusal == refusal
    start = datetime.datetime(2026, 11, 22, 12, 42, 23)
    assert answer.start == (None if refusal else start)


def test_a_start_is_told_as_a_person_would() -> None:
    for start, text in (
        (NOW, "at once"), (NOW.replace(hour=18, minute=5), "at 18:05"),
        (NOW.replace(day=23), "at 2026-11-23 12:00"),
    ):  # fmt: skip
        assert preflight.start_text(start, NOW) == text


# --- limits ---


def partition_of(**settings: str) -> dict[str, str]:
    usual = {"PartitionName": "cpu", "Default": "YES", "MaxTime": "UNLIMITED",
             "MaxNodes": "UNLIMITED", "AllowAccounts": "ALL"}  # fmt: skip
    line = " ".join(f"{key}={value}" for key, value in {**usual, **settings}.items())
    return preflight.partition(line)


LIMITS = [
    ({}, {}, ""),
    ({"MaxTime": "00:30:00"}, {}, ""),
    ({"MaxTime": "00:29:00"}, {}, "PartitionTimeLimit"),
    ({"MaxTime": "00:29:00"}, {"qos": "long"}, ""),
    ({"MaxTime": "2-00:00:00"}, {}, ""),
    ({"MaxNodes": "1"}, {}, "PartitionNodeLimit"),
    ({"MaxNodes": "2"}, {}, ""),
    ({"AllowAccounts": "lab,other"}, {"account": "lab"}, ""),
    ({"AllowAccounts": "lab,other"}, {}, ""),  # the user's default account is not known
    ({"AllowAccounts": "other"}, {"account": "lab"}, "AccountNotAllowed"),
    ({"DenyAccounts": "lab"}, {"account": "lab"}, "AccountNotAllowed"),
]


@pytest.mark.parametrize(("settings", "platform", "reason"), LIMITS)
def test_limits_that_sbatch_accepts_and_no_job_meets(
    settings: dict[str, str], platform: dict[str, Any], reason: str
) -> None:
    found = preflight.problem(request_of(**platform), [partition_of(**settings)])
    assert found.partition(":")[0] == reason


def test_one_of_several_partitions_is_enough() -> None:
    short, long = (partition_of(PartitionName=n, MaxTime=t) for n, t in
                   (("short", "00:10:00"), ("long", "UNLIMITED")))  # fmt: skip
    assert preflight.problem(request_of(partition="short"), [short, long])
    assert not preflight.problem(request_of(partition="short,long"), [short, long])
    assert not preflight.problem(request_of(partition="unknown"), [short, long])


# --- without Slurm ---


@pytest.mark.parametrize(
    "words",
    [
        "allocation failure: Unable to contact slurm controller (connect failure)",
        "sbatch: error: fetch_config: DNS SRV lookup failed\n"
        "sbatch: fatal: Could not establish a configuration source",
    ],
)
def test_without_a_controller_no_point_is_blamed(words: str, slurm: Path) -> None:
    program(slurm, "sbatch", f"echo '{words}' >&2\nexit 1")
    (slurm / "said").touch()
    refusal = preflight.refusal([point(), point(nodes=1)], config_of(), described())
    assert refusal.startswith("Slurm does not answer: ")
    assert words.rpartition(": ")[2] in refusal and "nodes" not in refusal


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of commands of Slurm: sbatch takes all, scontrol says what `said` has in it."""
    for name, script in (("sbatch", "exit 0"), ("scontrol", 'while read -r l; do echo "$l"; done')):
        program(tmp_path, name, f"echo {name} >>{tmp_path}/asked\n{script} <{tmp_path}/said")
    (tmp_path / "which").symlink_to(shutil.which("which") or "")  # which the plugin calls
    monkeypatch.setenv("PATH", str(tmp_path))
    preflight.silence.cache_clear()
    yield tmp_path
    preflight.silence.cache_clear()


@pytest.mark.parametrize("backup", ["DOWN", "UP"])
def test_a_silent_controller_is_asked_once(backup: str, slurm: Path) -> None:
    lines = ["Slurmctld(primary) at one is DOWN", f"Slurmctld(backup) at two is {backup}"]
    (slurm / "said").write_text("\n".join([*lines, ""]))
    refusal = preflight.refusal([point()], config_of(), described())
    assert refusal.startswith("Slurm does not answer: ") is (backup == "DOWN")
    commands = (slurm / "asked").read_text().split()
    assert commands.count("scontrol") == 1 or backup == "UP"
    assert ("sbatch" in commands) is (backup == "UP")
    assert preflight.refusal([], config_of(), described()) == ""
