"""Slurm shows every user what jobs and steps are: no secret of a run is in it."""

from __future__ import annotations

import json
import random
import secrets
import sys
from pathlib import Path
from typing import Any

import pytest
from project import Project
from virtual_cluster import Cluster

pytestmark = pytest.mark.full

#: During the run, on its first node: all that Slurm's programs show of its job and steps, and the
#: command lines of the node's processes.
PROGRAM = """
import json, os, pathlib, subprocess, sys

job = os.environ["SLURM_JOB_ID"]
calls = [
    ["scontrol", "--details", "show", "job", job],
    ["scontrol", "show", "step"],
    ["scontrol", "write", "batch_script", job, "-"],
    ["squeue", f"--jobs={job}", "--format=%all"],
    ["squeue", "--steps", "--format=%all"],
]
if os.environ["RANK"] == "0":
    said = [subprocess.run(call, capture_output=True, text=True).stdout for call in calls]
    commands = [
        path.read_bytes().decode(errors="replace").split(chr(0))
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")
    ]
    pathlib.Path("seen.json").write_text(json.dumps([said, commands]))
"""


@pytest.mark.parametrize("profile", ["slurm", "allocation"])
def test_no_secret_is_in_what_slurm_shows_of_a_run(
    profile: str, cluster: Cluster, tmp_path: Path
) -> None:
    project = Project(tmp_path)
    (project.folder / "user.py").write_text(PROGRAM)
    marks = {name: secrets.token_hex(12) for name in ("env", "setup", "program")}
    block = {"platform": "site", "strategy": "own", "recipe": "user"}
    content: dict[str, Any] = {
        "grid": [{**block, "nodes": random.randint(1, 2)}],
        "recipes": {
            "user": {
                "program": [sys.executable, "user.py", f"--password={marks['program']}"],
                "per_replica_batch_size": 1, "epochs": 1,
            }
        },
        "platforms": {
            "site": {
                "launcher": "srun", "partition": "cpu", "nodes_max": 2, "cpus_per_node": 1,
                "env": {"TOKEN": marks["env"]}, "setup": [f"export API_KEY={marks['setup']}"],
            }
        },
    }  # fmt: skip
    project.overlay(content)
    project.snakemake(profile=profile, environ=cluster.environ)
    (record,) = project.records()
    job = record["environment"]["slurm_job"]["id"]
    said, commands = json.loads((project.folder / "seen.json").read_text())
    assert all(job in text for text in (said[0], said[1], said[4])), said
    texts = [*said, cluster.run("scontrol", "--details", "show", "job", job)]
    texts += [path.read_text(errors="replace") for path in (cluster.root / "log").iterdir()]
    assert not [text for text in texts if any(mark in text for mark in marks.values())]
    found = [words for words in commands if any(m in w for m in marks.values() for w in words)]
    # the program has its words
    (own,) = found
    assert own[1] == "user.py" and not any(marks[n] in w for n in ("env", "setup") for w in own)
