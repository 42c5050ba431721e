"""Nobody but its owner can read the secrets of a run, on disk and among processes."""

from __future__ import annotations

import json
import os
import random
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from project import Project

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
