"""Commands that read while a sweep runs leave its lock."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from project import REPOSITORY, Project

#: Runs in a sweep: gives further commands in its folder, and reports their status and the locks.
PROGRAM = """
import json
import pathlib
import subprocess
import sys

start, targets, found = sys.argv[1:-1], sys.argv[-1].split(","), {}
for target in targets:
    words = [sys.executable, "-m", "snakemake", *start, *target.split()]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    locks = sorted(path.name for path in pathlib.Path(".snakemake/locks").glob("*"))
    found[target] = [done.returncode, done.stdout, locks]
pathlib.Path("found.json").write_text(json.dumps(found))
"""


@pytest.mark.full
def test_plan_and_partial_leave_the_lock_and_other_commands_are_refused(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (project.folder / "user.py").write_text(PROGRAM)
    start = ["--snakefile", str(REPOSITORY / "Snakefile"), "--configfile", "overlay.yaml"]
    start += ["--profile", str(REPOSITORY / "profiles/local")]
    # last the sweep itself, and another study's
    program = [
        sys.executable,
        "user.py",
        *start,
        "partial --nolock,plan,--dry-run,--summary,clean_runs,partial,,--config study=other",
    ]
    project.overlay(
        {
            "grid": [{"platform": "laptop", "strategy": "own", "recipe": "user", "nodes": 1}],
            "recipes": {"user": {"program": program, "per_replica_batch_size": 1, "epochs": 1}},
        }
    )
    project.snakemake()
    found = json.loads((project.folder / "found.json").read_text())
    status, output, locks = found.pop("partial --nolock")
    assert status == 0 and "results/main/partial" in output, output
    assert locks
    status, output, locks = found.pop("plan")
    assert status == 0 and "Plan of the runs" in output, output
    assert locks
    for option in ("--dry-run", "--summary"):
        status, output, locks = found.pop(option)
        assert status == 0, (option, output)
        assert locks, option
    assert len(found) == 4
    for target, (status, output, locks) in found.items():
        assert status == 1 and "--unlock" in output, (target, output)
        assert locks, target
    # locks of a killed snakemake
    folder = project.folder / ".snakemake/locks"
    folder.mkdir()
    (folder / "0.input.lock").write_text("somewhere/else")
    assert project.snakemake(check=False).returncode == 1
    project.snakemake("--unlock")
    assert not folder.exists()
