"""Pipelines against Keras's own `fit` on one device, with the batches of all workers together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pipelines_rank
import pytest
from pipelines_rank import (
    ENDLESS_STEPS,
    EPOCHS,
    TEST_EXAMPLES,
    TRAIN_EXAMPLES,
    UNEVEN_TEST,
    UNEVEN_TRAIN,
)
from ranks import Found, ranks_of
from tfscaling.study.config_types import MPI_STRATEGY
from tfscaling.study.geometry import Geometry

pytestmark = pytest.mark.full

#: Relative, after 50 steps: sums are rounded in another order.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Found:
    with ranks_of(pipelines_rank) as ranks:
        ranks.start(tmp_path_factory.mktemp("pipelines") / "alone.json")
        (found,) = ranks.found()
    return found


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    return of_workers("multi_worker_mirrored", tmp_path_factory)


@pytest.fixture(scope="module")
def two_mpi_workers(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    return of_workers(MPI_STRATEGY, tmp_path_factory)


def of_workers(strategy: str, factory: pytest.TempPathFactory) -> list[Found]:
    with ranks_of(pipelines_rank) as ranks:
        ranks.start_job(factory.mktemp(strategy), Geometry(2, 1, 0), {"worker": 2}, strategy)
        return ranks.found()


def check_equal(found: Found, expected: Found, tolerance: float, but: tuple[str, ...]) -> bool:
    """Whether weights are equal; `but` are ends of names of metrics that need not be equal."""
    assert found["examples"] == TRAIN_EXAMPLES * EPOCHS
    for epoch, other in zip(
        [*found["metrics"], found["test"]], [*expected["metrics"], expected["test"]], strict=True
    ):
        assert epoch.keys() == other.keys()
        compared = [name for name in epoch if not name.endswith(but)]
        assert {name: epoch[name] for name in compared} == pytest.approx(
            {name: other[name] for name in compared}, rel=tolerance
        )
    weights = zip(found["weights"], expected["weights"], strict=True)
    return all(np.allclose(own, other, 10 * tolerance, tolerance) for own, other in weights)


@pytest.mark.parametrize("name", ["from files", "uneven", "endless"])
def test_workers_train_by_mpi_as_by_tensorflows_own_all_reduce(
    two_workers: list[Found], two_mpi_workers: list[Found], name: str
) -> None:
    """Clipped sparse gradients, parts that end earlier."""
    expected = two_workers[0]["two workers"][name]
    first, second = (found["two workers"][name] for found in two_mpi_workers)
    assert first == second
    for key in ("metrics", "test"):
        assert flat(first[key]) == pytest.approx(flat(expected[key]), rel=1e-4)
    for key in ("examples", "steps", "tested"):
        assert first[key] == expected[key]
    for own, other in zip(first["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-3, atol=1e-4)


def flat(found: Any) -> dict[str, float]:
    """Metrics of an epoch, or of all epochs."""
    epochs = found if isinstance(found, list) else [found]
    return {f"{name} {n}": value for n, of in enumerate(epochs) for name, value in of.items()}


def test_a_pipeline_on_one_replica_trains_as_fit_does_with_its_batches(one_process: Found) -> None:
    found, fit = one_process["pipelines"]["one replica"], one_process["pipelines"]["fit"]
    # of the test data `fit` has several batches: see above
    assert check_equal(found, fit, TOLERANCE, ("kind_loss", "value_loss"))
    assert (found["tested"], found["steps"]) == (TEST_EXAMPLES, 10 * EPOCHS)


def test_a_pipeline_trains_two_devices_as_one(one_process: Found) -> None:
    pipelines = one_process["pipelines"]
    assert check_equal(
        pipelines["two devices"], pipelines["one replica"], 1e-4, ("kind_loss", "value_loss")
    )


def test_two_workers_train_from_files_as_two_devices_from_arrays(
    one_process: Found, two_workers: list[Found]
) -> None:
    first, second = (found["two workers"]["from files"] for found in two_workers)
    assert first == second
    expected = one_process["pipelines"]["two devices"]
    # means over batches: the last batches are split in another way
    assert check_equal(first, expected, 1e-4, ("kind_loss", "value_loss"))


def test_workers_whose_part_ends_earlier_neither_drop_nor_repeat_examples(
    one_process: Found, two_workers: list[Found]
) -> None:
    first, second = (found["two workers"]["uneven"] for found in two_workers)
    assert first == second
    assert first["examples"] == sum(UNEVEN_TRAIN) * EPOCHS
    assert first["tested"] == sum(UNEVEN_TEST)
    assert first["steps"] == 5 * EPOCHS
    assert_learned_as_fit(first, one_process["pipelines"]["uneven fit"])


def test_an_endless_pipeline_has_epochs_of_the_steps_that_are_asked_for(one_process: Found) -> None:
    found = one_process["pipelines"]["endless"]
    assert found["steps"] == ENDLESS_STEPS * EPOCHS
    assert_learned_as_fit(found, one_process["pipelines"]["endless fit"])


def assert_learned_as_fit(found: Found, fit: Found) -> None:
    """Of a classifier that is not compiled, and one that is."""
    losses = [[epoch["loss"] for epoch in each["metrics"]] for each in (found, fit)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert found["accuracy"] == pytest.approx(fit["metrics"][-1]["accuracy"])
    assert found["test"]["loss"] == pytest.approx(fit["test"]["loss"], rel=1e-4)
    for own, other in zip(found["weights"], fit["weights"], strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-3, atol=1e-4)
