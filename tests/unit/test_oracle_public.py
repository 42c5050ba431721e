"""Public kinds of models by every strategy, against Keras's own `fit` on one device."""

from __future__ import annotations

from pathlib import Path

import oracle_cases
import pytest
from oracle_comparison import ALL_WAYS, Trained, check, trained


def test_three_layers_of_ordinary_widths_train_as_fit_does(tmp_path: Path) -> None:
    found = trained(tmp_path, "oracle_cases:ordinary:0:99", replicas=2)
    assert found.keys() == oracle_cases.ORDINARY.keys()
    for name, case in oracle_cases.ORDINARY.items():
        assert found[name].keys() == {"fit", "mpi_all_reduce 2"}
        check(name, case, found[name])


def test_the_table_of_kinds_names_every_case() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/training.md").read_text()
    for name in (*oracle_cases.PUBLIC, *oracle_cases.XLA, *oracle_cases.features()):
        assert f"`{name}`" in text, name


@pytest.fixture(scope="module")
def public_models(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(tmp_path_factory.mktemp("public"), "oracle_cases:public:0:99")


@pytest.mark.full
@pytest.mark.parametrize("name", oracle_cases.PUBLIC)
def test_public_kinds_of_models_train_as_fit_does(public_models: Trained, name: str) -> None:
    ways, case = public_models[name], oracle_cases.PUBLIC[name]
    chosen = {f"{strategy} 2" for strategy in case.strategies or ()}
    measure = {f"by hand {n}" for n in case.replicas} if case.is_by_hand else {"fit"}
    assert ways.keys() == measure | (chosen or ALL_WAYS - {"fit"})
    check(name, case, ways)
