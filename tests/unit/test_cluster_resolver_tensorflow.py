"""Our resolver beside TensorFlow's: the same where that is right, right where that fails."""

from __future__ import annotations

import os
import random
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


def set_step(
    monkeypatch: pytest.MonkeyPatch,
    rank: int,
    nodes: str,
    tasks: str,
    total: int,
    gpus: str | None = None,
    **other: str,
) -> None:
    monkeypatch.setenv("SLURM_PROCID", str(rank))
    monkeypatch.setenv("SLURM_STEP_NODELIST", nodes)
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", tasks)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", str(total))
    for name, value in other.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    if gpus is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)


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


def random_step(rng: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """A step and arguments that TensorFlow's resolver handles: names in alphabetical order,
    devices counted from 0, at least one GPU for each task."""
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
    step = {"rank": rng.randrange(total), "nodes": nodes, "tasks": tasks, "total": total}
    return step | {"gpus": gpus}, arguments


@pytest.mark.parametrize("seed", range(200))
def test_same_as_tensorflow_on_a_random_step(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    step, arguments = random_step(random.Random(seed))
    set_step(monkeypatch, **step)
    expected = outcome(TensorFlowsResolver(**arguments))
    set_step(monkeypatch, **step)
    assert outcome(SlurmClusterResolver(**arguments)) == expected, (step, arguments)


@pytest.mark.parametrize(
    "arguments",
    [{"jobs": {"worker": 5}}, {"tasks_per_node": 3}, {"gpus_per_node": 2, "gpus_per_task": 2}],
)
def test_what_tensorflow_refuses_is_refused(
    monkeypatch: pytest.MonkeyPatch, arguments: Any
) -> None:
    set_step(monkeypatch, 0, "n[1-2]", "2(x2)", 4, "0,1")
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
        set_step(monkeypatch, 1, "n1", "2", 2, "0,1")
        with pytest.raises(ValueError, match="must not be zero"):
            TensorFlowsResolver(**arguments).cluster_spec()
        resolver = SlurmClusterResolver(**arguments)
        assert resolver.cluster_spec().as_dict() == {"worker": ["n1:8888", "n1:8889"]}
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
        assert resolver.num_accelerators() == {"GPU": 0}

    def test_empty_cuda_visible_devices_and_several_tasks_raise_value_error(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_step(monkeypatch, 1, "n1", "2", 2, "")
        with pytest.raises(ValueError, match="must not be zero"):
            TensorFlowsResolver().cluster_spec()
        assert outcome(SlurmClusterResolver())["accelerators"] == {"GPU": 0}
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""

    @pytest.mark.parametrize("gpus", ["", "-1", "NoDevFiles"])
    def test_no_visible_gpu_is_counted_as_one(
        self, monkeypatch: pytest.MonkeyPatch, gpus: str
    ) -> None:
        set_step(monkeypatch, 0, "n[1-2]", "1(x2)", 2, gpus)
        theirs = TensorFlowsResolver()
        theirs.cluster_spec()
        assert theirs.num_accelerators() == {"GPU": 1}
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
        set_step(monkeypatch, 0, "n[1-2]", "1(x2)", 2, gpus)
        assert outcome(SlurmClusterResolver())["accelerators"] == {"GPU": 0}
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""

    @pytest.mark.parametrize("gpu", ["0", "1"])
    def test_one_gpu_bound_per_task_by_slurm_raises_value_error(
        self, monkeypatch: pytest.MonkeyPatch, gpu: str
    ) -> None:
        set_step(monkeypatch, int(gpu), "n1", "2", 2, gpu, GPUS_ON_NODE="2")
        with pytest.raises(ValueError, match="must not be zero"):
            TensorFlowsResolver().cluster_spec()
        assert outcome(SlurmClusterResolver())["accelerators"] == {"GPU": 1}
        assert os.environ["CUDA_VISIBLE_DEVICES"] == gpu

    def test_two_gpus_bound_per_task_by_slurm_are_divided_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_step(monkeypatch, 1, "n1", "2", 2, "2,3", GPUS_ON_NODE="4")
        assert outcome(TensorFlowsResolver())["CUDA_VISIBLE_DEVICES"] == "1"
        set_step(monkeypatch, 1, "n1", "2", 2, "2,3", GPUS_ON_NODE="4")
        assert outcome(SlurmClusterResolver())["CUDA_VISIBLE_DEVICES"] == "2,3"

    def test_devices_are_counted_from_zero_whichever_slurm_gave(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_step(monkeypatch, 1, "n1", "2", 2, "4,6")
        assert outcome(TensorFlowsResolver())["CUDA_VISIBLE_DEVICES"] == "1"
        set_step(monkeypatch, 1, "n1", "2", 2, "4,6")
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
        set_step(monkeypatch, 0, nodes, "1(x3)", 3, "0")
        assert TensorFlowsResolver().cluster_spec().as_dict() == {"worker": sorted(expected)}
        assert SlurmClusterResolver().cluster_spec().as_dict() == {"worker": expected}

    def test_several_bracket_groups_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        set_step(monkeypatch, 0, "r[0-1]n[0-1]", "1(x4)", 4, "0")
        with pytest.raises(ValueError, match="Invalid hostlist format"):
            TensorFlowsResolver()
        tasks = [f"r{rack}n{node}:8888" for rack in (0, 1) for node in (0, 1)]
        assert SlurmClusterResolver().cluster_spec().as_dict() == {"worker": tasks}

    def test_ranks_dealt_out_in_turn_get_the_addresses_of_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = {"DISTRIBUTION": "cyclic", "NODEID": "1", "LOCALID": "0"}
        set_step(monkeypatch, 1, "n[1-2]", "2(x2)", 4, "0,1", **place)
        assert TensorFlowsResolver().master("worker", 1) == "grpc://n1:8889"
        set_step(monkeypatch, 1, "n[1-2]", "2(x2)", 4, "0,1", **place)
        assert SlurmClusterResolver().master() == "grpc://n2:8888"

    def test_a_node_without_its_number_of_tasks_is_dropped(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_step(monkeypatch, 0, "n[1-3]", "1(x2)", 2, "0")
        assert TensorFlowsResolver().cluster_spec().num_tasks("worker") == 2
        with pytest.raises(ClusterError, match="for 2 nodes, but there are 3 nodes"):
            SlurmClusterResolver()
