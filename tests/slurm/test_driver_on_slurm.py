"""A driver that ends while its jobs go on, in every way: what is kept, made again, and said."""

from __future__ import annotations

import functools
import json
import random
import shlex
import signal
import time

import pytest
from project import BIN, REPOSITORY, Project
from snakemake_server import KILLED
from sweep_drivers import RUNS, Driver, Submit, Watch, clear, queue
from virtual_cluster import Cluster, wait_for

pytestmark = pytest.mark.full

#: From which the moments follow; the longest is when a driver waits for its jobs.
SEED, MOMENT_MAX_S = 17, 8.0


def test_a_sweep_whose_driver_ends_at_five_random_moments(
    gated: Project, submit: Submit, cluster: Cluster
) -> None:
    dice = random.Random(SEED)
    with Watch(gated, cluster) as watch:
        driver = Driver(gated, submit)
        wait_for(lambda: sorted(queue(cluster).values()) == ["PENDING", "RUNNING"], "two jobs")
        jobs = set(queue(cluster))
        code, output = submit(gated)  # a second driver
        assert code != 0 and "--unlock" in output
        time.sleep(dice.uniform(0, MOMENT_MAX_S))
        assert driver.end(signal.SIGKILL)[0] == KILLED
        clear(gated, cluster, submit)

        # a terminal that closes, at any moment from the first on
        driver = Driver(gated, submit)
        assert driver.end(signal.SIGHUP, after_s=dice.uniform(0, MOMENT_MAX_S))[0] == KILLED
        assert set(queue(cluster)) == jobs
        (running,) = [job for job, state in queue(cluster).items() if state == "RUNNING"]
        begun = functools.partial(gated.folder.glob, "results/runs/**/attempt=1")
        wait_for(lambda: bool([*begun()]), "a run to begin")
        (attempt,) = begun()
        (gated.folder / f"gate-{attempt.parent.parent.name}").touch()
        wait_for(lambda: running not in queue(cluster), "a run to end without a driver")
        clear(gated, cluster)

        # Ctrl-C: it cancels what it has taken
        driver = Driver(gated, submit)
        wait_for(lambda: "continues as SLURM job" in driver.log, "the other job to be taken")
        assert driver.end(signal.SIGINT, after_s=dice.uniform(0, MOMENT_MAX_S))[0] != 0
        wait_for(lambda: not queue(cluster), "the job to be cancelled")
        assert len(watch.records()) == 1
        clear(gated, cluster)

        driver = Driver(gated, submit)
        assert driver.end(signal.SIGKILL, after_s=dice.uniform(0, MOMENT_MAX_S))[0] == KILLED
        clear(gated, cluster)

        # it waits for what it has submitted
        driver = Driver(gated, submit)
        (gated.folder / "gate").touch()
        driver.end(signal.SIGTERM, after_s=dice.uniform(0, MOMENT_MAX_S))
        wait_for(lambda: not queue(cluster), "the jobs to end")
        clear(gated, cluster)

        code, output = submit(gated)
        assert code == 0, output[-3000:]
    assert watch.twice == set()
    assert {path: path.read_text() for path in watch.records()} == watch.seen
    (row,) = gated.table()
    assert (row["status"], row["runs"]) == ("ok", str(RUNS))
    told = [json.loads(p.read_text()) for p in gated.folder.rglob("attempt=*/failure.json")]
    assert {failure["cause"]["kind"] for failure in told} <= {"cancelled"}


#: Bash reads this file before it runs a command: the job continues after its run has ended.
LINGERS = """
python3() {
    local code=0
    command python3 "$@" || code=$?
    if [[ $1 == */train.py ]]; then sleep 600; fi
    return $code
}
"""


def test_a_run_that_was_finished_before_its_job_was_cancelled_is_not_made_again(
    gated: Project, submit: Submit, cluster: Cluster
) -> None:
    (gated.folder / "gate").touch()
    (gated.folder / "lingers").write_text(LINGERS)
    with Watch(gated, cluster) as watch:
        lingers = {"BASH_ENV": str(gated.folder / "lingers")}
        driver = Driver(gated, functools.partial(submit, environ=lingers))
        wait_for(lambda: len(watch.seen) == 1, "the first record")
        assert driver.end(signal.SIGINT)[0] != 0
        wait_for(lambda: not queue(cluster), "the jobs to end")
        clear(gated, cluster)
        code, output = submit(gated)
        assert code == 0, output[-3000:]
    assert {path: path.read_text() for path in watch.records()} == watch.seen
    assert len(watch.seen) == len([*gated.folder.glob("results/runs/**/attempt=*/record.json")])


def test_the_driver_may_be_a_job_itself(gated: Project, cluster: Cluster) -> None:
    """As centres want it that allow no long processes on login nodes: docs/how-to.md."""
    (gated.folder / "gate").touch()
    words = [
        *(str(BIN / "snakemake"), "--snakefile", str(REPOSITORY / "Snakefile")),
        *("--configfile", "overlay.yaml", "--profile", str(REPOSITORY / "profiles/slurm")),
        *("--slurm-sweep-init-seconds-before-status-checks", "5"),
    ]
    cluster.run(
        *("sbatch", "--parsable", "--wait", "--partition=cpu", "--ntasks=1", "--time=60"),
        *(f"--chdir={gated.folder}", "--output=driver.log", f"--wrap=exec {shlex.join(words)}"),
    )
    (row,) = gated.table()
    assert (row["status"], row["runs"]) == ("ok", str(RUNS)), (
        gated.folder / "driver.log"
    ).read_text()[-3000:]
    assert queue(cluster) == {}
