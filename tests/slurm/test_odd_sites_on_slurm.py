"""A sweep where Slurm is busy, greets and limits jobs, and where users filter its answers."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_programs import program
from project import BIN, REPOSITORY, Project
from snakemake_executor_plugin_slurm_sweep import queue
from snakemake_executor_plugin_slurm_sweep.slurm_client import SlurmClient
from virtual_cluster import WAIT_S, Cluster, start, wait_for

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
    "SLURM_GRES": "gpu:9", "SLURM_TASK_PROLOG": "/nowhere", "SLURM_STDERRMODE": "none",
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


def study(project: Project, site: Path) -> None:
    """Write a study whose program finds its folder and the platform's variable.

    Its runs end after the site has refused a job, so that their jobs fill the queue first.
    """
    wait = f"until test -e {site}/was-full; do sleep 0.2; done"
    program = ["sh", "-c", f'test "$MARK" = set && test -e overlay.yaml && {wait}']
    project.overlay({
        "grid": [{"platform": "fine", "recipe": "short", "strategy": "own", "nodes": 1,
                  "repeats": RUNS}],
        "platforms": {"fine": {"launcher": "srun", "nodes_max": 2, "cpus_per_node": 1,
                               "partition": "cpu", "runtime_min": 10, "env": {"MARK": "set"}}},
        "recipes": {"short": {"program": program, "observe": "nothing",
                              "per_replica_batch_size": 1, "epochs": 1}},
    })  # fmt: skip


def jobs_of(cluster: Cluster, project: Project) -> list[str]:
    """Comment and state of each job of the project."""
    lines = cluster.run("squeue", "--noheader", "--states=all", "--format=%k|%T|%Z").splitlines()
    folder = f"|{project.folder}"
    return [line.removesuffix(folder) for line in lines if line.endswith(folder)]


def test_no_job_is_lost_or_submitted_twice(
    project: Project, cluster: Cluster, tmp_path: Path
) -> None:
    folder = wrappers(tmp_path / "site")
    study(project, folder)
    environ = {**cluster.environ, **ENVIRONMENT, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = project.snakemake(profile="slurm", environ=environ, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    rows = project.table("results/main/runs.csv")
    assert [(row["status"], row["failed_attempts"]) for row in rows] == [("ok", "0")] * RUNS
    jobs = jobs_of(cluster, project)
    assert Counter(job.split("|")[1] for job in jobs) == {"COMPLETED": RUNS}
    assert len({*jobs}) == RUNS  # one job for each run
    assert (folder / "was-full").exists()
    words = ("Socket timed out", "Unexpected message", "QOSMaxSubmitJobPerUserLimit")
    assert all(done.stdout.count(each) == 1 for each in words)  # each is told once


def test_jobs_are_found_whatever_their_folder_and_name_are(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "a|b; c").mkdir()
    name, comment = "n|m", "rule_train|x y "
    monkeypatch.setenv("SLURM_CONF", cluster.environ["SLURM_CONF"])
    monkeypatch.chdir(folder)
    words = ("--parsable", f"--job-name={name}", f"--comment={comment}", "--output=/dev/null")
    done = subprocess.run(
        ["sbatch", *words, "--wrap=true"], capture_output=True, text=True, check=True
    )
    (job,) = queue.query_jobs(str(folder), SlurmClient())
    assert (job.number, job.name, job.comment) == (done.stdout.strip(), name, comment)


def test_sigterm_ends_a_sweep_whose_jobs_wait_for_the_sites_limit(
    project: Project, cluster: Cluster, tmp_path: Path
) -> None:
    """Snakemake counts jobs as running that Slurm has not taken yet."""
    folder = wrappers(tmp_path / "site")
    (folder / "submissions").write_text("x\nx\n")  # the site's first two answers are past
    study(project, folder)
    environ = {**cluster.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    words = [str(BIN / "snakemake"), "--snakefile", str(REPOSITORY / "Snakefile")]
    words += ["--configfile", "overlay.yaml", "--profile", str(REPOSITORY / "profiles/slurm")]
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            words, cwd=project.folder, env={**os.environ, **environ}, stdout=log, stderr=log
        )
    try:
        wait_for((folder / "was-full").exists, "the site's limit")
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(WAIT_S) == 1, (tmp_path / "driver.log").read_text()
    finally:
        driver.kill()
        driver.wait()
    jobs = jobs_of(cluster, project)
    assert Counter(job.split("|")[1] for job in jobs) == {"COMPLETED": len(jobs)}
    assert LIMIT <= len(jobs) < RUNS
    assert len(project.records()) == len(jobs)
    done = project.snakemake(profile="slurm", environ=cluster.environ, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert len({*jobs_of(cluster, project)}) == len(jobs_of(cluster, project)) == RUNS
