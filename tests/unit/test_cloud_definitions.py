"""The definitions of clusters in clouds: they are right, and what is broken in them is found."""

from __future__ import annotations

from pathlib import Path

import cloud_definitions
import cloud_schemas
import msgspec
import pytest
from cloud_definitions import KINDS
from project import REPOSITORY

GCP, PARALLELCLUSTER, PCS = KINDS
PLATFORMS = cloud_definitions.read_platforms(REPOSITORY / "provision/clouds/platforms.yaml")


def problems(name: str, old: str = "", new: str = "") -> list[str]:
    """What is wrong with a definition after the first `old` in it has become `new`."""
    text = (REPOSITORY / name).read_text()
    assert old in text
    return cloud_definitions.find_problems(KINDS[name], text.replace(old, new, 1), PLATFORMS)


@pytest.mark.parametrize("name", KINDS)
def test_a_definition_has_what_the_platforms_say(name: str) -> None:
    assert problems(name) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "found"),
    [
        # a partition is missing
        (GCP, "partition_name: v100", "partition_name: v101", "its partition v100 is missing"),
        (PARALLELCLUSTER, "Name: g6-xlarge", "Name: g6", "its partition g6-xlarge is missing"),
        (PCS, "Name: g6-xlarge\n      ClusterId: !GetAtt Cluster.Id\n      ComputeNode",
         "Name: g6-x\n      ClusterId: !GetAtt Cluster.Id\n      ComputeNode",
         "its partition g6-xlarge is missing"),
        # one that no platform has
        (GCP, "partition_name: v100", "partition_name: v101", "v101 is that of no platform"),
        # the wrong GPU, or the wrong number of them
        (GCP, "nvidia-tesla-v100", "nvidia-tesla-t4", "GPUs of type t4, gpu_type is v100"),
        (GCP, "count: 4}]", "count: 8}]", "8 GPUs on a node, gpus_per_node_max is 4"),
        (PARALLELCLUSTER, "g5.xlarge", "g6.xlarge", "GPUs of type l4, gpu_type is a10g"),
        (PCS, "InstanceType: g5.xlarge", "InstanceType: g6.xlarge", "instance_type is g5.xlarge"),
        # the wrong CPUs
        (GCP, "threads_per_core: 2", "threads_per_core: 1", "has 1 CPUs on a node"),
        (PARALLELCLUSTER, "InstanceType: c4.2xlarge", "InstanceType: m4.large", "has 2 CPUs"),
        # a name that Slurm, or the cloud, refuses
        (GCP, "partition_name: v100", "partition_name: V100 GPUs", "the name is not allowed"),
        (PARALLELCLUSTER, "Name: m4-large", "Name: m4.large", "the name is not allowed"),
        (PCS, "Name: m4-large\n      ClusterId: !GetAtt Cluster.Id\n      ComputeNode",
         "Name: m4_large\n      ClusterId: !GetAtt Cluster.Id\n      ComputeNode",
         "the name is not allowed"),
        # nodes that run, and cost, without a job
        (PARALLELCLUSTER, "MinCount: 0", "MinCount: 1", "cost without a job"),
        (PCS, "MinInstanceCount: 0", "MinInstanceCount: 1", "cost without a job"),
        # the structure
        (PARALLELCLUSTER, "Name: c4-2xlarge", "Name: m4-large", "m4-large is defined 2 times"),
        (PCS, "!GetAtt M4LargeNodes.Id", "!GetAtt M5LargeNodes.Id", "are missing"),
        (GCP, "suspend_time", "suspend_tim", "setting suspend_tim is unknown"),
        (GCP, "is_default: true", "enable_smt: true", "setting enable_smt is unknown"),
        (GCP, "enable_slurm_auth", "enable_slurm_aut", "enable_slurm_aut is no module's setting"),
        (GCP, "modules/network/vpc", "modules/network/vpcs", "its source"),
        (GCP, "use: [cpu_nodes]", "use: [nodes]", "uses nodes, which is not above it"),
        (GCP, ", v100x4_nodes]", "]", "module v100x4_nodes is used 0 times"),
        (GCP, "name: v100x2", "name: v100x1", "2 nodesets are called v100x1"),
        (GCP, "zone: europe-west4-a", "zone: us-central1-a", "is not in region"),
        (GCP, "project_id: your-project", "project: your-project", "project_id is missing"),
    ],
)  # fmt: skip
def test_what_is_broken_is_found(name: str, old: str, new: str, found: str) -> None:
    assert any(found in problem for problem in problems(name, old, new))


@pytest.mark.parametrize("name", KINDS)
def test_a_change_of_the_platforms_is_found(name: str) -> None:
    kind = KINDS[name]
    changed = {
        key: msgspec.structs.replace(platform, nodes_max=platform.nodes_max - 1)
        for key, platform in PLATFORMS.items()
    }
    text = (REPOSITORY / name).read_text()
    found = cloud_definitions.find_problems(kind, text, changed)
    ours = [key for key, platform in PLATFORMS.items() if platform.cloud == kind.cloud]
    assert {problem.split(":")[0].removeprefix("platform ") for problem in found} == {
        key for key in ours if PLATFORMS[key].instance_type != "p3.2xlarge"
    }


def broken(name: str, old: str, new: str, folder: Path) -> Path:
    """A copy with an error."""
    text = (REPOSITORY / name).read_text()
    assert old in text
    path = folder / Path(name).name
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.full
def test_parallelcluster_accepts_its_definition_and_finds_an_error(tmp_path: Path) -> None:
    wrong = broken(PARALLELCLUSTER, "ScaledownIdletime", "ScaleDownIdleTime", tmp_path)
    (found,) = cloud_schemas.check_parallelcluster(REPOSITORY / PARALLELCLUSTER, wrong)
    assert found.startswith(str(wrong)) and "ScaleDownIdleTime" in found


@pytest.mark.full
def test_cfn_lint_accepts_the_templates_and_finds_an_error(tmp_path: Path) -> None:
    templates = [REPOSITORY / "provision/aws/network.yaml", REPOSITORY / PCS]
    wrong = broken(PCS, "MaxInstanceCount: 10", "MaxInstances: 10", tmp_path)
    found = cloud_schemas.check_cloudformation(*templates, wrong)
    assert found and all(line.startswith(str(wrong)) for line in found)
    assert any("MaxInstances" in line for line in found)


def test_the_costs_on_the_pages_follow_from_the_platforms() -> None:
    def usd(platform: str, nodes: int, hours: float, gpus: int = 0) -> float:
        return nodes * hours * (PLATFORMS[platform].node_price_usd_per_hour(gpus) or 0.0)

    figures = {
        "gcp": [
            f"| {usd('gcp-n1-standard-2', 2, 24):.2f} a day",
            f"**{usd('gcp-n1-standard-2', 2, 730):.0f} a month**",
            f"| {usd('gcp-n1-v100', 8, 1, gpus=1):.2f} |",
            f"| {usd('gcp-n1-v100', 8, 24, gpus=1):.0f} a day",
            f"= {usd('gcp-n1-standard-2', 10, 5 / 60):.2f} dollars",
        ],
        "aws": [
            f"| {usd('aws-m4-large', 1, 24):.2f} a day",
            f"**{usd('aws-m4-large', 1, 730):.0f} a month**",
            f"| {usd('aws-g4dn-xlarge', 20, 1):.2f} |",
            f"= {usd('aws-g4dn-xlarge', 20, 1 / 6):.2f} dollars",
        ],
    }
    for cloud, texts in figures.items():
        page = (REPOSITORY / f"docs/clouds/{cloud}.md").read_text()
        assert [text for text in texts if text not in page] == []
