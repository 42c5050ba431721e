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
from .network import (
    create_network,
    list_host_networks,
    list_mounted_roots,
    list_namespaces,
    run_command,
)
from .plan import DATABASE, Plan, Shape, free_subnet

INSTALLER = Path(__file__).with_name("install")
UP_SECONDS = 300
#: File in the root folder with the process that needs the cluster: its pid and start time.
OWNER = "owner"
BAD_STATE = re.compile(r"down|drain|fail|unknown|[*]")  # * is "does not respond"


@contextlib.contextmanager
def hold_lock(root: Path) -> Iterator[None]:
    """Hold the lock of a cluster within the `with` block, so that one command runs at a time.

    The folder above the root folder is locked, because `down` removes the root folder itself.
    """
    root.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(root.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def load_plan(root: Path) -> Plan:
    """Return the plan of the cluster that is up at `root`.

    Raises:
        RuntimeError: No cluster is up there.
    """
    if not (root / "cluster.json").exists() or not list_namespaces(root):
        raise RuntimeError(f"no cluster is up at {root}; start one with 'cluster up'")
    return Plan.load(root)


# --- health -----------------------------------------------------------------------------------


def is_controller_ending(root: Path) -> bool:
    """Return whether slurmctld has received the signal to shut down, according to its log.

    It may answer requests until it has ended.
    """
    log = (root / "log/slurmctld.log").read_text(errors="replace")
    return log.rfind("Terminate signal") > log.rfind(" started on cluster ")


def node_states(root: Path) -> dict[str, str]:
    """Return node → state as sinfo prints it; {} if the controller does not answer."""
    words = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
    environment = machines.daemon_environment(root)
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=5)
    except subprocess.TimeoutExpired:
        return {}
    pairs = (line.split() for line in done.stdout.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def find_problems(plan: Plan) -> list[str]:
    """Return why the cluster is not healthy, as clauses; [] if it is healthy.

    These are Slurm daemons that do not run, or else nodes that Slurm lists as down or drained.
    """
    # Slurm says itself of nodes that it may power down whether they should be up
    watched = [n for n in plan.machines if n not in plan.nodes or not plan.shape.power_saving]
    stopped = [name for name in watched if not machines.is_daemon_running(plan.root, name)]
    if stopped:
        return [f"{machines.daemon_name(name)} does not run on {name}" for name in stopped]
    states = node_states(plan.root)
    if not states:
        return ["slurmctld does not answer"]
    return [f"{node} is {state}" for node, state in states.items() if BAD_STATE.search(state)]


def last_log_lines(root: Path) -> str:
    """Return the last 5 lines of each of up to 4 logs, as one text.

    Logs of boots, of munged and of the controller come first, because they explain most failures.
    """
    telling = ("boot.", "munged.", "slurmctld.")
    files = [file for file in (root / "log").glob("*") if file.stat().st_size]
    files.sort(key=lambda file: (not file.name.startswith(telling), file.name))
    lines = []
    for file in files[:4]:
        lines += [f"--- {file.name}", *file.read_text(errors="replace").splitlines()[-5:]]
    return "\n".join(lines)


# --- up and down ------------------------------------------------------------------------------


def bring_up(
    root: Path, shape: Shape, down_command: Callable[[Path], str], owner: int | None = None
) -> None:
    """Start the cluster and wait until its nodes are idle; do nothing if it is up already.

    If the start fails, everything is removed again.

    Args:
        root: The root folder of the cluster.
        shape: Its partitions and services.
        down_command: Returns the command that removes the cluster of a folder, for advice.
        owner: Id of a process that needs the cluster: after its end, the cluster counts as
            abandoned. None: it never does.

    Raises:
        RuntimeError: The cluster cannot be started, or another cluster is up at `root`.
    """
    run_command(INSTALLER, "--check", *(["--accounting"] if shape.accounting else []))
    signal.signal(signal.SIGTERM, raise_interrupt)
    with hold_lock(root):
        if prepare_root(root, shape, down_command):
            print(f"already up at {root}")
            return
        begin = time.monotonic()
        plan = Plan(root, free_subnet(list_host_networks(), seed=str(root)), shape)
        try:
            start_cluster(plan, owner)
        except BaseException as error:
            print(last_log_lines(root), file=sys.stderr)
            machines.remove_cluster(root)
            if isinstance(error, Exception):
                text = f"the cluster did not start, all is removed again: {error}"
                raise RuntimeError(text) from error
            raise
    print(f"up in {time.monotonic() - begin:.1f} s at {root} ({plan.subnet})")
    for partition in shape.partitions:
        gpus = f", {partition.gpus} GPUs" if partition.gpus else ""
        print(f"{partition.name}: {partition.nodes} nodes with {partition.cpus} CPUs{gpus}")
    print(export_line(root))


def raise_interrupt(signum: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, so that `up` removes what it has started: the handler of SIGTERM."""
    raise KeyboardInterrupt


def export_line(root: Path) -> str:
    """Return the shell line that sets SLURM_CONF for the cluster at `root`."""
    return f"export SLURM_CONF={shlex.quote(machines.daemon_environment(root)['SLURM_CONF'])}"


def prepare_root(root: Path, shape: Shape, down_command: Callable[[Path], str]) -> bool:
    """Return whether the requested cluster is already up at `root`; otherwise clear the folder.

    Only the remains of a cluster after a reboot, and logs that `down` kept, are removed.

    Args:
        root: The root folder of the cluster.
        shape: Its requested partitions and services.
        down_command: Returns the command that removes the cluster of a folder, for advice.

    Raises:
        RuntimeError: The folder has other files, or a cluster that is unhealthy or has another
            shape.
    """
    if not root.exists() or not any(root.iterdir()):
        return False
    if not (root / "cluster.json").exists():
        raise RuntimeError(f"{root} is neither empty nor a cluster's folder; choose another --root")
    if not list_namespaces(root):
        machines.remove_cluster(root)
        return False
    plan = Plan.load(root)
    if plan.shape != shape:
        raise RuntimeError(f"another cluster is up at {root}; remove it: {down_command(root)}")
    if found := find_problems(plan):
        text = f"the cluster at {root} is not healthy: {'; '.join(found)}"
        raise RuntimeError(f"{text}; remove it: {down_command(root)}")
    return True


def start_cluster(plan: Plan, owner: int | None = None) -> None:
    """Write the files of a cluster, start its machines, and wait until all nodes are idle.

    Args:
        plan: The plan of the cluster.
        owner: Id of the process after whose end the cluster counts as abandoned; None: it never
            does.

    Raises:
        RuntimeError: A part does not start.
    """
    root = plan.root
    root.mkdir(exist_ok=True)
    plan.save()  # the first file: from here on `down` knows the folder as ours
    if owner is not None:
        (root / OWNER).write_text(f"{owner} {machines.start_time(owner)}")
    for name in ("etc", "net", "run", "state", "spool", "log", "dev"):
        (root / name).mkdir()
    for number in range(max(partition.gpus for partition in plan.partitions)):
        run_command("mknod", "-m", "666", root / f"dev/gpu{number}", "c", "1", "3")
    plan.write_files()
    create_network(plan)
    machines.start_munged(root)
    if plan.shape.accounting:
        start_database(plan)
    on = plan.machines
    if plan.shape.power_saving:
        machines.start_power_process(root)
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
        raise RuntimeError(f"{error} ({'; '.join(find_problems(plan)[:4])})") from None


def start_database(plan: Plan) -> None:
    """Boot the machine `database` and register the cluster in slurmdbd.

    The controller is started later.
    """
    boot = machines.power_on(plan, DATABASE)
    words = ["sacctmgr", "--immediate", "--quiet", "add", "cluster", "virtual"]

    def knows_the_cluster() -> bool:
        if boot.poll() is not None:
            raise RuntimeError(f"{DATABASE} stopped at once")
        environment = machines.daemon_environment(plan.root)
        return subprocess.run(words, env=environment, capture_output=True).returncode == 0

    machines.wait_until(knows_the_cluster, "slurmdbd answers")


def remove_abandoned() -> None:
    """Remove all abandoned clusters of this machine, such as after a test was killed."""
    for root in filter(is_abandoned, list_mounted_roots()):
        with hold_lock(root):
            machines.remove_cluster(root)
        print(f"removed the cluster at {root}: the process that needed it has ended")


def is_abandoned(root: Path) -> bool:
    """Return whether nobody needs a cluster.

    Its owner has ended; or it has no owner, and its plan was deleted.
    """
    try:
        pid, started = (root / OWNER).read_text().split()
    except (OSError, ValueError):
        return not (root / "cluster.json").exists()
    return machines.start_time(int(pid)) != started


def take_down(root: Path, keep_logs: bool) -> None:
    """Stop the cluster and remove its folder; do nothing if the folder does not exist.

    Args:
        root: The root folder of the cluster.
        keep_logs: Whether the logs and the plan stay in the folder.

    Raises:
        RuntimeError: The folder has files and is not the folder of a cluster.
    """
    if root.is_dir():
        with hold_lock(root):
            if (root / "cluster.json").exists():
                machines.remove_cluster(root, keep_logs)
            elif root.is_dir() and any(root.iterdir()):
                raise RuntimeError(f"{root} is not a cluster's folder; nothing was removed")
            elif root.is_dir():
                root.rmdir()  # `up` was killed before it wrote anything
    print(f"down: {root}")
