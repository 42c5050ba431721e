"""The virtual cluster as the Slurm tests handle it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from project import REPOSITORY

#: Until something that a cluster does in seconds is given up: the machine may be busy.
WAIT_S = 450.0
#: CPUs of a task: a run that requests more than a rank may use is refused.
CPUS = min(2, len(os.sched_getaffinity(0)))
TOOL = REPOSITORY / "provision/virtual/cluster"


@dataclass
class Cluster:
    """Partitions cpu (cpu1 to cpu6) and gpu (gpu1 to gpu6, four GPUs each)."""

    root: Path

    @property
    def environ(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.root / "etc/slurm.conf")}

    def run(self, *command: str) -> str:
        """A Slurm command's output."""
        return subprocess.run(
            command, env={**os.environ, **self.environ}, capture_output=True, text=True, check=True,
            timeout=WAIT_S, cwd=self.root,  # where a job without --output writes its log
        ).stdout  # fmt: skip

    def tool(self, verb: str, *arguments: str) -> str:
        """A command of provision/virtual/cluster on this cluster."""
        return subprocess.run(
            [str(TOOL), verb, "--root", str(self.root), *arguments],
            capture_output=True, text=True, check=True, timeout=WAIT_S,
        ).stdout  # fmt: skip

    def shown(self) -> str:
        """Jobs, nodes and the end of the controller's log, for the message of a failed test."""
        commands = (
            ("squeue", "--states=all", "--format=%i %j %T %r %N %k"),
            ("sinfo", "--Node", "--format=%N %T %E"),
        )
        log = (self.root / "log/slurmctld.log").read_text(errors="replace")
        try:
            found = [self.run(*command) for command in commands]
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            found = [f"{error}: {error.stderr!r}"]
        return "\n".join([*found, log[-8000:]])

    def stop_controller(self) -> None:
        """Shut the controller down; returns when its process has ended."""
        self.run("scontrol", "shutdown", "slurmctld")
        wait_for(lambda: not self._controller_runs(), "the controller to end")

    def start_controller(self) -> None:
        """Start the controller; returns when it answers."""

        def answers() -> bool:
            self.tool("start-node", "controller")
            return "UP" in self.run("scontrol", "ping")

        wait_for(answers, "the controller to answer")

    def revive_controller(self) -> None:
        """Start the controller if it has crashed, as systemd does: slurmctld 22.05 can."""
        if not self._controller_runs():
            self.start_controller()

    def _controller_runs(self) -> bool:
        listed = self.tool("exec", "controller", "ps", "-eo", "comm", "--no-headers")
        return "slurmctld" in listed.split()

    def processes(self, node: str) -> list[str]:
        """What runs on a node besides Slurm itself."""
        shown = self.tool("exec", node, "ps", "-eo", "comm,args", "--no-headers").splitlines()
        ours = ("run_rank.py", "train.py")
        return [line for line in shown if any(name in line for name in ours)]


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds; a command that fails meanwhile is tried again."""
    deadline, failed = time.monotonic() + WAIT_S, ""
    while True:
        try:
            if condition():
                return
        except subprocess.CalledProcessError as error:
            failed = f"; {error}: {error.stderr}"
        # not by time: it hangs
        assert time.monotonic() < deadline, f"waited {WAIT_S:g} s for {what}{failed}"
        time.sleep(0.3)


def start(root: Path, *shape: str) -> Cluster:
    """Bring a cluster up; who asks for it takes it down."""
    # a killed pytest takes none down: the next start of a cluster does
    words = [str(TOOL), "up", "--root", str(root), "--owner", str(os.getpid()), *shape]
    up = subprocess.run(words, capture_output=True, text=True, check=False)
    assert up.returncode == 0, up.stdout + up.stderr
    return Cluster(root)
