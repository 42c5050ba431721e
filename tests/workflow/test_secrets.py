"""Nobody but its owner can read the secrets of a run, on disk and among processes."""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from project import BIN, REPOSITORY, Project

#: Runs as a line of `setup` and in the program: commands of all processes with a secret, as a user
#: sees them who owns none of them where this one may become another.
SCAN = """
import json
import os
import pathlib
import sys

if os.geteuid() == 0:
    os.setuid(65534)
found = {}
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        found[path.parent.name] = path.read_bytes().decode(errors="replace").split("\\0")
    except OSError:  # it has ended
        continue
print(json.dumps(found))
"""
#: Scans while the run lasts, and reports its own arguments.
PROGRAM = """
import pathlib
import subprocess
import sys

scanned = subprocess.run([sys.executable, "scan.py"], capture_output=True, text=True, check=True)
pathlib.Path("during.json").write_text(scanned.stdout)
"""


#: As a line of `setup`, in the program, and after the sweep: what a user of the machine without
#: rights of his own finds of the secrets. Root becomes that user; he has the group that is given.
SPY = """
import json
import os
import pathlib
import sys

marks = {name: mark.encode() for name, mark in json.loads(open("marks.json").read()).items()}
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(65534)
found = {"processes": {}, "files": {}, "read": []}


def look(kind, path, name):
    try:
        content = path.read_bytes()
    except OSError:  # it is another user's, or has ended
        return
    if kind == "files":
        found["read"].append(name)
    if has := [mark for mark, value in marks.items() if value in content]:
        words = content.decode(errors="replace").split("\\0") if kind == "processes" else []
        found[kind][name] = [has, words]


for process in pathlib.Path("/proc").glob("[0-9]*"):
    look("processes", process / "cmdline", f"{process.name} cmdline")
    look("processes", process / "environ", f"{process.name} environ")
for folder, _, names in os.walk("."):
    for name in names:
        look("files", pathlib.Path(folder, name), str(pathlib.Path(folder, name)))
print(json.dumps(found))
"""
#: The recipe `good` ends well, the other one fails and quotes secrets; during both the spy looks.
SPIED = """
import os
import pathlib
import subprocess
import sys

_, recipe, group, _ = sys.argv
words = [sys.executable, "spy.py", group]
done = subprocess.run(words, capture_output=True, text=True, check=True)
pathlib.Path(f"spied/{recipe}.json").write_text(done.stdout)
quoted = [os.environ["TOKEN"], os.environ["EXPORTED_KEY"]]
sys.exit(0 if recipe == "good" else f"the program failed: {quoted}")
"""
#: Files that have `env`, `setup` and `program` by design, for whom `readable_by` says; the reports
#: of ranks, which have them only until the last rank has ended; files with what a program prints,
#: and the secrets that the failing one prints.
BY_DESIGN = {"config.json", "manifest.json", "run.json", "record.json"}
WHILE_RANKS_RUN = {"ranks.reports.jsonl"}
PRINTED = {"rank-0.log", "rank-1.log", "launch.log", "failure.json"}
QUOTED = {"env", "exported"}


def commands_with(secret: str, scanned: Path) -> list[list[str]]:
    """The commands of processes that have the secret."""
    found = json.loads(scanned.read_text())
    assert any("scan.py" in words for words in found.values())
    return [words for words in found.values() if any(secret in word for word in words)]


def open_files(folder: Path) -> Iterator[Path]:
    """The files that others could read if they reached the folder."""
    for path, folders, names in os.walk(folder):
        folders[:] = [
            name for name in folders if Path(path, name).stat().st_mode & 0o077 or name == "results"
        ]
        for name in names:
            if Path(path, name).stat().st_mode & 0o044:
                yield Path(path, name)


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """Files of a login node whose users keep its umask are readable by everybody."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_umask")
def test_secrets_of_a_run_are_in_no_command_no_open_file_and_no_reason(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (project.folder / "scan.py").write_text(SCAN)
    (project.folder / "user.py").write_text(PROGRAM)
    old, new = ({k: secrets.token_hex(12) for k in ("env", "setup", "program")} for _ in range(2))

    def overlay(values: dict[str, str], **more: Any) -> None:
        program = [sys.executable, "user.py", f"--password={values['program']}"]
        length = random.randint(140_000, 300_000)  # more than the kernel takes as one word
        setup = [f"PASSWORD={values['setup']}", f"{sys.executable} scan.py >setup.json"]
        project.overlay(
            {
                "grid": [{"platform": "laptop", "strategy": "own", "recipe": "user", "nodes": 1}],
                "recipes": {"user": {"program": program, "per_replica_batch_size": 1, "epochs": 1}},
                "platforms": {
                    "laptop": {
                        "setup": [*setup, f"# {'x' * length}"],
                        "env": {"TOKEN": values["env"]},
                    }
                },
                **more,
            }
        )
        # the user's part: the configuration is his file
        (project.folder / "overlay.yaml").chmod(0o600)

    overlay(old)
    printed = project.snakemake().stdout
    (record,) = project.records()
    assert record["validity"]["status"] == "ok"
    during, in_setup = project.folder / "during.json", project.folder / "setup.json"
    for name in ("env", "setup"):
        assert commands_with(old[name], during) == [], name
        assert commands_with(old[name], in_setup) == [], name
    # a program has its words, and nothing else has them
    (words,) = commands_with(old["program"], during)
    assert words[1] == "user.py"
    assert commands_with(old["program"], in_setup) == []

    overlay(new)
    printed += project.snakemake("--dry-run").stdout + project.snakemake("plan").stdout
    project.snakemake("partial")
    study = project.folder / "results/main"
    partial = study / "partial"
    assert [row["status"] for row in project.table("results/main/partial/runs.csv")] == ["missing"]
    tables = [study / "report.html", *(partial / f"{name}.csv" for name in ("runs", "comparison"))]
    shown = printed + "".join(path.read_text() for path in tables)
    assert "env.TOKEN: changed" in shown and "program: changed" in shown
    values = [*old.values(), *new.values()]
    assert not any(value in shown for value in values)
    opened = [*open_files(project.folder)]
    assert project.folder / "user.py" in opened
    texts = {path: path.read_bytes() for path in opened}
    assert not [p for p, text in texts.items() if any(v.encode() in text for v in values)]
    assert not (project.folder / ".snakemake").stat().st_mode & 0o077


@pytest.mark.parametrize("target", ["partial", "plan", "clean_runs"])
def test_the_first_command_in_a_folder_makes_all_files_for_its_owner_alone(
    target: str, tmp_path: Path
) -> None:
    """Whatever rights the user's umask gives; each command restricts it by itself."""
    project = Project(tmp_path)
    recipe = {"program": ["true"], "per_replica_batch_size": 1, "epochs": 1}
    project.overlay(
        {
            "grid": [{"platform": "laptop", "strategy": "own", "recipe": "user", "nodes": 1}],
            "recipes": {"user": recipe},
        }
    )
    before = os.umask(umask := random.choice([0o002, 0o022, 0o000]))
    try:
        project.snakemake(target)
    finally:
        os.umask(before)
    # what is in Snakemake's folder, others cannot reach
    made = [*(tmp_path / "results").rglob("*"), tmp_path / "results", tmp_path / ".snakemake"]
    assert len(made) > 3
    assert not [path for path in made if path.stat().st_mode & 0o077], oct(umask)


#: A replacement of Apptainer: it runs the command after the image.
APPTAINER = """#!/bin/sh
until [ "$1" = image ]; do shift; done
shift
exec "$@"
"""


@pytest.mark.full
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("engine", [None, "apptainer"])
def test_no_process_is_started_with_a_secret_however_short_it_lives(
    engine: str | None, tmp_path: Path
) -> None:
    """The kernel lists each command line of a sweep, from Snakemake's to the program's."""
    project = Project(tmp_path)
    (tmp_path / "user.py").touch()
    (tmp_path / "image").touch()
    (fake := tmp_path / "bin/apptainer").parent.mkdir()
    fake.write_text(APPTAINER)
    fake.chmod(0o755)
    marks = {name: secrets.token_hex(12) for name in ("env", "setup", "program", "exported")}
    program = [sys.executable, "user.py", f"--password={marks['program']}"]
    setup = [f"PASSWORD={marks['setup']}", f"export EXPORTED_KEY={marks['exported']}"]
    platform: dict[str, Any] = {"setup": setup, "env": {"TOKEN": marks["env"]}}
    if engine:
        platform["container"] = {"engine": engine, "image": "image"}
    nodes = random.randint(1, 2)
    project.overlay(
        {
            "grid": [{"platform": "laptop", "strategy": "own", "recipe": "user", "nodes": nodes}],
            "recipes": {"user": {"program": program, "per_replica_batch_size": 1, "epochs": 1}},
            "platforms": {"laptop": platform},
        }
    )
    trace = tmp_path / "trace"
    tracer = ["strace", "--follow-forks", "--seccomp-bpf", "-qqq", "--string-limit=1000000"]
    words = ["--snakefile", str(REPOSITORY / "Snakefile"), "--configfile", "overlay.yaml"]
    words += ["--profile", str(REPOSITORY / "profiles/local")]
    done = subprocess.run(
        [*tracer, "-e", "trace=execve,execveat", "-o", str(trace), str(BIN / "snakemake"), *words],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{fake.parent}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    (record,) = project.records()
    assert record["validity"]["status"] == "ok", done.stdout
    started = trace.read_text().splitlines()
    for name in ("train.py", "run_rank.py", "user.py", *([engine] if engine else [])):
        assert any(name in line for line in started), name
    found = [line for line in started if any(mark in line for mark in marks.values())]
    # a program has its words
    assert found and all('"user.py", "--password=' in line for line in found), found
    others = [mark for name, mark in marks.items() if name != "program"]
    assert not [line for line in found if any(mark in line for mark in others)]


#: Options and targets of snakemake that print or write the most; the first ones make the runs.
COMMANDS = (
    ("--verbose", "--printshellcmds", "--show-failed-logs", "--benchmark-extended"),
    ("--dry-run", "--forceall", "--verbose", "--printshellcmds", "--debug-dag"),
    *(("plan",), ("proposal",), ("archive",), ("--detailed-summary",), ("--report", "own.zip")),
)


def contents_of(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """All files below a folder, and those in archives: (path, content)."""
    for path in folder.rglob("*"):
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                yield from ((path / name, archive.read(name)) for name in archive.namelist())
        elif path.is_file():
            yield path, path.read_bytes()


@pytest.mark.full
@pytest.mark.usefixtures("usual_umask")
def test_no_command_prints_a_secret_or_writes_it_to_another_file(tmp_path: Path) -> None:
    project = Project(tmp_path)
    readable_by, granted = random.choice([("owner", 0), ("group", 0o040), ("all", 0o044)])
    marks = {name: secrets.token_hex(12) for name in ("env", "setup", "program")}
    (tmp_path / "user.py").touch()
    program = [sys.executable, "user.py", f"--password={marks['program']}"]
    project.overlay(
        {
            "grid": [{"platform": "laptop", "strategy": "own", "recipe": "user", "nodes": 1}],
            "recipes": {"user": {"program": program, "per_replica_batch_size": 1, "epochs": 1}},
            "platforms": {
                "laptop": {"setup": [f"KEY={marks['setup']}"], "env": {"TOKEN": marks["env"]}}
            },
            "readable_by": readable_by,
        }
    )
    for words in COMMANDS:
        done = project.snakemake(*words, check=False)
        assert done.returncode == 0, done.stdout
        assert not [name for name, mark in marks.items() if mark in done.stdout], words
    found = {
        path.relative_to(tmp_path)
        for path, content in contents_of(tmp_path)
        if any(mark.encode() in content for mark in marks.values())
    }
    # Snakemake's own report has the configuration files
    own = {path for path in found if path.parts[0] == "own.zip"}
    assert own and (tmp_path / "own.zip").stat().st_mode & 0o077 == granted, readable_by
    assert {path.name for path in found - own} == {"overlay.yaml", "request.json"} | BY_DESIGN
    assert (tmp_path / "results/main/archive/main.zip").exists()
    assert (tmp_path / "results/main/proposal/proposal.md").exists()


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user of the machine reaches."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def spied(text: str) -> dict[str, Any]:
    """What a spy has found, which must have found something to read."""
    found: dict[str, Any] = json.loads(text)
    assert "user.py" in found["read"]
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize(
    "readable_by", ["owner", pytest.param("group", marks=pytest.mark.full), "all"]
)
def test_another_user_of_the_machine_finds_no_secret(readable_by: str, reachable: Path) -> None:
    """The user looks during and after a good run and a failing one."""
    project = Project(reachable)
    # whom the files are withheld from, at the nearest: the user's own group, or all others
    group = os.getgid() if readable_by == "owner" else 65534
    marks = {name: secrets.token_hex(12) for name in ("env", "setup", "program", "exported")}
    for name, text in {"spy.py": SPY, "user.py": SPIED, "marks.json": json.dumps(marks)}.items():
        (project.folder / name).write_text(text)
    (reachable / "spied").mkdir(mode=0o700)
    password = f"--password={marks['program']}"
    recipes = {
        name: {
            "program": [sys.executable, "user.py", name, str(group), password],
            "per_replica_batch_size": 1,
            "epochs": 1,
        }
        for name in ("good", "bad")
    }
    setup = [
        f"PASSWORD={marks['setup']}",
        f"export EXPORTED_KEY={marks['exported']}",
        f"{sys.executable} spy.py {group} >spied/setup.json",
    ]
    point = {"platform": "laptop", "strategy": "own", "nodes": random.randint(1, 2)}
    project.overlay(
        {
            "grid": [{**point, "recipe": name} for name in recipes],
            "recipes": recipes,
            "platforms": {"laptop": {"setup": setup, "env": {"TOKEN": marks["env"]}}},
            "readable_by": readable_by,
        }
    )
    # the user's part: the configuration is his file
    for name in ("overlay.yaml", "marks.json"):
        (project.folder / name).chmod(0o600)
    printed = project.snakemake("--keep-going", check=False).stdout
    assert not any(mark in printed for mark in marks.values())
    statuses = {
        row["recipe"]: row["status"] for row in project.table("results/main/partial/runs.csv")
    }
    assert statuses == {"good": "ok", "bad": "failed"}
    study = reachable / "results/main"
    shown = [study / "partial/report.html", *study.glob("partial/*.csv"), *study.glob("*.csv")]
    texts = [path.read_text() for path in shown]
    assert any("the program failed" in text for text in texts)
    assert not any(mark in text for mark in marks.values() for text in texts)

    words = [sys.executable, "spy.py", str(group)]
    after = subprocess.run(words, cwd=reachable, capture_output=True, text=True, check=True)
    texts = [(reachable / f"spied/{name}.json").read_text() for name in ("setup", "good", "bad")]
    for text in (*texts, after.stdout):
        found = spied(text)
        for name, (has, command) in found["processes"].items():
            # a program has its own words
            assert has == ["program"] and name.endswith(" cmdline"), (name, has)
            assert command[1:3] in (["user.py", "good"], ["user.py", "bad"]), command
        for name, (has, _) in found["files"].items():
            is_quoted = (
                Path(name).name in PRINTED and "recipe=bad" in name and QUOTED.issuperset(has)
            )
            is_by_design = Path(name).name in BY_DESIGN | WHILE_RANKS_RUN
            assert readable_by == "all" and (is_by_design or is_quoted), (name, has)
    read = {Path(name).parts[0] for name in spied(after.stdout)["read"]}
    assert read.isdisjoint({"results", ".snakemake"}) is (readable_by != "all")
