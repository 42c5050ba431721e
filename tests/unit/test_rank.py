"""One rank from its cluster to its report, in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import run_python, valid_config
from tfscaling import events, grid, parameters, truth
from tfscaling.models import MODELS
from tfscaling.strategies import STRATEGIES

TRAIN_EXAMPLES, TEST_EXAMPLES = 70, 30
RUN = """
import json, os, pathlib, sys
from tfscaling import cluster, rank
from tfscaling.events import EventLog
axes, settings, folder = json.loads(sys.argv[1]), json.loads(sys.argv[2]), pathlib.Path(sys.argv[3])
own = cluster.resolve(os.environ, gpus_per_node=0)
log = EventLog(folder / f"rank-{own.rank}.events.jsonl", own.rank)
report = rank.run(own, axes, settings, folder / "data.npz", folder, log)
report["policy"] = __import__("keras").mixed_precision.dtype_policy().name
(folder / "report.json").write_text(json.dumps({"rank": own.rank, "job": own.job, **report}))
"""


def axes_and_settings(**recipe: Any) -> tuple[grid.Run, dict[str, Any]]:
    """The point `laptop` with one node and two logical devices."""
    block = {"platform": "laptop", "model": "mnist_cnn", "recipe": "weak", "nodes": 1}
    changes = [(("recipes", "weak", key), value) for key, value in recipe.items()]
    config = valid_config((("grid",), [{**block, "gpus_per_node": 2}]), *changes)
    (run,) = grid.expand(config, MODELS, STRATEGIES).runs
    return run, parameters.run_parameters(config, run, "mnist")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with 16-bit arithmetic that cuts its dataset."""
    folder = tmp_path_factory.mktemp("rank")
    random = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 100), ("test", 50)):
        arrays[f"x_{part}"] = random.integers(0, 256, (count, 28, 28), np.uint8)
        arrays[f"y_{part}"] = random.integers(0, 10, count, np.uint8)
    np.savez(folder / "data.npz", **arrays)
    run, settings = axes_and_settings(
        per_replica_batch_size=16,
        train_examples_max=TRAIN_EXAMPLES,
        test_examples_max=TEST_EXAMPLES,
        precision="mixed_bfloat16",
    )
    config = '{"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "worker", "index": 0}}'
    words = [json.dumps(run.axes), json.dumps(settings), str(folder)]
    done = run_python(RUN, *words, CUDA_VISIBLE_DEVICES="-1", TF_CONFIG=config)
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
        "global_batch_size": 32,
        "examples_per_step": 32,
        "model_parameters": 2_770_634,
        "train_examples": TRAIN_EXAMPLES,
        "examples_trained": 2 * TRAIN_EXAMPLES,
        "test_examples": TEST_EXAMPLES,
        "policy": "mixed_bfloat16",
    }
    assert {key: report[key] for key in expected} == expected
    assert len(report["cluster_hash"]) == 16
    assert [row[:3] for row in report["steps"]] == [
        [epoch, step, 1] for epoch in (1, 2) for step in (0, 1, 2)
    ]


def test_the_report_passes_the_truth_check(finished: Path) -> None:
    run, settings = axes_and_settings()
    asked = {"tasks": 1, "jobs": {"worker": 1}, "gpus_per_task": 2, "replicas": 2}
    assert truth.violations({**run.axes, **settings, **asked}, [report_of(finished)]) == []


def test_phases_are_passed_in_their_order(finished: Path) -> None:
    passed = [event["event"] for event in events.read(finished / "rank-0.events.jsonl")]
    phases = [name for name in passed if name in events.PHASES]
    assert phases == list(events.PHASES[1:])  # train.py itself writes the first


def test_the_chief_tells_its_progress(finished: Path) -> None:
    report, words = report_of(finished), (finished / "words").read_text()
    assert "epoch 1/2: loss " in words
    assert f"held-out: loss {report['test_loss']:.4f}" in words
