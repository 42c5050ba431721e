"""Devices of a rank, and the strategies on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import local_spec
from msgspec.structs import replace
from ranks import run_tensorflow
from tfscaling.study import run_spec
from tfscaling.study.geometry import Geometry
from tfscaling.train import strategies
from tfscaling.train.strategies import STRATEGIES

# all in one process: TensorFlow starts slowly, and nothing is fixed before its first operation
CONFIGURE = """
import json
import tensorflow as tf
from tfscaling.cluster.gpu_allocation import gpu_variables
from tfscaling.train import strategies
try:
    strategies.configure_devices(2, "physical", 1)
except strategies.DeviceError as error:
    print(json.dumps(str(error)))
print(json.dumps(strategies.configure_devices(0, "physical", 3)))
print(json.dumps(strategies.configure_devices(3, "logical", 3)))
visible = [[d.name for d in tf.config.list_logical_devices(kind)] for kind in ("CPU", "GPU")]
print(json.dumps(visible))
print(tf.config.threading.get_intra_op_parallelism_threads())
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
devices = strategies.devices_in_use(strategy)
print(json.dumps([devices, strategies.gpu_names(), strategies.worker_devices()]))
class Told:
    class extended:
        worker_devices = ("/job:worker/task:0/device:CPU:2", "/job:worker/task:0/device:CPU:7")
print(json.dumps(strategies.devices_in_use(Told)))
"""


def test_devices_of_a_machine_without_gpus() -> None:
    done = run_tensorflow(CONFIGURE, SLURM_STEP_GPUS="0,1")
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, done.stdout.splitlines()[-7:])
    error, cpu, logical, visible, threads, used, told = lines
    assert "task: 2;" in error and "sees: 0;" in error
    assert "CUDA_VISIBLE_DEVICES=-1" in error
    assert "SLURM_STEP_GPUS=0,1" in error
    assert cpu == ["CPU:0"]
    assert logical == ["CPU:0", "CPU:1", "CPU:2"]
    assert visible == [[f"/device:CPU:{number}" for number in range(3)], []]
    assert threads == 3
    assert used == [["CPU:0", "CPU:1"], [], []]
    assert told == ["CPU:2"], "a device that TensorFlow does not have is not in use"


def test_a_process_that_computes_on_no_gpu_hides_them() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "2,3", "OTHER": "1"}
    strategies.hide_gpus(environ)
    assert environ == {"CUDA_VISIBLE_DEVICES": "", "OTHER": "1"}


def test_without_any_gpu_the_libraries_are_named_first_and_logical_devices_last() -> None:
    message = strategies.describe_wrong_gpus(2, 0, {})
    places = [message.index(way) for way in ("make setup CUDA=1", "driver", "devices: logical")]
    assert places == sorted(places)


PREPARE = """
import json, pathlib, sys
from types import SimpleNamespace
from tfscaling.record import events
from tfscaling.study import run_spec
from tfscaling.train import strategies, rank
spec = run_spec.read_spec(pathlib.Path(sys.argv[1]))
log = pathlib.Path(sys.argv[2])
told = events.EventLog(log, 0)
context = SimpleNamespace(cluster=SimpleNamespace(job=sys.argv[3]), events=told)
rank.load_tensorflow()
told.add(events.EventName.START)
try:
    rank.prepare_devices(context, spec)
except strategies.DeviceError:
    told.add(events.EventName.FAILED)
print(json.dumps([event.name for event in events.read_events(log)]))
"""


@pytest.mark.parametrize(("job", "told"), [("worker", "failed"), ("ps", "imported")])
def test_a_rank_has_imported_only_with_its_gpus(job: str, told: str, tmp_path: Path) -> None:
    """Of a run on several hosts it is what tells that the GPUs of one are there."""
    spec = local_spec()
    spec = replace(spec, measured=replace(spec.measured, devices="physical"))
    (tmp_path / "spec.json").write_text(run_spec.encode_spec(spec))
    words = [str(tmp_path / "spec.json"), str(tmp_path / "events"), job]
    done = run_tensorflow(PREPARE, *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == ["start", told]


SERVERS = 2


@pytest.mark.parametrize("name", ["parameter_server", "synchronous_parameter_server"])
def test_only_workers_of_parameter_servers_are_replicas(name: str) -> None:
    geometry = Geometry(3, 2, 2)
    assert STRATEGIES[name].tasks_by_job(geometry, SERVERS) == {"chief": 1, "ps": 2, "worker": 3}
    assert STRATEGIES[name].count_replicas(geometry, SERVERS) == 3


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
    refusal = STRATEGIES[name].geometry_problem(geometry, SERVERS)
    assert (refusal is None) == (reason is None)
    assert (reason or "") in (refusal or "")


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ("single", ["OneDeviceStrategy", 1, ["device:CPU:0"], None]),
        ("mirrored", ["MirroredStrategy", 2, ["device:CPU:0", "device:CPU:1"], None]),
        ("one_worker_with_two_devices", ["OfDevices", 2, ["device:CPU:0", "device:CPU:1"], "RING"]),
        ("two_workers", ["CollectiveAllReduceStrategy", 2, ["device:CPU:0"], "RING"]),
    ],
)
def test_tensorflow_makes_one_replica_for_each_device_of_each_task(
    trainings: dict[str, list[dict[str, Any]]], training: str, expected: list[object]
) -> None:
    for rank in trainings[training]:
        keys = ("strategy", "replicas", "devices", "communication")
        assert [rank[key] for key in keys] == expected
