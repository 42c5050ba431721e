"""Every strategy and precision against Keras's own `fit` on one device with the same batches.

Where a result depends on how a batch is split among replicas, `fit` cannot be the measure: batch
normalization is over each replica's own part, each replica has dropout masks of its own, a loss
that a layer adds is a mean over its part, and padding takes part in these (it weighs nothing in
all else). There the measure is plain Keras with copies of the model, one per replica, written
without any strategy; and one replica with whole batches is still compared with `fit`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import loaded_python
import numpy as np
import oracle_rank
import pytest
from builders import SCRIPTS
from oracle_rank import PRECISIONS, SETTINGS, STEPS, UNEVEN, WHOLE
from tfscaling.launch.launchers import LAUNCHERS, Request
from tfscaling.spec.config import MPI_STRATEGY
from tfscaling.spec.geometry import Geometry
from tfscaling.train.strategies import STRATEGIES

#: Name → strategy, shape, replicas.
TRAININGS = {
    "single": ("single", Geometry(1, 1, 0), 1),
    "mirrored": ("mirrored", Geometry(1, 1, 4), 4),
    "multi_worker_mirrored": ("multi_worker_mirrored", Geometry(2, 1, 0), 2),
    MPI_STRATEGY: (MPI_STRATEGY, Geometry(2, 1, 0), 2),
    "synchronous_parameter_server": ("synchronous_parameter_server", Geometry(4, 1, 0), 2),
}
#: Relative, after 50 steps: sums are rounded in another order.
TOLERANCE = {"float32": 1e-4, "mixed_bfloat16": 2e-2, "mixed_float16": 1e-2}
#: Where batch normalization sees the few examples of a replica, roundings of float16 grow with each
#: step: a training differed from its reference by 2 % in its fifth epoch, and not before.
SAME_EPOCHS = {"float32": 5, "mixed_bfloat16": 5, "mixed_float16": 3}
Found = dict[str, Any]


@contextmanager
def started(folder: Path, words: list[str], environ: dict[str, str]) -> Iterator[Any]:
    """A rank as a process."""
    own = {"PYTHONPATH": str(SCRIPTS), "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    with (folder / f"{words[-1].split('/')[-1]}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, oracle_rank.__file__, *words],
            env=loaded_python.environ({**os.environ, **environ, **own}),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def train(folder: Path, strategy: str, geometry: Geometry) -> list[Found]:
    """What each rank that trains found; one training at a time, for the sake of other tests."""
    spec = STRATEGIES[strategy]
    jobs = spec.jobs(geometry, SETTINGS["parameter_servers"])
    with ExitStack() as held:
        request = Request([], geometry, jobs, 1, folder, False, mpi="", held=held)
        commands = LAUNCHERS["local"](request)
        outputs = [folder / f"{command.rank}.json" for command in commands]
        running = []
        with ExitStack() as stack:
            for command, output in zip(commands, outputs, strict=True):
                words = [strategy, str(geometry.gpus_per_task), str(output)]
                running.append(stack.enter_context(started(folder, words, dict(command.env))))
            for process, output in zip(running, outputs, strict=True):
                log = folder / f"{output.name}.log"
                # a deadlock is a failure
                assert process.wait(timeout=900) == 0, log.read_text()
    found = [json.loads(output.read_text()) for output in outputs]
    return [of_rank for of_rank in found if of_rank]


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("references")
    words = ["references", "0", str(folder / "found.json")]
    with started(folder, words, {}) as process:
        assert process.wait(timeout=900) == 0, (folder / "found.json.log").read_text()
    found: Found = json.loads((folder / "found.json").read_text())
    return found


@pytest.fixture(scope="module", params=TRAININGS)
def training(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, list[Found]]:
    """Number of replicas, what each rank found."""
    strategy, geometry, replicas = TRAININGS[request.param]
    ranks = train(tmp_path_factory.mktemp("training"), strategy, geometry)
    return replicas, ranks


def test_strategies_train_as_keras_does(
    training: tuple[int, list[Found]], references: Found
) -> None:
    replicas, ranks = training
    for found in ranks:
        for precision in PRECISIONS:
            tolerance = TOLERANCE[precision]
            # embedding, L2, a layer without gradient, dropout of rate 0, an incomplete last batch
            plain, fit = found[f"plain {precision}"], references[f"plain {precision}"]
            assert plain["loss"] == pytest.approx(fit["loss"], rel=tolerance), precision
            # one example of 755 may be answered otherwise for each per cent
            assert plain["accuracy"] == pytest.approx(fit["accuracy"], abs=tolerance)
            assert plain["test_loss"] == pytest.approx(fit["test_loss"], rel=tolerance)
            # batch normalization, dropout, losses of layers: by each replica's part of the batch
            split, by_hand = (
                found[f"split {precision}"],
                references[f"split {precision} {replicas}"],
            )
            same = slice(SAME_EPOCHS[precision])
            assert len(split["loss"]) == SETTINGS["epochs"]
            assert split["loss"][same] == pytest.approx(by_hand["loss"][same], rel=tolerance), (
                precision
            )
            # all examples were trained in every epoch
            assert plain["examples"] == split["examples"] == UNEVEN * SETTINGS["epochs"]
            if replicas == 1:
                whole, fit = found[f"whole {precision}"], references[f"whole {precision}"]
                assert whole["loss"] == pytest.approx(fit["loss"], rel=tolerance), precision
                assert whole["examples"] == WHOLE * SETTINGS["epochs"]


def test_schedule_nesterov_weight_decay_and_smoothed_labels_are_those_of_fit(
    training: tuple[int, list[Found]], references: Found
) -> None:
    fit = references["scheduled"]
    for found in training[1]:
        for name in ("loss", "test_loss"):
            assert found["scheduled"][name] == pytest.approx(fit[name], rel=1e-4), name
        assert found["scheduled"]["accuracy"] == pytest.approx(fit["accuracy"], abs=1e-4)


def test_replicas_skip_the_same_updates_where_one_of_them_overflows(
    training: tuple[int, list[Found]], references: Found
) -> None:
    expected = references["overflow"]
    for found in training[1]:
        assert found["overflow"]["updates"] == expected["updates"]
        np.testing.assert_allclose(found["overflow"]["loss"], expected["loss"], rtol=1e-5)
    # some were skipped in every epoch, and the training went on
    made = np.diff([0, *expected["updates"]])
    assert (made < STEPS).all()
    assert (made > STEPS // 2).all()


def test_ranks_agree_exactly(training: tuple[int, list[Found]]) -> None:
    first, *others = training[1]
    assert all(other == first for other in others)
