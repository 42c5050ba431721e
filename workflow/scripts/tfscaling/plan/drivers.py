"""Which snakemake works in this folder, or did until it was killed.

Snakemake's lock does not say who holds it, and stays behind when its holder is killed, as by
SIGKILL or by a terminal that closes.
"""

from __future__ import annotations

import atexit
import os
import shlex
import socket
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from tfscaling.files import atomic

#: Snakemake's own folder, below that in which it works.
FOLDER = Path(".snakemake")


class Driver(msgspec.Struct, frozen=True):
    """A process that runs a workflow: its host, since which boot and when, its number there.

    `ticks` is when it began, in clock ticks after the boot: numbers of processes are used again.
    """

    host: str
    boot: str
    pid: int
    ticks: int
    begun: str

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, a process of this host."""
        return self.host == socket.gethostname()

    @property
    def lives(self) -> bool:
        """Whether the process still runs; for processes of this host only."""
        return self.boot == _boot() and self.ticks == _ticks(self.pid)

    def __str__(self) -> str:
        return f"PID {self.pid} on {self.host}, begun {self.begun}"


def enter(folder: Path = FOLDER) -> None:
    """Register this process as a driver of the folder; remove registrations of dead processes."""
    for path, driver in _found(folder):
        if driver.is_here and not driver.lives:
            path.unlink(missing_ok=True)
    begun = datetime.now().astimezone().isoformat(" ", "seconds")
    pid = os.getpid()
    driver = Driver(socket.gethostname(), _boot(), pid, _ticks(pid) or 0, begun)
    path = _drivers(folder) / f"{driver.host}.{pid}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, msgspec.json.encode(driver).decode())
    atexit.register(path.unlink, missing_ok=True)


def living(folder: Path = FOLDER) -> list[Driver]:
    """The processes of this host that work in the folder."""
    return [driver for _, driver in _found(folder) if driver.is_here and driver.lives]


def about_the_lock(arguments: Sequence[str], folder: Path = FOLDER) -> str:
    """Who holds Snakemake's lock, and what to do about it; "" if nobody does.

    `arguments` are the arguments of this call of snakemake, for the command that clears the lock.
    """
    try:
        if not any((folder / "locks").iterdir()):
            return ""
    except OSError:
        return ""
    drivers = [driver for _, driver in _found(folder)]
    elsewhere = [driver for driver in drivers if not driver.is_here]
    if alive := living(folder):
        return f"Another snakemake works in this folder: {'; '.join(map(str, alive))}."
    unlock = shlex.join(["snakemake", *arguments, "--unlock"])
    if elsewhere:
        return (
            f"The lock of this folder is of a snakemake on another host: "
            f"{'; '.join(map(str, elsewhere))}. If it has ended there, clear the lock: {unlock}"
        )
    if not drivers:
        return ""
    return (
        f"The lock of this folder is stale: its snakemake was killed ({drivers[-1]}). "
        f"Clear it: {unlock}"
    )


def _drivers(folder: Path) -> Path:
    return folder / "drivers"


def _found(folder: Path) -> list[tuple[Path, Driver]]:
    found = []
    for path in _drivers(folder).glob("*.json"):
        try:
            found.append((path, msgspec.json.decode(path.read_bytes(), type=Driver)))
        except (OSError, msgspec.MsgspecError):
            continue
    return sorted(found, key=lambda each: each[1].begun)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _ticks(pid: int) -> int | None:
    """When a process began, in ticks since the boot; None if there is none, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
