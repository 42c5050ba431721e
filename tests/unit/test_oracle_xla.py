"""Models that XLA compiles, by every strategy that can, against Keras's own `fit`."""

from __future__ import annotations

import oracle_cases
import pytest
from oracle_comparison import Trained, check, trained


@pytest.fixture(scope="module")
def trained_by_xla(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("xla")
    return trained(folder, "oracle_cases:compiled_by_xla:0:99", replicas=2)


@pytest.mark.full
@pytest.mark.parametrize("name", oracle_cases.XLA)
def test_models_that_xla_compiles_train_as_fit_does(trained_by_xla: Trained, name: str) -> None:
    on_two = {f"{way} 2" for way in ("mirrored", "multi_worker_mirrored", "mpi_all_reduce")}
    assert trained_by_xla[name].keys() > {"fit", "single 1"} | on_two
    check(name, oracle_cases.XLA[name], trained_by_xla[name])
