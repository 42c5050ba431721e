"""Distribution strategies: their geometry, and the replicas that TensorFlow makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from builders import run_python
from tfscaling.study.geometry import Geometry
from tfscaling.training import strategies
from tfscaling.training.strategies import STRATEGIES

SERVERS = 2


@pytest.mark.parametrize(
    ("geometry", "replicas"),
    [
        (Geometry(1, 1, 0), 1),
        (Geometry(1, 1, 4), 4),
        (Geometry(3, 1, 4), 12),
        (Geometry(3, 2, 4), 12),
        (Geometry(3, 2, 0), 6),
    ],
)
def test_each_device_of_each_task_is_a_replica(geometry: Geometry, replicas: int) -> None:
    assert STRATEGIES["multi_worker_mirrored"].replicas(geometry, SERVERS) == replicas


@pytest.mark.parametrize("name", ["parameter_server", "synchronous_parameter_server"])
def test_only_workers_of_parameter_servers_are_replicas(name: str) -> None:
    geometry = Geometry(3, 2, 2)
    assert STRATEGIES[name].jobs(geometry, SERVERS) == {"chief": 1, "ps": 2, "worker": 3}
    assert STRATEGIES[name].replicas(geometry, SERVERS) == 3


def test_only_one_of_the_coordinated_strategies_waits_for_all_workers() -> None:
    coordinated = {name: s.synchronous for name, s in STRATEGIES.items() if s.coordinated}
    assert coordinated == {"parameter_server": False, "synchronous_parameter_server": True}


REFUSALS = [
    ("single", Geometry(1, 1, 0), None),
    ("single", Geometry(1, 1, 1), None),
    ("single", Geometry(1, 1, 2), "one device, not 2"),
    ("single", Geometry(2, 1, 0), "one task, not 2"),
    ("mirrored", Geometry(1, 1, 4), None),
    ("mirrored", Geometry(1, 2, 4), "one task, not 2"),
    ("mirrored", Geometry(3, 1, 1), "one task, not 3"),
    ("multi_worker_mirrored", Geometry(8, 4, 4), None),
    ("mpi_all_reduce", Geometry(8, 4, 4), None),
    ("mpi_all_reduce", Geometry(2, 1, 2), "one device, not 2"),
    # a coordinator, two parameter servers and a worker
    ("parameter_server", Geometry(4, 1, 0), None),
    ("parameter_server", Geometry(3, 1, 0), "and a worker, not 3"),
    ("synchronous_parameter_server", Geometry(2, "2+1", 0), "and a worker, not 3"),
    ("synchronous_parameter_server", Geometry(4, 1, 2), "one device, not 2"),
]


@pytest.mark.parametrize(("name", "geometry", "reason"), REFUSALS)
def test_impossible_geometry_is_refused_with_the_reason(
    name: str, geometry: Geometry, reason: str | None
) -> None:
    refusal = STRATEGIES[name].refusal(geometry, SERVERS)
    assert (refusal is None) == (reason is None)
    assert (reason or "") in (refusal or "")


def test_names_of_strategies_are_known_without_importing_tensorflow() -> None:
    code = (
        "import sys; from tfscaling.training.strategies import STRATEGIES; "
        "print('tensorflow' in sys.modules, sorted(STRATEGIES))"
    )
    names = [
        "mirrored",
        "mpi_all_reduce",
        "multi_worker_mirrored",
        "own",
        "parameter_server",
        "single",
        "synchronous_parameter_server",
    ]
    assert run_python(code).stdout == f"False {names}\n"


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ("single", ["OneDeviceStrategy", 1, ["device:CPU:0"], None]),
        ("mirrored", ["MirroredStrategy", 2, ["device:CPU:0", "device:CPU:1"], None]),
        (
            "one_worker_with_two_devices",
            ["CollectiveAllReduceStrategy", 2, ["device:CPU:0", "device:CPU:1"], "RING"],
        ),
        ("two_workers", ["CollectiveAllReduceStrategy", 2, ["device:CPU:0"], "RING"]),
    ],
)
def test_tensorflow_makes_one_replica_for_each_device_of_each_task(
    trainings: dict[str, list[dict[str, Any]]], training: str, expected: list[object]
) -> None:
    for rank in trainings[training]:
        keys = ("strategy", "replicas", "devices", "communication")
        assert [rank[key] for key in keys] == expected


def test_tensorflows_own_rule_for_devices_is_back_after_ours_was_used() -> None:
    from tensorflow.python.distribute import collective_all_reduce_strategy as theirs

    extended = theirs.CollectiveAllReduceExtended
    before = extended._initialize_local_devices
    with strategies._local_devices(["CPU:0", "CPU:1"]):
        assert extended._initialize_local_devices is not before
    assert extended._initialize_local_devices is before
    with pytest.raises(RuntimeError, match="no"), strategies._local_devices(["CPU:0", "CPU:1"]):
        raise RuntimeError("no")
    assert extended._initialize_local_devices is before


@pytest.mark.parametrize("devices", [["CPU:0"], ["GPU:0", "GPU:1"]])
def test_tensorflows_own_rule_is_kept_where_it_is_right(devices: list[str]) -> None:
    from tensorflow.python.distribute import collective_all_reduce_strategy as theirs

    before = theirs.CollectiveAllReduceExtended._initialize_local_devices
    with strategies._local_devices(devices):
        assert theirs.CollectiveAllReduceExtended._initialize_local_devices is before
