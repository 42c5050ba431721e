"""Precisions, recipes and uneven batches by every strategy, against Keras's own `fit`."""

from __future__ import annotations

import numpy as np
import oracle_cases
import pytest
from oracle_cases import GROWTH_STEPS
from oracle_comparison import Trained, check, trained
from oracle_rank import SERVERS

FEATURES = oracle_cases.features()


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("features")
    return trained(folder, "oracle_cases:feature_cases:0:99", with_servers=True)


@pytest.mark.full
@pytest.mark.parametrize("name", FEATURES)
def test_all_features_are_trained_as_fit_does_or_manual_replicas(
    features: Trained, name: str
) -> None:
    ways, case = features[name], FEATURES[name]
    if "learning_rate" in case.recipe and 2 in case.replicas:
        assert f"{SERVERS} 2" in ways
    check(name, case, ways)


@pytest.mark.full
def test_replicas_skip_the_same_updates_where_one_of_them_overflows(features: Trained) -> None:
    ways = features["overflow"]
    (expected,) = (found["updates"] for found in ways["fit"])
    for way, ranks in ways.items():
        for found in ranks:
            assert found["updates"] == expected, way
    # some were skipped in every epoch, and the training went on
    steps = FEATURES["overflow"].steps_per_epoch
    made = np.diff([0, *expected])
    assert (made < steps).all()
    assert (made > steps // GROWTH_STEPS).all()
