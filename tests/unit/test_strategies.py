"""Distribution strategies: their geometry, and the replicas that TensorFlow makes of them."""

from __future__ import annotations

import json

import pytest
from builders import run_python
from tfscaling.geometry import Geometry
from tfscaling.strategies import STRATEGIES


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
    assert STRATEGIES["multi_worker_mirrored"].replicas(geometry) == replicas


REFUSALS = [
    ("single", Geometry(1, 1, 0), None),
    ("single", Geometry(1, 1, 1), None),
    ("single", Geometry(1, 1, 2), "one device, not 2"),
    ("single", Geometry(2, 1, 0), "one task, not 2"),
    ("mirrored", Geometry(1, 1, 4), None),
    ("mirrored", Geometry(1, 2, 4), "one task, not 2"),
    ("mirrored", Geometry(3, 1, 1), "one task, not 3"),
    ("multi_worker_mirrored", Geometry(8, 4, 4), None),
]


@pytest.mark.parametrize(("name", "geometry", "reason"), REFUSALS)
def test_impossible_geometry_is_refused_with_the_reason(
    name: str, geometry: Geometry, reason: str | None
) -> None:
    refusal = STRATEGIES[name].refusal(geometry)
    assert (refusal is None) == (reason is None)
    assert (reason or "") in (refusal or "")


def test_names_of_strategies_are_known_without_importing_tensorflow() -> None:
    code = (
        "import sys; from tfscaling.strategies import STRATEGIES; "
        "print('tensorflow' in sys.modules, sorted(STRATEGIES))"
    )
    names = ["mirrored", "multi_worker_mirrored", "single"]
    assert run_python(code).stdout == f"False {names}\n"


BUILD = """
import json, sys
from tfscaling import devices
from tfscaling.strategies import STRATEGIES
name, count = sys.argv[1], int(sys.argv[2])
names = devices.configure(count, "logical", 1)
strategy = STRATEGIES[name].build(names, {"communication": "ring"})
found = [device.split("/")[-1] for device in strategy.extended.worker_devices]
options = getattr(strategy.extended, "_communication_options", None)
print(json.dumps([
    type(strategy).__name__, strategy.num_replicas_in_sync, found,
    options.implementation.name if options else None,
]))
"""


@pytest.mark.parametrize(
    ("name", "devices", "expected"),
    [
        ("single", 1, ["OneDeviceStrategy", 1, ["device:CPU:0"], None]),
        ("mirrored", 3, ["MirroredStrategy", 3, [f"device:CPU:{n}" for n in range(3)], None]),
        (
            "multi_worker_mirrored",
            2,
            ["CollectiveAllReduceStrategy", 2, ["device:CPU:0", "device:CPU:1"], "RING"],
        ),
    ],
)
def test_tensorflow_makes_one_replica_for_each_device(
    name: str, devices: int, expected: list[object]
) -> None:
    done = run_python(BUILD, name, str(devices), CUDA_VISIBLE_DEVICES="-1", TF_CONFIG="")
    assert done.returncode == 0, done.stderr
    kind, *others = json.loads(done.stdout.splitlines()[-1])
    if name == "mirrored":
        others[2] = None  # it has options of another kind
    assert expected[0] in (kind, kind.replace("MultiWorkerMirroredStrategy", str(expected[0])))
    assert others == expected[1:]
