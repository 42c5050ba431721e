"""A run's folder is named by what was asked for, and its record decides, not Snakemake's memory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from builders import wait_until
from project import BIN, REPOSITORY, Project
from tfscaling.study import run_spec

#: Ends at once; fails or waits while its user wants that.
PROGRAM = """
import pathlib
import sys
import time

if pathlib.Path("fail").exists():
    sys.exit("not today")
while pathlib.Path("wait").exists():
    time.sleep(0.1)
print("loss", 0.5)
"""


def study(
    project: Project,
    epochs: int,
    name: str = "main",
    repeats: int = 2,
    changes: Mapping[str, Any] | None = None,
) -> str:
    """Write the configuration of a study of a recipe that all studies call `script`."""
    content: dict[str, Any] = {
        "study": name,
        "grid": [
            {"platform": "laptop", "strategy": "own", "recipe": "script", "nodes": 1,
             "repeats": repeats}
        ],
        "recipes": {
            "script": {
                "program": [sys.executable, "program.py"],
                "per_replica_batch_size": 1,
                "epochs": epochs,
            }
        },
    }  # fmt: skip
    return project.overlay({**content, **(changes or {})})


#: A target for tests of records: without comparison, conclusions and page.
RUNS = "results/main/runs.csv"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    (made.folder / "program.py").write_text(PROGRAM)
    return made


@pytest.fixture(scope="module")
def finished_runs(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished study of two runs, of two epochs; not to be changed."""
    made = Project(tmp_path_factory.mktemp("finished_runs"))
    (made.folder / "program.py").write_text(PROGRAM)
    study(made, 2)
    made.snakemake()
    return made


@pytest.fixture
def swept(finished_runs: Project, tmp_path: Path) -> Project:
    """A copy of a finished study, to be changed."""
    return finished_runs.copy(tmp_path / "project")


@contextlib.contextmanager
def failing(project: Project) -> Iterator[None]:
    (project.folder / "fail").touch()
    yield
    (project.folder / "fail").unlink()


def checksums(project: Project) -> dict[Path, str]:
    """Record → its checksum."""
    records = project.files_of_runs("run.json")
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in records}


def attempts_of(project: Project) -> list[str]:
    """The folders of all attempts."""
    return sorted(str(path) for path in project.folder.glob("results/runs/**/attempt=*"))


def contents(project: Project) -> dict[str, float]:
    """All files below results, with the times of their last change."""
    return {str(p): p.stat().st_mtime for p in (project.folder / "results").rglob("*")}


@pytest.mark.full
def test_studies_with_equal_names_of_recipes_repeat_no_run_there_and_back(
    project: Project,
) -> None:
    first, second = random.sample(range(1, 1000), 2)
    for number, (name, epochs) in enumerate(
        [("one", first), ("two", second), ("one", first), ("one", second), ("two", first),
         ("two", second), ("one", first)]
    ):  # fmt: skip
        study(project, epochs, name)
        before = checksums(project)
        planned = project.snakemake("plan").stdout
        assert ("2 of 2 runs are finished" in planned) == (number > 1)
        project.snakemake()
        after = checksums(project)
        assert {path: after[path] for path in before} == before
        assert len(after) == min(4, 2 * (number + 1))
        rows = project.table(f"results/{name}/runs.csv")
        assert {row["status"] for row in rows} == {"ok"}
        asked = {record.parent.name for record in before.keys() ^ after.keys()}
        assert asked <= {f"parameters={row['parameters_hash']}" for row in rows}
    assert len(attempts_of(project)) == 4


def test_a_plan_names_the_changed_parameter_and_what_it_costs(swept: Project) -> None:
    epochs = random.randint(3, 1000)
    study(swept, epochs)
    printed = swept.snakemake("plan").stdout
    assert f"epochs: 2, now {epochs}" in printed
    rows = [row for row in swept.table("results/main/details/plan.csv") if row["runs"]]
    assert [row["runs"] for row in rows] == ["2"]
    assert float(rows[0]["node_hours"]) > 0


@pytest.mark.full
def test_an_edit_whose_runs_failed_is_undone_without_a_new_run(swept: Project) -> None:
    before = checksums(swept)
    study(swept, 3)
    with failing(swept):
        assert swept.snakemake(check=False).returncode != 0
    study(swept, 2)
    attempts = attempts_of(swept)
    assert "2 of 2 runs are finished" in swept.snakemake("plan").stdout
    swept.snakemake("--touch")
    for change in ("params", "code", "input"):  # as for `-R $(snakemake --list-changes params)`
        assert "run.json" not in swept.snakemake("--list-changes", change).stdout
    shutil.rmtree(swept.folder / ".snakemake/metadata")
    for words in ((), ("--rerun-triggers", "mtime"), ("--rerun-triggers", "params", "code")):
        assert swept.planned(*words) == set()
        swept.snakemake(*words)
    assert (checksums(swept), attempts_of(swept)) == (before, attempts)


@pytest.mark.parametrize(
    "options",
    [
        ("--forcerun",),
        pytest.param(("--no-hooks", "--forcerun"), marks=pytest.mark.full),
        pytest.param(("--nolock", "--force"), marks=pytest.mark.full),
    ],
    ids=str,
)
@pytest.mark.parametrize("deleted", ["nothing", pytest.param("attempt=1", marks=pytest.mark.full)])
def test_a_forced_run_that_fails_loses_no_record(
    options: tuple[str, ...], deleted: str, swept: Project
) -> None:
    before = checksums(swept)
    forced = min(before)
    shutil.rmtree(forced.with_name(deleted), ignore_errors=True)
    name = str(forced.relative_to(swept.folder))
    with failing(swept):
        assert swept.snakemake(*options, name, check=False).returncode != 0
        assert not forced.exists()
        if "--no-hooks" not in options:
            rows = swept.table("results/main/partial/runs.csv")
            assert {row["status"] for row in rows} == {"ok"}
        files = contents(swept)
        assert swept.planned() == set()
        assert swept.planned("--forcerun", name) == {str(Path(name).parent).split("/runs/")[1]}
        assert len(swept.planned("--forcerun", "train")) == 2
        swept.snakemake("--dry-run")
        assert contents(swept) == files
    swept.snakemake(RUNS)
    assert checksums(swept) == before


@pytest.mark.parametrize(("option", "repeat"), [("--forcerun", 1), ("--force", 2)])
def test_a_forced_run_is_made_again_and_both_records_are_kept(
    option: str, repeat: int, swept: Project
) -> None:
    before = checksums(swept)
    (forced,) = (path for path in before if f"repeat={repeat}" in path.parts)
    name = str(forced.relative_to(swept.folder))
    listed = [
        node_hours_in(swept.snakemake(*words, option, name).stdout)
        for words in (("--dry-run",), ())
    ]
    assert listed[0] == listed[1] and len(listed[0]) == 1
    assert str(Path(name).with_name("attempt=1") / "record.json") in listed[0][0]
    after = checksums(swept)
    assert [path for path in before if before[path] != after[path]] == [forced]
    kept = [forced.parent / f"attempt={number}/record.json" for number in (1, 2)]
    found = [hashlib.sha256(path.read_bytes()).hexdigest() for path in kept]
    assert found == [before[forced], after[forced]]
    assert swept.planned() == set()


def node_hours_in(text: str) -> list[str]:
    """The lines that list records with their node-hours."""
    return [line for line in text.splitlines() if " node-hours: results/runs/" in line]


@pytest.mark.parametrize(
    ("option", "lacks_attempts"),
    [
        # with its attempts also in test_forced_runs_whose_outputs_are_deleted_come_back
        pytest.param("--delete-all-output", False, marks=pytest.mark.full),
        ("--delete-all-output", True),
        pytest.param("--delete-all", True, marks=pytest.mark.full),
        ("--delete-temp-output", False),
    ],
)
def test_no_option_that_deletes_outputs_deletes_a_measurement(
    option: str, lacks_attempts: bool, swept: Project
) -> None:
    before, attempts = checksums(swept), attempts_of(swept)
    swept.snakemake(option)
    assert (swept.folder / "results/main/report.html").exists() is (
        option == "--delete-temp-output"
    )
    assert checksums(swept) == before
    # named, a record is deleted, listed, and comes back from its attempt
    one = min(before)
    name = str(one.relative_to(swept.folder))
    if lacks_attempts:
        shutil.rmtree(one.with_name("attempt=1"))
    listed = swept.snakemake(option, name, "--dry-run").stdout
    assert checksums(swept) == before
    assert one.with_name("attempt=1").exists() is not lacks_attempts
    printed = swept.snakemake(option, name).stdout
    if option == "--delete-temp-output":
        assert checksums(swept) == before
    else:
        assert f"Would delete {name}" in " ".join(listed.split())
        assert f"Deleting {name}" in " ".join(printed.split())
        (line,) = node_hours_in(printed)
        assert line.endswith(str(Path(name).with_name("attempt=1") / "record.json"))
        assert not one.exists()
    swept.snakemake(RUNS)
    assert (checksums(swept), attempts_of(swept)) == (before, attempts)
    assert {row["status"] for row in swept.table(RUNS)} == {"ok"}


def test_forced_runs_whose_outputs_are_deleted_come_back(swept: Project) -> None:
    before = checksums(swept)
    listed = swept.snakemake("--delete-all-output", "--forcerun", "train", "--dry-run").stdout
    assert (checksums(swept), node_hours_in(listed)) == (before, [])
    printed = swept.snakemake("--delete-all-output", "--forcerun", "train").stdout
    assert not checksums(swept)
    assert printed.count("/run.json") == len(node_hours_in(printed)) == 2
    assert printed.count("records deleted") == 1
    assert swept.planned() == set()
    swept.snakemake(RUNS)
    assert checksums(swept) == before


@pytest.mark.parametrize(
    "refused", [{"budget": {"node_hours": 1e-9}}, {"budget": {"usd": 1}}], ids=str
)
def test_a_refused_start_leaves_nothing_behind(refused: dict[str, Any], swept: Project) -> None:
    """A refused start writes no request, whether runs are new or repeated."""
    study(swept, 3, changes=refused)
    files = contents(swept)
    for words in ((), ("--dry-run",)):
        assert swept.snakemake(*words, check=False).returncode == 1
        assert contents(swept) == files
    study(swept, 2, changes=refused)
    forced = min(checksums(swept))
    shutil.rmtree(forced.with_name("attempt=1"))  # in which a repeated run keeps its record
    files, name = contents(swept), str(forced.relative_to(swept.folder))
    for hooks in ([], ["--no-hooks"]):
        assert swept.snakemake(*hooks, "--forcerun", name, check=False).returncode == 1
        assert contents(swept) == files


def test_a_job_whose_configuration_was_changed_while_it_waited_ends_with_the_reason(
    project: Project,
) -> None:
    study(project, 2)
    path = random.choice(sorted(project.planned()))
    study(project, 3)
    job = f"train:{path.replace('/', ',')}"
    words = ("--mode", "subprocess", "--cores", "1", "--allowed-rules", "train", "--target-jobs")
    done = project.snakemake(*words, job, check=False)
    assert done.returncode != 0 and f"{path} is not in the grid" in done.stdout
    assert not (project.folder / "results/runs").exists()


def test_a_start_without_hooks_writes_what_jobs_read(project: Project) -> None:
    study(project, 2)
    for words in (("--dry-run",), ("--summary",)):
        project.snakemake(*words)
        assert not (project.folder / "results").exists()
    project.snakemake("--no-hooks", RUNS)
    assert len(checksums(project)) == 2
    for request in project.files_of_runs(run_spec.REQUEST_FILE):
        assert request.stat().st_mode & 0o077 == 0


def test_touch_makes_no_run_and_reports_those_that_are_missing(swept: Project) -> None:
    lost = max(checksums(swept)).parent
    shutil.rmtree(lost)
    before = checksums(swept)
    said = swept.snakemake("--touch").stdout
    assert "touched" in said and "1 run has no record" in said
    assert "done" not in said and "to do" not in said
    assert checksums(swept) == before
    assert len(swept.planned()) == 1


@pytest.mark.parametrize(("options", "lost"), [(("--forceall",), 0), ((), 2), (("--force",), 1)])
def test_touch_reports_how_many_runs_are_missing(
    options: tuple[str, ...], lost: int, swept: Project
) -> None:
    for record in sorted(checksums(swept))[:lost]:
        shutil.rmtree(record.parent)
    before = checksums(swept)
    said = swept.snakemake("--touch", *options).stdout
    assert "touched" in said and "done" not in said and "to do" not in said
    missing = {0: "", 1: "1 run has no record", 2: "2 runs have no record"}[lost]
    assert missing in said and ("no record" in said) is bool(lost)
    assert checksums(swept) == before
    assert len(swept.planned()) == lost


@pytest.mark.parametrize(
    "options", [(), pytest.param(("--rerun-triggers", "mtime"), marks=pytest.mark.full)]
)
def test_a_study_without_a_valid_run_has_the_same_status_at_each_start(
    options: tuple[str, ...], swept: Project
) -> None:
    model = swept.folder / "program.py"
    model.write_text(model.read_text() + "\nprint('other code')\n")
    for _ in range(3):
        done = swept.snakemake(*options, check=False)
        assert done.returncode == 1, done.stdout
        assert "--config rerun=stale" in done.stdout
    assert {row["status"] for row in swept.table("results/main/runs.csv")} == {"stale"}


def test_runs_that_no_study_asks_for_are_listed_and_removed_on_request(swept: Project) -> None:
    study(swept, 3, "other", repeats=1)
    swept.snakemake("results/other/runs.csv")
    study(swept, 4)
    with failing(swept):
        swept.snakemake(check=False)
    wanted = {
        path
        for path in checksums(swept)
        if json.loads(path.read_text())["parameters"]["epochs"] == 3
    }
    study(swept, 5)
    files = contents(swept)
    said = swept.snakemake("clean_runs").stdout
    assert "requests 4 runs" in said
    logs = str(swept.folder / "results/logs")
    assert {f: t for f, t in contents(swept).items() if logs not in f} == {
        f: t for f, t in files.items() if logs not in f
    }
    swept.snakemake("clean_runs", "--config", "clean=remove")
    assert {*checksums(swept)} == wanted
    assert [path.parent for path in wanted] == [*swept.folder.glob("results/runs" + "/*" * 9)]
    assert "requests 0 runs" in swept.snakemake("clean_runs").stdout


@pytest.mark.parametrize(
    "name",
    [
        *("runs.csv", "comparison.csv", "details/conclusions", "report.html"),
        pytest.param("details/epochs.csv", marks=pytest.mark.full),  # of the rule of runs.csv
    ],
)
def test_a_file_of_the_study_can_be_made_alone(name: str, swept: Project) -> None:
    """Its rule has all that it reads among its inputs; else it may begin too early in a sweep."""
    before = checksums(swept)
    shutil.rmtree(swept.folder / "results/main")
    swept.snakemake(f"results/main/{name}")
    assert (swept.folder / "results/main" / name).exists()
    assert checksums(swept) == before


def test_an_orphan_of_a_killed_sweep_replaces_no_record(swept: Project) -> None:
    """Processes of a local run continue after their snakemake is killed."""
    before = checksums(swept)
    forced = min(before)
    (swept.folder / "wait").touch()
    words = ["--snakefile", str(REPOSITORY / "Snakefile"), "--configfile", "overlay.yaml"]
    words += ["--profile", str(REPOSITORY / "profiles/local")]
    words += ["--forcerun", str(forced.relative_to(swept.folder))]
    sweep = subprocess.Popen(
        [BIN / "snakemake", *words], cwd=swept.folder,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    orphan = forced.with_name("attempt=2")
    wait_until(lambda: (orphan / "spec.json").exists())
    os.kill(sweep.pid, signal.SIGKILL)
    sweep.wait()
    assert not forced.exists()
    swept.snakemake("--unlock")
    swept.snakemake(RUNS)
    assert checksums(swept) == before
    (swept.folder / "wait").unlink()
    wait_until(lambda: (orphan / "failure.json").exists())
    failure = json.loads((orphan / "failure.json").read_text())
    assert failure["cause"]["kind"] == "cancelled"
    time.sleep(1.0)  # it has ended
    assert checksums(swept) == before
    assert swept.planned() == set()
