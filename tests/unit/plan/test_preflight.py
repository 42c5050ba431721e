"""Questions to sbatch, Slurm's words, and the limits that sbatch says nothing of."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_programs import program
from submitted import config_of, described, plan_of
from tfscaling.cluster import slurm_client
from tfscaling.plan import preflight
from tfscaling.plan.preflight import SlurmRequest
from tfscaling.study.run_spec import Point

NOW = datetime.datetime(2026, 11, 22, 12, 0)


def point(**axes: Any) -> Point:
    usual = {"platform": "cluster", "model": "mnist_cnn", "strategy": "multi_worker_mirrored",
             "recipe": "weak", "nodes": 2, "gpus_per_node": 0, "tasks_per_node": 1}  # fmt: skip
    return Point(**{**usual, **axes})


def request_of(asked: Point | None = None, **platform: Any) -> SlurmRequest:
    (found,) = preflight.make_requests(
        [asked or point()], config_of(**platform), described()
    ).values()
    return found


def test_the_question_is_the_line_without_what_names_the_job() -> None:
    asked = request_of(point(gpus_per_node=4), partition="v100-x4", account="lab", qos="low")
    assert asked.sbatch_line == (
        "sbatch --test-only -A lab -p v100-x4 -t 30 --qos=low --nodes=2 --cpus-per-task=8 "
        "--ntasks-per-node=1 --gres=gpu:4 --wrap=true"
    )
    assert asked.nodes == 2
    assert " -p " not in request_of().sbatch_line


def test_points_that_ask_for_the_same_are_one_question() -> None:
    points = [point(model="a"), point(model="b"), point(nodes=1)]
    assert len(set(preflight.make_requests(points, config_of(), described()).values())) == 2


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
    (found,) = slurm_client.parse_partitions(line)
    return found


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
    # Slurm compares accounts in lower case
    ({"AllowAccounts": "LAB,other"}, {"account": "lab"}, ""),
    ({"AllowAccounts": "lab"}, {"account": "Lab"}, ""),
    ({"DenyAccounts": "LAB"}, {"account": "lab"}, "AccountNotAllowed"),
    # and does not read what is denied where some are allowed
    ({"AllowAccounts": "lab", "DenyAccounts": "lab"}, {"account": "lab"}, ""),
    ({"MinNodes": "3"}, {}, "PartitionNodeLimit"),
    ({"MinNodes": "2"}, {}, ""),
    ({"AllowQos": "long"}, {"qos": "short"}, "QosNotAllowed"),
    ({"AllowQos": "long,SHORT", "DenyQos": "short"}, {"qos": "short"}, ""),
    ({"DenyQos": "short"}, {"qos": "short"}, "QosNotAllowed"),
    ({"AllowQos": "long"}, {}, ""),
]


@pytest.mark.parametrize(("settings", "platform", "reason"), LIMITS)
def test_limits_that_sbatch_accepts_and_no_job_meets(
    settings: dict[str, str], platform: dict[str, Any], reason: str, slurm: Path
) -> None:
    program(slurm, "sacctmgr", OLD_SLURM)
    found = preflight.find_limit_problem(request_of(**platform), [partition_of(**settings)])
    assert found.partition(":")[0] == reason


#: What sacctmgr answers for the account laser, which is below physics. Slurm 22.05 has no lineage.
#: `root` is the account above all others.
LAB = "/".join(("", "root", "physics", "laser", ""))
LINEAGE = f"echo {LAB}; echo {LAB}0-alice/"
OLD_SLURM = "echo \" Unknown field 'Lineage'\" >&2; exit 1"
NO_DATABASE = "echo 'sacctmgr: error: slurm_persist_conn_open: Connection refused' >&2; exit 1"


@pytest.mark.parametrize(
    ("sacctmgr", "settings", "is_refused"),
    [
        (LINEAGE, {"AllowAccounts": "Physics"}, False),
        (LINEAGE, {"AllowAccounts": "chemistry"}, True),
        (LINEAGE, {"DenyAccounts": "physics"}, True),
        (LINEAGE, {"DenyAccounts": "chemistry"}, False),
        (OLD_SLURM, {"AllowAccounts": "physics"}, True),
        (OLD_SLURM, {"DenyAccounts": "physics"}, False),
        (NO_DATABASE, {"AllowAccounts": "physics"}, False),
    ],
)
def test_an_account_has_the_rights_of_those_above_it(
    sacctmgr: str, settings: dict[str, str], is_refused: bool, slurm: Path
) -> None:
    program(slurm, "sacctmgr", sacctmgr)
    found = preflight.find_limit_problem(request_of(account="Laser"), [partition_of(**settings)])
    assert found.startswith("AccountNotAllowed") == is_refused


def test_a_partition_that_is_down_starts_nothing_at_once() -> None:
    down, up = partition_of(State="DOWN"), partition_of(PartitionName="other", State="UP")
    of_both = request_of(partition="cpu,other")
    assert preflight.stopped_partitions(request_of(partition="cpu"), [down, up]).endswith(" cpu")
    assert not preflight.stopped_partitions(of_both, [down, up])
    assert not preflight.stopped_partitions(request_of(partition="other"), [down, up])


def test_one_of_several_partitions_is_enough() -> None:
    short, long = (partition_of(PartitionName=n, MaxTime=t) for n, t in
                   (("short", "00:10:00"), ("long", "UNLIMITED")))  # fmt: skip
    assert preflight.find_limit_problem(request_of(partition="short"), [short, long])
    assert not preflight.find_limit_problem(request_of(partition="short,long"), [short, long])
    assert not preflight.find_limit_problem(request_of(partition="unknown"), [short, long])


# --- without Slurm ---


SITE = "QOSMaxSubmitJobPerUserLimit"


@pytest.mark.parametrize(
    "words",
    [
        "allocation failure: Unable to contact slurm controller (connect failure)",
        "sbatch: error: fetch_config: DNS SRV lookup failed\n"
        "sbatch: fatal: Could not establish a configuration source",
        "allocation failure: Unexpected message received",
        "allocation failure: Socket timed out on send/recv operation",
        "allocation failure: Zero Bytes were transmitted or received",
    ],
)
def test_without_a_controller_no_point_is_blamed(
    words: str, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "PAUSES_S", (0.01, 0.02))
    program(slurm, "sbatch", f"echo x >>{slurm}/asked; echo '{words}' >&2\nexit 1")
    (slurm / "said").touch()
    refusal = preflight.find_slurm_refusal([point(), point(nodes=1)], config_of(), described())
    assert refusal.startswith("Slurm does not answer: ")
    assert words.rpartition(": ")[2] in refusal and "nodes" not in refusal
    assert (slurm / "asked").read_text().split().count("x") == 3  # asked again after a pause


def test_a_busy_controller_is_asked_again(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "PAUSES_S", (0.01, 0.02))
    program(
        slurm, "sbatch",
        f"[ -e {slurm}/once ] && exit 0; : >{slurm}/once; echo Socket timed out >&2; exit 1",
    )  # fmt: skip
    (slurm / "said").touch()
    assert preflight.find_slurm_refusal([point()], config_of(), described()) == ""


def test_the_sites_limit_of_jobs_is_no_refusal(slurm: Path, tmp_path: Path) -> None:
    program(slurm, "sbatch", f"echo 'sbatch: error: {SITE}' >&2\nexit 1")
    (slurm / "said").touch()
    assert preflight.find_slurm_refusal([point()], config_of(), described()) == ""
    rows = plan_of(config_of(), tmp_path / "runs").rows
    rows = preflight.add_test_results(rows, config_of(), described())
    assert {row.starts for row in rows if row.runs} == {"waits"}
    assert all(SITE in (row.slurm or "") for row in rows if row.runs)


@pytest.mark.parametrize("variable", ["SBATCH_GRES", "SBATCH_GPUS_PER_TASK", "SBATCH_QOS"])
def test_a_refusal_names_options_from_the_environment(
    variable: str, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "x:1")
    program(slurm, "sbatch", "echo allocation failure: no such node >&2\nexit 1")
    (slurm / "said").touch()
    assert f"{variable}=x:1" in preflight.find_slurm_refusal([point()], config_of(), described())


@pytest.mark.parametrize("key", ["partition", "account", "qos"])
def test_what_a_platform_leaves_open_is_taken_from_the_variables_of_sbatch(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ("partition", "account", "qos")
    for each in keys:
        monkeypatch.setenv(f"SBATCH_{each.upper()}", f"shell-{each}")
    config = config_of(None, 1, **{key: "own"})
    (request,) = preflight.make_requests([point()], config, described()).values()
    others = {each: f"shell-{each}" for each in keys}
    assert {each: getattr(request, each) for each in keys} == {**others, key: "own"}
    monkeypatch.setenv(f"SBATCH_{key.upper()}", "")
    (request,) = preflight.make_requests(
        [point()], config_of(None, 1, **{key: None}), described()
    ).values()
    assert getattr(request, key) is None


def test_options_of_the_environment_that_change_jobs_are_all_named() -> None:
    names = [*preflight.REFUSED_VARIABLES]
    environ = {name: f"value{number}" for number, name in enumerate(names)}
    problem = preflight.variables_problem({**environ, "SBATCH_QOS": "low"})
    assert all(f"{name}={value}: " in problem for name, value in environ.items())
    assert "SBATCH_QOS" not in problem
    # a job's line overrides these, or they change only when it starts
    allowed = ("SBATCH_ACCOUNT", "SBATCH_PARTITION", "SBATCH_TIMELIMIT", "SBATCH_RESERVATION")
    assert preflight.variables_problem(dict.fromkeys(allowed, "x")) == ""


@pytest.mark.parametrize("value", ["relative", "%H:%M", "standard"])
def test_a_start_is_read_whatever_format_the_user_prefers(
    value: str, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_TIME_FORMAT", value)
    program(
        slurm, "sbatch",
        'case "$SLURM_TIME_FORMAT" in standard) at=2026-11-22T12:42:23;; *) at=12:42;; esac\n'
        'echo "sbatch: Job 1 to start at $at using 4 processors" >&2',
    )  # fmt: skip
    (slurm / "said").touch()
    (answer,) = preflight.test_requests([request_of()]).values()
    assert answer.start == datetime.datetime(2026, 11, 22, 12, 42, 23)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of commands of Slurm: sbatch takes all, scontrol says what `said` has in it."""
    for name, script in (("sbatch", "exit 0"), ("scontrol", 'while read -r l; do echo "$l"; done')):
        program(tmp_path, name, f"echo {name} >>{tmp_path}/asked\n{script} <{tmp_path}/said")
    (tmp_path / "which").symlink_to(shutil.which("which") or "")  # which the plugin calls
    monkeypatch.setenv("PATH", str(tmp_path))
    for answer in (preflight.controller_problem, preflight.account_with_parents):
        answer.cache_clear()
    yield tmp_path
    for answer in (preflight.controller_problem, preflight.account_with_parents):
        answer.cache_clear()


@pytest.mark.parametrize("backup", ["DOWN", "UP"])
def test_a_silent_controller_is_asked_once(backup: str, slurm: Path) -> None:
    lines = ["Slurmctld(primary) at one is DOWN", f"Slurmctld(backup) at two is {backup}"]
    (slurm / "said").write_text("\n".join([*lines, ""]))
    refusal = preflight.find_slurm_refusal([point()], config_of(), described())
    assert refusal.startswith("Slurm does not answer: ") is (backup == "DOWN")
    commands = (slurm / "asked").read_text().split()
    assert commands.count("scontrol") == 1 or backup == "UP"
    assert ("sbatch" in commands) is (backup == "UP")
    assert preflight.find_slurm_refusal([], config_of(), described()) == ""
