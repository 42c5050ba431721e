"""The resolver by itself, in use, and beside TensorFlow's: right where that one fails."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from typing import Any

import pytest
import tensorflow as tf
from tfscaling.cluster.task_layout import ClusterError
from tfscaling.cluster.tensorflow_resolver import SlurmClusterResolver

TensorFlowsResolver = tf.distribute.cluster_resolver.SlurmClusterResolver


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the Slurm job in which the tests may run, nor this machine's GPUs."""
    for name in list(os.environ):
        if name.startswith("SLURM") or name == "TF_CONFIG":
            monkeypatch.delenv(name)
    # Set first, as the resolvers change it: this restores it after the test.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PATH", "/nonexistent")


def step(rank: int, nodes: str, tasks: str, total: int) -> dict[str, str]:
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_TASKS_PER_NODE": tasks,
        "SLURM_STEP_NUM_TASKS": str(total),
    }


def set_step(
    monkeypatch: pytest.MonkeyPatch, *task: Any, gpus: str | None = None, **other: str
) -> None:
    """Set the variables of a step, and CUDA_VISIBLE_DEVICES or that there is none."""
    for name, value in (step(*task) | other).items():
        monkeypatch.setenv(name, value)
    if gpus is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)


def cluster_text(*jobs: tuple[str, list[str]]) -> str:
    """The cluster in the notation of protocol buffers."""
    text = ""
    for name, addresses in jobs:
        text += f'job {{\n  name: "{name}"\n'
        for key, address in enumerate(addresses):
            text += f'  tasks {{\n    key: {key}\n    value: "{address}"\n  }}\n'
        text += "}\n"
    return text


BASIC = ["t02n13:8888", "t02n13:8889", "t02n41:8888", "t02n41:8889"]


@pytest.mark.parametrize(("rank", "gpus"), [(0, "0,1"), (1, "2,3"), (2, "0,1"), (3, "2,3")])
def test_basic_example_of_the_document(
    monkeypatch: pytest.MonkeyPatch, rank: int, gpus: str
) -> None:
    """salloc --nodes=2 --ntasks-per-node=2 --gres=gpu:k80:4; SlurmClusterResolver()."""
    set_step(monkeypatch, rank, "t02n[13,41]", "2(x2)", 4, gpus="0,1,2,3")
    resolver = SlurmClusterResolver()
    assert str(resolver.cluster_spec().as_cluster_def()) == cluster_text(("worker", BASIC))
    assert resolver.get_task_info() == ("worker", rank)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == gpus
    assert resolver.num_accelerators() == {"GPU": 2}


@pytest.mark.parametrize("rank", range(4))
def test_advanced_example_of_the_document(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    """One parameter server and three workers, port 1337, no assignment of GPUs."""
    set_step(monkeypatch, rank, "t02n[13,41]", "2(x2)", 4, gpus="0,1,2,3")
    resolver = SlurmClusterResolver(
        {"ps": 1, "worker": 3},
        port_base=1337,
        tasks_per_node=2,
        gpus_per_node=2,
        gpus_per_task=1,
        auto_set_gpu=False,
    )
    workers = ["t02n13:1338", "t02n41:1337", "t02n41:1338"]
    expected = cluster_text(("ps", ["t02n13:1337"]), ("worker", workers))
    assert str(resolver.cluster_spec().as_cluster_def()) == expected
    job_name, task_index = resolver.get_task_info()
    assert (job_name, task_index) == (("ps", 0) if rank == 0 else ("worker", rank - 1))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert resolver.num_accelerators() == {"GPU": 1}


def test_it_is_a_cluster_resolver_for_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    set_step(monkeypatch, 0, "n1", "1", 1)

    class Derived(SlurmClusterResolver):
        pass

    for resolver in (SlurmClusterResolver(), Derived()):
        assert isinstance(resolver, tf.distribute.cluster_resolver.ClusterResolver)


def test_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    set_step(monkeypatch, 2, "n[1-2]", "2(x2)", 4)
    resolver = SlurmClusterResolver({"ps": 1, "worker": 3}, rpc_layer="grpc+verbs")
    # Unlike TensorFlow's, it knows its task before cluster_spec() is called.
    assert (resolver.task_type, resolver.task_id) == resolver.get_task_info() == ("worker", 1)
    assert resolver.rpc_layer == "grpc+verbs"
    assert resolver.environment == ""
    assert resolver.master() == "grpc+verbs://n2:8888"
    assert resolver.master("ps", 0) == "grpc+verbs://n1:8888"
    assert resolver.master(task_id=2, rpc_layer="grpc") == "grpc://n2:8889"
    assert resolver.num_accelerators("ps", 0, None) == {"GPU": 0}
    assert resolver.cluster.jobs["ps"] == ("n1:8888",)
    for job, index in (("chief", 0), ("worker", 3), ("worker", -1)):
        with pytest.raises(ClusterError, match=f"no task {index} of job '{job}'"):
            resolver.master(job, index)


def test_master_without_protocol_or_task(monkeypatch: pytest.MonkeyPatch) -> None:
    set_step(monkeypatch, 0, "n1", "1", 1)
    resolver = SlurmClusterResolver(rpc_layer=None)
    assert resolver.master() == "n1:8888"
    resolver.task_type = resolver.task_id = None
    assert resolver.master() == ""


def test_no_port_base_takes_the_reserved_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    set_step(monkeypatch, 0, "n1", "2", 2, SLURM_STEP_RESV_PORTS="12000-12001")
    assert SlurmClusterResolver(port_base=None).master("worker", 1) == "grpc://n1:12001"
    assert SlurmClusterResolver().master("worker", 1) == "grpc://n1:8889"


def test_tasks_per_node_as_mapping_in_slurms_order(monkeypatch: pytest.MonkeyPatch) -> None:
    set_step(monkeypatch, 0, "n[9-10]", "1(x2)", 3)
    resolver = SlurmClusterResolver(tasks_per_node={"n10": 1, "n9": 2})
    workers = ["n9:8888", "n9:8889", "n10:8888"]
    assert resolver.cluster_spec().as_dict() == {"worker": workers}


def test_a_second_call_assigns_the_same_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    set_step(monkeypatch, 1, "n1", "2", 2, gpus="0,1,2,3", SLURM_GPUS_ON_NODE="4")
    resolver = SlurmClusterResolver()
    for again in (resolver, resolver, SlurmClusterResolver()):
        again.cluster_spec()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_a_second_call_knows_what_the_first_has_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although fewer GPUs than the node's under this binding are not one task's own."""
    binding = {"SLURM_GPU_BIND": "closest", "SLURM_GPUS_ON_NODE": "4"}
    shown = {"SLURM_STEP_GPUS": "0,1,2,3"}
    set_step(monkeypatch, 1, "n1", "2", 2, gpus="0,1,2,3", **shown, **binding)
    for _ in range(2):
        SlurmClusterResolver().cluster_spec()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_outside_a_step_the_missing_variable_is_named() -> None:
    with pytest.raises(ClusterError, match="SLURM_PROCID is not set.*srun"):
        SlurmClusterResolver()


class FromFile(SlurmClusterResolver):
    """All of the cluster from another source than Slurm."""

    def _resolve_own_rank(self) -> int:
        return 2

    def _resolve_num_tasks(self) -> int:
        return 3

    def _resolve_hostlist(self) -> list[str]:
        return ["z", "a"]

    def _resolve_task_configuration(self) -> dict[str, int]:
        return {"z": 1, "a": 2}


def test_extension_points_replace_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    # How srun dealt its own ranks does not matter to ranks from elsewhere.
    monkeypatch.setenv("SLURM_DISTRIBUTION", "cyclic")
    monkeypatch.setenv("SLURM_NODEID", "7")
    resolver = FromFile(port_base=1)
    assert resolver.cluster_spec().as_dict() == {"worker": ["z:1", "a:1", "a:2"]}
    assert resolver.get_task_info() == ("worker", 2)
    two_each = FromFile({"worker": 4}, port_base=1, tasks_per_node=2)
    assert two_each.cluster_spec().as_dict() == {"worker": ["z:1", "z:2", "a:1", "a:2"]}


@pytest.mark.parametrize(
    ("name", "value", "task", "addresses"),
    [
        ("_resolve_own_rank", 1, ("worker", 1), "a:8888 a:8889 b:8888"),
        ("_resolve_num_tasks", 3, ("worker", 2), "a:8888 a:8889 b:8888"),
        ("_resolve_hostlist", ["d", "c"], ("worker", 2), "d:8888 d:8889 c:8888"),
        ("_resolve_task_configuration", {"b": 2, "a": 1}, ("worker", 2), "b:8888 b:8889 a:8888"),
    ],
)
def test_each_extension_point_alone(
    monkeypatch: pytest.MonkeyPatch, name: str, value: Any, task: Any, addresses: str
) -> None:
    set_step(monkeypatch, 2, "a,b", "2,1", 3)
    derived = type("Derived", (SlurmClusterResolver,), {name: lambda self: value})
    resolver = derived()
    assert resolver.get_task_info() == task
    assert resolver.cluster_spec().as_dict() == {"worker": addresses.split()}


WORKER = """
from tfscaling.cluster.tensorflow_resolver import SlurmClusterResolver
resolver = SlurmClusterResolver(port_base=None)
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
job, index = resolver.get_task_info()

@tf.function
def total():
    def own(context=None):
        value = tf.constant([1.0, 10.0]) * (index + 1)
        return tf.distribute.get_replica_context().all_reduce("SUM", value)
    return strategy.run(own)

assert strategy.num_replicas_in_sync == 2
print("task", job, index, strategy.cluster_resolver.master(), total().numpy().tolist())
"""


def two_free_ports() -> int:
    """The first of two ports that are free one after the other, below the ephemeral ones."""
    for port in range(20000 + os.getpid() % 9000, 32000):
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("", port))
                second.bind(("", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no two free ports")


def test_two_processes_reduce_with_it_as_the_resolver_of_a_strategy() -> None:
    port = two_free_ports()
    path = os.pathsep.join(entry for entry in sys.path if entry)
    common = os.environ | {"PYTHONPATH": path, "SLURM_STEP_RESV_PORTS": f"{port}-{port + 1}"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER],
            env=common | step(rank, "localhost", "2", 2),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=900) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for rank, (process, (output, errors)) in enumerate(zip(processes, outputs, strict=True)):
        assert process.returncode == 0, errors
        address = f"grpc://localhost:{port + rank}"
        assert output.splitlines()[-1] == f"task worker {rank} {address} [3.0, 30.0]"


def outcome(resolver: Any) -> dict[str, Any]:
    """All that a resolver tells, and what it sets."""
    spec = resolver.cluster_spec()
    return {
        "cluster": spec.as_dict(),
        "protobuf": str(spec.as_cluster_def()),
        "task": resolver.get_task_info(),
        "type and id": (resolver.task_type, resolver.task_id),
        "rpc_layer": resolver.rpc_layer,
        "environment": resolver.environment,
        "master": resolver.master(),
        "first worker": resolver.master("worker", 0, "grpc+verbs"),
        "accelerators": resolver.num_accelerators(),
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


def random_step(rng: random.Random) -> tuple[tuple[Any, ...], str | None, dict[str, Any]]:
    """A step, its visible GPUs and arguments that TensorFlow's resolver handles.

    Names are in alphabetical order, devices counted from 0, one GPU at least for each task.
    """
    counts = [rng.randint(1, 4) for _ in range(rng.randint(1, 12))]
    style = rng.choice(["range", "names", "prefixes"])
    last = len(counts) - 1
    if style == "range":
        nodes = f"n[{100:04d}-{100 + last:04d}]"
    elif style == "names":
        nodes = ",".join(f"node{number:02d}" for number in range(last + 1))
    else:
        nodes = "a" if last == 0 else f"a,b[01-{last:02d}]"
    tasks, total, most = ",".join(map(str, counts)), sum(counts), max(counts)
    if len(set(counts)) == 1 and last > 0:
        tasks = f"{most}(x{len(counts)})"

    arguments: dict[str, Any] = {}
    if rng.random() < 0.4 and total >= 2:
        ps = rng.randint(1, total - 1)
        arguments["jobs"] = {"worker": total - ps, "ps": ps}
        if total - ps >= 2 and rng.random() < 0.5:
            arguments["jobs"] = {"worker": total - ps - 1, "ps": ps, "chief": 1}
    if rng.random() < 0.4:
        arguments["port_base"] = rng.randint(1024, 60000)
    if rng.random() < 0.3:
        arguments["rpc_layer"] = rng.choice(["grpc", "grpc+loas"])
    if rng.random() < 0.3:
        arguments["auto_set_gpu"] = False
    if len(set(counts)) == 1 and rng.random() < 0.3:
        arguments["tasks_per_node"] = most
    visible: int | None = most * rng.randint(1, 3) + rng.randint(0, 1)
    if rng.random() < 0.3:
        arguments["gpus_per_node"] = visible
        visible = rng.choice([None, visible])
    if rng.random() < 0.3:
        arguments["gpus_per_task"] = 1
    gpus = None if visible is None else ",".join(map(str, range(visible)))
    return (rng.randrange(total), nodes, tasks, total), gpus, arguments


@pytest.mark.parametrize("seed", range(200))
def test_same_as_tensorflow_on_a_random_step(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    task, gpus, arguments = random_step(random.Random(seed))
    set_step(monkeypatch, *task, gpus=gpus)
    expected = outcome(TensorFlowsResolver(**arguments))
    set_step(monkeypatch, *task, gpus=gpus)
    assert outcome(SlurmClusterResolver(**arguments)) == expected, (task, gpus, arguments)


@pytest.mark.parametrize(
    "arguments",
    [{"jobs": {"worker": 5}}, {"tasks_per_node": 3}, {"gpus_per_node": 2, "gpus_per_task": 2}],
)
def test_what_tensorflow_refuses_is_refused(
    monkeypatch: pytest.MonkeyPatch, arguments: Any
) -> None:
    set_step(monkeypatch, 0, "n[1-2]", "2(x2)", 4, gpus="0,1")
    for resolver, error in (
        (TensorFlowsResolver, RuntimeError),
        (SlurmClusterResolver, ClusterError),
    ):
        with pytest.raises(error):
            resolver(**arguments)


class TestDefectsOfTensorFlowsResolver:
    """What TensorFlow 2.21's class does wrong, and that ours does it right."""

    def test_without_nvidia_smi_it_raises_file_not_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_step(monkeypatch, 1, "n[1-2]", "1(x2)", 2)
        with pytest.raises(FileNotFoundError):
            TensorFlowsResolver()
        resolver = SlurmClusterResolver()
        assert resolver.cluster_spec().as_dict() == {"worker": ["n1:8888", "n2:8888"]}
        assert resolver.num_accelerators() == {"GPU": 0}
        assert "CUDA_VISIBLE_DEVICES" not in os.environ

    @pytest.mark.parametrize("arguments", [{"gpus_per_node": 0}, {"gpus_per_task": 0}])
    def test_zero_gpus_on_purpose_raise_value_error(
        self, monkeypatch: pytest.MonkeyPatch, arguments: Any
    ) -> None:
        set_step(monkeypatch, 1, "n1", "2", 2, gpus="0,1")
        with pytest.raises(ValueError, match="must not be zero"):
            TensorFlowsResolver(**arguments).cluster_spec()
        resolver = SlurmClusterResolver(**arguments)
        assert resolver.cluster_spec().as_dict() == {"worker": ["n1:8888", "n1:8889"]}
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
        assert resolver.num_accelerators() == {"GPU": 0}

    def test_empty_cuda_visible_devices_and_several_tasks_raise_value_error(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_step(monkeypatch, 1, "n1", "2", 2, gpus="")
        with pytest.raises(ValueError, match="must not be zero"):
            TensorFlowsResolver().cluster_spec()
        assert outcome(SlurmClusterResolver())["accelerators"] == {"GPU": 0}
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""

    @pytest.mark.parametrize("gpus", ["", "-1", "NoDevFiles"])
    def test_no_visible_gpu_is_counted_as_one(
        self, monkeypatch: pytest.MonkeyPatch, gpus: str
    ) -> None:
        set_step(monkeypatch, 0, "n[1-2]", "1(x2)", 2, gpus=gpus)
        theirs = TensorFlowsResolver()
        theirs.cluster_spec()
        assert theirs.num_accelerators() == {"GPU": 1}
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
        set_step(monkeypatch, 0, "n[1-2]", "1(x2)", 2, gpus=gpus)
        assert outcome(SlurmClusterResolver())["accelerators"] == {"GPU": 0}
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""

    @pytest.mark.parametrize("gpu", ["0", "1"])
    def test_one_gpu_bound_per_task_by_slurm_raises_value_error(
        self, monkeypatch: pytest.MonkeyPatch, gpu: str
    ) -> None:
        set_step(monkeypatch, int(gpu), "n1", "2", 2, gpus=gpu, SLURM_GPUS_ON_NODE="2")
        with pytest.raises(ValueError, match="must not be zero"):
            TensorFlowsResolver().cluster_spec()
        assert outcome(SlurmClusterResolver())["accelerators"] == {"GPU": 1}
        assert os.environ["CUDA_VISIBLE_DEVICES"] == gpu

    def test_two_gpus_bound_per_task_by_slurm_are_divided_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_step(monkeypatch, 1, "n1", "2", 2, gpus="2,3", SLURM_GPUS_ON_NODE="4")
        assert outcome(TensorFlowsResolver())["CUDA_VISIBLE_DEVICES"] == "1"
        set_step(monkeypatch, 1, "n1", "2", 2, gpus="2,3", SLURM_GPUS_ON_NODE="4")
        assert outcome(SlurmClusterResolver())["CUDA_VISIBLE_DEVICES"] == "2,3"

    def test_devices_are_counted_from_zero_whichever_slurm_gave(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_step(monkeypatch, 1, "n1", "2", 2, gpus="4,6")
        assert outcome(TensorFlowsResolver())["CUDA_VISIBLE_DEVICES"] == "1"
        set_step(monkeypatch, 1, "n1", "2", 2, gpus="4,6")
        assert outcome(SlurmClusterResolver())["CUDA_VISIBLE_DEVICES"] == "6"

    @pytest.mark.parametrize(
        ("nodes", "expected"),
        [
            ("c-0-[8-10]", ["c-0-8:8888", "c-0-9:8888", "c-0-10:8888"]),
            ("z1,a[2,1]", ["z1:8888", "a2:8888", "a1:8888"]),
        ],
    )
    def test_hosts_are_sorted_as_text(
        self, monkeypatch: pytest.MonkeyPatch, nodes: str, expected: list[str]
    ) -> None:
        set_step(monkeypatch, 0, nodes, "1(x3)", 3, gpus="0")
        assert TensorFlowsResolver().cluster_spec().as_dict() == {"worker": sorted(expected)}
        assert SlurmClusterResolver().cluster_spec().as_dict() == {"worker": expected}

    def test_several_bracket_groups_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        set_step(monkeypatch, 0, "r[0-1]n[0-1]", "1(x4)", 4, gpus="0")
        with pytest.raises(ValueError, match="Invalid hostlist format"):
            TensorFlowsResolver()
        tasks = [f"r{rack}n{node}:8888" for rack in (0, 1) for node in (0, 1)]
        assert SlurmClusterResolver().cluster_spec().as_dict() == {"worker": tasks}

    def test_ranks_dealt_out_in_turn_get_the_addresses_of_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = {"SLURM_DISTRIBUTION": "cyclic", "SLURM_NODEID": "1", "SLURM_LOCALID": "0"}
        set_step(monkeypatch, 1, "n[1-2]", "2(x2)", 4, gpus="0,1", **place)
        assert TensorFlowsResolver().master("worker", 1) == "grpc://n1:8889"
        set_step(monkeypatch, 1, "n[1-2]", "2(x2)", 4, gpus="0,1", **place)
        assert SlurmClusterResolver().master() == "grpc://n2:8888"

    def test_a_node_without_its_number_of_tasks_is_dropped(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_step(monkeypatch, 0, "n[1-3]", "1(x2)", 2, gpus="0")
        assert TensorFlowsResolver().cluster_spec().num_tasks("worker") == 2
        with pytest.raises(ClusterError, match="for 2 nodes, but there are 3 nodes"):
            SlurmClusterResolver()
