"""Where a run was made: facts of hosts are read, not guessed; launcher and commit."""

from __future__ import annotations

import importlib.metadata
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
from fake_programs import fake_nvidia_smi, listing
from tfscaling.launch import provenance
from tfscaling.record.rank_report import COMPARED
from tfscaling.record.run_record import Environment, SlurmJob


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_this_host_tells_its_processor_memory_and_versions() -> None:
    facts = provenance.host_facts()
    assert facts.cpus_online == os.cpu_count()
    assert (facts.memory_gb or 0.0) > 0.5
    assert facts.packages["numpy"].count(".") == 2
    assert len(facts.machine) == 36  # a UUID
    assert all(hasattr(facts, name) for name in COMPARED)


def test_a_hosts_packages_are_also_those_of_the_users_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/requirements.txt").write_text("# comment\n-i x\npsutil>=5\nno-such-one\n")
    before = provenance.host_facts().packages
    monkeypatch.chdir(tmp_path)
    added = provenance.host_facts().packages.items() - before.items()
    assert added == {("psutil", importlib.metadata.version("psutil"))}


def test_facts_come_from_the_files_of_the_kernel(tmp_path: Path) -> None:
    tree(tmp_path, {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) CPU @ 2.30GHz\n"
        "cpu MHz\t\t: 2299.998\n\nprocessor\t: 1\nmodel name\t: another\n",
        "proc/meminfo": "MemTotal:        7629920 kB\nMemFree: 1 kB\n",
        "proc/sys/kernel/random/boot_id": "12345678-1234-1234-1234-123456789abc\n",
        "sys/class/net/eth0/operstate": "up\n", "sys/class/net/eth0/speed": "10000\n",
        "sys/class/net/ib0/operstate": "up\n", "sys/class/net/ib0/speed": "-1\n",
        "sys/class/net/down0/operstate": "down\n", "sys/class/net/down0/speed": "1000\n",
        "sys/class/net/lo/operstate": "unknown\n",
    })  # fmt: skip
    facts = provenance.host_facts(tmp_path / "proc", tmp_path / "sys")
    assert facts.cpu_model == "Intel(R) Xeon(R) CPU @ 2.30GHz"
    assert facts.cpu_mhz == 2299.998
    assert facts.memory_gb == 7.8
    assert facts.machine == "12345678-1234-1234-1234-123456789abc"
    assert facts.network_mbit_per_s == {"eth0": 10000.0, "ib0": None}


def test_a_process_tells_its_cpus_numa_nodes_and_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_TOPOLOGY_ADDR", "s1.leaf2.n7")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 8})
    for cpu, (package, node) in {0: (0, 0), 1: (0, 1), 8: (1, 2), 9: (1, 3)}.items():
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}"
        tree(folder, {f"node{node}/cpulist": "\n", "topology/physical_package_id": f"{package}\n"})
    tree(tmp_path, {"proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-1,8\n"})
    found = provenance.read_placement(tmp_path / "proc", tmp_path / "sys")
    assert found == (3, "0-1,8", (0, 1, 2), (0, 1), "s1.leaf2.n7")
    assert provenance.host_facts(tmp_path / "proc", tmp_path / "sys").sockets == 2


@pytest.mark.parametrize("unknown", ["-1\n", "\n", "x\n", None])
def test_a_cpu_whose_socket_the_kernel_does_not_know_has_none(
    unknown: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    for cpu, package in ((0, "3\n"), (1, unknown)):
        path = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"
        path.parent.mkdir(parents=True)
        path.mkdir() if package is None else path.write_text(package)
    assert provenance.read_placement(tmp_path / "proc", tmp_path / "sys").sockets == (3,)


def test_beside_network_cards_bridges_and_tunnels_do_not_count(tmp_path: Path) -> None:
    names = ("docker0", "eth0", "ib0", "tfs0123456789", "tun0")
    tree(tmp_path, {f"sys/class/net/{name}/operstate": "up\n" for name in names})
    for card in ("eth0", "ib0"):
        (tmp_path / "sys/class/net" / card / "device").mkdir()
    assert provenance.host_facts(tmp_path, tmp_path / "sys").network_mbit_per_s.keys() == {
        "eth0", "ib0"
    }  # fmt: skip


def test_what_the_system_does_not_tell_is_null(tmp_path: Path) -> None:
    facts = provenance.host_facts(tmp_path, tmp_path)
    assert facts.memory_gb is None
    assert facts.machine is None
    assert facts.network_mbit_per_s == {}


@pytest.mark.parametrize(
    ("driver", "gpus", "version"),
    [(listing(2), 2, "535.104.05"), ("exit 9", 0, None), (None, 0, None)],
    ids=["two", "no answer", "no driver"],
)
def test_gpus_and_driver_come_from_nvidia_smi(
    driver: str | None, gpus: int, version: str | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", fake_nvidia_smi(tmp_path, driver)["PATH"] if driver else "")
    facts = provenance.host_facts()
    assert (facts.gpus, facts.gpu_driver) == (("Tesla T4",) * gpus, version)
    assert facts.gpu_uuids == tuple(f"GPU-{number}" for number in range(gpus))


CGROUPS: dict[str, tuple[dict[str, str], float | None]] = {
    "version 2": (
        {"proc/self/cgroup": "0::/job/step\n", "sys/fs/cgroup/job/step/cpu.max": "150000 100000\n"},
        1.5,
    ),
    "the tightest of the groups above": (
        {"proc/self/cgroup": "0::/job/step\n", "sys/fs/cgroup/job/step/cpu.max": "max 100000\n",
         "sys/fs/cgroup/job/cpu.max": "200000 100000\n"},
        2.0,
    ),
    "in a container": (
        {"proc/self/cgroup": "0::/../../pod\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5,
    ),
    "version 1": (
        {"proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n",
         "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "300000\n",
         "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n"},
        3.0,
    ),
    "no limit in version 1": (
        {"proc/self/cgroup": "3:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
         "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"},
        None,
    ),
    "no limit": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
    "no control groups": ({}, None),
}  # fmt: skip


@pytest.mark.parametrize(("files", "quota"), CGROUPS.values(), ids=CGROUPS)
def test_a_limit_of_cpu_time_is_found(
    files: dict[str, str], quota: float | None, tmp_path: Path
) -> None:
    tree(tmp_path, files)
    assert provenance.cpu_quota(tmp_path / "proc", tmp_path / "sys") == quota


@pytest.mark.parametrize(
    ("files", "limit_gb"),
    [
        ({"a/memory.max": "5000", "a/b/memory.max": "max"}, 5e-6),
        ({"memory/c/memory.limit_in_bytes": "7000"}, 7e-6),
        ({"memory/c/memory.limit_in_bytes": str(2**63 - 4096)}, None),
    ],
)
def test_the_limit_of_memory_is_the_control_groups(
    files: dict[str, str], limit_gb: float | None, tmp_path: Path
) -> None:
    groups = {"proc/self/cgroup": "4:memory:/c\n3:cpu:/x\n0::/a/b\n"}
    tree(tmp_path, groups | {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    found = provenance.memory_limit_gb(tmp_path / "proc", tmp_path / "sys")
    assert found == pytest.approx(limit_gb)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one commit, untouched by the settings of this machine's user."""
    for name in list(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (tmp_path / "file").write_text("one")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.invalid"]
    for words in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "-m", "one"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


def test_the_whole_commit_of_a_checkout_whose_local_changes_are_marked(checkout: Path) -> None:
    clean = provenance.git_commit(checkout)
    assert re.fullmatch(r"[0-9a-f]{40}", clean or "")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.invalid"]
    tag = ["git", "-C", str(checkout), *who, "tag", "-a", "-m", "first", "v1.0-rc1"]
    subprocess.run(tag, check=True)
    assert provenance.git_commit(checkout) == clean
    (checkout / "file").write_text("two")
    assert provenance.git_commit(checkout) == f"{clean}-dirty"


def test_outside_a_checkout_or_without_git_there_is_no_commit(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert provenance.git_commit(tmp_path_factory.mktemp("other")) is None
    monkeypatch.setenv("PATH", "")
    assert provenance.git_commit(checkout) is None


def test_environment_of_a_record(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("PATH", "")
    described = provenance.describe_environment(checkout, 1_700_000_000.25, {"own.py": "a1"})
    assert described == Environment(
        launcher_host=socket.gethostname(),
        started="2023-11-14T22:13:20.250+00:00",
        git_commit=None,
        slurm_job=SlurmJob(id="12"),
        slurm_settings=None,
        user_code={"own.py": "a1"},
        dataset=None,
        unchecked=(),
    )
