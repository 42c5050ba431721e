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

from .network import SWITCH, SYSTEM_PATH, command, host_link, namespace, namespaces, plug
from .plan import CONTROLLER, DATABASE, Plan

#: Until something that takes a moment on an idle machine is given up.
WAIT_SECONDS = 120
NODE_INIT = Path(__file__).with_name("node-init")
#: Starts MariaDB and slurmdbd.
START_DATABASE = Path(__file__).with_name("start-database")
#: Where this package is found, for a separate process.
PACKAGES = Path(__file__).parents[1]


def wait_until(condition: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)


def environment(root: Path) -> dict[str, str]:
    """Return the daemons' environment: nothing of the caller's, who may be in another Slurm job."""
    return {"PATH": SYSTEM_PATH, "HOME": "/root", "SLURM_CONF": str(root / "etc/slurm.conf")}


# --- processes --------------------------------------------------------------------------------


def processes(file: Path) -> Iterator[int]:
    """Yield the processes inside one namespace, without zombies."""
    wanted = os.stat(file)
    for entry in os.listdir("/proc"):
        if entry.isdigit() and inside(int(entry), wanted):
            yield int(entry)


def inside(pid: int, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/ns/net"), wanted)
    except OSError:
        return False


def kill(file: Path, only: str | None = None) -> int:
    """SIGKILL the processes of a namespace, or those named `only`; returns how many."""
    wanted, killed = os.stat(file), 0
    for pid in processes(file):
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        # asked again with the handle in hand: a reused pid cannot be hit
        if inside(pid, wanted) and (only is None or process_name(pid) == only):
            with contextlib.suppress(ProcessLookupError):  # it ended in this moment
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            killed += 1
        os.close(handle)
    return killed


def process_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def start_time(pid: int) -> str:
    """Return when a process began, in ticks since the boot; empty if there is no such process."""
    try:
        # the name, in parentheses, may have blanks and parentheses itself
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def kill_all(file: Path) -> None:
    wait_until(lambda: kill(file) == 0, f"killing the processes of {file.name}")


def init_process(root: Path, machine: str) -> int | None:
    """Return the machine's process 1, by its pid on the host; None when its power is off."""
    file = namespace(root, machine)
    for pid in processes(file) if file.exists() else ():
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        numbers = status.partition("NSpid:")[2].partition("\n")[0].split()
        if len(numbers) > 1 and numbers[-1] == "1":
            return pid
    return None


def daemon(machine: str) -> str:
    """Return the name of a machine's Slurm daemon."""
    return {CONTROLLER: "slurmctld", DATABASE: "slurmdbd"}.get(machine, "slurmd")


def daemon_command(root: Path, machine: str, booted: bool = False) -> list[str]:
    """Return the command line that starts a machine's Slurm daemon in the background."""
    if machine == CONTROLLER:
        return ["slurmctld"]
    if machine == DATABASE:
        return [str(START_DATABASE), str(root)]
    # -b: "the node has booted"; by itself slurmd would tell the uptime of the whole machine, and
    # Slurm would take the jobs from before a power cut for running
    return ["slurmd", "-N", machine, *(["-b"] if booted else [])]


def daemon_runs(root: Path, machine: str) -> bool:
    names = map(process_name, processes(namespace(root, machine)))
    return daemon(machine) in names


def spawn(root: Path, log: str, *words: str | Path) -> subprocess.Popen[bytes]:
    """Start a background process that survives this one and holds none of its files."""
    with (root / "log" / log).open("ab") as output:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=environment(root),
            start_new_session=True,
        )


def start_munged(root: Path) -> None:
    run = root / "run"
    (run / "munge.key").write_bytes(os.urandom(128))
    (run / "munge.key").chmod(0o400)
    # One munged for all nodes: Debian's Slurm accepts that (it is built for several slurmd on one
    # machine). --force: munge's checks of the folders above the socket are meant for /run.
    munged = spawn(
        root,
        "munged.log",
        *("nsenter", f"--net={namespace(root, SWITCH)}", "munged", "--foreground", "--force"),
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
    """Boot a machine: its own namespaces, node-init in them, its daemon."""
    root, address = plan.root, plan.machines[machine]
    plug(plan, machine, "up")
    (root / "spool" / machine).mkdir(exist_ok=True)
    return spawn(
        root,
        f"boot.{machine}.log",
        *("nsenter", f"--net={namespace(root, machine)}"),
        # --ipc: MPI's ranks on two machines must not take the memory of one for shared
        *("unshare", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child"),
        *("--mount-proc", str(NODE_INIT), machine),
        *(f"{address}/{plan.subnet.prefixlen}", str(root)),
        *daemon_command(root, machine, booted=True),
    )


def power_off(plan: Plan, machine: str) -> None:
    """Cut a machine's power: kill all of its processes at once."""
    plug(plan, machine, "down")  # first: a machine without power sends nothing
    kill_all(namespace(plan.root, machine))


def start_power(root: Path) -> None:
    """Start the process that powers nodes up and down as the controller's programs ask.

    It is in the switch's namespace: none of the cluster's machines, and gone with the cluster.
    """
    os.mkfifo(root / "run/power")
    in_switch = ("nsenter", f"--net={namespace(root, SWITCH)}", "env", f"PYTHONPATH={PACKAGES}")
    spawn(root, "power.log", *in_switch, sys.executable, "-m", f"{__package__}.power", str(root))


def enter(root: Path, machine: str, words: list[str], directory: str) -> list[str]:
    """Return the command line that runs `words` on a machine."""
    init = init_process(root, machine)
    if init is None:
        raise RuntimeError(f"{machine} is not running")
    namespaces_of_init = ("nsenter", "-t", str(init), "-n", "-u", "-i", "-m", "-p")
    return [*namespaces_of_init, "env", f"--chdir={directory}", *words]


# --- the end ----------------------------------------------------------------------------------


def remove(root: Path, keep_logs: bool = False) -> None:
    """Remove all processes, namespaces, links and files of the cluster, however it was left."""
    if not root.exists():
        return
    existing = namespaces(root)
    if (switch := namespace(root, SWITCH)) in existing:
        kill_all(switch)  # whatever boots nodes
    for file in existing:
        kill(file)  # all at once, so that no machine reacts to the death of another
    for file in existing:
        kill_all(file)
    link = Path("/sys/class/net") / host_link(root)
    if link.exists():
        with contextlib.suppress(RuntimeError):  # it may just be going away with the switch
            command("ip", "link", "delete", link.name)
        wait_until(lambda: not link.exists(), f"removing the link {link.name}")
    for file in existing:
        command("umount", file)
    if keep_logs:
        for entry in root.iterdir():
            if entry.name not in ("log", "cluster.json"):
                shutil.rmtree(entry)
    else:
        shutil.rmtree(root)
