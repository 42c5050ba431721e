"""What Slurm knows of the job we are in: submission, start, nodes. Layer 2 (job)."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tfscaling.slurm_environment import job_id

_WANTED = {
    "JobId": "id",
    "Partition": "partition",
    "NodeList": "nodes",
    "NumNodes": "nodes_allocated",
    "NumCPUs": "cpus_allocated",
    "SubmitTime": "submit",
    "StartTime": "start",
    "TRES": "tres",
    "TresPerNode": "tres_per_node",
}
#: How tasks are placed, bound and traced, and which Slurm does it.
SETTINGS = (
    *("SLURM_VERSION", "SelectType", "SelectTypeParameters", "TaskPlugin", "TaskPluginParam"),
    *("ProctrackType", "MpiDefault", "LaunchParameters", "PrologFlags"),
)


def describe(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """The job's facts, with queue_time_s (submission to start, boot included), or None.

    None outside Slurm or if the controller does not answer: a run is not lost for that.
    """
    number = job_id(environ)
    if number is None:
        return None
    try:
        shown = subprocess.run(
            ["scontrol", "show", "job", "--oneliner", number],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {"id": number}
    return parse(shown.stdout)


def settings(environ: Mapping[str, str]) -> dict[str, str] | None:
    """Slurm's settings that can change how a run goes, `SETTINGS`; None outside Slurm."""
    if job_id(environ) is None:
        return None
    try:
        command = ["scontrol", "show", "config"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    pairs = (line.split("=", 1) for line in shown.stdout.splitlines() if "=" in line)
    found = {name.strip(): value.strip() for name, value in pairs}
    return {name: found[name] for name in SETTINGS if name in found}


def parse(text: str) -> dict[str, Any]:
    """The wanted fields of one `scontrol show job --oneliner`."""
    fields = dict(word.split("=", 1) for word in text.split() if "=" in word)
    job: dict[str, Any] = {new: fields[old] for old, new in _WANTED.items() if old in fields}
    try:
        submit, start = (datetime.fromisoformat(job[key]) for key in ("submit", "start"))
        job["queue_time_s"] = (start - submit).total_seconds()
    except (KeyError, ValueError):
        job["queue_time_s"] = None
    return job
