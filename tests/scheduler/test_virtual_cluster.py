"""provision/virtual: a real Slurm cluster comes up, works, breaks as told, and leaves no trace."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

CLUSTER = Path(__file__).resolve().parents[2] / "provision" / "virtual" / "cluster"
INSTALL = CLUSTER.with_name("install")
SHAPE = ("--nodes", "4")
NODES = ["cpu1", "cpu2", "gpu1", "gpu2"]
#: Until anything that takes a second on an idle machine is given up.
WAIT_SECONDS = 300


class Cluster:
    """The command, bound to one root folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(CLUSTER), words[0], "--root", str(self.root), *words[1:]]
        return subprocess.run(command, capture_output=True, text=True, timeout=3000)

    def ok(self, *words: str) -> str:
        done = self(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def slurm(self, *words: str) -> str:
        """Run a Slurm command with nothing set but SLURM_CONF, and no SLURM_* of an outer job."""
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH"))}
        environ["SLURM_CONF"] = str(self.root / "etc/slurm.conf")
        # in its folder, where a job without --output writes its log
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=300, env=environ, cwd=self.root
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def namespaces(self) -> dict[str, int]:
        """Machine → inode of its network namespace."""
        return {file.name: file.stat().st_ino for file in (self.root / "net").iterdir()}

    def states(self) -> dict[str, str]:
        words = self.slurm("sinfo", "-h", "-N", "-o", "%N %T").split()
        return dict(zip(words[::2], words[1::2], strict=True))


def processes_in(namespaces: set[int]) -> list[str]:
    """Command lines of the processes in these network namespaces."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "ns/net").stat().st_ino in namespaces:
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has just ended
            continue
    return found


def link(root: Path) -> Path:
    """The host's one link to the cluster at `root`."""
    return Path("/sys/class/net/tfs" + hashlib.sha256(str(root).encode()).hexdigest()[:10])


def traces(root: Path) -> list[str]:
    """What of a cluster at `root` is there: processes, mounts, the link to it, files."""
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(root) in line]
    commands = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(file.read_text().replace("\0", " "))
        except OSError:
            continue
    own = [line for line in commands if re.search(rf"{root}\b", line)]
    paths = [path for path in (link(root), root) if path.exists()]
    return mounts + own + [str(path) for path in paths]


def machine_state() -> dict[str, object]:
    """What of this machine a cluster must leave as it was."""
    etc = {
        str(file): file.read_bytes()
        for folder in ("/etc/slurm", "/etc/munge")
        for file in sorted(Path(folder).rglob("*"))
        if file.is_file()
    }
    return {
        "files": etc,
        "hosts": Path("/etc/hosts").read_bytes(),
        "netns": sorted(os.listdir("/run/netns")) if os.path.exists("/run/netns") else [],
        "run": sorted(name for name in os.listdir("/run") if "slurm" in name or "munge" in name),
    }


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_SECONDS} s"
        time.sleep(0.1)


@pytest.fixture(scope="module", autouse=True)
def prerequisites() -> None:
    assert os.geteuid() == 0, "these tests make network namespaces: run them as root"
    done = subprocess.run([str(INSTALL), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def before() -> dict[str, object]:
    return machine_state()


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, object]
) -> Iterator[Cluster]:
    """Two nodes with GPUs and two without."""
    cluster = Cluster(tmp_path_factory.mktemp("vc") / "c")
    try:
        cluster.ok("up", *SHAPE)
        yield cluster
    finally:
        cluster.ok("down")


def test_nodes_of_both_partitions_are_idle(cluster: Cluster) -> None:
    lines = cluster.slurm("sinfo", "-h", "-N", "-o", "%N %R %T %G").splitlines()
    assert lines == [
        "cpu1 cpu idle (null)",
        "cpu2 cpu idle (null)",
        "gpu1 gpu idle gpu:4",
        "gpu2 gpu idle gpu:4",
    ]
    assert cluster("status").returncode == 0


def test_env_prints_the_only_handle(cluster: Cluster) -> None:
    command = f'eval "$({CLUSTER} env --root {cluster.root})"; sinfo -h -p cpu -o %D'
    assert subprocess.check_output(["bash", "-c", command], text=True) == "2\n"


def test_second_up_is_idempotent(cluster: Cluster) -> None:
    namespaces = cluster.namespaces()
    assert "already up" in cluster.ok("up", *SHAPE)
    assert cluster.namespaces() == namespaces
    other = cluster("up", "--nodes", "6")
    assert other.returncode == 1
    assert "another cluster is up" in other.stderr
    assert cluster.namespaces() == namespaces


def test_nodes_do_not_share_memory(cluster: Cluster) -> None:
    """Or MPI takes ranks on two of them for neighbours, and their numbers for processes of one."""
    own = os.readlink("/proc/self/ns/ipc")
    words = ("readlink", "/proc/self/ns/ipc")
    found = {node: cluster.ok("exec", node, *words).strip() for node in ("cpu1", "cpu2")}
    assert len({own, *found.values()}) == 3


def test_power_cut_takes_all_processes_of_one_node(cluster: Cluster, tmp_path: Path) -> None:
    cluster.slurm(
        *("sbatch", "-p", "gpu", "-w", "gpu1", "--no-requeue", f"--chdir={tmp_path}"),
        *("--job-name=cut", "--output=job.out", "--wrap", "touch begin; sleep 314159"),
    )
    wait_for((tmp_path / "begin").exists, "the job starts")
    inodes = cluster.namespaces()
    wait_for(
        lambda: any("sleep 314159" in line for line in processes_in({inodes["gpu1"]})),
        "the job's last command",
    )
    cluster.ok("kill-node", "gpu1")
    assert processes_in({inodes["gpu1"]}) == []
    for name in ("cpu1", "cpu2", "gpu2"):
        alive = processes_in({inodes[name]})
        assert any(line.startswith(f"slurmd -N {name} ") for line in alive)
    assert "not running" in cluster("exec", "gpu1", "true").stderr

    cluster.ok("start-node", "gpu1")
    # Slurm overlooks so short an outage in the first 20 s of a job
    cluster.slurm("scancel", "--name=cut")
    wait_for(lambda: cluster.states()["gpu1"] == "idle", "the node returns to service")
    assert cluster.slurm("srun", "-p", "gpu", "-w", "gpu1", "hostname") == "gpu1\n"
    done = cluster("exec", "gpu1", "bash", "-c", "hostname; pwd; exit 7")
    assert (done.stdout.split(), done.returncode) == (["gpu1", os.getcwd()], 7)


def test_two_clusters_side_by_side(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    second = Cluster(tmp_path_factory.mktemp("vc") / "c")
    try:
        second.ok("up", "--partition=small:1:cpus=2", "--partition=v100:1:gpus=1", "--accounting")
        assert set(second.states()) == {"small1", "v100-1"}
        assert second.slurm("srun", "-p", "v100", "--gres=gpu:1", "hostname") == "v100-1\n"
        other = second("up", "--partition=small:1:cpus=2", "--partition=v100:1:gpus=1")
        _, _, remove = other.stderr.partition("another cluster is up at ")[2].partition(": ")
        subprocess.run(remove, shell=True, check=True)
        assert traces(second.root) == []
    finally:
        second.ok("down")
    assert traces(second.root) == []
    assert cluster("status").returncode == 0


@pytest.mark.parametrize("what", ["owner killed", "files deleted"])
@pytest.mark.parametrize("command", ["up", "down"])
def test_a_cluster_of_a_killed_test_is_removed_by_the_next_command(
    command: str, what: str, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """And not before; a cluster without an owner stays."""
    left, other = (Cluster(tmp_path_factory.mktemp("vc") / "c") for _ in range(2))
    shape = ("--partition", "cpu:1:cpus=1")
    with subprocess.Popen(["sleep", "1000"]) as owner:
        try:
            left.ok("up", *shape, "--owner", str(owner.pid))
            other.ok("down")
            assert left.states() == {"cpu1": "idle"}
            if what == "files deleted":  # as pytest removes the folders of earlier sessions
                shutil.rmtree(left.root, ignore_errors=True)
            else:
                owner.kill()
                owner.wait()
            other.ok(command, *(shape if command == "up" else ()))
            assert traces(left.root) == []
            assert cluster("status").returncode == 0
        finally:
            owner.kill()
            other.ok("down")
            left.ok("down")


def test_down_after_a_crash_leaves_no_trace(
    cluster: Cluster, before: dict[str, object], tmp_path: Path
) -> None:
    """slurmctld killed, a job running, pid files and settings lost: `down` needs none of them."""
    cluster.slurm("sbatch", "-p", "cpu", "-N2", f"--chdir={tmp_path}", "--wrap", "srun sleep 1000")
    wait_for(lambda: "mixed" in cluster.states().values(), "the job starts")
    inodes = set(cluster.namespaces().values())
    assert len(processes_in(inodes)) > 2 * len(NODES)
    assert link(cluster.root).exists()
    cluster.ok("kill-slurmd", "controller")
    assert "not healthy" in cluster("up", *SHAPE).stderr
    shutil.rmtree(cluster.root / "run")
    shutil.rmtree(cluster.root / "etc")

    cluster.ok("down")
    assert processes_in(inodes) == []
    assert traces(cluster.root) == []
    assert machine_state() == before
    cluster.ok("down")  # again: nothing to do


def test_failed_up(tmp_path: Path, before: dict[str, object]) -> None:
    """It says why and removes everything.

    A munged that fails at once; the mount that breaks it is seen by this command alone. The name
    is short because a cluster's path is part of it, and must be short.
    """
    root = tmp_path / "c"
    munged = os.path.realpath(shutil.which("munged", path="/usr/sbin:/sbin:/usr/bin") or "")
    script = f"mount --bind /bin/false {munged} && {CLUSTER} up --root {root} --nodes 2"
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    assert "munged stopped at once" in done.stderr
    assert traces(root) == []
    assert machine_state() == before


def test_down_spares_a_folder_that_is_not_a_clusters(tmp_path: Path) -> None:
    precious = tmp_path / "etc"
    precious.mkdir()
    for command in ("up", "down"):
        assert Cluster(tmp_path)(command).returncode == 1
    assert precious.is_dir()


def test_wrong_shapes_are_refused(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "c")
    for options, reason in {
        ("--nodes", "1"): "at least 2",
        ("--partition", "cpu"): "NAME:NODES",
        ("--partition", "cpu:0"): "at least one node",
        ("--partition", "controller:2"): "reserved",
        ("--partition", "cpu:201"): "more than 200",
        ("--partition", "cpu:1", "--partition", "cpu:2"): "named twice",
        ("--partition", "cpu:1", "--nodes", "2"): "not both",
    }.items():
        done = cluster("up", *options)
        assert done.returncode == 1
        assert reason in done.stderr
    assert not cluster.root.exists()
