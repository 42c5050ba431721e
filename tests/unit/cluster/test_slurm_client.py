"""Slurm's programs as a site answers them: environments, banners, refusals, silence."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import snakemake_executor_plugin_slurm_sweep.slurm_client as of_plugin
from builders import REPOSITORY, SCRIPTS, is_gone, wait_until
from fake_programs import program
from tfscaling.cluster import slurm_client
from tfscaling.cluster.slurm_client import (
    Accepted,
    NoAnswer,
    QueuedJob,
    Refusal,
    RefusalKind,
    SlurmClient,
    Submitted,
)

LINE = "\x1f".join([
    *("7", "RUNNING", "None", "a|name", "cpu", "cpu[1-2]", "2026-10-25T00:30:00", "N/A"),
    *("/my|folder", "a|b "),
])  # fmt: skip
#: Variables with which a user's shell changes what Slurm's programs print, select or cancel.
HOSTILE = {
    "SLURM_TIME_FORMAT": "relative", "SQUEUE_PARTITION": "other", "SQUEUE_ACCOUNT": "lab",
    "SQUEUE_USERS": "root", "SQUEUE_STATES": "PENDING", "SQUEUE_FORMAT": "%u", "SACCT_LOCAL": "1",
    "SINFO_PARTITION": "other", "SCONTROL_FUTURE": "1", "SCANCEL_INTERACTIVE": "1",
    "SCANCEL_STATE": "PENDING", "SLURM_BITSTR_LEN": "8", "TZ": "America/New_York",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Slurm's programs; each leaves its environment, and prints nothing."""
    for name in ("sbatch", "squeue", "sacct", "scontrol", "sinfo", "scancel"):
        program(tmp_path, name, f"env >{tmp_path}/env-{name}")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SBATCH_QOS", "low")
    monkeypatch.setenv("SLURM_CONF", "/opt/slurm.conf")
    return tmp_path


def environment(folder: Path, name: str) -> dict[str, str]:
    lines = (folder / f"env-{name}").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_queries_run_without_the_users_filters_and_formats(folder: Path) -> None:
    slurm = SlurmClient()
    slurm.jobs(), slurm.accounted_states(["name"]), slurm.configuration()
    slurm.nodes(), slurm.cancel(["1"])
    for name in ("squeue", "sacct", "scontrol", "sinfo", "scancel"):
        seen = environment(folder, name)
        assert (seen["SLURM_TIME_FORMAT"], seen["TZ"]) == ("standard", "UTC0")
        assert seen["SLURM_CONF"] == "/opt/slurm.conf"
        assert not {*HOSTILE} & {*seen} - {"SLURM_TIME_FORMAT", "TZ"}


def test_a_job_gets_the_users_environment_as_it_is(folder: Path) -> None:
    SlurmClient().submit("sbatch --parsable")
    seen = environment(folder, "sbatch")
    assert {name: seen[name] for name in HOSTILE} == HOSTILE and seen["SBATCH_QOS"] == "low"
    SlurmClient().test(["sbatch", "--test-only"])
    seen = environment(folder, "sbatch")
    assert seen["SLURM_TIME_FORMAT"] == "standard" and seen["TZ"] == HOSTILE["TZ"]
    assert slurm_client.submission_options(os.environ) == ["SBATCH_QOS=low"]


def test_jobs_have_times_in_seconds_and_a_comment_as_it_is(folder: Path) -> None:
    program(folder, "squeue", f"echo CLUSTER: one; echo '{LINE}'")
    job = QueuedJob(
        number="7", state="RUNNING", reason="None", name="a|name", partition="cpu",
        nodes="cpu[1-2]", start_s=1792888200.0, end_s=None, workdir="/my|folder", comment="a|b ",
    )  # fmt: skip
    assert SlurmClient().jobs() == [job]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'squeue: error: Socket timed out' >&2; exit 1", "Socket timed out"),
        ("exit 3", "squeue ended with exit status 3"),
        ("exec sleep 60", "squeue did not answer for 0.2 s"),
        (None, "squeue: No such file or directory"),
    ],
)
def test_without_an_answer_there_is_no_empty_queue(
    script: str | None, why: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script is None:
        monkeypatch.setenv("PATH", str(folder / "nothing"))
    else:
        program(folder, "squeue", script)
    slurm = SlurmClient(timeout_s=0.2)
    assert slurm.jobs() == slurm.jobs(numbers=["1"]) == slurm.steps() == NoAnswer(why)


def test_a_job_that_slurm_has_forgotten_is_no_missing_answer(folder: Path) -> None:
    program(folder, "squeue", "echo slurm_load_jobs error: Invalid job id specified >&2; exit 1")
    assert SlurmClient().jobs(numbers=["1"]) == []
    assert SlurmClient().steps("1") == []
    assert isinstance(SlurmClient().jobs(names=["a"]), NoAnswer)


PRINTED = {
    "12": "12",
    "12;cluster": "12",
    "----- Welcome to the cluster -----\n--> Verifying account ... OK\n12": "12",
    "12\nUse of this system is monitored.\n": "12",
    "Submitted batch job 12": "12",
    "Quota: 90 %\nSubmitted batch job 12 on cluster tc\n": "12",
    "3\nSubmitted batch job 12\n7 GB left": "12",
    "12\n12": "12",
    "Jobs of yours: 3\nWelcome": None,
    "Jobs of yours:\n3\n12": None,
    "12\nHours left:\n3000": None,
    "": None,
}


@pytest.mark.parametrize(("printed", "number"), PRINTED.items())
def test_the_number_of_a_job_is_found_in_what_a_site_prints(
    printed: str, number: str | None, folder: Path
) -> None:
    program(folder, "sbatch", f"cat <<'END'\n{printed}\nEND")
    assert SlurmClient().submit("sbatch") == Submitted(number, printed.strip())


FAILED = "sbatch: error: Batch job submission failed: "
POLICY = (
    f"{FAILED}Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
)
KINDS = {
    RefusalKind.FOR_NOW: [
        f"{FAILED}Socket timed out on send/recv operation",
        f"{FAILED}Unexpected message received",
        f"{FAILED}Unable to contact slurm controller (connect failure)",
        f"{FAILED}Unable to create job record, try again",
        f"{FAILED}Zero Bytes were transmitted or received",
        f"{FAILED}Transport endpoint is not connected",
        f"{FAILED}Rate limit exceeded, please retry momentarily",
        f"{FAILED}Slurm backup controller in standby mode",
        f"{FAILED}Communication connection failure",
        f"{FAILED}Connection timed out reading",
        f"{FAILED}I/O error writing script/environment to file",
        f"{FAILED}Unable to connect to database",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
        f"{FAILED}Resource temporarily unavailable",
        "sbatch: error: Slurm controller not responding, sleeping and retrying.",
        "sbatch: Job creation temporarily disabled, retrying",
        "sbatch: error: fetch_config: DNS SRV lookup failed\n"
        "sbatch: fatal: Could not establish a configuration source",
    ],
    RefusalKind.QUEUE_LIMIT: [
        f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}",
        f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{POLICY}",
        f"sbatch: error: QOSMaxSubmitJobPerAccountLimit\n{POLICY}",
        f"sbatch: error: AssocGrpSubmitJobsLimit\n{POLICY}",
        f"sbatch: error: QOSGrpSubmitJobsLimit\n{POLICY}",
        f"{FAILED}MaxJobCount limit reached",
    ],
    RefusalKind.FINAL: [
        f"{FAILED}Invalid account or account/partition combination specified",
        f"{FAILED}Requested node configuration is not available",
        f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{POLICY}",
        f"sbatch: error: AssocMaxNodePerJobLimit\n{POLICY}",
        "sbatch: unrecognized option '--bad'\nTry \"sbatch --help\" for more information",
        f"{FAILED}Access/permission denied",
        f"sbatch: error: Site: ldap1: Connection refused, try again\n{FAILED}Invalid account",
        "Notice: Resource temporarily unavailable on /scratch\n"
        "allocation failure: Requested node configuration is not available",
        "",
    ],
}


@pytest.mark.parametrize(
    ("kind", "words"), [(kind, words) for kind in KINDS for words in KINDS[kind]]
)
def test_a_refusal_has_its_kind_and_slurms_words(
    kind: RefusalKind, words: str, folder: Path
) -> None:
    program(folder, "sbatch", f"cat >&2 <<'END'\n{words}\nEND\nexit 1")
    answer = SlurmClient().submit("sbatch")
    assert isinstance(answer, Refusal) and answer.kind is kind
    assert "sbatch: " not in answer.words and "Try " not in answer.words
    assert all(part in words for part in answer.words.split("; ") if words)
    assert SlurmClient().test(["sbatch"]) == answer


@pytest.mark.parametrize("script", ["exec sleep 60", "kill -INT $$", "kill -KILL $$"])
def test_an_sbatch_that_did_not_end_by_itself_may_have_submitted(script: str, folder: Path) -> None:
    program(folder, "sbatch", script)
    answer = SlurmClient(timeout_s=0.2).submit("sbatch")
    assert isinstance(answer, Refusal) and answer.kind is RefusalKind.FOR_NOW


def test_nothing_that_a_wrapper_started_submits_after_its_time_limit(folder: Path) -> None:
    late = folder / "submitted"
    program(folder, "real-sbatch", f"echo $$ >{folder}/pid; sleep 900; touch {late}")
    program(folder, "sbatch", f'sh -c "{folder}/real-sbatch; true"; true')
    client = SlurmClient(timeout_s=1.0)
    while not (folder / "pid").exists():  # on a busy machine it may not have come so far
        answer = client.submit("sbatch")
        assert isinstance(answer, Refusal) and answer.kind is RefusalKind.FOR_NOW
        client = SlurmClient(client.timeout_s * 2)
    pid = int((folder / "pid").read_text())
    wait_until(lambda: is_gone(pid))  # it has been killed, and may not have ended yet
    assert not late.exists()


@pytest.mark.parametrize("error", [FileNotFoundError, ProcessLookupError])
def test_a_process_that_ends_while_it_is_looked_at_does_not_hide_the_time_limit(
    error: type[OSError], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanish(_: Path, pattern: str) -> Iterator[Path]:
        raise error(pattern)
        yield

    program(folder, "sbatch", "exec sleep 60")
    monkeypatch.setattr(Path, "glob", vanish)
    answer = SlurmClient(timeout_s=0.2).submit("sbatch")
    assert isinstance(answer, Refusal) and answer.kind is RefusalKind.FOR_NOW


def test_a_process_of_another_user_does_not_hide_the_time_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = os.kill

    def kill_own(pid: int, number: int) -> None:
        name = Path(f"/proc/{pid}/comm").read_text()
        kill(pid, number)
        if "sleep" in name:
            raise PermissionError(pid)

    program(folder, "sbatch", "sleep 60; true")
    monkeypatch.setattr(os, "kill", kill_own)
    answer = SlurmClient(timeout_s=1.0).submit("sbatch")
    assert isinstance(answer, Refusal) and answer.kind is RefusalKind.FOR_NOW


@pytest.mark.parametrize("name", ["a", "b"])
def test_queries_go_to_the_cluster_to_which_jobs_go(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_CLUSTERS", name)
    SlurmClient().jobs()
    assert environment(folder, "squeue")["SLURM_CLUSTERS"] == name
    monkeypatch.setenv("SLURM_JOB_ID", "1")  # a job asks its own cluster
    SlurmClient().jobs()
    assert "SLURM_CLUSTERS" not in environment(folder, "squeue")


@pytest.mark.parametrize("words", ["", " a", " on cluster virtual a"])  # since Slurm 25.05
def test_the_start_of_a_tested_job_is_read_whatever_the_user_prefers(
    words: str, folder: Path
) -> None:
    program(
        folder, "sbatch",
        'case "$SLURM_TIME_FORMAT" in standard) at=2026-11-22T12:42:23;; *) at=12:42;; esac\n'
        f'echo "sbatch: Job 1 to start at $at{words} using 4 processors" >&2',
    )  # fmt: skip
    answer = SlurmClient().test(["sbatch"])
    assert isinstance(answer, Accepted) and answer.start is not None
    assert answer.start.isoformat() == "2026-11-22T12:42:23"


def test_steps_have_the_number_of_their_job(folder: Path) -> None:
    lines = ("7.0\x1ftfscaling-a\x1fn1", "12.batch\x1fbash\x1fn[1-2]", "", "noise")
    program(folder, "squeue", f"cat <<'END'\n{chr(10).join(lines)}\nEND")
    steps = SlurmClient().steps()
    assert not isinstance(steps, NoAnswer)
    assert [(step.job, step.name, step.nodes) for step in steps] == [
        ("7", "tfscaling-a", "n1"), ("12", "bash", "n[1-2]"),
    ]  # fmt: skip


def test_a_controller_without_its_backup_answers(folder: Path) -> None:
    for backup, is_silent in (("UP", False), ("DOWN", True)):
        program(
            folder, "scontrol",
            f"echo 'Slurmctld(primary) at a is DOWN'; echo 'Slurmctld(backup) at b is {backup}'",
        )  # fmt: skip
        assert (SlurmClient().ping() is not None) == is_silent


def test_nothing_else_calls_slurms_programs() -> None:
    names, found = {"sbatch", "squeue", "sacct", "scontrol", "sinfo", "scancel"}, set()
    files = [*SCRIPTS.rglob("*.py"), *(REPOSITORY / "plugins").rglob("*.py")]
    for path in files:
        tree = ast.parse(path.read_text())
        compared = {id(n) for node in ast.walk(tree) if isinstance(node, ast.Compare)
                    for n in ast.walk(node)}  # fmt: skip
        constants = (n for n in ast.walk(tree) if isinstance(n, ast.Constant))
        found |= {
            (path.stem if path.stem != "__init__" else path.parent.name, constant.value)
            for constant in constants
            if constant.value in names and id(constant) not in compared
        }
    # those are lines for `submit` and `test`, and whether this machine has sbatch
    lines = {("preflight", "sbatch"), ("snakemake_executor_plugin_slurm_allocation", "sbatch")}
    assert found == lines | {("slurm_client", name) for name in names}


def test_the_plugins_have_the_same_client() -> None:
    assert of_plugin.__file__ is not None and slurm_client.__file__ is not None
    assert Path(of_plugin.__file__).samefile(slurm_client.__file__)
