"""What nodes and partitions of a cluster allow, as sinfo and scontrol show it."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

#: Slurm's commands wait for a silent controller for about a minute.
TIMEOUT_S = 15.0
#: What answers if the controller is there, and then at once.
PING = ("scontrol", "ping")
PING_TIMEOUT_S = 5.0
#: In the states of a node on which Slurm starts nothing now, though perhaps later.
_OUT_OF_SERVICE = ("down", "drain", "fail", "error", "unk", "maint", "reboot")
#: A part of `gpu:v100:4(S:0-1),nvme:1`: name, type, number.
_GRES = re.compile(r"([^:,()]+)(?::([^:,()\d][^:,()]*))?(?::(\d+))?(?:\([^)]*\))?")


class Request(NamedTuple):
    """What a job requests of Slurm: the question to sbatch, and what is compared with limits.

    `cpus`, `gres` and `mem_mb` are those of each node; `mem_mb` 0 requests none.
    """

    question: str
    nodes: int
    cpus: int
    gres: str
    mem_mb: int
    runtime_min: int
    #: None: the default partition; several names with commas between: any of them.
    partition: str | None
    account: str | None
    qos: str | None
    cluster: str | None


def run(*command: str, timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """A command of Slurm. Raises OSError if there is none, and subprocess.TimeoutExpired."""
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


@functools.cache
def silence() -> str:
    """That Slurm's controller does not answer a ping, or ""; it is asked once."""
    command = " ".join(PING)
    try:
        said = run(*PING, timeout_s=PING_TIMEOUT_S).stdout
    except OSError:
        return ""
    except subprocess.TimeoutExpired:
        return f"Slurm does not answer: {command} said nothing for {PING_TIMEOUT_S:g} s"
    is_down = " is DOWN" in said and " is UP" not in said  # one of several controllers is enough
    return f"Slurm does not answer: {' '.join(said.split())}" if is_down else ""


def told(command: str, *options: str, cluster: str | None) -> list[str]:
    """The lines that a command of Slurm prints; none if it fails."""
    try:
        done = run(command, *([f"--clusters={cluster}"] if cluster else []), *options)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines()


class Node(NamedTuple):
    """A node as sinfo has it; `gres` such as `gpu:v100:4(S:0-1)`."""

    name: str
    state: str
    cpus: int
    gres: str
    mem_mb: int

    def fits(self, request: Request) -> bool:
        """Whether it has the CPUs, GPUs and memory; features and limits are not compared."""
        is_large = self.cpus >= request.cpus and self.mem_mb >= request.mem_mb
        return is_large and self.has_gres(request)

    def has_gres(self, request: Request) -> bool:
        """Whether it has the GPUs."""
        have = list(_gres_of(self.gres))
        return all(
            sum(n for other, type_, n in have if other == name and kind in (None, type_)) >= number
            for name, kind, number in _gres_of(request.gres)
        )

    @property
    def is_in_service(self) -> bool:
        return not any(word in self.state.lower() for word in _OUT_OF_SERVICE)


def _gres_of(text: str) -> Iterator[tuple[str, str | None, int]]:
    for name, kind, number in _GRES.findall(text):
        yield name, kind or None, int(number or 1)


def out_of_service(request: Request, nodes: Iterable[Node]) -> str:
    """Which nodes the request waits for, if they are enough with those out of service; or ""."""
    fitting = {node.name: node for node in nodes if node.fits(request)}
    out = sorted(name for name, node in fitting.items() if not node.is_in_service)
    if len(fitting) < request.nodes or len(fitting) - len(out) >= request.nodes:
        return ""
    shown = ", ".join(out[:3]) + (", …" if len(out) > 3 else "")
    return f"{len(out)} of {len(fitting)} nodes that are large enough are out of service: {shown}"


def lacking(request: Request, nodes: Sequence[Node]) -> str:
    """What the request needs and the nodes of the partition lack, or ""."""
    where = f"partition {request.partition}" if request.partition else "the cluster"
    found = []
    if 0 < len(nodes) < request.nodes:
        found.append(f"{where} has {len(nodes)} node{'s' * (len(nodes) > 1)}")
    for unit, asked, having in (
        ("CPUs", request.cpus, [node.cpus for node in nodes]),
        ("MB of memory", request.mem_mb, [node.mem_mb for node in nodes]),
    ):
        if 0 < (largest := max(having, default=0)) < asked:
            found.append(f"no node of {where} has {asked} {unit}, the largest has {largest}")
    if nodes and not any(node.has_gres(request) for node in nodes):
        found.append(f"no node of {where} has {request.gres}")
    return "; ".join(found)


def nodes_of(request: Request) -> list[Node]:
    """All nodes of the partition; none if sinfo fails."""
    options = ["--noheader", "--Node", "--format=%N|%T|%c|%G|%m"]
    options += [f"--partition={request.partition}"] if request.partition else []
    rows = [line.strip().split("|") for line in told("sinfo", *options, cluster=request.cluster)]
    return [
        Node(name, state, int(cpus.rstrip("+")), gres, int(mem_mb.rstrip("+")))
        for name, state, cpus, gres, mem_mb in (row for row in rows if len(row) == 5)
    ]


def exceeded(request: Request, partition: Mapping[str, str]) -> str:
    """The limit of a partition that no such job meets, by the name of Slurm's reason, or "".

    With `EnforcePartLimits=NO`, Slurm's default, sbatch accepts such a job, which waits for ever.
    A QOS may set limits of its own instead of those for time and nodes.
    """
    at = f"partition {partition.get('PartitionName', '')} has"
    max_time, max_nodes = (partition.get(key, "") for key in ("MaxTime", "MaxNodes"))
    allowed, denied = (partition.get(f"{verb}Accounts", "") for verb in ("Allow", "Deny"))
    account = (request.account or "").replace(",", " ").split()[:1]
    limit_min = minutes(max_time)
    if not request.qos and limit_min is not None and request.runtime_min > limit_min:
        return f"PartitionTimeLimit: {at} MaxTime={max_time}, runtime_min is {request.runtime_min}"
    if not request.qos and max_nodes.isdecimal() and request.nodes > int(max_nodes):
        return f"PartitionNodeLimit: {at} MaxNodes={max_nodes}"
    if account and allowed not in ("", "ALL") and account[0] not in allowed.split(","):
        return f"AccountNotAllowed: {at} AllowAccounts={allowed}"
    if account and account[0] in denied.split(","):
        return f"AccountNotAllowed: {at} DenyAccounts={denied}"
    return ""


def minutes(text: str) -> float | None:
    """A time of Slurm's, `days-hours:minutes:seconds`, in minutes; None if it is no limit."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in [days or "0", *parts]) or len(parts) != 3:
        return None
    hours, minutes_, seconds = map(int, parts)
    return 1440 * int(days or 0) + 60 * hours + minutes_ + seconds / 60


def has_accounting() -> bool:
    """Whether Slurm stores its jobs, as far as it shows: sacct reports nothing without that."""
    lines = (line.partition("=") for line in told("scontrol", "show", "config", cluster=None))
    kinds = [value.strip() for key, _, value in lines if key.strip() == "AccountingStorageType"]
    return not kinds or (kinds[0] != "(null)" and not kinds[0].endswith("/none"))


def problem(request: Request, partitions: Iterable[Mapping[str, str]]) -> str:
    """Why Slurm would queue the request and never start it in any of its partitions, or ""."""
    names = request.partition.split(",") if request.partition else []
    chosen = [
        each
        for each in partitions
        if (each.get("PartitionName") in names if names else each.get("Default") == "YES")
    ]
    problems = [exceeded(request, each) for each in chosen]
    return problems[0] if problems and all(problems) else ""


def partitions_of(cluster: str | None) -> list[dict[str, str]]:
    """The settings of all partitions, such as MaxTime → 00:30:00; none if scontrol fails."""
    lines = told("scontrol", "show", "partition", "--oneliner", cluster=cluster)
    return [partition(line) for line in lines]


def partition(line: str) -> dict[str, str]:
    """A partition from its line of `scontrol show partition --oneliner`."""
    return dict(word.partition("=")[::2] for word in line.split())
