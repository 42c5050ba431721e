"""What nodes, partitions and QOS of a cluster allow, as sinfo, scontrol and sacctmgr show it."""

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
    """What a job asks of Slurm: the question to sbatch, and what is compared with limits.

    `cpus`, `gres` and `mem_mb` are of each node, `cpus_in_all` of all; `mem_mb` 0 asks for none.
    """

    question: str
    nodes: int
    cpus: int
    cpus_in_all: int
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


class Ping(NamedTuple):
    """Whether Slurm's controller says that it is there.

    `silence` says that it does not answer; "" if it does, or is unknown.
    """

    is_answered: bool
    silence: str


@functools.cache
def ping() -> Ping:
    """What Slurm's controller says to a ping; it is asked once."""
    try:
        done = run(*PING, timeout_s=PING_TIMEOUT_S)
    except OSError:
        return Ping(False, "")
    except subprocess.TimeoutExpired:
        said = f"{' '.join(PING)} said nothing for {PING_TIMEOUT_S:g} s"
        return Ping(False, f"Slurm does not answer: {said}")
    said = done.stdout
    is_down = " is DOWN" in said and " is UP" not in said  # one of several controllers is enough
    silence = f"Slurm does not answer: {' '.join(said.split())}" if is_down else ""
    return Ping(done.returncode == 0, silence)


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
    """What the nodes of the partition lack that the request asks for, or ""."""
    cpus, mem_mb = (
        max((n.cpus for n in nodes), default=0),
        max((n.mem_mb for n in nodes), default=0),
    )
    of = f" of partition {request.partition}" if request.partition else ""
    found = []
    if 0 < len(nodes) < request.nodes:
        where = f"partition {request.partition}" if request.partition else "the cluster"
        found.append(f"{where} has {len(nodes)} node{'s' * (len(nodes) > 1)}")
    if 0 < cpus < request.cpus:
        found.append(f"no node{of} has {request.cpus} CPUs, the largest has {cpus}")
    if 0 < mem_mb < request.mem_mb:
        found.append(f"no node{of} has {request.mem_mb} MB of memory, the largest has {mem_mb}")
    if nodes and not any(node.has_gres(request) for node in nodes):
        found.append(f"no node{of} has {request.gres}")
    return "; ".join(found)


def nodes_of(request: Request) -> list[Node]:
    """All nodes of the partition; none if sinfo does not tell."""
    options = ["--noheader", "--Node", "--format=%N|%T|%c|%G|%m"]
    options += [f"--partition={request.partition}"] if request.partition else []
    rows = [line.strip().split("|") for line in told("sinfo", *options, cluster=request.cluster)]
    return [
        Node(name, state, int(cpus.rstrip("+")), gres, int(mem_mb.rstrip("+")))
        for name, state, cpus, gres, mem_mb in (row for row in rows if len(row) == 5)
    ]


class Partition(NamedTuple):
    """What scontrol shows of a partition: key → value, such as MaxTime → 00:30:00."""

    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.settings.get("PartitionName", "")

    def exceeded(self, request: Request, flags: frozenset[str]) -> str:
        """The limit that no job like this can meet, by the name of Slurm's reason, or "".

        `flags` of the request's QOS may set it above limits of the partition.
        """
        asked = self.settings.get
        max_time, max_nodes = asked("MaxTime", ""), asked("MaxNodes", "")
        allowed, denied = (asked(f"{verb}Accounts", "") for verb in ("Allow", "Deny"))
        account = (request.account or "").replace(",", " ").split()[:1]
        at = f"partition {self.name} has"
        limit_min = None if "PartitionTimeLimit" in flags else minutes(max_time)
        if limit_min is not None and request.runtime_min > limit_min:
            return (
                f"PartitionTimeLimit: {at} MaxTime={max_time}, runtime_min is {request.runtime_min}"
            )
        is_limited = "PartitionMaxNodes" not in flags and max_nodes.isdecimal()
        if is_limited and request.nodes > int(max_nodes):
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


class Qos(NamedTuple):
    """A quality of service with its limits, as sacctmgr shows them; "" where there is none.

    `max_tres` of a job, `max_tres_per_node` of each of its nodes, `group_tres` of all jobs
    together: such as `cpu=4,gres/gpu=1,mem=10G,node=2`.
    """

    name: str
    flags: frozenset[str]
    max_wall: str
    max_tres: str
    max_tres_per_node: str
    group_tres: str

    def exceeded(self, request: Request) -> str:
        """The limit that no job like this can meet, or ""."""
        limit_min = minutes(self.max_wall)
        if limit_min is not None and request.runtime_min > limit_min:
            return f"{self._has('MaxWall', self.max_wall)}, runtime_min is {request.runtime_min}"
        node = _tres_of(request)
        job = {name: number * request.nodes for name, number in node.items()}
        job |= {"node": request.nodes, "cpu": request.cpus_in_all}
        for key, asked, limits in (
            ("MaxTRES", job, self.max_tres),
            ("MaxTRESPerNode", node, self.max_tres_per_node),
            ("GrpTRES", job, self.group_tres),
        ):
            for name, _, limit in (part.partition("=") for part in limits.split(",")):
                if (number := amount(limit)) is not None and asked.get(name, 0) > number:
                    return f"{self._has(key, f'{name}={limit}')}, a job asks for {asked[name]}"
        return ""

    def _has(self, limit: str, value: str) -> str:
        return f"QOS {self.name} has {limit}={value}"


def _tres_of(request: Request) -> dict[str, int]:
    """What a job asks of each node, by the names of trackable resources; memory in MB."""
    found = {"cpu": request.cpus, "mem": request.mem_mb}
    for name, kind, number in _gres_of(request.gres):
        for key in (f"gres/{name}", f"gres/{name}:{kind}" if kind else ""):
            found[key] = found.get(key, 0) + number
    return found


def amount(text: str) -> float | None:
    """A limit as a number, of memory in MB (`10G` is 10240); None if it is none."""
    factor = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}.get(text[-1:])
    digits = text if factor is None else text[:-1]
    try:
        return float(digits) * (factor or 1)
    except ValueError:
        return None


def _setting(name: str) -> str:
    """The value of a setting of Slurm; "" if scontrol does not show it."""
    lines = (line.partition("=") for line in told("scontrol", "show", "config", cluster=None))
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")


def has_accounting() -> bool:
    """Whether Slurm stores its jobs, as far as it shows: sacct reports nothing without that."""
    kind = _setting("AccountingStorageType")
    return kind != "(null)" and not kind.endswith("/none")


def qos_of(name: str | None) -> Qos | None:
    """The QOS of this name; None without a name, or if its limits are not told or not enforced."""
    if not name:
        return None
    if not any(word in _setting("AccountingStorageEnforce") for word in ("limits", "safe")):
        return None
    columns = "format=Name,Flags,MaxWall,MaxTRES,MaxTRESPerNode,GrpTRES"
    options = ["--noheader", "--parsable2", "show", "qos", f"name={name}", columns]
    lines = told("sacctmgr", *options, cluster=None)
    return qos(lines[0]) if lines and lines[0].count("|") == 5 else None


def qos(line: str) -> Qos:
    """A QOS from its line of sacctmgr."""
    name, flags, *limits = line.split("|")
    return Qos(name, frozenset(flags.split(",")), *limits)


def problem(request: Request, partitions: Iterable[Partition], of_qos: Qos | None = None) -> str:
    """Why Slurm would queue the request and never start it, or "".

    With `EnforcePartLimits=NO`, as it is by default, sbatch accepts what exceeds these limits, and
    so it does with those of a QOS without the flag DenyOnLimit.
    """
    if of_qos and (exceeded := of_qos.exceeded(request)):
        return exceeded
    # a QOS that is not known may stand above all limits of a partition
    unknown = frozenset({"PartitionTimeLimit", "PartitionMaxNodes"}) if request.qos else frozenset()
    flags = of_qos.flags if of_qos else unknown
    names = request.partition.split(",") if request.partition else []
    chosen = [
        each
        for each in partitions
        if each.name in names or (not names and each.settings.get("Default") == "YES")
    ]
    problems = [each.exceeded(request, flags) for each in chosen]
    return problems[0] if problems and all(problems) else ""


def partitions_of(cluster: str | None) -> list[Partition]:
    """All partitions; none if scontrol does not tell."""
    lines = told("scontrol", "show", "partition", "--oneliner", cluster=cluster)
    return [partition(line) for line in lines]


def partition(line: str) -> Partition:
    """A partition from its line of `scontrol show partition --oneliner`."""
    return Partition(dict(word.partition("=")[::2] for word in line.split()))
