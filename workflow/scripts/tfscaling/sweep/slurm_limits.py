"""What the nodes and partitions of a cluster allow, as sinfo and scontrol show it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

#: Slurm's commands wait for a silent controller for about a minute.
TIMEOUT_S = 15.0
#: In the states of a node on which Slurm starts nothing now, though perhaps later.
_OUT_OF_SERVICE = ("down", "drain", "fail", "error", "unk", "maint", "reboot")
#: A part of `gpu:v100:4(S:0-1),nvme:1`: name, type, number.
_GRES = re.compile(r"([^:,()]+)(?::([^:,()\d][^:,()]*))?(?::(\d+))?(?:\([^)]*\))?")


class Request(NamedTuple):
    """What a job asks of Slurm: the question to sbatch, and what is compared with limits.

    `cpus` and `gres` are of each node.
    """

    question: str
    nodes: int
    cpus: int
    gres: str
    runtime_min: int
    #: None: the default partition; several names with commas between: any of them.
    partition: str | None
    account: str | None
    qos: str | None
    cluster: str | None


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """A command of Slurm. Raises OSError if there is none, and subprocess.TimeoutExpired."""
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def told(command: str, *options: str, cluster: str | None) -> list[str]:
    """The lines that a command of Slurm prints; none if it does not tell."""
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

    def fits(self, request: Request) -> bool:
        """Whether it has the CPUs and GPUs; memory, features and limits are not compared."""
        have = list(_gres_of(self.gres))
        return self.cpus >= request.cpus and all(
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


def nodes_of(request: Request) -> list[Node]:
    """All nodes of the partition; none if sinfo does not tell."""
    options = ["--noheader", "--Node", "--format=%N|%T|%c|%G"]
    options += [f"--partition={request.partition}"] if request.partition else []
    rows = [line.strip().split("|") for line in told("sinfo", *options, cluster=request.cluster)]
    return [Node(r[0], r[1], int(r[2].rstrip("+")), r[3]) for r in rows if len(r) == 4]


class Partition(NamedTuple):
    """What scontrol shows of a partition: key → value, such as MaxTime → 00:30:00."""

    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.settings.get("PartitionName", "")

    def exceeded(self, request: Request) -> str:
        """The limit that no job like this can meet, by the name of Slurm's reason, or ""."""
        asked = self.settings.get
        max_time, max_nodes = asked("MaxTime", ""), asked("MaxNodes", "")
        allowed, denied = (asked(f"{verb}Accounts", "") for verb in ("Allow", "Deny"))
        account = (request.account or "").replace(",", " ").split()[:1]
        at = f"partition {self.name} has"
        limit_min = None if request.qos else minutes(max_time)  # a QOS may stand above it
        if limit_min is not None and request.runtime_min > limit_min:
            return (
                f"PartitionTimeLimit: {at} MaxTime={max_time}, runtime_min is {request.runtime_min}"
            )
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


def problem(request: Request, partitions: Iterable[Partition]) -> str:
    """Why Slurm would queue the request and never start it, or "".

    With `EnforcePartLimits=NO`, as it is by default, sbatch accepts what exceeds these limits.
    """
    names = request.partition.split(",") if request.partition else []
    chosen = [
        each
        for each in partitions
        if each.name in names or (not names and each.settings.get("Default") == "YES")
    ]
    problems = [each.exceeded(request) for each in chosen]
    return problems[0] if problems and all(problems) else ""


def partitions_of(cluster: str | None) -> list[Partition]:
    """All partitions; none if scontrol does not tell."""
    lines = told("scontrol", "show", "partition", "--oneliner", cluster=cluster)
    return [partition(line) for line in lines]


def partition(line: str) -> Partition:
    """A partition from its line of `scontrol show partition --oneliner`."""
    return Partition(dict(word.partition("=")[::2] for word in line.split()))
