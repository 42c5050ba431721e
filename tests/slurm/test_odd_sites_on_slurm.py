"""A sweep where Slurm is busy, greets and limits jobs, and where users filter its answers."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_programs import program
from project import Project
from virtual_cluster import Cluster, start

pytestmark = pytest.mark.full

RUNS, LIMIT = 5, 2
#: The first submission is accepted and answered by a timeout, the second is refused for now.
SBATCH = """
case "$*" in *--test-only*) exec {real} "$@";; esac
echo x >>{folder}/submissions
case $(wc -l <{folder}/submissions) in
    1) {real} "$@" >/dev/null 2>&1
       echo "sbatch: error: Socket timed out on send/recv operation" >&2
       exit 1;;
    2) echo "sbatch: error: Unexpected message received" >&2; exit 1;;
esac
if [ $(env -i PATH="$PATH" SLURM_CONF="$SLURM_CONF" squeue --me --noheader | wc -l) -ge {limit} ]
then
    : >{folder}/was-full
    echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2
    exit 1
fi
echo "----------- Welcome to the cluster -----------"
echo "--> Verifying your quota ... OK"
exec {real} "$@"
"""
#: Some queries get an empty answer, as from a program that caches Slurm's answers.
SQUEUE = """
echo x >>{folder}/queries
case $(wc -l <{folder}/queries) in {empty}) exit 0;; esac
exec {real} "$@"
"""
#: What users and sites set in start files of the shell.
ENVIRONMENT = {
    "SLURM_TIME_FORMAT": "relative", "SQUEUE_PARTITION": "other", "SQUEUE_STATES": "FAILED",
    "SINFO_PARTITION": "other", "SLURM_EXPORT_ENV": "NONE", "SACCT_FORMAT": "User",
    "SLURM_CONSTRAINT": "fast", "SLURM_REMOTE_CWD": "/", "SLURM_TIMELIMIT": "1",
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    words = ("--partition", "cpu:2:cpus=2", "--partition", "other:1:cpus=2")
    started = start(tmp_path_factory.mktemp("vc"), *words)
    yield started
    started.tool("down")


def wrappers(folder: Path) -> Path:
    """Wrappers of sbatch and squeue, for PATH."""
    folder.mkdir()
    empty = "|".join(map(str, sorted(random.sample(range(6, 26), 5))))
    print(f"empty answers of squeue: {empty}")
    for name, script in (("sbatch", SBATCH), ("squeue", SQUEUE)):
        real = shutil.which(name)
        program(folder, name, script.format(real=real, folder=folder, limit=LIMIT, empty=empty))
    return folder


def test_no_job_is_lost_or_submitted_twice(
    project: Project, cluster: Cluster, tmp_path: Path
) -> None:
    folder = wrappers(tmp_path / "site")
    project.overlay({
        "grid": [{"platform": "fine", "recipe": "short", "strategy": "own", "nodes": 1,
                  "repeats": RUNS}],
        "platforms": {"fine": {"launcher": "srun", "nodes_max": 2, "cpus_per_node": 1,
                               "partition": "cpu", "runtime_min": 10, "env": {"MARK": "set"}}},
        "recipes": {"short": {"program": ["sh", "-c", 'test "$MARK" = set && sleep 6'],
                              "observe": "nothing", "per_replica_batch_size": 1, "epochs": 1}},
    })  # fmt: skip
    environ = {**cluster.environ, **ENVIRONMENT, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = project.snakemake(profile="slurm", environ=environ, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    rows = project.table("results/main/runs.csv")
    assert [(row["status"], row["failed_attempts"]) for row in rows] == [("ok", "0")] * RUNS
    jobs = cluster.run("squeue", "--noheader", "--states=all", "--format=%k|%T").splitlines()
    assert Counter(job.split("|")[1] for job in jobs) == {"COMPLETED": RUNS}
    assert len({*jobs}) == RUNS  # one job for each run
    assert (folder / "was-full").exists()
    words = ("Socket timed out", "Unexpected message", "QOSMaxSubmitJobPerUserLimit")
    assert all(done.stdout.count(each) == 1 for each in words)  # each is told once
