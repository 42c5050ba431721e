"""Each check of a run broken once, and none broken; names of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from generator import DATA_SHA256, FACTS, prepared, training_report
from tfscaling.record import checks
from tfscaling.record.checks import is_gpu_model
from tfscaling.record.rank_report import RankReport
from tfscaling.study.config_types import MeasuredKeys, Recipe
from tfscaling.study.geometry import Geometry
from tfscaling.study.run_spec import Point, RunSpec

ASKED: dict[str, Any] = {
    "nodes": 2,
    "tasks_per_node": 1,
    "gpus_per_node": 0,
    "jobs": {"worker": 2},
    "cpus_per_task": 8,
    "replicas": 2,
    "per_replica_batch_size": 64,
    "global_batch_size": 128,
    "data_sha256": DATA_SHA256,
    "train_examples": 384,
    "test_examples": 100,
    "epochs": 2,
    "launcher": "srun",
    "devices": "physical",
    "gpu_type": None,
}
GPU_RUN = {"gpus_per_node": 2, "replicas": 4}
V100, T4 = "Tesla V100-SXM2-16GB", "Tesla T4"
OTHER_KERAS = msgspec.structs.replace(FACTS, packages={**FACTS.packages, "keras": "3.6.0"})
OTHER_CURVE = [
    {"epoch": 1, "loss": 0.5, "accuracy": 0.8, "duration_s": 9.0},
    {"epoch": 2, "loss": 0.2500001, "accuracy": 0.9, "duration_s": 9.0},
]


def report(rank: int = 0, **changes: Any) -> dict[str, Any]:
    """What a rank of the run reports, as in its file."""
    return msgspec.to_builtins(training_report(rank, **changes))


def spec_of(asked: dict[str, Any]) -> RunSpec:
    """The specification of a run of which this is asked."""
    point = {name: asked[name] for name in ("nodes", "tasks_per_node", "gpus_per_node")}
    names = ("replicas", "per_replica_batch_size", "global_batch_size", "jobs")
    geometry = Geometry(**point)
    return RunSpec(
        point=Point(platform="p", model="m", strategy="s", recipe="r", **point),
        repeat=1,
        recipe=Recipe(per_replica_batch_size=64, learning_rate=0.1, epochs=asked["epochs"]),
        measured=MeasuredKeys(
            cpus_per_node=asked["cpus_per_task"] * geometry.tasks_per_node_max,
            **{name: asked[name] for name in ("launcher", "devices", "gpu_type")},
        ),
        dataset="mnist",
        seed=1,
        trainer_version=6,
        **{name: asked[name] for name in names},
    )


def reports_of(contents: Sequence[dict[str, Any]]) -> list[RankReport]:
    return [msgspec.convert(c, RankReport) for c in contents]


def problems(asked: dict[str, Any], contents: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The checks that a run fails of which this is asked and whose ranks report this."""
    names = ("train_examples", "test_examples")
    data = msgspec.structs.replace(
        prepared("mnist", asked["data_sha256"]), **{name: asked[name] for name in names}
    )
    return checks.find_problems(spec_of(asked), data, reports_of(contents))


def unchecked(asked: dict[str, Any], contents: Sequence[dict[str, Any]]) -> list[str]:
    return list(checks.list_unchecked(spec_of(asked), reports_of(contents)))


#: Name of the check → what rank 1 reports otherwise, how the message names rank and value.
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "nodes": ({"host": "node0"}, "node0"),
    "devices": ({"devices": ["GPU:0"]}, "{1: ['GPU:0']}"),
    "cpus": ({"cpus": 2}, "{1: 2}"),
    "replicas": ({"replicas": 1}, "{1: 1}"),
    "jobs": ({"job": "ps"}, "{'worker': 1, 'ps': 1}"),
    "cluster": ({"cluster_hash": "beef"}, "1: 'beef'"),
    "tensorflow_version": ({"tensorflow_version": "2.16.1"}, "1: '2.16.1'"),
    "threads": ({"intra_op_threads": 1}, "{1: 1}"),
    "cluster_source": ({"cluster_source": "TF_CONFIG"}, "1: 'TF_CONFIG'"),
    "packages": ({"host_facts": OTHER_KERAS}, "keras: {0: '3.15.1', 1: '3.6.0'}"),
    "per_replica_batch_size": ({"per_replica_batch_size": 32}, "{1: 32}"),
    "global_batch_size": ({"global_batch_size": 64}, "{1: 64}"),
    "examples_per_step": ({"examples_per_step": 64}, "{0: 128, 1: 64}"),
    "data": ({"data_sha256": "e" * 64}, "{1: 'eee"),
    "train_examples": ({"train_examples": 383}, "{1: 383}"),
    "test_examples": ({"test_examples": 99}, "{1: 99}"),
    "examples_trained": ({"examples_trained": 640}, "{1: 640}"),
    "model": ({"model_parameters": 7}, "1: 7"),
    "weights": ({"weights_sha256": "f" * 64}, "1: 'fff"),
    "test_loss": ({"test_loss": 0.9}, "{0: [0.3], 1: [0.9]}"),
    "learning": ({"epochs": OTHER_CURVE}, "0.2500001"),
    "test_accuracy": ({"test_accuracy": 0.87}, "{0: [0.88], 1: [0.87]}"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_one_rank_that_differs_is_found_and_named(name: str) -> None:
    changes, value = BROKEN[name]
    found = problems(ASKED, [report(0), report(1, **changes)])
    assert list(found) == [name]
    assert value in found[name]


def test_unfinished_epochs_are_found_and_the_rank_named() -> None:
    short = report(1, epochs=report(1)["epochs"][:1], examples_trained=384)
    assert "{1: 1}" in problems(ASKED, [report(0), short])["epochs"]


@pytest.mark.parametrize("ranks", [[0], [], [0, 0], [0, 1, 2]])
def test_missing_doubled_and_surplus_ranks_are_found(ranks: list[int]) -> None:
    assert str(ranks) in problems(ASKED, [report(rank) for rank in ranks])["tasks"]


def test_every_check_was_broken_once() -> None:
    found_below = {"gpus", "gpu_type", "gpu_sharing", "tasks", "epochs", "finite"}
    found_below |= {*checks.PROGRAM_CHECKS}  # in test_program_results.py
    assert {*BROKEN, *found_below} == set(checks.CHECKS)


@pytest.mark.parametrize(
    "key",
    ["per_replica_batch_size", "global_batch_size", "data_sha256", "train_examples",
     "test_examples", "examples_trained", "replicas", "intra_op_threads"],
)  # fmt: skip
def test_what_all_ranks_report_alike_but_was_not_requested_is_found(key: str) -> None:
    """That the ranks agree is not enough."""
    other = [report(rank, **{key: "7" if key == "data_sha256" else 7}) for rank in range(2)]
    assert problems(ASKED, other)


@pytest.mark.parametrize("key", ["replicas", "epochs", "data_sha256", "examples_trained"])
def test_a_report_of_a_training_says_all_of_it(key: str) -> None:
    silent = report(0)
    del silent[key]
    with pytest.raises(msgspec.ValidationError, match=key):
        reports_of([silent])


@pytest.mark.parametrize(("quota", "is_wrong"), [(None, False), (8.0, False), (1.5, True)])
def test_a_limit_of_cpu_time_counts_as_fewer_cpus(quota: float | None, is_wrong: bool) -> None:
    found = problems(ASKED, [report(0), report(1, cpu_quota=quota)])
    assert list(found) == ["cpus"] * is_wrong
    assert not is_wrong or "{1: 1.5}" in found["cpus"]


def test_uneven_tasks_per_node_are_found_with_the_host() -> None:
    asked = {**ASKED, "tasks_per_node": 2, "jobs": {"worker": 4}}
    hosts = ["node0", "node0", "node0", "node1"]
    reports = [report(rank, host=host) for rank, host in enumerate(hosts)]
    assert "{'node0': 3, 'node1': 1}" in problems(asked, reports)["nodes"]


GPUS = ["GPU:0", "GPU:1"]


@pytest.mark.parametrize(
    ("devices", "is_wrong"),
    [(GPUS, False), (GPUS[:1], True), ([*GPUS, "GPU:2"], True), (["CPU:0", "CPU:1"], True)],
)
def test_a_rank_has_exactly_the_gpus_asked_for(devices: list[str], is_wrong: bool) -> None:
    reports = [report(0, replicas=4, devices=GPUS), report(1, replicas=4, devices=devices)]
    found = problems({**ASKED, **GPU_RUN}, reports)
    assert list(found) == ["devices"] * is_wrong
    assert not is_wrong or f"{{1: {devices}}}" in found["devices"]


def on_gpus(
    names: Sequence[list[str | None]], gpu_type: str | None, **facts: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(asked, reports) of a run of two GPUs on each of two nodes, whose drivers name them so."""
    reports = [
        report(
            rank, replicas=4, devices=GPUS, gpu_names=own, gpus_visible="0,1",
            host_facts=msgspec.structs.replace(
                FACTS, gpu_uuids=(f"GPU-{rank}a", f"GPU-{rank}b"), **facts
            ),
        )
        for rank, own in enumerate(names)
    ]  # fmt: skip
    return {**ASKED, **GPU_RUN, "gpu_type": gpu_type}, reports


def test_gpus_of_another_model_than_asked_are_found() -> None:
    asked, reports = on_gpus([[V100, V100], [V100, T4]], "v100")
    wrong = problems(asked, reports)["gpu_type"]
    assert f"{{1: ['{T4}']}}" in wrong and "gpu_type: null" in wrong
    assert problems({**asked, "gpu_type": None}, reports) == {}
    assert problems(*on_gpus([[V100, V100], [V100, V100]], "v100")) == {}


def test_without_names_from_tensorflow_those_of_a_uniform_host_are_compared() -> None:
    asked, reports = on_gpus([[None, None], []], "v100", gpus=[T4, T4])
    assert "{0: ['Tesla T4'], 1: " in problems(asked, reports)["gpu_type"]
    assert unchecked(asked, reports) == []


def test_what_cannot_be_compared_is_told_and_no_violation() -> None:
    asked, reports = on_gpus([[V100, V100], []], "v100", gpus=[V100, T4])
    assert problems(asked, reports) == {}
    (said,) = unchecked(asked, reports)
    assert said.startswith("gpu_type") and "[1]" in said
    asked, reports = on_gpus([[V100], [V100]], "volta")
    (said,) = unchecked(asked, reports)
    assert "volta" in said and V100 in said
    for rank in reports:
        rank["host_facts"]["gpu_uuids"] = []
    assert len(unchecked(asked, reports)) == 2
    assert len(unchecked(asked, reports[:1])) == 1  # one rank shares its GPU with no other
    for gpu_type in (None, "v100"):
        assert unchecked(*on_gpus([[V100], [V100]], gpu_type)) == []


def test_the_model_of_logical_devices_is_not_compared() -> None:
    asked, reports = on_gpus([[], []], "v100")
    for rank in reports:
        rank["devices"] = ["CPU:0", "CPU:1"]
    asked["devices"] = "logical"
    assert (problems(asked, reports), unchecked(asked, reports)) == ({}, [])


@pytest.mark.parametrize(
    ("visible", "shared"),
    [
        (("0,1", "2,3"), None),
        (("0,1", "1,2"), "GPU-b1"),
        (("GPU-a", "GPU-b1"), None),
        (("GPU-b", "1"), "GPU-b1"),
        (("MIG-1", "MIG-2"), None),
        (("MIG-1", "MIG-1"), "MIG-1"),
        ((None, "1"), "GPU-b1"),
    ],
)
def test_ranks_that_share_a_gpu_are_found(
    visible: tuple[str | None, ...], shared: str | None
) -> None:
    """As on one node under --gpu-bind=closest."""
    facts = {**msgspec.to_builtins(FACTS), "gpu_uuids": ["GPU-a0", "GPU-b1", "GPU-c2", "GPU-d3"]}
    asked, reports = on_gpus([[V100], [V100]], "v100")
    for rank, own in zip(reports, visible, strict=True):
        rank |= {"gpus_visible": own, "host_facts": facts}
    found = problems(asked, reports)
    assert list(found) == ["gpu_sharing"] * (shared is not None)
    assert shared is None or f"'{shared}': [0, 1]" in found["gpu_sharing"]


def test_devices_of_workers_are_those_that_the_coordinator_sees() -> None:
    reports = coordinated_reports()
    reports[0]["worker_devices"] = [["CPU:0"], ["GPU:0"]]
    assert "{3: ['GPU:0']}" in problems(PS_ASKED, reports)["devices"]
    reports[0] |= {"worker_devices": [["CPU:0"]], "replicas": 1}
    assert list(problems(PS_ASKED, reports)) == ["devices", "replicas"]


def gpu_run(given: Sequence[int | None], kind: str, **asked: Any) -> dict[str, str]:
    """What a run of four GPUs a node in two tasks fails, if ranks were given this many."""
    shape = {"nodes": 2, "gpus_per_node": 4, "tasks_per_node": 2, "replicas": 8}
    usual = {**shape, "jobs": {"worker": 4}, "devices": kind}
    devices = [f"{'GPU' if kind == 'physical' else 'CPU'}:{number}" for number in range(2)]
    reports = [
        report(
            rank, host=f"node{rank // 2}", cpus=32, replicas=8, devices=devices, gpus_given=number
        )
        for rank, number in enumerate(given)
    ]
    return problems({**ASKED, **usual, **asked}, reports)


@pytest.mark.parametrize("kind", ["physical", "logical"])
@pytest.mark.parametrize(
    ("given", "is_wrong"),
    [
        ([4, 4, 4, 4], False),  # each sees all GPUs of its node
        ([2, 2, 2, 2], False),  # Slurm binds tasks to their own
        ([None] * 4, False),  # none by --gres, or not NVIDIA's
        *(([4, wrong, 4, 4], True) for wrong in (3, 0, None)),
        *(([wrong] * 4, True) for wrong in (8, 0)),
        ([2, 1, 2, 2], True),
    ],
)
def test_every_rank_was_given_the_gpus_asked_for(
    given: list[int | None], is_wrong: bool, kind: str
) -> None:
    found = gpu_run(given, kind)
    assert list(found) == ["gpus"] * is_wrong
    assert not is_wrong or str(dict(enumerate(given))) in found["gpus"]


def test_uneven_tasks_see_the_gpus_of_their_node() -> None:
    asked = {"tasks_per_node": "2+1", "jobs": {"worker": 3}}
    assert gpu_run([4, 4, 4], "logical", **asked) == gpu_run([2, 2, 2], "logical", **asked) == {}
    assert list(gpu_run([4, 4, 2], "logical", **asked)) == ["gpus"]


def test_only_workers_compute_on_gpus() -> None:
    reports = coordinated_reports()
    for rank in reports:
        rank |= {"gpus_given": 2 if rank["job"] == "worker" else 1, "devices": ["CPU:0", "CPU:1"]}
    reports[0]["replicas"] = 4
    asked = {**PS_ASKED, "gpus_per_node": 2, **GPU_RUN, "devices": "logical"}
    assert problems(asked, reports) == {}


def test_processes_on_one_machine_share_host_and_cpus() -> None:
    reports = [report(rank, host="here", cpus=2, intra_op_threads=1) for rank in range(2)]
    assert problems({**ASKED, "launcher": "local"}, reports) == {}
    assert len(problems(ASKED, reports)) == 3


def test_ranks_that_disagree_between_epochs_only_are_found() -> None:
    """The last evaluation agrees, the one after the first epoch does not."""
    reports = []
    for rank, accuracy in enumerate((0.5, 0.6)):
        first, last = report(rank)["epochs"]
        reports.append(report(rank, epochs=[{**first, "test_accuracy": accuracy}, last]))
    found = problems(ASKED, reports)
    assert list(found) == ["test_accuracy"]
    assert "{0: [0.5, 0.88], 1: [0.6, 0.88]}" in found["test_accuracy"]


PS_ASKED = {**ASKED, "nodes": 4, "jobs": {"chief": 1, "ps": 1, "worker": 2}}


def coordinated_reports() -> list[dict[str, Any]]:
    """The coordinator trains; the others only say what they are."""
    reports = [report(0, job="chief")]
    for rank, job in enumerate(("ps", "worker", "worker"), start=1):
        reports.append({**report(rank, job=job), "kind": "server"})
    return reports


def test_a_coordinated_run_without_results_does_not_count() -> None:
    reports = coordinated_reports()
    reports[0]["kind"] = "server"
    assert list(problems(PS_ASKED, reports)) == ["replicas", "epochs"]


@pytest.mark.parametrize(
    ("hosts", "wrong"), [(["a", "a", "b"], []), (["a", "b", "b"], []), (["a", "a", "a"], ["nodes"])]
)
def test_uneven_tasks_may_be_asked_for(hosts: list[str], wrong: list[str]) -> None:
    asked = {**ASKED, "tasks_per_node": "2+1", "jobs": {"worker": 3}, "replicas": 3}
    reports = [report(rank, host=host, replicas=3) for rank, host in enumerate(hosts)]
    assert list(problems(asked, reports)) == wrong


def diverged(rank: int, **changes: Any) -> dict[str, Any]:
    """The report of a rank that ended after the first of two epochs, whose loss was NaN."""
    epochs = [{**report(rank)["epochs"][0], "loss": None}]
    told = {"epochs": epochs, "diverged": "loss is NaN from epoch 1", "examples_trained": 384}
    return report(rank, **{**told, "test_loss": None, "test_accuracy": None, **changes})


def test_a_run_that_diverged_fails_the_check_finite_and_no_other() -> None:
    found = problems(ASKED, [diverged(0), diverged(1)])
    assert list(found) == [checks.FINITE] and "NaN from epoch 1" in found[checks.FINITE]


def test_ranks_of_which_one_diverged_disagree() -> None:
    assert "learning" in problems(ASKED, [report(0), diverged(1)])


@pytest.mark.parametrize("name", ["loss", "test_loss"])
def test_a_loss_that_is_none_is_not_finite_whatever_the_rank_says(name: str) -> None:
    epochs = [{**epoch, name: None} for epoch in report()["epochs"][:1]]
    reports = [diverged(rank, epochs=epochs, diverged="") for rank in (0, 1)]
    found = problems(ASKED, reports)
    assert list(found) == [checks.FINITE] and "epoch 1" in found[checks.FINITE]


L4, L40 = "NVIDIA L4", "NVIDIA L40"
A100_40, A100_80 = "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB"
H100 = "NVIDIA H100 80GB HBM3"
MIG_H100, MIG_A100_80 = "NVIDIA H100 NVL MIG 3g.47gb", "NVIDIA A100-SXM4-80GB MIG 3g.40gb"
MIG_PART = "NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb"
RTX_2080_TI = "NVIDIA GeForce RTX 2080 Ti"
#: Whether a name of a GPU is of the model that was asked for; None: it cannot be compared.
MODELS: dict[bool | None, list[tuple[str, str]]] = {
    True: [
        ("v100", V100), ("V100", "Tesla V100-PCIE-32GB"), ("v100-16gb", V100),
        ("nvidia-tesla-v100", "NVIDIA V100-SXM2-16GB"), ("Tesla V100-SXM2 16GB", V100), ("l4", L4),
        ("l40s", "NVIDIA L40S"), ("a100", A100_40), ("a100-80gb", A100_80),
        ("nvidia_a100-sxm4-80gb", A100_80), ("nvidia-h100-80gb", H100), ("h200", "NVIDIA H200"),
        ("2080ti", RTX_2080_TI), ("rtx_2080_ti", RTX_2080_TI), ("rtx6000", "Quadro RTX 6000"),
        ("rtx_6000_ada", "NVIDIA RTX 6000 Ada Generation"), ("titan v", "NVIDIA TITAN V"),
        ("a100_3g.20gb", "NVIDIA A100-SXM4-40GB MIG 3g.20gb"), ("mi250x", "AMD Instinct MI250X"),
        ("a100_80", "NVIDIA A100 80GB PCIe"), ("v100-32g", "Tesla V100-SXM2-32GB"),
        # slices: NVIDIA's names, Slurm's types by NVML, and what sites call them
        ("h100-47", MIG_H100), ("h100-47gb", MIG_H100), ("h100_3g.47gb", MIG_H100),
        ("nvidia_h100_nvl_3g.46gb", MIG_H100), ("3g.47gb", MIG_H100), ("h100-mig", MIG_H100),
        ("h100-mig-3g.47gb", MIG_H100), ("nvidia_a100_3g.39gb", MIG_A100_80),
        ("nvidia_a100-sxm4-80gb_3g.40gb", MIG_A100_80), ("a100_3g_40gb", MIG_A100_80),
        ("nvidia_h200_1g.16gb", "NVIDIA H200 MIG 1g.18gb"), ("a100_1c.3g.20gb", MIG_PART),
        ("a30_1g.6gb", "NVIDIA A30 MIG 1g.6gb+me"),
    ],
    False: [
        ("v100", T4), ("v100", "Tesla V100S-PCIE-32GB"), ("v100-32gb", V100), ("l4", L40),
        ("l4", "NVIDIA L40S"), ("a10", "NVIDIA A10G"), ("a10", A100_40), ("a100", "NVIDIA A10"),
        ("h200", "NVIDIA GH200 480GB"), ("rtx2080", RTX_2080_TI),
        ("rtx6000", "NVIDIA RTX 6000 Ada Generation"),
        ("a100", "NVIDIA A100-SXM4-40GB MIG 3g.20gb"),
        ("a100_1g.5gb", "NVIDIA A100-SXM4-40GB MIG 3g.20gb"), ("a100_1g.5gb", A100_40),
        ("k80", ""), ("v100-32g", V100), ("v100l", T4), ("a100-sxm4", H100),
        ("rtx_2080_ti", "NVIDIA GeForce RTX 2080"),
        ("h100-96", MIG_H100), ("h100", MIG_H100), ("h100-23", MIG_H100), ("a100-47", MIG_H100),
        ("h100_4g.47gb", MIG_H100), ("h100_3g.23gb", MIG_H100), ("h100_3g.47gb", "NVIDIA H100 NVL"),
        ("a100_3g.40gb", MIG_H100), ("1g.5gb", A100_40), ("1g.5gb", MIG_H100), ("l40", MIG_A100_80),
        ("a100_3g.20gb", MIG_PART), ("a100-80gb", MIG_A100_80), ("a100-mig", MIG_H100),
        ("nvidia_a100_1g.10gb", "NVIDIA A100-SXM4-80GB MIG 1g.20gb"),
    ],
    # no model is named, or a size or form factor that the driver names otherwise
    None: [
        ("a100-sxm4", "A100-SXM-80GB"), ("a100-sxm4-80gb", "A100-SXM-80GB"),
        ("v100l", "Tesla V100-SXM2-32GB"), ("v100-32gb", "Tesla V100"), ("a100_80", "NVIDIA A100"),
        ("a100-nvlink", A100_40), ("mi250", "AMD Instinct MI250X"),
        ("gh200-96gb", "NVIDIA GH200 480GB"), ("volta", V100), ("the fast ones", V100),
        ("nvidia", V100), ("", V100),
        # the GPU's memory, or the slice's
        ("a100-40gb", MIG_A100_80), ("h100-40", "NVIDIA H100 80GB HBM3 MIG 3g.40gb"),
        ("h100-47", "NVIDIA H100 NVL"), ("the fast ones", MIG_H100),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "name", "is_it"),
    [(*pair, is_it) for is_it, pairs in MODELS.items() for pair in pairs],
)
def test_a_model_is_known_by_the_words_of_its_name(
    asked: str, name: str, is_it: bool | None
) -> None:
    assert is_gpu_model(asked, name) is is_it
