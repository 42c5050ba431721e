"""Exactly the devices asked for, or an error that says what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import local_spec, run_python
from msgspec.structs import replace
from tfscaling.cluster.slurm_environment import gpu_variables
from tfscaling.study import run_spec
from tfscaling.training import devices

# all in one process: TensorFlow starts slowly, and nothing is fixed before its first operation
CONFIGURE = """
import json
import tensorflow as tf
from tfscaling.cluster.slurm_environment import gpu_variables
from tfscaling.training import devices
try:
    devices.configure(2, "physical", 1)
except devices.DeviceError as error:
    print(json.dumps(str(error)))
print(json.dumps(devices.configure(0, "physical", 3)))
print(json.dumps(devices.configure(3, "logical", 3)))
visible = [[d.name for d in tf.config.list_logical_devices(kind)] for kind in ("CPU", "GPU")]
print(json.dumps(visible))
print(tf.config.threading.get_intra_op_parallelism_threads())
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
print(json.dumps([devices.in_use(strategy), devices.gpu_names(), devices.of_workers()]))
class Told:
    class extended:
        worker_devices = ("/job:worker/task:0/device:CPU:2", "/job:worker/task:0/device:CPU:7")
print(json.dumps(devices.in_use(Told)))
"""


def test_devices_of_a_machine_without_gpus() -> None:
    done = run_python(CONFIGURE, CUDA_VISIBLE_DEVICES="-1", SLURM_STEP_GPUS="0,1")
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, done.stdout.splitlines()[-7:])
    error, cpu, logical, visible, threads, used, told = lines
    assert error.startswith("GPUs requested for this task: 2; GPUs that TensorFlow sees: 0; ")
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
    devices.hide_gpus(environ)
    assert environ == {"CUDA_VISIBLE_DEVICES": "", "OTHER": "1"}


def test_message_tells_what_was_asked_seen_and_exported() -> None:
    message = devices.missing_gpus(
        4, 1, gpu_variables({"CUDA_VISIBLE_DEVICES": "0", "SLURM_GPUS_ON_NODE": "1"})
    )
    assert message == (
        "GPUs requested for this task: 4; GPUs that TensorFlow sees: 1; CUDA_VISIBLE_DEVICES=0, "
        "SLURM_STEP_GPUS=(not set), SLURM_JOB_GPUS=(not set), SLURM_GPUS_ON_NODE=1."
    )


def test_without_any_gpu_the_libraries_are_named_first_and_logical_devices_last() -> None:
    message = devices.missing_gpus(2, 0, {})
    places = [message.index(way) for way in ("make setup CUDA=1", "driver", "devices: logical")]
    assert places == sorted(places)


PREPARE = """
import json, pathlib, sys
from types import SimpleNamespace
from tfscaling.records import events
from tfscaling.study import run_spec
from tfscaling.training import devices, rank
spec = run_spec.read(pathlib.Path(sys.argv[1]), run_spec.RunSpec)
log = pathlib.Path(sys.argv[2])
told = events.EventLog(log, 0)
context = SimpleNamespace(cluster=SimpleNamespace(job=sys.argv[3]), events=told)
rank.load_tensorflow()
told.add("loaded")
try:
    rank.prepare(context, spec)
except devices.DeviceError:
    told.add("missing")
print(json.dumps([event["event"] for event in events.read(log)]))
"""


@pytest.mark.parametrize(("job", "told"), [("worker", "missing"), ("ps", "imported")])
def test_a_rank_has_imported_only_with_its_gpus(job: str, told: str, tmp_path: Path) -> None:
    """Of a run on several hosts it is what tells that the GPUs of one are there."""
    spec = local_spec()
    spec = replace(spec, measured=replace(spec.measured, devices="physical"))
    (tmp_path / "spec.json").write_text(run_spec.encode(spec))
    words = [str(tmp_path / "spec.json"), str(tmp_path / "events"), job]
    done = run_python(PREPARE, *words, CUDA_VISIBLE_DEVICES="-1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == ["loaded", told]
