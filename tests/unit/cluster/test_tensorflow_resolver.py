"""The resolver by itself: the document's examples, its interface, its extension points, its use."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

import pytest
import tensorflow as tf
from tfscaling.cluster.task_layout import ClusterError
from tfscaling.cluster.tensorflow_resolver import SlurmClusterResolver


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the Slurm job in which the tests may run, nor this machine's GPUs."""
    for name in list(os.environ):
        if name.startswith("SLURM") or name == "TF_CONFIG":
            monkeypatch.delenv(name)
    # Set first, as the resolver changes it: this restores it after the test.
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


def set_step(monkeypatch: pytest.MonkeyPatch, *task: Any, **other: str) -> None:
    for name, value in (step(*task) | other).items():
        monkeypatch.setenv(name, value)


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
    set_step(monkeypatch, rank, "t02n[13,41]", "2(x2)", 4, CUDA_VISIBLE_DEVICES="0,1,2,3")
    resolver = SlurmClusterResolver()
    assert str(resolver.cluster_spec().as_cluster_def()) == cluster_text(("worker", BASIC))
    assert resolver.get_task_info() == ("worker", rank)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == gpus
    assert resolver.num_accelerators() == {"GPU": 2}


@pytest.mark.parametrize("rank", range(4))
def test_advanced_example_of_the_document(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    """One parameter server and three workers, port 1337, no assignment of GPUs."""
    set_step(monkeypatch, rank, "t02n[13,41]", "2(x2)", 4, CUDA_VISIBLE_DEVICES="0,1,2,3")
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
    set_step(monkeypatch, 1, "n1", "2", 2, CUDA_VISIBLE_DEVICES="0,1,2,3", SLURM_GPUS_ON_NODE="4")
    resolver = SlurmClusterResolver()
    for again in (resolver, resolver, SlurmClusterResolver()):
        again.cluster_spec()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_a_second_call_knows_what_the_first_has_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although fewer GPUs than the node's under this binding are not one task's own."""
    shown = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_STEP_GPUS": "0,1,2,3"}
    binding = {"SLURM_GPU_BIND": "closest", "SLURM_GPUS_ON_NODE": "4"}
    set_step(monkeypatch, 1, "n1", "2", 2, **shown, **binding)
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
