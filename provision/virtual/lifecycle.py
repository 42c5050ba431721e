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
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from . import machines
from .network import command, create_network, host_networks, mounted_roots, namespaces
from .plan import DATABASE, Plan, Shape, free_subnet

INSTALLER = Path(__file__).with_name("install")
UP_SECONDS = 300
#: File in the root folder with the process that needs the cluster: its pid and start time.
OWNER = "owner"
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
    """Load the plan of the cluster that is up at `root`."""
    if not (root / "cluster.json").exists() or not namespaces(root):
        raise RuntimeError(f"no cluster is up at {root}; start one with 'cluster up'")
    return Plan.load(root)


# --- health -----------------------------------------------------------------------------------


def controller_ends(root: Path) -> bool:
    """Whether the controller was asked to shut down; it may answer until it has ended."""
    log = (root / "log/slurmctld.log").read_text(errors="replace")
    return log.rfind("Terminate signal") > log.rfind(" started on cluster ")


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
    # Slurm says itself of nodes that it may power down whether they should be up
    watched = [n for n in plan.machines if n not in plan.nodes or not plan.shape.power_saving]
    stopped = [name for name in watched if not machines.daemon_runs(plan.root, name)]
    if stopped:
        return [f"{machines.daemon(name)} does not run on {name}" for name in stopped]
    states = node_states(plan.root)
    if not states:
        return ["slurmctld does not answer"]
    return [f"{node} is {state}" for node, state in states.items() if BAD_STATE.search(state)]


def last_log_lines(root: Path) -> str:
    """Return the last 5 lines of up to 4 logs: failed boots, munge and the controller first."""
    telling = ("boot.", "munged.", "slurmctld.")
    files = [file for file in (root / "log").glob("*") if file.stat().st_size]
    files.sort(key=lambda file: (not file.name.startswith(telling), file.name))
    lines = []
    for file in files[:4]:
        lines += [f"--- {file.name}", *file.read_text(errors="replace").splitlines()[-5:]]
    return "\n".join(lines)


# --- up and down ------------------------------------------------------------------------------


def up(
    root: Path, shape: Shape, down_command: Callable[[Path], str], owner: int | None = None
) -> None:
    """Start the cluster, or do nothing if it runs.

    Args:
        root: The folder of the cluster.
        shape: Its partitions and services.
        down_command: Returns the command that removes the cluster of a folder, for advice.
        owner: A process with whose end the cluster is abandoned; None: it never is.
    """
    command(INSTALLER, "--check", *(["--accounting"] if shape.accounting else []))
    signal.signal(signal.SIGTERM, stop_on_sigterm)
    with locked(root):
        if already_up(root, shape, down_command):
            print(f"already up at {root}")
            return
        begin = time.monotonic()
        plan = Plan(root, free_subnet(host_networks(), seed=str(root)), shape)
        try:
            start(plan, owner)
        except BaseException as error:
            print(last_log_lines(root), file=sys.stderr)
            machines.remove(root)
            if isinstance(error, Exception):
                text = f"the cluster did not start, all is removed again: {error}"
                raise RuntimeError(text) from error
            raise
    print(f"up in {time.monotonic() - begin:.1f} s at {root} ({plan.subnet})")
    for partition in shape.partitions:
        gpus = f", {partition.gpus} GPUs" if partition.gpus else ""
        print(f"{partition.name}: {partition.nodes} nodes with {partition.cpus} CPUs{gpus}")
    print(export_line(root))


def stop_on_sigterm(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def export_line(root: Path) -> str:
    return f"export SLURM_CONF={shlex.quote(machines.environment(root)['SLURM_CONF'])}"


def already_up(root: Path, shape: Shape, down_command: Callable[[Path], str]) -> bool:
    """Return whether this very cluster runs, after removing what a reboot or `down` left."""
    if not root.exists() or not any(root.iterdir()):
        return False
    if not (root / "cluster.json").exists():
        raise RuntimeError(f"{root} is neither empty nor a cluster's folder; choose another --root")
    if not namespaces(root):
        machines.remove(root)
        return False
    plan = Plan.load(root)
    if plan.shape != shape:
        raise RuntimeError(f"another cluster is up at {root}; remove it: {down_command(root)}")
    if found := troubles(plan):
        text = f"the cluster at {root} is not healthy: {'; '.join(found)}"
        raise RuntimeError(f"{text}; remove it: {down_command(root)}")
    return True


def start(plan: Plan, owner: int | None = None) -> None:
    root = plan.root
    root.mkdir(exist_ok=True)
    plan.save()  # the first file: from here on `down` knows the folder as ours
    if owner is not None:
        (root / OWNER).write_text(f"{owner} {machines.start_time(owner)}")
    for name in ("etc", "net", "run", "state", "spool", "log", "dev"):
        (root / name).mkdir()
    for number in range(max(partition.gpus for partition in plan.partitions)):
        command("mknod", "-m", "666", root / f"dev/gpu{number}", "c", "1", "3")
    plan.write_files()
    create_network(plan)
    machines.start_munged(root)
    if plan.shape.accounting:
        start_database(plan)
    on = plan.machines
    if plan.shape.power_saving:
        machines.start_power(root)
        on = {name: on[name] for name in on if name not in plan.nodes}
    boots = {name: machines.power_on(plan, name) for name in on if name != DATABASE}
    idle = "idle~" if plan.shape.power_saving else "idle"

    def all_idle() -> bool:
        for machine, process in boots.items():
            if process.poll() is not None:
                raise RuntimeError(f"{machine} stopped at once")
        states = node_states(root)
        return len(states) == len(plan.nodes) and set(states.values()) == {idle}

    try:
        machines.wait_until(all_idle, "all nodes become idle", UP_SECONDS)
    except RuntimeError as error:
        raise RuntimeError(f"{error} ({'; '.join(troubles(plan)[:4])})") from None


def start_database(plan: Plan) -> None:
    """Boot the machine `database` and tell slurmdbd of the cluster, which starts later."""
    boot = machines.power_on(plan, DATABASE)
    words = ["sacctmgr", "--immediate", "--quiet", "add", "cluster", "virtual"]

    def knows_the_cluster() -> bool:
        if boot.poll() is not None:
            raise RuntimeError(f"{DATABASE} stopped at once")
        environment = machines.environment(plan.root)
        return subprocess.run(words, env=environment, capture_output=True).returncode == 0

    machines.wait_until(knows_the_cluster, "slurmdbd answers")


def remove_abandoned() -> None:
    """Remove the clusters that nobody needs any more: a test that made them was killed."""
    for root in filter(is_abandoned, mounted_roots()):
        with locked(root):
            machines.remove(root)
        print(f"removed the cluster at {root}: the process that needed it has ended")


def is_abandoned(root: Path) -> bool:
    """Whether the owner of a cluster has ended, or the files of the cluster were deleted."""
    try:
        pid, started = (root / OWNER).read_text().split()
    except (OSError, ValueError):
        return not (root / "cluster.json").exists()
    return machines.start_time(int(pid)) != started


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
