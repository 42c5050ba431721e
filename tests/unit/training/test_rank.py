"""One rank from its cluster to its report, in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import SCRIPTS, axes_and_settings, run_python
from generator import DATA_SHA256
from tfscaling.jobs import heartbeat
from tfscaling.records import checks, clock, events

TRAIN_EXAMPLES, TEST_EXAMPLES = 70, 30
RUN = """
import json, os, pathlib, sys
from tfscaling.cluster import resolver as cluster; from tfscaling.training import rank
from tfscaling.records.events import EventLog
axes, settings, folder = json.loads(sys.argv[1]), json.loads(sys.argv[2]), pathlib.Path(sys.argv[3])
own = cluster.resolve(os.environ, gpus_per_node=0)
log = EventLog(folder / f"rank-{own.rank}.events.jsonl", own.rank)
report = rank.run(own, axes, settings, folder / "data.npz", folder, log)
report["policy"] = __import__("keras").mixed_precision.dtype_policy().name
(folder / "report.json").write_text(json.dumps({"rank": own.rank, "job": own.job, **report}))
"""
MODEL = """
def model():
    from tfscaling.training.models import MODELS

    made = MODELS["mnist_cnn"].build()
    made.compile("adamw", loss="mse")
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
if sys.argv[4] == "before":
    step(-120)
from tfscaling.jobs import heartbeat; from tfscaling.training import rank
axes, settings, folder = json.loads(sys.argv[1]), json.loads(sys.argv[2]), pathlib.Path(sys.argv[3])
def work(own, events):
    for name in ("imported", "rendezvous", "data", "built", "first_step", "trained"):
        step({"data": 120, "trained": -70}.get(name, 0))
        events.add(name)
    until = time.monotonic() + 300
    while not heartbeat.read(folder) and time.monotonic() < until:
        time.sleep(0.05)
    return {"worked": True}
rank.process(axes, settings, folder, started_s, work)
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with 16-bit arithmetic that cuts its dataset; a user has the model."""
    folder = tmp_path_factory.mktemp("rank")
    (folder / "mine.py").write_text(MODEL)
    random = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 100), ("test", 50)):
        arrays[f"x_{part}"] = random.integers(0, 256, (count, 28, 28), np.uint8)
        arrays[f"y_{part}"] = random.integers(0, 10, count, np.uint8)
    np.savez(folder / "data.npz", **arrays, sha256=np.array(DATA_SHA256))
    run, settings = axes_and_settings(
        per_replica_batch_size=16,
        train_examples_max=TRAIN_EXAMPLES,
        test_examples_max=TEST_EXAMPLES,
        precision="mixed_bfloat16",
    )
    config = '{"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "worker", "index": 0}}'
    words = [json.dumps({**run.axes, "model": "mine:model"}), json.dumps(settings), str(folder)]
    paths = f"{SCRIPTS}:{folder}"
    done = run_python(RUN, *words, CUDA_VISIBLE_DEVICES="-1", TF_CONFIG=config, PYTHONPATH=paths)
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
        "intra_op_threads": 2,
        "replicas": 2,
        "worker_devices": None,
        "gpus_visible": "",
        "gpu_names": [],
        "data_sha256": DATA_SHA256,
        "per_replica_batch_size": 16,
        "global_batch_size": 32,
        "examples_per_step": 32,
        "model_parameters": 2_770_634,
        "train_examples": TRAIN_EXAMPLES,
        "examples_trained": 2 * TRAIN_EXAMPLES,
        "test_examples": TEST_EXAMPLES,
        "policy": "mixed_bfloat16",
    }
    assert {key: report[key] for key in expected} == expected
    (warning,) = report["warnings"]
    assert "(optimizer AdamW, loss mse)" in warning
    assert len(report["cluster_hash"]) == 16
    assert [row[:3] for row in report["steps"]] == [
        [epoch, step, 1] for epoch in (1, 2) for step in (0, 1, 2)
    ]


def test_the_report_passes_the_truth_check(finished: Path) -> None:
    run, settings = axes_and_settings()
    asked = {
        **{**run.axes, **settings, "tasks": 1, "jobs": {"worker": 1}, "gpus_per_task": 2},
        **{"replicas": 2, "cpus_per_task": 2, "per_replica_batch_size": 16},
        **{"global_batch_size": 32, "data_sha256": DATA_SHA256},
        **{"train_examples": TRAIN_EXAMPLES, "test_examples": TEST_EXAMPLES},
    }
    found = report_of(finished)
    assert checks.violations(asked, [found]) == []
    for key in ("gpus_per_task", "replicas", "cpus_per_task", "train_examples", "data_sha256"):
        other = "other" if key == "data_sha256" else 7
        assert checks.violations({**asked, key: other}, [found]) != [], key


def test_phases_are_passed_in_their_order(finished: Path) -> None:
    passed = [event["event"] for event in events.read(finished / "rank-0.events.jsonl")]
    phases = [name for name in passed if name in events.PHASES]
    assert phases == list(events.PHASES[1:])  # train_rank.py itself writes the first


def test_the_chief_tells_its_progress(finished: Path) -> None:
    report, words = report_of(finished), (finished / "words").read_text()
    assert "epoch 1/2: loss " in words
    assert f"held-out: loss {report['test_loss']:.4f}" in words


@pytest.mark.parametrize("when", ["during", "before"])
def test_a_wall_clock_that_is_set_changes_no_time_of_a_rank(tmp_path: Path, when: str) -> None:
    run, settings = axes_and_settings()
    config = '{"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "worker", "index": 0}}'
    before_s = clock.now()
    with clock.served("127.0.0.1") as address:
        words = [json.dumps(run.axes), json.dumps(settings), str(tmp_path), when]
        environment = {"TF_CONFIG": config, clock.VARIABLE: address}
        done = run_python(STEPPED, *words, CUDA_VISIBLE_DEVICES="-1", **environment)
    assert done.returncode == 0, done.stderr
    passed = events.on_launcher_clock(events.read(tmp_path / "rank-0.events.jsonl"))
    assert [e["event"] for e in passed] == [*events.PHASES[:7], "end"]
    moments = [before_s, *(e["time_s"] for e in passed), clock.now()]
    assert moments == sorted(moments)
    report = json.loads((tmp_path / "rank-0.json").read_text())
    assert report["worked"] is True
    assert 0 < report["clock"]["uncertainty_s"] < 10
    off_s = -120 if when == "before" else 0
    assert report["clock"]["offset_s"] == pytest.approx(-off_s, abs=10)
    assert heartbeat.read(tmp_path)[0].cpu_s > 0
