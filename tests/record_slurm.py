#!/usr/bin/env python3
"""Record what Slurm's programs print about jobs and nodes in known states; four minutes, as root.

Usage: tests/record_slurm.py FOLDER SOURCE, with the programs of the Slurm release to record in the
system's folders. FOLDER gets a file named after the release. tests/unit/cluster/
test_slurm_releases.py reads these files; SOURCE says where the release is from.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "workflow/scripts"), str(REPOSITORY / "tests")]

from tfscaling.cluster.slurm_client import NoAnswer, QueuedStep, SlurmClient  # noqa: E402
from virtual_cluster import Cluster, start, wait_for  # noqa: E402

#: Option of srun for the logs of tasks, as the launcher gives it.
RANK_LOG = "--output=$SLURM_JOB_NAME-rank-%t.log"
#: Name of a job → its options of sbatch and its script; jobs that end are first.
ENDED = {
    "completed": (("--nodes=1",), "srun true"),
    "failed": (("--nodes=1",), f"srun {RANK_LOG} sh -c 'exit 3'"),
    "cancelled": (("--nodes=1",), "scancel $SLURM_JOB_ID; sleep 60"),
    "time_limit": (("--nodes=1", "--time=1"), f"srun {RANK_LOG} sleep 600"),
    # srun is on cpu2
    "node_failed": (
        ("--nodes=2", "--nodelist=cpu[2-3]", "--no-requeue"),
        f"srun {RANK_LOG} sleep 600",
    ),
}
RUNNING = {
    "running": (
        ("--nodes=2", "--time=10", "--comment=rule_train a|b StartTime=2001-01-01T00:00:00"),
        "srun --job-name=step sleep 600",
    ),
    "gpus": (
        ("--partition=gpu", "--nodes=1", "--gpus-per-node=2", "--cpus-per-task=2"),
        "srun sleep 600",
    ),
    "waiting": (("--nodes=2", "--exclusive"), "true"),
}


class RecordingClient(SlurmClient):
    """A client that keeps what each program printed."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[dict[str, object]] = []

    def _run(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        program: str | None = None,
        script: str | None = None,
        timeout_s: float | None = None,
    ) -> subprocess.CompletedProcess[str] | NoAnswer:
        done = super()._run(command, environ, program, script, timeout_s)
        assert not isinstance(done, NoAnswer), done
        self.recorded.append(
            {
                "command": [*command],
                "exit": done.returncode,
                "stdout": done.stdout,
                "stderr": done.stderr,
            }
        )
        return done


def list_steps(client: SlurmClient) -> list[QueuedStep]:
    """Return the running steps."""
    found = client.steps()
    return [] if isinstance(found, NoAnswer) else found


def submit(cluster: Cluster, name: str, options: Sequence[str], script: str) -> str:
    """Submit a job whose log is named after it; return its number."""
    words = ("--parsable", f"--job-name={name}", f"--output={name}.log", f"--wrap={script}")
    return cluster.run("sbatch", *words, *options).strip()


def record(cluster: Cluster) -> dict[str, object]:
    """Submit the jobs, wait for their states, and return all that Slurm prints about them."""
    client = RecordingClient()
    numbers = {name: submit(cluster, name, *job) for name, job in ENDED.items()}

    def states() -> dict[str, str]:
        found = client.accounted_states([*numbers])
        assert not isinstance(found, NoAnswer)
        return {name: found.get(number, "") for name, number in numbers.items()}

    wait_for(lambda: states()["node_failed"] == "RUNNING", "the job on the node that fails")
    time.sleep(5)  # for srun to start its step
    cluster.tool("kill-node", "cpu3")
    wait_for(
        lambda: not any(s in ("", "PENDING", "RUNNING") for s in states().values()), "the ends"
    )
    cluster.run("scontrol", "update", "nodename=cpu4", "state=drain", "reason=recorded")
    numbers |= {name: submit(cluster, name, *job) for name, job in RUNNING.items()}
    wait_for(lambda: len(list_steps(client)) >= 4, "the steps")  # with the batch steps
    wait_for(lambda: [*states().values()][-3:] == ["RUNNING", "RUNNING", "PENDING"], "accounting")
    client.recorded.clear()
    client.jobs()
    client.jobs(numbers=["999999"])
    client.steps(numbers["running"])
    client.accounted_states([*ENDED, *RUNNING])
    client.accounted_waits("cpu", 2)
    client.accounted_energy(numbers["completed"])
    client.account_lineages("root")
    for name in ("running", "gpus", "waiting", "time_limit"):
        client.show_job(numbers[name])
    client.configuration()
    client.partitions()
    client.nodes()
    client.nodes(names=["cpu1", "cpu3"])
    client.hostnames("cpu[2-4,10],gpu1")
    client.ping()
    test = ["sbatch", "--test-only", "--parsable", "--nodes=1", "--wrap=true"]
    client.test([*test, "--partition=cpu"])
    client.test([*test, "--partition=none"])
    client.test([*test, "--partition=cpu", "--nodes=5"])
    client.submit("sbatch --parsable --nodes=1 --wrap=true --account=none")
    client.submit("sbatch --parsable --nodes=1 --wrap=true --hold")
    client.submit("sbatch --nodes=1 --wrap=true --hold")
    client.signal(["999999"], "TERM")
    client.requeue("999999")
    client.cancel(["999999"])
    logs = {path.name: path.read_text() for path in sorted(cluster.root.glob("*.log"))}
    return {"jobs": numbers, "logs": logs, "calls": client.recorded}


def main() -> None:
    folder, source = Path(sys.argv[1]), sys.argv[2]
    # short: Slurm's sockets are in this folder
    root = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp"))
    shape = ("--partition", "cpu:4:cpus=2", "--partition", "gpu:1:gpus=4:cpus=4", "--accounting")
    cluster = start(root, *shape)
    try:
        os.environ |= cluster.environ
        name = cluster.run("sinfo", "--version").split()[1]
        found = record(cluster)
    finally:
        cluster.tool("down")
    text = json.dumps({"release": name, "source": source, **found}, indent=1)
    # paths of this machine
    text = text.replace(str(root), "/cluster").replace(os.uname().nodename, "login")
    (folder / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
