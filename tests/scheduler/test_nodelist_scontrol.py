"""Node lists expand as Slurm's own ``scontrol show hostnames`` expands them.

That subcommand needs a configuration file, but no running Slurm.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from tfscaling.cluster.nodelist import NodeListError, expand_node_list

pytestmark = pytest.mark.full

PREFIXES = ("n", "node", "rack1-", "gpu-st-g4dn-", "ip-10-0-", "a.b", "c0x")


@pytest.fixture(scope="module")
def slurm_conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    path.write_text("ClusterName=test\nSlurmctldHost=localhost\n")
    return path


def show_hostnames(slurm_conf: Path, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["scontrol", "show", "hostnames", text],
        env=os.environ | {"SLURM_CONF": str(slurm_conf)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def random_group(rng: random.Random) -> str:
    """A bracket group as Slurm writes it, or with descending and repeated parts."""
    width = rng.choice([0, 0, 3])
    parts = []
    for _ in range(rng.randint(1, 4)):
        low = rng.randint(0, 120)
        high = low + rng.choice([0, 1, 3, 12])
        parts.append(f"{low:0{width}d}" + (f"-{high:0{width}d}" if high > low else ""))
    return f"[{','.join(parts)}]"


def random_list(rng: random.Random) -> str:
    """Names, names with one group, and with two; this Slurm takes a group only at the end."""
    names = []
    for _ in range(rng.randint(1, 5)):
        prefix = rng.choice(PREFIXES)
        shapes = ("login", f"{prefix}7", prefix + random_group(rng))
        two_groups = f"r{random_group(rng)}n{random_group(rng)}"
        names.append(rng.choice([*shapes, two_groups]))
    return ",".join(names)


@pytest.mark.parametrize("seed", range(60))
def test_random_lists_expand_as_scontrol_expands_them(slurm_conf: Path, seed: int) -> None:
    text = random_list(random.Random(seed))
    shown = show_hostnames(slurm_conf, text)
    assert shown.returncode == 0, shown.stderr
    assert expand_node_list(text) == shown.stdout.split(), text


@pytest.mark.parametrize("text", ["n[3-1]", "n[1-2]]", "n[a-b]"])
def test_lists_that_scontrol_refuses_are_refused(slurm_conf: Path, text: str) -> None:
    shown = show_hostnames(slurm_conf, text)
    assert not shown.stdout.strip()
    with pytest.raises(NodeListError):
        expand_node_list(text)
