"""Training with parameter servers: a coordinator, a server and two workers as real processes."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import asynchronous_rank
import numpy as np
import pytest
from builders import SCRIPTS, run_python
from oracle_rank import arrays_of
from strategy_rank import GLOBAL_BATCH, PARAMETERS, TRAIN_EXAMPLES, synthetic_arrays
from tfscaling.launch import heartbeat
from tfscaling.launch.launchers import ReservedPorts

Trainings = dict[str, list[dict[str, Any]]]
STEPS, EPOCHS = -(-TRAIN_EXAMPLES // GLOBAL_BATCH), PARAMETERS["epochs"]
BOTH = ["parameter_server", "synchronous_parameter_server"]


def test_a_synchronous_update_is_that_of_the_same_global_batch_on_one_device(
    trainings: Trainings,
) -> None:
    (alone,), chief = trainings["single"], trainings["synchronous_parameter_server"][0]
    np.testing.assert_allclose(chief["epochs"], alone["epochs"], rtol=1e-5)
    np.testing.assert_allclose(chief["test"], alone["test"], rtol=1e-5)
    for own, other in zip(chief["weights"], alone["weights"], strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


def test_a_synchronous_update_takes_the_examples_of_all_workers(trainings: Trainings) -> None:
    chief = trainings["synchronous_parameter_server"][0]
    assert chief["examples_per_step"] == GLOBAL_BATCH
    assert chief["steps"] == [
        [epoch, step, 1] for epoch in range(1, EPOCHS + 1) for step in range(STEPS)
    ]


def test_an_asynchronous_update_takes_the_examples_of_one_worker(trainings: Trainings) -> None:
    chief = trainings["parameter_server"][0]
    assert chief["examples_per_step"] == GLOBAL_BATCH // 2
    counts = [sum(count for epoch, _, count in chief["steps"] if epoch == n) for n in (1, 2, 3)]
    # a batch of padding alone is not trained: of the last global batch one part has examples
    assert (
        counts == [-(-TRAIN_EXAMPLES // (GLOBAL_BATCH // 2))] * EPOCHS == [2 * STEPS - 1] * EPOCHS
    )


@pytest.mark.parametrize("training", BOTH)
def test_each_example_is_trained_once_per_epoch(trainings: Trainings, training: str) -> None:
    chief = trainings[training][0]
    assert chief["examples_trained"] == TRAIN_EXAMPLES * EPOCHS
    for _, accuracy in chief["epochs"]:
        assert accuracy * TRAIN_EXAMPLES == pytest.approx(round(accuracy * TRAIN_EXAMPLES))


def test_the_first_asynchronous_batches_are_a_row_of_their_own(trainings: Trainings) -> None:
    # they compile the step on both workers
    assert trainings["parameter_server"][0]["steps"][0] == [1, 0, 2]


def test_asynchronous_training_learns(trainings: Trainings) -> None:
    losses = [loss for loss, _ in trainings["parameter_server"][0]["epochs"]]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("training", BOTH)
def test_held_out_examples_are_counted_once(trainings: Trainings, training: str) -> None:
    correct = trainings[training][0]["test"][1] * len(synthetic_arrays().y_test)
    assert correct == pytest.approx(round(correct), abs=1e-6)


@pytest.mark.parametrize("training", BOTH)
def test_servers_and_workers_end_when_the_coordinator_has_ended(
    trainings: Trainings, training: str
) -> None:
    chief, *others = trainings[training]
    assert chief["job"] == "chief"
    assert chief["replicas"] == 2
    assert others == [
        {"job": job, "ended_well": True} for job in ("ps", "worker", "worker")
    ]  # fmt: skip


@pytest.fixture(scope="module")
def asynchronous(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a training in mixed_float16 found."""
    output = tmp_path_factory.mktemp("asynchronous") / "found.json"
    code = "import asynchronous_rank; asynchronous_rank.main()"
    with ReservedPorts(3) as ports:
        words = [str(output), *map(str, ports.numbers)]
        path = f"{SCRIPTS}:{Path(asynchronous_rank.__file__).parent}"
        done = run_python(code, *words, CUDA_VISIBLE_DEVICES="-1", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(output.read_text())
    return found


def test_a_worker_divides_by_the_loss_scale_that_it_multiplied_by(
    asynchronous: dict[str, Any],
) -> None:
    """Another worker changes the scale while the gradients are computed."""
    arrays = arrays_of(asynchronous_rank.BATCH)
    images = arrays.x_train.reshape(-1, 64) / 255
    error = 0.1 - np.eye(10)[arrays.y_train]  # weights are zeros: each class has a tenth
    expected = -PARAMETERS["learning_rate"] * images.T @ error / asynchronous_rank.BATCH
    assert asynchronous["updates"] == 1
    np.testing.assert_allclose(asynchronous["weights"], expected, rtol=0.01, atol=1e-5)


SERVE = """
import json, os, pathlib, sys
from tfscaling.cluster import resolver as cluster; from tfscaling.train import parameter_server
from tfscaling.record.events import EventLog
parameter_server.COORDINATOR_TIMEOUT_S = 2.0
folder = pathlib.Path(sys.argv[1])
own = cluster.resolve(os.environ)
print(parameter_server.serve(own, folder, EventLog(folder / "rank-1.events.jsonl", 1)), flush=True)
os._exit(0)
"""


def served(folder: Path) -> subprocess.CompletedProcess[str]:
    """What a parameter server says that ran beside a coordinator with the folder's files."""
    config = '{"cluster": {"ps": ["127.0.0.1:PORT"]}, "task": {"type": "ps", "index": 0}}'
    with ReservedPorts(1) as ports:
        config = config.replace("PORT", str(ports.numbers[0]))
        done = run_python(SERVE, str(folder), TF_CONFIG=config, CUDA_VISIBLE_DEVICES="-1")
    assert '"event": "rendezvous"' in (folder / "rank-1.events.jsonl").read_text()
    return done


def test_a_server_sees_that_the_coordinator_failed(tmp_path: Path) -> None:
    (tmp_path / "rank-0.events.jsonl").write_text('{"event": "failed", "time_s": 1.0}\n')
    done = served(tmp_path)
    assert done.stdout.splitlines()[-1:] == ["False"], done.stderr


def test_a_server_does_not_wait_for_ever_for_a_dead_coordinator(tmp_path: Path) -> None:
    (tmp_path / "rank-0.events.jsonl").write_text('{"event": "built", "time_s": 1.0}\n')
    done = served(tmp_path)
    assert done.returncode == 1
    assert "CoordinatorSilentError: the coordinator gave no sign of life for 2 s" in done.stderr


def test_a_server_waits_as_long_as_the_coordinator_lives(tmp_path: Path) -> None:
    """It has no event for twice the limit, but beats."""
    (tmp_path / "rank-0.events.jsonl").write_text('{"event": "built", "time_s": 1.0}\n')

    def live() -> None:
        deadline = time.monotonic() + 300
        while not (tmp_path / "rank-1.events.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        for number in range(20):
            heartbeat.path(tmp_path, 0).write_text(f"[{number}, 1.0, 100]")
            time.sleep(0.2)
        (tmp_path / "rank-0.events.jsonl").write_text('{"event": "end", "time_s": 9.0}\n')

    coordinator = threading.Thread(target=live)
    coordinator.start()
    done = served(tmp_path)
    coordinator.join()
    assert done.stdout.splitlines()[-1:] == ["True"], done.stderr
