"""The machines: which processes belong to the cluster, and how they start and die.

That is never guessed from a name or a stale pid file: a process belongs to a machine if it is in
the machine's network namespace.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .network import (
    SWITCH,
    SYSTEM_PATH,
    host_link_name,
    list_namespaces,
    namespace_file,
    run_command,
    set_port,
)
from .plan import CONTROLLER, DATABASE, Plan

#: Until something that takes a moment on an idle machine is given up.
WAIT_SECONDS = 120
NODE_INIT = Path(__file__).with_name("node-init")
#: Starts MariaDB and slurmdbd.
START_DATABASE = Path(__file__).with_name("start-database")
#: Where this package is found, for a separate process.
PACKAGES = Path(__file__).parents[1]


def wait_until(condition: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Wait until a condition is true.

    Args:
        condition: Returns whether it is.
        what: The condition in words, for the error.
        seconds: Longest wait.

    Raises:
        RuntimeError: The condition is still false after this time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)


def daemon_environment(root: Path) -> dict[str, str]:
    """Return the environment variables for the daemons and programs of the cluster at `root`.

    Variables of the caller are left out, because the caller may run in a job of another Slurm.
    """
    return {"PATH": SYSTEM_PATH, "HOME": "/root", "SLURM_CONF": str(root / "etc/slurm.conf")}


# --- processes --------------------------------------------------------------------------------


def list_processes(file: Path) -> Iterator[int]:
    """Yield the ids of the processes in a network namespace, without zombies.

    Args:
        file: The file of the namespace, from `network.namespace_file`.
    """
    wanted = os.stat(file)
    for entry in os.listdir("/proc"):
        if entry.isdigit() and is_inside(int(entry), wanted):
            yield int(entry)


def is_inside(pid: int, wanted: os.stat_result) -> bool:
    """Return whether a process is in a network namespace; False if it has ended.

    Args:
        pid: Process id.
        wanted: `os.stat` of the file of the namespace.
    """
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/ns/net"), wanted)
    except OSError:
        return False


def kill_processes(file: Path, only: str | None = None) -> int:
    """Send SIGKILL to processes in a network namespace; return their number.

    Args:
        file: The file of the namespace.
        only: Name of the processes to kill; None: all.
    """
    wanted, killed = os.stat(file), 0
    for pid in list_processes(file):
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        # asked again with the handle in hand: a reused pid cannot be hit
        if is_inside(pid, wanted) and (only is None or process_name(pid) == only):
            with contextlib.suppress(ProcessLookupError):  # it ended in this moment
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            killed += 1
        os.close(handle)
    return killed


def process_name(pid: int) -> str:
    """Return the command name of a process; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def start_time(pid: int) -> str:
    """Return when a process began, in clock ticks since the boot; "" if it does not exist."""
    try:
        # the name, in parentheses, may have blanks and parentheses itself
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def kill_all(file: Path) -> None:
    """Kill all processes in a network namespace, and wait until none is left.

    Args:
        file: The file of the namespace.
    """
    wait_until(lambda: kill_processes(file) == 0, f"killing the processes of {file.name}")


def init_process(root: Path, machine: str) -> int | None:
    """Return the host's id of a machine's process 1; None if the machine has no power."""
    file = namespace_file(root, machine)
    for pid in list_processes(file) if file.exists() else ():
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        numbers = status.partition("NSpid:")[2].partition("\n")[0].split()
        if len(numbers) > 1 and numbers[-1] == "1":
            return pid
    return None


def daemon_name(machine: str) -> str:
    """Return the name of a machine's Slurm daemon: slurmctld, slurmdbd or slurmd."""
    return {CONTROLLER: "slurmctld", DATABASE: "slurmdbd"}.get(machine, "slurmd")


def daemon_command(root: Path, machine: str, booted: bool = False) -> list[str]:
    """Return the command line that starts a machine's Slurm daemon in the background.

    Args:
        root: The root folder of the cluster.
        machine: Name of the machine.
        booted: Whether the machine is just booting, so that Slurm gives up the jobs it had before.
    """
    if machine == CONTROLLER:
        return ["slurmctld"]
    if machine == DATABASE:
        return [str(START_DATABASE), str(root)]
    # -b: "the node has booted"; by itself slurmd would tell the uptime of the whole machine, and
    # Slurm would take the jobs from before a power cut for running
    return ["slurmd", "-N", machine, *(["-b"] if booted else [])]


def is_daemon_running(root: Path, machine: str) -> bool:
    """Return whether the Slurm daemon of a machine is running."""
    names = map(process_name, list_processes(namespace_file(root, machine)))
    return daemon_name(machine) in names


def spawn(root: Path, log: str, *words: str | Path) -> subprocess.Popen[bytes]:
    """Start a background process that keeps running after the end of this process.

    Args:
        root: The root folder of the cluster.
        log: Name of the file in the folder `log` to which output and errors are appended.
        *words: The command line.
    """
    with (root / "log" / log).open("ab") as output:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=daemon_environment(root),
            start_new_session=True,
        )


def start_munged(root: Path) -> None:
    """Start the munged of all machines, in the namespace of the switch; wait until it listens.

    Raises:
        RuntimeError: It does not start.
    """
    run = root / "run"
    (run / "munge.key").write_bytes(os.urandom(128))
    (run / "munge.key").chmod(0o400)
    # One munged for all nodes: Debian's Slurm accepts that (it is built for several slurmd on one
    # machine). --force: munge's checks of the folders above the socket are meant for /run.
    munged = spawn(
        root,
        "munged.log",
        *("nsenter", f"--net={namespace_file(root, SWITCH)}", "munged", "--foreground", "--force"),
        *(f"--socket={run}/munge.socket", f"--key-file={run}/munge.key"),
        *(f"--pid-file={run}/munged.pid", f"--seed-file={run}/munge.seed"),
        *(f"--log-file={root}/log/munged.log",),
    )

    def listens() -> bool:
        if munged.poll() is not None:
            raise RuntimeError("munged stopped at once")
        return (run / "munge.socket").is_socket()

    wait_until(listens, "munged opens its socket")


def power_on(plan: Plan, machine: str) -> subprocess.Popen[bytes]:
    """Boot a machine: connect it, make its namespaces, and start node-init and the daemon in them.

    Args:
        plan: The plan of the cluster.
        machine: Name of the machine.

    Returns:
        The process that runs node-init; it ends with the machine.
    """
    root, address = plan.root, plan.machines[machine]
    set_port(plan, machine, "up")
    (root / "spool" / machine).mkdir(exist_ok=True)
    return spawn(
        root,
        f"boot.{machine}.log",
        *("nsenter", f"--net={namespace_file(root, machine)}"),
        # --ipc: MPI's ranks on two machines must not take the memory of one for shared
        *("unshare", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child"),
        *("--mount-proc", str(NODE_INIT), machine),
        *(f"{address}/{plan.subnet.prefixlen}", str(root)),
        *daemon_command(root, machine, booted=True),
    )


def power_off(plan: Plan, machine: str) -> None:
    """Cut a machine's power: disconnect it and kill all of its processes at once."""
    set_port(plan, machine, "down")  # first: a machine without power sends nothing
    kill_all(namespace_file(plan.root, machine))


def start_power_process(root: Path) -> None:
    """Start the process that boots nodes and cuts their power on requests from the controller.

    It runs in the namespace of the switch: it belongs to no machine, and ends with the cluster.
    """
    os.mkfifo(root / "run/power")
    in_switch = (
        "nsenter",
        f"--net={namespace_file(root, SWITCH)}",
        "env",
        f"PYTHONPATH={PACKAGES}",
    )
    spawn(root, "power.log", *in_switch, sys.executable, "-m", f"{__package__}.power", str(root))


def command_on_machine(root: Path, machine: str, words: list[str], directory: str) -> list[str]:
    """Return the command line that runs a command on a machine.

    Args:
        root: The root folder of the cluster.
        machine: Name of the machine.
        words: The command.
        directory: Its working directory.

    Raises:
        RuntimeError: The machine has no power.
    """
    init = init_process(root, machine)
    if init is None:
        raise RuntimeError(f"{machine} is not running")
    namespaces_of_init = ("nsenter", "-t", str(init), "-n", "-u", "-i", "-m", "-p")
    return [*namespaces_of_init, "env", f"--chdir={directory}", *words]


# --- the end ----------------------------------------------------------------------------------


def remove_cluster(root: Path, keep_logs: bool = False) -> None:
    """Remove all processes, namespaces, links and files of a cluster, also after a failed start.

    Args:
        root: The root folder of the cluster. Nothing happens if it does not exist.
        keep_logs: Whether the logs and the plan stay in the folder.
    """
    if not root.exists():
        return
    existing = list_namespaces(root)
    if (switch := namespace_file(root, SWITCH)) in existing:
        kill_all(switch)  # whatever boots nodes
    for file in existing:
        kill_processes(file)  # all at once, so that no machine reacts to the death of another
    for file in existing:
        kill_all(file)
    link = Path("/sys/class/net") / host_link_name(root)
    if link.exists():
        with contextlib.suppress(RuntimeError):  # it may just be going away with the switch
            run_command("ip", "link", "delete", link.name)
        wait_until(lambda: not link.exists(), f"removing the link {link.name}")
    for file in existing:
        run_command("umount", file)
    if keep_logs:
        for entry in root.iterdir():
            if entry.name not in ("log", "cluster.json"):
                shutil.rmtree(entry)
    else:
        shutil.rmtree(root)
