"""Names that a configuration may use: models, datasets, and which of them fit each other."""

from __future__ import annotations

import pytest
from tfscaling.datasets.catalogue import DATASETS
from tfscaling.study.registries import Registries
from tfscaling.train.models import MODELS
from tfscaling.train.strategies import STRATEGIES

ALL = Registries(MODELS, STRATEGIES, DATASETS)


@pytest.mark.parametrize(("model", "dataset"), [("mnist_cnn", "cifar10"), ("cifar10_cnn", "mnist")])
def test_a_model_that_takes_other_images_names_the_datasets_that_fit(
    model: str, dataset: str
) -> None:
    found = ALL.image_shape_problem(model, dataset)
    assert found is not None
    *allowed, _ = found.partition("; allowed: ")[2].split(", ")
    assert MODELS[model].dataset in allowed and dataset not in allowed
    assert all(ALL.image_shape_problem(model, name) is None for name in allowed)


@pytest.mark.parametrize(
    ("model", "dataset"),
    [("mnist_cnn", "mnist"), ("own:model", "mnist"), ("mnist_cnn", "own:data")],
)
def test_what_fits_or_is_not_known_is_no_mismatch(model: str, dataset: str) -> None:
    assert ALL.image_shape_problem(model, dataset) is None
