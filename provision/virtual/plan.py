"""What the cluster consists of: partitions, machines, addresses, and Slurm's settings as text."""

from __future__ import annotations

import json
import random
import re
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network
from pathlib import Path

CONTROLLER = "controller"
DATABASE = "database"
#: The partition whose jobs preempt others.
URGENT = "urgent"
NODES_MAX = 200  # one /24 holds the host, the controller and all nodes
FIRST_NODE_ADDRESS = 11
REAL_MEMORY_MB = 1_000_000  # declared, never enforced: any --mem is accepted
SOCKET_PATH_MAX = 107  # bytes, set by the kernel
PRIVATE_NETWORKS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")


@dataclass(frozen=True)
class Partition:
    """A Slurm partition with its nodes, which are named after it: cpu1, cpu2 and so on.

    Attributes:
        name: Name of the partition.
        nodes: Number of nodes.
        cpus: CPUs that each node declares to Slurm.
        gpus: GPUs that each node declares to Slurm.
    """

    name: str
    nodes: int
    cpus: int
    gpus: int = 0

    @property
    def prefix(self) -> str:
        """Name of a node without its number; a hyphen ends it if the partition ends in a digit."""
        # "v100" and "v1001" would be hard to tell apart: v100-1
        return self.name + "-" if self.name[-1].isdigit() else self.name

    @property
    def node_names(self) -> list[str]:
        """Names of the nodes, in the order of their numbers."""
        return [f"{self.prefix}{number}" for number in range(1, self.nodes + 1)]


def parse_partition(text: str, cpus: int) -> Partition:
    """Return the partition that a text `NAME:NODES[:gpus=G][:cpus=C]` describes.

    Args:
        text: The text.
        cpus: CPUs of each node if the text sets none.

    Raises:
        ValueError: The text has another form.
    """
    match = re.fullmatch(r"([a-z][a-z0-9-]*):(\d+)((?::(?:gpus|cpus)=\d+)*)", text)
    if match is None:
        raise ValueError(f"'{text}' is not NAME:NODES[:gpus=G][:cpus=C], NAME in lower case")
    name, nodes, settings = match.groups()
    options = dict(part.split("=") for part in settings.split(":")[1:])
    return Partition(name, int(nodes), int(options.get("cpus", cpus)), int(options.get("gpus", 0)))


def check_partitions(root: Path, partitions: tuple[Partition, ...]) -> None:
    """Check that a cluster can have these partitions.

    Args:
        root: The root folder of the cluster; a long path leaves less room for node names.
        partitions: The partitions.

    Raises:
        ValueError: It cannot; the message is the reason.
    """
    names = [name for partition in partitions for name in partition.node_names]
    if any(partition.nodes < 1 or partition.cpus < 1 for partition in partitions):
        raise ValueError("each partition needs at least one node, and each node one CPU")
    if len({partition.name for partition in partitions}) < len(partitions):
        raise ValueError("a partition is named twice")
    reserved = ("default", CONTROLLER, DATABASE, URGENT)
    if any(partition.name in reserved for partition in partitions):
        raise ValueError(f"{', '.join(reserved)} are reserved names")
    if len(set(names)) < len(names):
        raise ValueError("two partitions give the same node names; rename one")
    if len(names) > NODES_MAX:
        raise ValueError(f"{len(names)} nodes are more than {NODES_MAX}")
    # the longest of all sockets: slurmstepd's, job 9999999, batch step
    name = max(names, key=len)
    excess = len(f"{root}/spool/{name}/{name}_9999999.4294967291") - SOCKET_PATH_MAX
    if excess > 0:
        raise ValueError(f"the path {root} is {excess} characters too long; choose another --root")


def free_subnet(taken: list[IPv4Network], seed: str) -> IPv4Network:
    """Return a private /24 network that overlaps no network in `taken`.

    Args:
        taken: The networks to avoid.
        seed: Seed of the choice: the same seed tries the same networks in the same order.

    Raises:
        RuntimeError: No such network was found.
    """
    dice = random.Random(seed)
    for pool in map(IPv4Network, PRIVATE_NETWORKS):
        for _ in range(100):
            first = int(pool.network_address) + 256 * dice.randrange(pool.num_addresses // 256)
            subnet = IPv4Network((first, 24))
            if not any(subnet.overlaps(other) for other in taken):
                return subnet
    raise RuntimeError("no free private IPv4 /24 network on this machine")


@dataclass(frozen=True)
class PowerSaving:
    """Times of a cluster whose nodes boot when a job needs them and are powered down when idle.

    Attributes:
        boot_s: Seconds from the request of the controller until a node has power.
        idle_s: Seconds after which an idle node is powered down.
    """

    boot_s: int
    idle_s: int


@dataclass(frozen=True)
class Shape:
    """The partitions and services of a cluster.

    Attributes:
        partitions: The partitions.
        accounting: Whether a machine `database` runs slurmdbd and its database, and Slurm enforces
            limits.
        power_saving: Times of power saving; None: all nodes are always on.
        memory_limits: Whether Slurm ends jobs that use more memory than they request.
        urgent: Whether a further partition has all nodes, and its jobs preempt all other jobs.
    """

    partitions: tuple[Partition, ...]
    accounting: bool = False
    power_saving: PowerSaving | None = None
    memory_limits: bool = False
    urgent: bool = False


@dataclass(frozen=True)
class Plan:
    """The plan of a cluster: where it is and what it consists of, kept in ROOT/cluster.json.

    Attributes:
        root: The root folder of the cluster.
        subnet: The network of its machines and the host.
        shape: Its partitions and services.
    """

    root: Path
    subnet: IPv4Network
    shape: Shape

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions of the cluster, without the partition `urgent`."""
        return self.shape.partitions

    @property
    def host_address(self) -> str:
        """IPv4 address of the host in the cluster's network."""
        return self._address(1)

    @property
    def nodes(self) -> dict[str, str]:
        """Name → IPv4 address of each node, partition by partition."""
        names = [name for partition in self.partitions for name in partition.node_names]
        return {name: self._address(FIRST_NODE_ADDRESS + i) for i, name in enumerate(names)}

    @property
    def machines(self) -> dict[str, str]:
        """Name → IPv4 address of each machine: database if any, controller, then the nodes."""
        database = {DATABASE: self._address(3)} if self.shape.accounting else {}
        return {**database, CONTROLLER: self._address(2), **self.nodes}

    def _address(self, number: int) -> str:
        """Return the IPv4 address with this number in the cluster's network."""
        return str(self.subnet.network_address + number)

    def save(self) -> None:
        """Write the plan to ROOT/cluster.json."""
        content = {"subnet": str(self.subnet), "shape": asdict(self.shape)}
        (self.root / "cluster.json").write_text(json.dumps(content, indent=2) + "\n")

    @classmethod
    def load(cls, root: Path) -> Plan:
        """Return the plan in ROOT/cluster.json."""
        content = json.loads((root / "cluster.json").read_text())
        shape = content["shape"]
        saving = shape["power_saving"]
        return cls(
            root,
            IPv4Network(content["subnet"]),
            Shape(
                tuple(Partition(**entry) for entry in shape["partitions"]),
                shape["accounting"],
                PowerSaving(**saving) if saving else None,
                shape["memory_limits"],
                shape["urgent"],
            ),
        )

    def write_files(self) -> None:
        """Write the hosts file, Slurm configuration files and power-saving programs to ROOT/etc."""
        machines = "".join(f"{address} {name}\n" for name, address in self.machines.items())
        # whatever this machine knows, but should it be called cpu1 itself: not that
        own = Path("/etc/hosts").read_text().splitlines(keepends=True)
        others = (line for line in own if not self.machines.keys() & set(line.split()[1:]))
        hosts = machines + "".join(others)
        texts = {"hosts": hosts, "slurm.conf": self.slurm_conf(), "gres.conf": self.gres_conf()}
        if self.shape.accounting:
            texts["slurmdbd.conf"] = SLURMDBD_CONF.format(
                root=self.root, database=self.machines[DATABASE]
            )
        if self.shape.power_saving:
            texts |= {name: CLOUD_REQUEST.format(name=name, root=self.root) for name in REQUESTS}
        for name, text in texts.items():
            file = self.root / "etc" / name
            file.write_text(text)
            if name in REQUESTS:
                file.chmod(0o755)
            elif name == "slurmdbd.conf":  # slurmdbd insists: there may be a password in it
                file.chmod(0o600)

    def gres_conf(self) -> str:
        """Return the text of gres.conf, which declares the GPUs of the nodes."""
        # Slurm wants a device file behind each GPU; copies of /dev/null serve
        return "".join(
            f"NodeName={','.join(p.node_names)} Name=gpu File={self.root}/dev/gpu[0-{p.gpus - 1}]\n"
            for p in self.partitions
            if p.gpus
        )

    def slurm_conf(self) -> str:
        """Return the text of slurm.conf."""
        saving = self.shape.power_saving
        text = SLURM_CONF.format(root=self.root, controller=self.machines[CONTROLLER])
        text += MEMORY_LIMITS if self.shape.memory_limits else NO_LIMITS
        if self.shape.accounting:
            text += ACCOUNTING.format(root=self.root, database=self.machines[DATABASE])
        if saving:
            text += POWER_SAVING.format(
                root=self.root, idle=saving.idle_s, resume=saving.boot_s + REGISTRATION_S
            )
        state = " State=CLOUD" if saving else ""
        for partition in self.partitions:
            names = ",".join(partition.node_names)
            addresses = ",".join(self.machines[name] for name in partition.node_names)
            gres = f" Gres=gpu:{partition.gpus}" if partition.gpus else ""
            default = " Default=YES" if partition == self.partitions[0] else ""
            text += (
                f"NodeName={names} NodeAddr={addresses} CPUs={partition.cpus}"
                f" RealMemory={REAL_MEMORY_MB} Feature={partition.name}{gres}{state}\n"
                f"PartitionName={partition.name} Nodes={names} State=UP{default}\n"
            )
        if self.shape.urgent:
            text += PREEMPTION.format(urgent=URGENT)
        return text


SLURM_CONF = """\
ClusterName=virtual
SlurmctldHost=controller({controller})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/run/munge.socket

StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/slurmd.%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.%n.log

# No cgroups: CPUs are not enforced, and nodes may declare more than there is.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
GresTypes=gpu

# Tests wait for the scheduler: let it look often.
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,sched_interval=5,bf_interval=2

# A lost node is noticed soon, its jobs are requeued, and it comes back by itself.
SlurmdTimeout=15
# not 10 s: on a busy machine a step that is answered late is asked for twice, and refused
MessageTimeout=40
# not 60 s: a node on which a killed step ends later is drained
UnkillableStepTimeout=200
ReturnToService=2
JobRequeue=1
KillWait=5
MinJobAge=300

MpiDefault=none
MpiParams=ports=12000-12999
MailProg=/bin/true

"""

NO_LIMITS = """\
SelectTypeParameters=CR_Core

"""

# Without cgroups Slurm looks every second at what a step uses, and ends it if that is too much.
MEMORY_LIMITS = """\
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=4000
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill

"""

PREEMPTION = """
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName={urgent} Nodes=ALL State=UP PriorityTier=10 PreemptMode=OFF
"""

#: The controller's programs that power nodes down and up.
SUSPEND, RESUME = REQUESTS = ("suspend", "resume")
#: After the boot delay, until a node without a word is given up.
REGISTRATION_S = 120

ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={database}
# the socket of munge, for connections to slurmdbd; AuthInfo holds for all others
AccountingStoragePass={root}/run/munge.socket
AccountingStorageEnforce=associations,limits,qos
AccountingStoreFlags=job_comment,job_env,job_script

"""

# One user, root, reaches the database, by its socket: no password.
SLURMDBD_CONF = """\
DbdHost=database
DbdAddr={database}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={root}/run/munge.socket
LogFile={root}/log/slurmdbd.log
PidFile={root}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct
"""

# Power saving as clouds use it. A suspended node may be resumed at once; PrivateData=cloud shows
# nodes that are powered down.
POWER_SAVING = """\
SuspendProgram={root}/etc/suspend
ResumeProgram={root}/etc/resume
SuspendTime={idle}
SuspendTimeout=2
ResumeTimeout={resume}
SuspendRate=0
ResumeRate=0
SlurmctldParameters=cloud_dns,idle_on_node_suspend
PrivateData=cloud

"""

# The controller asks, as a cloud's interface is asked: power.py does it.
CLOUD_REQUEST = """\
#!/bin/sh
scontrol show hostnames "$1" | sed "s/^/{name} /" >{root}/run/power
"""
