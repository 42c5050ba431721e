"""What a rank's host is: processor, memory, network, GPUs, versions.

Everything is read from the running system; what it does not tell is null, never guessed.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from pathlib import Path

from tfscaling.cluster.gpu_allocation import Gpu, NvidiaSmiError, listed_gpus
from tfscaling.record.rank_report import PACKAGES, HostFacts


def describe(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> HostFacts:
    """The facts of this host."""
    gpus = _gpus()
    return HostFacts(
        machine=_text(proc / "sys/kernel/random/boot_id"),
        cpu_model=_cpu(proc, "model name") or platform.processor() or None,
        cpu_mhz=_number(_cpu(proc, "cpu MHz")),
        cpus_online=os.cpu_count(),
        memory_gb=_memory_gb(proc),
        network_mbit_per_s=_network(sys),
        gpus=tuple(gpu.name for gpu in gpus),
        gpu_uuids=tuple(gpu.uuid for gpu in gpus),
        gpu_driver=gpus[0].driver_version if gpus else None,
        kernel=platform.release(),
        python=platform.python_version(),
        packages={name: _version(name) for name in PACKAGES},
        modules=tuple(filter(None, os.environ.get("LOADEDMODULES", "").split(":"))),
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _cpu(proc: Path, field: str) -> str | None:
    found = re.search(rf"^{field}\s*:\s*(.+)$", _text(proc / "cpuinfo") or "", re.MULTILINE)
    return found[1].strip() if found else None


def _memory_gb(proc: Path) -> float | None:
    found = re.search(r"^MemTotal:\s*(\d+) kB$", _text(proc / "meminfo") or "", re.MULTILINE)
    return round(int(found[1]) * 1024 / 1e9, 1) if found else None


def _network(sys: Path) -> dict[str, float | None]:
    """Interface → speed of the network cards that are up; null where the driver tells none.

    Where no card is seen, as in a container, of all interfaces but the loopback. Bridges and
    tunnels beside a card come and go, and no rank's traffic needs them.
    """
    interfaces = sorted((sys / "class/net").glob("*"))
    cards = [interface for interface in interfaces if (interface / "device").exists()]
    speeds: dict[str, float | None] = {}
    for interface in cards or interfaces:
        if interface.name != "lo" and _text(interface / "operstate") in ("up", "unknown"):
            speed = _number(_text(interface / "speed"))
            speeds[interface.name] = speed if speed and speed > 0 else None
    return speeds


def cpu_quota(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> float | None:
    """CPUs' worth of time that control groups leave this process; None without a limit.

    The CPUs on which a process may run say nothing of it: a container may see all 64 and get two.
    """
    quotas = []
    for line in (_text(proc / "self/cgroup") or "").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = sys / "fs/cgroup" / controllers
        place = root / group.lstrip("/")
        # a container may not see the path of its group, but its limits at the root
        while place != root.parent:
            quotas.append(_quota(place))
            place = place.parent
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota(group: Path) -> float | None:
    """The limit of one control group, as version 2 has it or version 1."""
    words = (_text(group / "cpu.max") or "").split()
    if len(words) != 2:
        words = [_text(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    quota, period = map(_number, words)
    return quota / period if quota and period and quota > 0 else None


def _gpus() -> tuple[Gpu, ...]:
    """The GPUs that nvidia-smi lists; none where it fails."""
    try:
        return listed_gpus(os.environ) or ()
    except NvidiaSmiError:
        return ()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
