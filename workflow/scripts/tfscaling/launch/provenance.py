"""Facts about where and from what a run was made: code, Slurm, and the hosts of its ranks.

Ranks put facts about their host into their reports, the launcher puts the others into the record.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from tfscaling.cluster.gpu_allocation import NvidiaSmiError, listed_gpus
from tfscaling.cluster.gpu_drivers import list_amd_gpus
from tfscaling.launch import containers, slurm_job
from tfscaling.record.rank_report import PACKAGES, HostFacts
from tfscaling.record.run_record import Environment, PreparedData
from tfscaling.study.config_types import Container

_PROC, _SYS = Path("/proc"), Path("/sys")
_CPUS = "devices/system/cpu"
#: Control groups of version 1 have a limit of about 2 ** 63 bytes if none is set; from this value
#: on there is no limit.
_NO_LIMIT = 2**60
#: File with the packages of a custom training, which `make setup` installs.
_OWN_PACKAGES = Path("own/requirements.txt")


def describe_environment(
    source: Path,
    started_s: float,
    user_code: dict[str, str],
    dataset: PreparedData | None = None,
    unchecked: tuple[str, ...] = (),
    container: Container | None = None,
) -> Environment:
    """Return the `Environment` of a record: host, time, code and data of the run.

    Args:
        source: The checkout of this workflow.
        started_s: When the run started, in seconds since the epoch.
        user_code: Checksums of the custom code.
        dataset: The prepared data, if any.
        unchecked: Sentences about properties of the run that no check could compare with the
            request, such as the model of its GPUs.
        container: The container of the ranks, if any.
    """
    job = slurm_job.describe_job(os.environ)
    if job is not None:
        job = replace(job, consumed_energy_j=slurm_job.consumed_energy_j(os.environ))
    started = datetime.datetime.fromtimestamp(started_s, datetime.timezone.utc)
    return Environment(
        launcher_host=socket.gethostname(),
        started=started.isoformat(timespec="milliseconds"),
        git_commit=git_commit(source),
        slurm_job=job,
        slurm_settings=slurm_job.relevant_settings(os.environ),
        user_code=user_code,
        dataset=dataset,
        unchecked=unchecked,
        container_sha256=containers.image_sha256(container),
    )


def git_commit(source: Path) -> str | None:
    """Return the commit of the checkout at `source`, with `-dirty` if it has local changes.

    If Snakemake fetched the workflow as a module, there is no checkout. Then the commit is read
    from the file `git_commit`, two folders above `source`.

    Returns:
        None outside a checkout or without git.
    """
    written = source.parents[1] / "git_commit"
    if written.exists():
        return written.read_text().strip()
    command = ["git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=40"]
    command.append("--exclude=*")  # no tags: a commit after a tag would be named by the tag
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return shown.stdout.strip() or None


def host_facts(proc: Path = _PROC, sys: Path = _SYS) -> HostFacts:
    """Return processor, memory, network, GPUs and software versions of this host.

    Everything is read from the running system; a fact that it does not report is None, never
    guessed.

    Args:
        proc: The folder /proc, or a replacement in tests.
        sys: The folder /sys, or a replacement in tests.
    """
    try:
        listed = listed_gpus(os.environ)
        gpus = list_amd_gpus() if listed is None else listed
    except NvidiaSmiError:
        gpus = ()
    cpu, memory_kb = proc / "cpuinfo", _search_file(proc / "meminfo", r"^MemTotal:\s*(\d+) kB$")
    # including the packages of the custom training
    own = re.findall(r"^[A-Za-z0-9][\w.-]*", _read_text(_OWN_PACKAGES) or "", re.MULTILINE)
    versions = {name: _package_version(name) for name in (*PACKAGES, *own)}
    return HostFacts(
        machine=_read_text(proc / "sys/kernel/random/boot_id"),
        cpu_model=_search_file(cpu, r"^model name\s*:\s*(.+)$") or platform.processor() or None,
        cpu_mhz=_parse_number(_search_file(cpu, r"^cpu MHz\s*:\s*(.+)$")),
        cpus_online=os.cpu_count(),
        sockets=len(_sockets(sys, "[0-9]*")) or None,
        memory_gb=round(int(memory_kb) * 1024 / 1e9, 1) if memory_kb else None,
        network_mbit_per_s=_network_speeds(sys),
        gpus=tuple(gpu.name for gpu in gpus),
        gpu_uuids=tuple(gpu.uuid for gpu in gpus),
        gpu_driver=gpus[0].driver_version if gpus else None,
        kernel=platform.release(),
        python=platform.python_version(),
        packages={name: v for name, v in versions.items() if v or name in PACKAGES},
        modules=tuple(filter(None, os.environ.get("LOADEDMODULES", "").split(":"))),
    )


class Placement(NamedTuple):
    """CPUs on which this process may run, and where they are.

    Attributes:
        cpus: Number of CPUs.
        cpu_list: Their numbers, as the kernel lists them.
        numa_nodes: NUMA nodes of these CPUs.
        sockets: Sockets of these CPUs.
        topology: Switches above the node, and the node, as Slurm names them; None without Slurm.
    """

    cpus: int
    cpu_list: str | None
    numa_nodes: tuple[int, ...]
    sockets: tuple[int, ...]
    topology: str | None


def read_placement(proc: Path = _PROC, sys: Path = _SYS) -> Placement:
    """Return CPUs, NUMA nodes and sockets of this process, and its node's place in the network.

    Args:
        proc: The folder /proc, or a replacement in tests.
        sys: The folder /sys, or a replacement in tests.
    """
    cpus = os.sched_getaffinity(0)
    numa = {path.name for cpu in cpus for path in (sys / _CPUS).glob(f"cpu{cpu}/node[0-9]*")}
    return Placement(
        cpus=len(cpus),
        cpu_list=_search_file(proc / "self/status", r"^Cpus_allowed_list:\s*(\S+)$"),
        numa_nodes=tuple(sorted(int(name.removeprefix("node")) for name in numa)),
        sockets=tuple(sorted({socket for cpu in cpus for socket in _sockets(sys, str(cpu))})),
        topology=os.environ.get("SLURM_TOPOLOGY_ADDR"),
    )


def _sockets(sys: Path, cpu: str) -> set[int]:
    """Return the ids of the sockets of some CPUs.

    Args:
        sys: The folder /sys.
        cpu: Number of a CPU, or a glob pattern for numbers.
    """
    files = (sys / _CPUS).glob(f"cpu{cpu}/topology/physical_package_id")
    return {int(text) for text in map(_read_text, files) if text and text.isdecimal()}


def _read_text(path: Path) -> str | None:
    """Return the stripped content of a file; None if it is empty or unreadable."""
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def _parse_number(text: str | None) -> float | None:
    """Return a text as a number; None if it is no number, or None."""
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _search_file(file: Path, pattern: str) -> str | None:
    """Return the first group of the pattern's first match in a file; None without a match."""
    found = re.search(pattern, _read_text(file) or "", re.MULTILINE)
    return found[1].strip() if found else None


def _network_speeds(sys: Path) -> dict[str, float | None]:
    """Return interface → speed in Mbit/s of the network cards that are up; None if unknown.

    Bridges and tunnels are left out. If no card is visible, as in a container, all interfaces
    except the loopback interface are listed.
    """
    interfaces = sorted((sys / "class/net").glob("*"))
    cards = [interface for interface in interfaces if (interface / "device").exists()]
    speeds: dict[str, float | None] = {}
    for interface in cards or interfaces:
        if interface.name != "lo" and _read_text(interface / "operstate") in ("up", "unknown"):
            speed = _parse_number(_read_text(interface / "speed"))
            speeds[interface.name] = speed if speed and speed > 0 else None
    return speeds


def cpu_quota(proc: Path = _PROC, sys: Path = _SYS) -> float | None:
    """Return the limit that cgroups set on CPU time, as a number of CPUs; None without a limit.

    Example: a container with access to 64 CPUs and a quota of 2 gives 2.0.
    """
    quotas = map(_group_cpu_quota, _control_group_folders("cpu", proc, sys))
    return min((quota for quota in quotas if quota is not None), default=None)


def memory_limit_gb(proc: Path = _PROC, sys: Path = _SYS) -> float | None:
    """Return the memory in GB that control groups allow this process; None without a limit."""
    groups = [*_control_group_folders("memory", proc, sys)]
    files = [g / name for g in groups for name in ("memory.max", "memory.limit_in_bytes")]
    limits = [int(text) for text in map(_read_text, files) if text and text.isdecimal()]
    return min((limit / 1e9 for limit in limits if limit < _NO_LIMIT), default=None)


def oom_counter(proc: Path = _PROC, sys: Path = _SYS) -> Path:
    """Return the file in which the kernel counts the processes that it killed for lack of memory.

    The count is for this process's control group, or for the machine if the group has no counter.
    """
    group = next(_control_group_folders("memory", proc, sys), None)
    files = [group / name for name in ("memory.events", "memory.oom_control")] if group else []
    return next((file for file in files if file.exists()), proc / "vmstat")


def oom_kills(counter: Path) -> int:
    """Read the count of killed processes from a file of `oom_counter`; 0 if it is unreadable."""
    return int(_search_file(counter, r"^oom_kill (\d+)$") or 0)


def _control_group_folders(controller: str, proc: Path, sys: Path) -> Iterator[Path]:
    """Yield the folders of this process's control group and of its parents, innermost first.

    Both versions of control groups are supported. A container may see the limits at the root only.

    Args:
        controller: Name of the controller, such as `memory`, which has separate folders in version
            1.
        proc: The folder /proc.
        sys: The folder /sys.
    """
    for line in (_read_text(proc / "self/cgroup") or "").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = sys / "fs/cgroup" / controllers
        place = root / group.lstrip("/")
        while place != root.parent:
            yield place
            place = place.parent


def _group_cpu_quota(group: Path) -> float | None:
    """Return a control group's limit of CPU time, as a number of CPUs; None without a limit."""
    words = (_read_text(group / "cpu.max") or "").split()
    if len(words) != 2:
        words = [_read_text(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    quota, period = map(_parse_number, words)
    return quota / period if quota and period and quota > 0 else None


def _package_version(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    from importlib import metadata  # 0.1 s of CPU time, which a run's launcher need not take

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
