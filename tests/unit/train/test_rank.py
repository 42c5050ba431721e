"""One rank from its cluster to its report, in a process of its own."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from builders import SCRIPTS, local_spec, run_python
from generator import DATA_SHA256, prepared
from tfscaling.launch import link, rank_files
from tfscaling.launch.launchers import ReservedPorts
from tfscaling.launch.rank_messages import RankMessageServer
from tfscaling.record import checks, clock, events
from tfscaling.record.phases import EVENTS
from tfscaling.record.rank_report import RankReport, ServerReport
from tfscaling.study import run_spec
from tfscaling.train.all_reduce_loop import COMPUTE_STEPS, COMPUTE_STEPS_MIN

TRAIN_EXAMPLES, TEST_EXAMPLES = 70, 30
RUN = """
import json, os, pathlib, sys
from tfscaling.cluster import resolver as cluster; from tfscaling.train import rank
from tfscaling.launch.rank_process import RankContext
from tfscaling.record.events import EventLog
from tfscaling.study import run_spec
import msgspec
spec, folder = run_spec.read_spec(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2])
own = cluster.resolve(os.environ, gpus=None)
log = EventLog(folder / f"rank-{own.rank}.events.jsonl", own.rank)
report = rank.train_as_rank(RankContext(own, folder, log, 1.0, None), spec, folder / "data.npz")
policy = __import__("keras").mixed_precision.dtype_policy().name
loaded = [name for name in ("matplotlib", "pandas") if name in sys.modules]
import matplotlib, pandas
content = {**msgspec.to_builtins(report), "policy": policy, "loaded": loaded}
content["onednn"] = os.environ.get("TF_ENABLE_ONEDNN_OPTS")
(folder / "report.json").write_text(json.dumps(content))
"""
MODEL = """
def model():
    import keras

    made = keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Reshape((28, 28, 1)),
            keras.layers.Conv2D(4, 3, strides=4, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, dtype="float32"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile("adamw", loss, metrics=["accuracy", "sparse_categorical_crossentropy"])
    return made
"""


#: A rank without TensorFlow whose host's wall clock is set between its events.
STEPPED = """
import time
started_s = time.monotonic()
import json, pathlib, sys
real = time.time
def step(seconds):
    time.time = lambda: real() + seconds
if sys.argv[3] == "before":
    step(-120)
from tfscaling.launch import rank_process
from tfscaling.study import run_spec
from tfscaling.record.rank_report import HostFacts, RankClock, ServerReport
spec, folder = run_spec.read_spec(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2])
def work(context):
    for name in ("imported", "rendezvous", "data", "built", "first_step", "trained"):
        step({"data": 120, "trained": -70}.get(name, 0))
        context.events.add(name)
    return ServerReport(
        rank=0, job="worker", host="h", devices=(), cpus=1, cluster_hash="c", clock=RankClock(),
        tensorflow_version="2", host_facts=HostFacts(machine=None, packages={}),
    )
rank_process.run_as_rank(spec, folder, started_s, work)
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with 16-bit arithmetic that cuts its dataset; a user has the model."""
    folder = tmp_path_factory.mktemp("rank")
    (folder / "mine.py").write_text(MODEL)
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 100), ("test", 50)):
        arrays[f"x_{part}"] = random.integers(0, 256, (count, 28, 28), np.uint8)
        arrays[f"y_{part}"] = random.integers(0, 10, count, np.uint8)
    np.savez(folder / "data.npz", **arrays, sha256=np.array(DATA_SHA256))
    spec = local_spec(
        per_replica_batch_size=16,
        train_examples_max=TRAIN_EXAMPLES,
        test_examples_max=TEST_EXAMPLES,
        precision="mixed_bfloat16",
    )
    own = {"optimizer": "model", "learning_rate": None, "momentum": None}
    spec = msgspec.structs.replace(
        spec,
        point=msgspec.structs.replace(spec.point, model="mine:model"),
        recipe=msgspec.structs.replace(spec.recipe, loss="model", **own),
    )
    (folder / "spec.json").write_bytes(msgspec.json.encode(spec))
    words = [str(folder / "spec.json"), str(folder)]
    environment = {"CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": f"{SCRIPTS}:{folder}"}
    with ReservedPorts(1) as ports:
        cluster = {"worker": [f"127.0.0.1:{ports.numbers[0]}"]}
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
        done = run_python(RUN, *words, TF_CONFIG=config, **environment)
    assert done.returncode == 0, done.stderr
    (folder / "words").write_text(done.stdout)
    return folder


def report_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_text())


def test_the_report_says_what_the_rank_got(finished: Path) -> None:
    report = report_of(finished)
    expected = {
        "job": "worker",
        "cluster_source": "TF_CONFIG",
        "devices": ["CPU:0", "CPU:1"],
        "intra_op_threads": min(2, len(os.sched_getaffinity(0))),
        "replicas": 2,
        "worker_devices": None,
        "gpus_visible": "",
        "gpu_names": [],
        "data_sha256": DATA_SHA256,
        "per_replica_batch_size": 16,
        "global_batch_size": 32,
        "examples_per_step": 32,
        "model_parameters": 2_010,
        "train_examples": TRAIN_EXAMPLES,
        "examples_trained": 2 * TRAIN_EXAMPLES,
        "test_examples": TEST_EXAMPLES,
        "policy": "mixed_bfloat16",
    }
    assert {key: report[key] for key in expected} == expected
    assert report["warnings"] == report["loaded"] == []
    begin = "optimizer AdamW, loss SparseCategoricalCrossentropy, metrics accuracy and"
    assert report["trained_by"].startswith(begin)
    for epoch in report["epochs"]:
        metrics = {"accuracy", "sparse_categorical_crossentropy"}
        assert set(epoch["metrics"]) == metrics
        assert epoch["metrics"]["accuracy"] == epoch["accuracy"]
    assert set(report["epochs"][-1]["test_metrics"]) == metrics
    # a busy machine's steps may be too long for the limit
    assert len(report["compute_steps"]) in {0, *range(COMPUTE_STEPS_MIN, COMPUTE_STEPS + 1)}
    assert len(report["cluster_hash"]) == 16
    assert [row[:3] for row in report["steps"]] == [
        [epoch, step, 1] for epoch in (1, 2) for step in (0, 1, 2)
    ]


def test_the_report_passes_all_checks(finished: Path) -> None:
    names = {"train_examples": TRAIN_EXAMPLES, "test_examples": TEST_EXAMPLES}
    data = msgspec.structs.replace(prepared("mnist"), **names)
    spec = run_spec.read_spec(finished / "spec.json")
    report = report_of(finished)
    del report["policy"]
    reports = [msgspec.convert(report, RankReport)]
    assert checks.find_problems(spec, data, reports) == {}
    others = [
        msgspec.structs.replace(spec, replicas=7),
        msgspec.structs.replace(spec, jobs={"worker": 2}),
    ]
    assert all(checks.find_problems(other, data, reports) for other in others)
    threads = reports[0].intra_op_threads + 1
    assert checks.find_problems(
        spec, data, [msgspec.structs.replace(reports[0], intra_op_threads=threads)]
    )


@pytest.mark.skipif(platform.machine() != "x86_64", reason="of x86 processors")
def test_a_rank_computes_with_onednn_on_every_x86_processor(finished: Path) -> None:
    assert report_of(finished)["onednn"] == "1"


@pytest.mark.parametrize("when", ["during", "before"])
def test_a_wall_clock_that_is_set_changes_no_time_of_a_rank(tmp_path: Path, when: str) -> None:
    spec = local_spec()
    (tmp_path / "spec.json").write_bytes(msgspec.json.encode(spec))
    config = '{"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "worker", "index": 0}}'
    before_s = clock.now()
    messages = RankMessageServer(tmp_path)
    with messages.serve("127.0.0.1", 1) as address:
        words = [str(tmp_path / "spec.json"), str(tmp_path), when]
        environment = {"TF_CONFIG": config, link.VARIABLE: address}
        done = run_python(STEPPED, *words, CUDA_VISIBLE_DEVICES="-1", **environment)
        assert done.returncode == 0, done.stderr
        messages.wait_for_files([0], 60.0)
    passed = events.read_events_by_rank(tmp_path)[0]
    assert [e.name for e in passed] == [*EVENTS[:7], "end"]
    moments = [before_s, *(e.time_s for e in passed), clock.now()]
    assert moments == sorted(moments)
    (report,) = rank_files.read_reports(tmp_path)
    assert isinstance(report, ServerReport)
    assert isinstance(report.clock.uncertainty_s, float)
    off_s, uncertainty_s = -120 if when == "before" else 0, report.clock.uncertainty_s
    assert report.clock.offset_s == pytest.approx(-off_s, abs=uncertainty_s + 0.01)
    # a rank may end before its first heartbeat
    assert all(beat.cpu_s > 0 for beat in messages.beats.values())
