"""The life of a cluster: up, down, and whether it is well."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import machines
from network import command, create_network, host_networks, namespaces
from plan import Partition, Plan, free_subnet

INSTALLER = Path(__file__).with_name("install")
UP_SECONDS = 300
BAD_STATE = re.compile(r"down|drain|fail|unknown|[*]")  # * is "does not respond"


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """One command at a time: a lock on the folder above, for `down` removes the root itself."""
    root.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(root.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def load(root: Path) -> Plan:
    """The plan of the cluster that is up at `root`."""
    if not (root / "cluster.json").exists() or not namespaces(root):
        raise RuntimeError(f"no cluster is up at {root}; start one with 'cluster up'")
    return Plan.load(root)


# --- health -----------------------------------------------------------------------------------


def node_states(root: Path) -> dict[str, str]:
    """Node → state as sinfo words it; empty when the controller does not answer."""
    words = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
    environment = machines.environment(root)
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=5)
    except subprocess.TimeoutExpired:
        return {}
    pairs = (line.split() for line in done.stdout.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def troubles(plan: Plan) -> list[str]:
    """Why the cluster is not healthy; empty when it is."""
    stopped = [name for name in plan.machines if not machines.daemon_runs(plan.root, name)]
    if stopped:
        return [f"{machines.daemon(name)[0]} does not run on {name}" for name in stopped]
    states = node_states(plan.root)
    if not states:
        return ["slurmctld does not answer"]
    return [f"{node} is {state}" for node, state in states.items() if BAD_STATE.search(state)]


def last_log_lines(root: Path) -> str:
    """The last 5 lines of the 4 logs that tell most: of failed boots, munge, the controller."""
    telling = ("boot.", "munged.", "slurmctld.")
    files = [file for file in (root / "log").glob("*") if file.stat().st_size]
    files.sort(key=lambda file: (not file.name.startswith(telling), file.name))
    lines = []
    for file in files[:4]:
        lines += [f"--- {file.name}", *file.read_text(errors="replace").splitlines()[-5:]]
    return "\n".join(lines)


# --- up and down ------------------------------------------------------------------------------


def up(root: Path, partitions: tuple[Partition, ...]) -> None:
    command(INSTALLER, "--check")
    signal.signal(signal.SIGTERM, stop_on_sigterm)
    with locked(root):
        if already_up(root, partitions):
            print(f"already up at {root}")
            return
        begin = time.monotonic()
        plan = Plan(root, free_subnet(host_networks(), seed=str(root)), partitions)
        try:
            start(plan)
        except BaseException as error:
            print(last_log_lines(root), file=sys.stderr)
            machines.remove(root)
            if isinstance(error, Exception):
                text = f"the cluster did not start, all is removed again: {error}"
                raise RuntimeError(text) from error
            raise
    print(f"up in {time.monotonic() - begin:.1f} s at {root} ({plan.subnet})")
    for partition in partitions:
        gpus = f", {partition.gpus} GPUs" if partition.gpus else ""
        print(f"{partition.name}: {partition.nodes} nodes with {partition.cpus} CPUs{gpus}")
    print(export_line(root))


def stop_on_sigterm(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def export_line(root: Path) -> str:
    return f"export SLURM_CONF={shlex.quote(machines.environment(root)['SLURM_CONF'])}"


def already_up(root: Path, partitions: tuple[Partition, ...]) -> bool:
    """True if this very cluster runs; what a reboot or `down --keep-logs` left is removed."""
    if not root.exists() or not any(root.iterdir()):
        return False
    if not (root / "cluster.json").exists():
        raise RuntimeError(f"{root} is neither empty nor a cluster's folder; choose another --root")
    if not namespaces(root):
        machines.remove(root)
        return False
    plan = Plan.load(root)
    if plan.partitions != partitions:
        raise RuntimeError(f"another cluster is up at {root}; run 'cluster down' first")
    if found := troubles(plan):
        text = f"the cluster at {root} is not healthy: {'; '.join(found)}"
        raise RuntimeError(f"{text}; run 'cluster down' first")
    return True


def start(plan: Plan) -> None:
    root = plan.root
    root.mkdir(exist_ok=True)
    plan.save()  # the first file: from here on `down` knows the folder as ours
    for name in ("etc", "net", "run", "state", "spool", "log", "dev"):
        (root / name).mkdir()
    for number in range(max(partition.gpus for partition in plan.partitions)):
        command("mknod", "-m", "666", root / f"dev/gpu{number}", "c", "1", "3")
    plan.write_files()
    create_network(plan)
    machines.start_munged(root)
    boots = {machine: machines.power_on(plan, machine) for machine in plan.machines}

    def all_idle() -> bool:
        for machine, process in boots.items():
            if process.poll() is not None:
                raise RuntimeError(f"{machine} stopped at once")
        states = node_states(root)
        return len(states) == len(plan.machines) - 1 and set(states.values()) == {"idle"}

    try:
        machines.wait_until(all_idle, "all nodes become idle", UP_SECONDS)
    except RuntimeError as error:
        raise RuntimeError(f"{error} ({'; '.join(troubles(plan)[:4])})") from None


def down(root: Path, keep_logs: bool) -> None:
    if root.is_dir():
        with locked(root):
            if (root / "cluster.json").exists():
                machines.remove(root, keep_logs)
            elif root.is_dir() and any(root.iterdir()):
                raise RuntimeError(f"{root} is not a cluster's folder; nothing was removed")
            elif root.is_dir():
                root.rmdir()  # `up` was killed before it wrote anything
    print(f"down: {root}")
