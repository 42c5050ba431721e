"""Ctrl-C and a second signal for the real driver, on this machine and where Slurm is silent."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from builders import wait_until
from fake_programs import program
from project import BIN, REPOSITORY, Project
from snakemake_server import LIMIT_S

pytestmark = pytest.mark.full

#: Its ranks end with the sweep only: they ignore Ctrl-C.
RECIPE = {
    "program": ["sh", "-c", "trap '' INT; touch begun; until test -e gate; do sleep 0.2; done"],
    "observe": "nothing", "per_replica_batch_size": 1, "epochs": 1,
}  # fmt: skip
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def drive(project: Project) -> Iterator[Start]:
    """Starts the driver in the project's folder; its output is in `console`."""
    started = []

    def start(profile: str, **environ: str) -> subprocess.Popen[bytes]:
        words = [str(BIN / "snakemake"), "--snakefile", str(REPOSITORY / "Snakefile")]
        words += ["--configfile", "overlay.yaml"]
        words += ["--profile", str(REPOSITORY / "profiles" / profile)]
        with (project.folder / "console").open("wb") as console:
            driver = subprocess.Popen(
                words, cwd=project.folder, env={**os.environ, **environ}, stdout=console,
                stderr=console,
            )  # fmt: skip
        started.append(driver)
        return driver

    yield start
    (project.folder / "gate").touch()
    for driver in started:
        driver.kill()
        driver.wait()


def overlay(project: Project, platform: str, **platforms: object) -> None:
    project.overlay({
        "grid": [{"platform": platform, "strategy": "own", "recipe": "waits", "nodes": 1,
                  "repeats": 2}],
        "recipes": {"waits": RECIPE}, "platforms": platforms,
    })  # fmt: skip


def last_line(project: Project, number: int) -> str:
    """The one line about the second signal; nothing else is printed about it."""
    console = (project.folder / "console").read_text()
    assert "Traceback" not in console, console
    name = signal.Signals(number).name
    (line,) = [each for each in console.splitlines() if each.startswith(f"Ended by {name}")]
    return line


def is_left(project: Project) -> bool:
    """Whether a process runs in the project's folder."""
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()) == project.folder and process.status() != psutil.STATUS_ZOMBIE:
                return True
        except psutil.Error:
            continue
    return False


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_on_this_machine_leaves_no_process(
    second: signal.Signals, project: Project, drive: Start
) -> None:
    overlay(project, "laptop")
    driver = drive("local")
    assert wait_until((project.folder / "begun").exists), (project.folder / "console").read_text()
    driver.send_signal(signal.SIGINT)
    console = project.folder / "console"
    assert wait_until(lambda: "Terminating processes" in log(project)), console.read_text()
    driver.send_signal(second)
    assert driver.wait(LIMIT_S) == 128 + second, console.read_text()
    line = last_line(project, second)
    assert "kill -9" in line and "--unlock" in line
    assert wait_until(lambda: not is_left(project))
    (failure,) = project.failures()
    assert failure["cause"]["kind"] == "cancelled"


def log(project: Project) -> str:
    """Snakemake's own log; "" before it has one."""
    return "".join(path.read_text() for path in project.folder.glob(".snakemake/log/*.log"))


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_jobs_whose_cancellation_slurm_does_not_answer_are_named(
    second: signal.Signals, project: Project, drive: Start
) -> None:
    (site := project.folder / "site").mkdir()
    first = random.randint(10, 99)
    program(site, "sbatch", f"""case "$*" in *--test-only*) exit 0;; esac
        echo x >>{site}/calls; echo $(($(wc -l <{site}/calls) + {first}))""")  # fmt: skip
    program(site, "scancel", f'echo "$@" >>{site}/cancelled; exec sleep 600')
    for name in ("squeue", "sinfo", "scontrol", "sacct", "srun"):
        program(site, name, "exit 0")
    overlay(project, "fine", fine={
        "launcher": "srun", "nodes_max": 2, "cpus_per_node": 1, "partition": "cpu",
        "runtime_min": 10,
    })  # fmt: skip
    driver = drive("slurm", PATH=f"{site}:{os.environ['PATH']}")
    numbers = [str(first + 1), str(first + 2)]
    submitted = [f"SLURM jobid {number}" for number in numbers]
    assert wait_until(lambda: all(text in log(project) for text in submitted)), log(project)
    driver.send_signal(signal.SIGINT)
    assert wait_until((site / "cancelled").exists), log(project)
    driver.send_signal(second)
    assert driver.wait(LIMIT_S) == 128 + second, (project.folder / "console").read_text()
    line = last_line(project, second)
    assert all(number in line.split() for number in numbers) and "scancel --name=" in line
