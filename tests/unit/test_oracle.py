"""Every strategy and three precisions against Keras's own `fit` on one device, same batches.

Where a result depends on how a batch is split among replicas, `fit` cannot be the measure: batch
normalization is over each replica's own part, each replica has dropout masks of its own, a loss
that a layer adds is a mean over its part, and padding takes part in these (it weighs nothing in
all else). There the measure is plain Keras with copies of the model, one per replica, written
without any strategy; and one replica with whole batches is still compared with `fit`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import oracle_rank
import pytest
from oracle_rank import ALONE, PRECISIONS, SETTINGS, STEPS, UNEVEN, WHOLE
from ranks import Found, Ranks, ranks_of
from tfscaling.spec.config import MPI_STRATEGY
from tfscaling.spec.geometry import Geometry
from tfscaling.train.strategies import STRATEGIES

pytestmark = pytest.mark.full

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


@pytest.fixture(scope="module")
def referring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """The process of the references, while the first trainings run."""
    with ranks_of(oracle_rank) as ranks:
        ranks.start(tmp_path_factory.mktemp("references") / "found.json", "references", "0")
        yield ranks


@pytest.fixture(scope="module", params=TRAININGS)
def training(
    request: pytest.FixtureRequest, referring: Ranks, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, list[Found]]:
    """Number of replicas, what each rank that trains found; one training at a time."""
    strategy, geometry, replicas = TRAININGS[request.param]
    folder = tmp_path_factory.mktemp("training")
    jobs = STRATEGIES[strategy].jobs(geometry, SETTINGS["parameter_servers"])
    with ranks_of(oracle_rank) as ranks:
        ranks.start_job(folder, geometry, jobs, strategy, str(geometry.gpus_per_task))
        found = ranks.found()
    return replicas, [of_rank for of_rank in found if of_rank]


@pytest.fixture(scope="module")
def references(training: tuple[int, list[Found]], referring: Ranks) -> Found:
    (found,) = referring.found()
    return found


def test_strategies_train_as_keras_does(
    training: tuple[int, list[Found]], references: Found
) -> None:
    replicas, ranks = training
    for found in ranks:
        for precision in PRECISIONS if replicas > 1 else ALONE:
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
