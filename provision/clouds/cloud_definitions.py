"""What the definitions of clusters in clouds say, compared with provision/clouds/platforms.yaml.

Three kinds of definition become the same thing, partitions with their nodes: a blueprint of the
Cluster Toolkit, a configuration of ParallelCluster, a template of Parallel Computing Service.
Whether a cloud's own tool accepts a file is another question; see `cloud_schemas`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml
from tfscaling.study import config_files
from tfscaling.study.config_types import Platform

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]


class MachineType(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hardware of a type of machine in a cloud.

    Attributes:
        cpus: Number of vCPUs.
        gpus: Number of GPUs.
        gpu_type: Name of the GPU's model; None without GPUs.
        withdrawn: Whether the cloud no longer offers the type.
    """

    cpus: int
    gpus: int = 0
    gpu_type: str | None = None
    withdrawn: bool = False


@dataclass(frozen=True)
class Nodes:
    """Equal nodes in a partition.

    Attributes:
        machine: Type of machine.
        count: Largest number of nodes.
        cpus: CPUs of each node.
        gpus: GPUs of each node.
        gpu_type: Name of the GPUs' model; None without GPUs.
    """

    machine: str
    count: int
    cpus: int
    gpus: int = 0
    gpu_type: str | None = None


@dataclass(frozen=True)
class Partition:
    """A Slurm partition that a definition creates.

    Attributes:
        name: Name of the partition.
        nodes: Its nodes, one entry for each kind.
    """

    name: str
    nodes: tuple[Nodes, ...]


@dataclass(frozen=True)
class Definition:
    """The partitions that a file defines for a cluster in a cloud.

    Attributes:
        partitions: The partitions.
        problems: What is wrong with the file itself, one clause each.
    """

    partitions: tuple[Partition, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """A kind of file that defines a cluster.

    Attributes:
        cloud: The cloud, as in the key `cloud` of platforms.
        read: Returns the definition in a file's text.
        name: Regular expression for allowed names of partitions.
        name_rule: What it allows, in words.
    """

    cloud: str
    read: Callable[[str], Definition]
    name: str
    name_rule: str


def read_machine_types() -> dict[str, MachineType]:
    """Return name → type of machine, from machine_types.yaml."""
    content = config_files.read_config_file(str(HERE / "machine_types.yaml"))
    return msgspec.convert(content, dict[str, MachineType])


def read_platforms(path: Path) -> dict[str, Platform]:
    """Return name → platform, from a configuration file."""
    return msgspec.convert(
        config_files.read_config_file(str(path))["platforms"], dict[str, Platform]
    )


def find_problems(kind: Kind, text: str, platforms: Mapping[str, Platform]) -> list[str]:
    """Return what is wrong with a definition, one clause each.

    Platforms of other clouds, and platforms with a withdrawn type of machine, are ignored.

    Args:
        kind: The kind of definition.
        text: Text of its file.
        platforms: Name → platform; each needs a partition that matches it.
    """
    definition = kind.read(text)
    found = list(definition.problems)
    known = {partition.name: partition for partition in definition.partitions}
    counts = Counter(partition.name for partition in definition.partitions)
    found += [f"partition {name} is defined {n} times" for name, n in counts.items() if n > 1]
    for name in known:
        if not re.fullmatch(kind.name, name):
            found.append(f"partition {name}: the name is not allowed; {kind.name_rule}")
    wanted = set()
    types = read_machine_types()
    for name, platform in platforms.items():
        if platform.cloud != kind.cloud:
            continue
        type_ = types.get(platform.instance_type or "")
        if type_ and type_.withdrawn:
            continue
        wanted.add(platform.partition)
        partition = known.get(platform.partition or "")
        if partition is None:
            found.append(f"platform {name}: its partition {platform.partition} is missing")
        else:
            found += [f"platform {name}: {each}" for each in _differences(platform, partition)]
    found += [f"partition {name} is that of no platform" for name in known if name not in wanted]
    return found


def _differences(platform: Platform, partition: Partition) -> Iterator[str]:
    """Yield how the nodes of a partition differ from the keys of a platform, one clause each."""
    where = f"partition {partition.name} has"
    for nodes in partition.nodes:
        if nodes.machine != platform.instance_type:
            yield f"{where} {nodes.machine}, instance_type is {platform.instance_type}"
        if nodes.cpus != platform.cpus_per_node:
            yield f"{where} {nodes.cpus} CPUs on a node, cpus_per_node is {platform.cpus_per_node}"
        if nodes.gpus and nodes.gpu_type != platform.gpu_type:
            yield f"{where} GPUs of type {nodes.gpu_type}, gpu_type is {platform.gpu_type}"
        most = platform.nodes_max
        if nodes.gpus and platform.gpus_max is not None:
            most = min(most, platform.gpus_max // nodes.gpus)
        if nodes.count != most:
            kind = f" with {nodes.gpus} GPUs" if nodes.gpus else ""
            yield f"{where} {nodes.count} nodes{kind}, the platform has {most}"
    gpus = max((nodes.gpus for nodes in partition.nodes), default=0)
    if gpus != platform.gpus_per_node_max:
        yield f"{where} {gpus} GPUs on a node, gpus_per_node_max is {platform.gpus_per_node_max}"


# --- Google Cloud: a blueprint of the Cluster Toolkit
_MODULE = "schedmd-slurm-gcp-v6-"


def read_blueprint(text: str) -> Definition:
    """Return the definition in a blueprint of the Cluster Toolkit.

    Args:
        text: Text of the blueprint.
    """
    content = yaml.safe_load(text)
    modules = [
        module for group in content.get("deployment_groups", []) for module in group["modules"]
    ]
    by_id = {module["id"]: module for module in modules}
    nodesets = {id_: module for id_, module in by_id.items() if _is_module(module, "nodeset")}
    partitions = [
        Partition(
            module.get("settings", {}).get("partition_name", ""),
            tuple(
                _blueprint_nodes(nodesets[used])
                for used in module.get("use", [])
                if used in nodesets
            ),
        )
        for module in modules
        if _is_module(module, "partition")
    ]
    variables = content.get("vars", {})
    found = [*_variable_problems(variables, modules), *_module_problems(modules)]
    return Definition(tuple(partitions), tuple(found))


def _is_module(module: Mapping[str, Any], name: str) -> bool:
    """Return whether a module of a blueprint is Slurm's module with this name.

    Args:
        module: The module's entry in the blueprint.
        name: End of the name of the module's source, such as `nodeset`.
    """
    return str(module.get("source", "")).endswith(_MODULE + name)


def _blueprint_nodes(module: Mapping[str, Any]) -> Nodes:
    """Return the nodes that a blueprint's module `nodeset` describes."""
    settings = module.get("settings", {})
    machine = settings.get("machine_type", "")
    type_ = read_machine_types().get(machine, MachineType(cpus=0))
    # the Toolkit's default is one thread per core: half of the vCPUs
    threads = settings.get("advanced_machine_features", {}).get("threads_per_core", 1)
    accelerators = settings.get("guest_accelerator", [])
    return Nodes(
        machine=machine,
        count=settings.get("node_count_dynamic_max", 10) + settings.get("node_count_static", 0),
        cpus=type_.cpus * threads // 2,
        gpus=sum(each["count"] for each in accelerators),
        gpu_type=accelerators[0]["type"].rpartition("-")[2] if accelerators else None,
    )


def _toolkit_settings() -> dict[str, list[str]]:
    """Return source of a Cluster Toolkit module → names of its settings."""
    content = yaml.safe_load((REPOSITORY / "provision/gcp/toolkit_variables.yaml").read_text())
    return msgspec.convert(content["modules"], dict[str, list[str]])


def _variable_problems(
    variables: Mapping[str, Any], modules: list[Mapping[str, Any]]
) -> Iterator[str]:
    """Yield what is wrong with a blueprint's variables: unknown, missing or contradictory ones.

    Args:
        variables: Name → value, the blueprint's `vars`.
        modules: The modules of the blueprint.
    """
    known = _toolkit_settings()
    settings = {name for module in modules for name in known.get(module.get("source", ""), ())}
    yield from (
        f"vars: {name} is no module's setting" for name in variables if name not in settings
    )
    for name in ("project_id", "deployment_name", "region", "zone"):
        if not variables.get(name):
            yield f"vars: {name} is missing"
    region, zone = str(variables.get("region", "")), str(variables.get("zone", ""))
    if not zone.startswith(f"{region}-"):
        yield f"vars: zone {zone} is not in region {region}"


def _module_problems(modules: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is wrong with the modules of a blueprint, one clause each.

    Examples are unknown settings, a `use` of a module that does not come before, and nodes that no
    partition uses.

    Args:
        modules: The modules in the order of the blueprint.
    """
    settings_of = _toolkit_settings()
    above: set[str] = set()
    used: Counter[str] = Counter()
    for module in modules:
        id_ = module["id"]
        if id_ in above:
            yield f"module {id_} is defined twice"
        source = module.get("source")
        if source not in settings_of:
            yield f"module {id_}: its source {source} is unknown"
        for name in module.get("settings", {}):
            if name not in settings_of.get(str(source), [name]):
                yield f"module {id_}: setting {name} is unknown"
        for name in module.get("use", []):
            used[name] += 1
            if name not in above:
                yield f"module {id_}: it uses {name}, which is not above it"
        above.add(id_)
    for module in modules:
        kinds = ("nodeset", "partition", "login")
        if any(_is_module(module, kind) for kind in kinds) and used[module["id"]] != 1:
            yield f"module {module['id']} is used {used[module['id']]} times instead of once"
    if sum(_is_module(module, "controller") for module in modules) != 1:
        yield "there is not one controller"
    names = Counter(
        # as the Toolkit shortens them
        re.sub("[^a-z0-9]", "", module.get("settings", {}).get("name", module["id"]))[:14]
        for module in modules
        if _is_module(module, "nodeset")
    )
    yield from (f"nodes of {n} nodesets are called {name}" for name, n in names.items() if n > 1)


# --- AWS: ParallelCluster, Parallel Computing Service
def read_parallelcluster(text: str) -> Definition:
    """Return the definition in a configuration of ParallelCluster.

    Args:
        text: Text of the configuration.
    """
    queues = yaml.safe_load(text).get("Scheduling", {}).get("SlurmQueues", [])
    return Definition(
        tuple(
            Partition(
                queue.get("Name", ""),
                tuple(
                    _aws_nodes(each.get("InstanceType", ""), each.get("MaxCount", 10))
                    for each in queue.get("ComputeResources", [])
                ),
            )
            for queue in queues
        ),
        tuple(
            f"queue {queue.get('Name')}: {each.get('Name')} has MinCount {each['MinCount']}: "
            "these nodes cost without a job"
            for queue in queues
            for each in queue.get("ComputeResources", [])
            if each.get("MinCount", 0)
        ),
    )


def _aws_nodes(machine: str, count: int) -> Nodes:
    """Return the nodes of a partition on AWS.

    Args:
        machine: Type of instance.
        count: Largest number of nodes.
    """
    type_ = read_machine_types().get(machine, MachineType(cpus=0))
    return Nodes(machine, count, type_.cpus, type_.gpus, type_.gpu_type)


class _Template(yaml.SafeLoader):
    """YAML loader for CloudFormation; a function such as `!GetAtt A.B` becomes its argument."""


def _construct_argument(loader: yaml.SafeLoader, _suffix: str, node: yaml.Node) -> Any:
    """Return the argument of a YAML tag, without the tag's meaning."""
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.MappingNode)
    return loader.construct_mapping(node, deep=True)


_Template.add_multi_constructor("!", _construct_argument)


def read_pcs(text: str) -> Definition:
    """Return the definition in a CloudFormation template for Parallel Computing Service.

    Args:
        text: Text of the template.
    """
    resources = yaml.load(text, Loader=_Template)["Resources"]
    groups, queues = (
        {
            name: each["Properties"]
            for name, each in resources.items()
            if each["Type"] == f"AWS::PCS::{kind}"
        }
        for kind in ("ComputeNodeGroup", "Queue")
    )
    found = []
    partitions = []
    for name, queue in queues.items():
        nodes = []
        for used in queue.get("ComputeNodeGroupConfigurations", []):
            group = groups.get(used["ComputeNodeGroupId"].removesuffix(".Id"))
            if group is None:
                found.append(f"queue {name}: its nodes {used['ComputeNodeGroupId']} are missing")
                continue
            count = group["ScalingConfiguration"]["MaxInstanceCount"]
            nodes += [_aws_nodes(c["InstanceType"], count) for c in group["InstanceConfigs"]]
            if group["ScalingConfiguration"]["MinInstanceCount"]:
                found.append(f"queue {name}: its nodes cost without a job (MinInstanceCount)")
        partitions.append(Partition(queue.get("Name", ""), tuple(nodes)))
    return Definition(tuple(partitions), tuple(found))


#: The files of this repository and their kinds.
KINDS = {
    "provision/gcp/blueprint.yaml": Kind(
        "gcp",
        read_blueprint,
        r"[a-z][a-z0-9-]*",
        "allowed: a small letter, then such, digits and -",
    ),
    "provision/aws/parallelcluster.yaml": Kind(
        "aws",
        read_parallelcluster,
        r"(?!default$)[a-z][a-z0-9-]{0,24}",
        "allowed: a small letter, then up to 24 such, digits and -, and not default",
    ),
    "provision/aws/pcs.yaml": Kind(
        "aws",
        read_pcs,
        r"(?!pcs_)[A-Za-z][A-Za-z0-9-]{2,24}",
        "allowed: a letter, then 2 to 24 letters, digits and -",
    ),
}
