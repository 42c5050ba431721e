"""`make peers`: the networks, the study of each, and the tables, from runs with known times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from peers import network_file, ratios, study
from project import REPOSITORY

NETWORKS = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in REPOSITORY.glob("benchmarks/peers/networks/*.py")
)
BOTH = ("float32", "bfloat16")


@pytest.fixture(autouse=True)
def project_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Network files are named from here."""
    monkeypatch.chdir(REPOSITORY)


@pytest.mark.parametrize("path", NETWORKS)
def test_the_keras_model_of_a_network_has_the_stated_parameters(path: str) -> None:
    """`train_torch.py` compares its PyTorch twin with the same number."""
    network = network_file.load(path)
    model = network.keras_model()
    trainable = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    network_file.check_parameters(network, "keras_model", trainable)
    assert model.optimizer is not None and model.loss is not None
    with pytest.raises(network_file.NetworkFileError, match="torch_module"):
        network_file.check_parameters(network, "torch_module", trainable - 1)


def test_the_network_file_of_the_documentation_is_complete(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/peers.md").read_text()
    path = tmp_path / "dense.py"
    path.write_text(page.partition("```python\n")[2].partition("```")[0])
    network = network_file.load(str(path))
    (x, y), _ = network.data(40)
    model = network.keras_model()
    assert len(x) == len(y) == 40 and model.input_shape[1:] == x.shape[1:]
    network_file.check_parameters(network, "keras_model", model.count_params())


def test_a_network_file_without_a_twin_is_refused(tmp_path: Path) -> None:
    lacking = tmp_path / "lacking.py"
    lacking.write_text("BATCH_SIZE = 8\n")
    with pytest.raises(network_file.NetworkFileError, match="torch_module"):
        network_file.load(str(lacking))
    with pytest.raises(network_file.NetworkFileError):
        network_file.load(str(tmp_path / "absent.py"))
    with pytest.raises(network_file.NetworkFileError):  # the ranks could not import it
        study.render(str(REPOSITORY / NETWORKS[0]), BOTH)


@pytest.mark.parametrize("path", NETWORKS)
def test_all_peers_do_the_same_work(path: str) -> None:
    network = network_file.load(path)
    content = yaml.safe_load(study.render(path, BOTH, steps=40))
    for name, recipe in content["recipes"].items():
        workers = int(name.rpartition("-")[2])
        examples = 20 * network.BATCH_SIZE * workers
        assert recipe.get("train_examples", examples) == examples, name
        assert (recipe["per_replica_batch_size"], recipe["epochs"]) == (network.BATCH_SIZE, 2)
        if name.split("-")[0] in study.PRODUCTS:
            assert recipe["dataset"] is None and "20" in recipe["program"], name
            continue
        assert recipe["parameters"] == {"examples": examples}, name
        assert recipe["dataset"].endswith(f"{Path(path).stem}:data"), name
        if "program" in recipe:
            assert {path, "{dataset}", name.split("-")[1]} <= {*recipe["program"]}


@pytest.mark.parametrize(
    ("flags", "precisions"), [("fma avx2", 1), ("avx2 avx512_bf16", 2), ("amx_bf16 fma", 2)]
)
def test_bfloat16_is_trained_where_the_processor_multiplies_it(flags: str, precisions: int) -> None:
    trained = BOTH[:precisions]
    assert study.multiplied_precisions(flags.split()) == trained
    recipes = yaml.safe_load(study.render(NETWORKS[0], trained))["recipes"]
    assert any("bfloat16" in name for name in recipes) == (precisions == 2)


#: (workers, strategy, recipe) → milliseconds of a step, seconds of start-up and of all steps after.
TIMES = {
    (1, "own", "pytorch-float32-1"): (12.0, 4.0, 2.4),
    (1, "own", "keras-float32-1"): (16.0, 5.0, 3.2),
    (1, "single", "float32-1"): (8.0, 6.0, 1.6),
    (1, "own", "floor-float32-1"): (5.0, 2.0, 1.0),
    (2, "own", "pytorch-float32-2"): (30.0, 4.0, 6.0),
    (2, "mpi_all_reduce", "float32-2"): (20.0, 5.5, 4.0),
}
#: Network → how many times as long its steps take.
SLOWER = {"cnn": 1, "residual": 2}


def runs(repeats: int, status: str = "ok", ours: Sequence[float] = (1.0, 1.0)) -> pd.DataFrame:
    """Runs of two networks, each 1 % slower than the one before.

    Args:
        repeats: Runs of each training.
        status: Status of all runs.
        ours: How many times as long the trainer takes, for each network.
    """
    records = []
    for (network, slower), factor in zip(SLOWER.items(), ours, strict=True):
        for (workers, strategy, recipe), (step_ms, start_s, steps_s) in TIMES.items():
            is_program = strategy == "own"
            model = network if is_program else f"a.networks.{network}:keras_model"
            for number in range(repeats):
                longer = slower * (1 + number / 100) * (1.0 if is_program else factor)
                phases = (
                    {"preparation_time_s": start_s - 1}
                    if is_program
                    else {"build_time_s": 1.0, "first_step_time_s": start_s - 2}
                )
                records.append(
                    {
                        "model": model,
                        "strategy": strategy,
                        "recipe": recipe,
                        "nodes": workers,
                        "status": status,
                        "global_batch_size": 64 * workers,
                        "throughput_examples_per_s": 64_000 * workers / step_ms / longer,
                        "import_time_s": 1.0,
                        **phases,
                        "train_time_s": steps_s * longer,
                        "started": "2026-11-22T10:00:00+00:00",
                        **dict.fromkeys(ratios.PLACE, "8"),
                    }
                )
    return pd.DataFrame(records)


def cells(table: pd.DataFrame, network: str, workers: int) -> dict[str, dict[str, str]]:
    found = ratios.rows(ratios.trainings(table), network, workers)
    return {row[0]: dict(zip(ratios.HEADER, row, strict=True)) for row in found}


def test_ratios_are_those_of_medians() -> None:
    own = cells(runs(1), "residual", 1)
    trained = [float(own["single, float32"][name]) for name in ratios.HEADER[1:]]
    # 6 s until the first step has ended and 2 * 1.6 s of steps, where PyTorch takes 4 and 4.8 s
    assert trained == [16, 1.5, 9.2, 0.96, 6, 1.6]
    assert own["pytorch, float32"]["steps: PyTorch / this"] == "1"
    assert own["floor, float32"]["training (s)"] == ""
    assert {*cells(runs(1), "cnn", 2)} == {"pytorch, float32", "mpi_all_reduce, float32"}


def test_six_runs_have_intervals_and_fewer_have_none() -> None:
    own = cells(runs(6), "cnn", 1)["single, float32"]
    assert own["ms per step"] == "8.2 (8.0–8.4)"
    shown, interval = own["steps: PyTorch / this"].split(" ", 1)
    low, high = map(float, interval.strip("()").split("–"))
    assert float(shown) == pytest.approx(1.5) and 1.4 < low < 1.5 < high < 1.6
    few = cells(runs(5), "cnn", 1)["single, float32"]
    assert not any("–" in cell for cell in few.values())


def test_runs_that_failed_take_no_part() -> None:
    assert ratios.trainings(runs(6, status="failed")) == {}


FLOOR = {"peer": ratios.FLOOR, "at_least": None}


@pytest.mark.parametrize(
    ("repeats", "asked", "verdict"),
    [
        (6, {"at_least": 1.4}, "yes"),
        (6, {"at_least": 1.6}, "no"),
        (6, {"at_least": 1.495}, "open"),  # within the interval
        (5, {"at_least": 1.0}, "open"),  # without one
        (6, {**FLOOR, "at_most": 1.8}, "yes"),
        (6, {**FLOOR, "at_most": 1.4}, "no"),
        (6, {**FLOOR, "at_most": 1.61}, "open"),
        (6, {"time": "training_s", "at_least": 0.8}, "yes"),
        (6, {"time": "training_s", "at_least": 1.0}, "no"),
        (6, {"precision": "bfloat16", "at_least": 1.4}, "not measured"),
    ],
)
def test_a_target_is_reached_or_missed_by_the_whole_interval(
    repeats: int, asked: dict[str, Any], verdict: str
) -> None:
    target = ratios.Target(1, "float32", "step_ms", ratios.PYTORCH, 1)._replace(**asked)
    judged = [*ratios.reached(target, ratios.trainings(runs(repeats)))]
    assert {row[0]: row[-1] for row in judged if row[0] in SLOWER} == dict.fromkeys(SLOWER, verdict)


def test_a_geometric_mean_needs_all_networks() -> None:
    target = ratios.Target(1, "float32", "step_ms", ratios.PYTORCH, 1, mean_at_least=1.3)
    # 1.5 times as fast on one network and 1.2 times on the other: together 1.34
    table = runs(6, ours=(1.0, 1.25))
    *_, mean = ratios.reached(target._replace(at_least=1.0), ratios.trainings(table))
    assert mean[0] == "geometric mean" and mean[-1] == "yes"
    assert float(mean[-2].split()[0]) == pytest.approx(math.sqrt(1.5 * 1.2), abs=0.01)
    halved = table[(table["model"] != "cnn") | (table["nodes"] != 1)]
    *_, mean = ratios.reached(target._replace(at_least=1.0), ratios.trainings(halved))
    assert mean[-1] == "not measured"


def test_the_start_of_two_workers_is_compared_with_fit_on_one() -> None:
    target = next(each for each in ratios.TARGETS if each.time == "start_up_s")
    judged = [*ratios.reached(target, ratios.trainings(runs(6)))]
    assert [(row[0], row[-2].split()[0], row[-1]) for row in judged] == [
        (network, "1.10", "yes") for network in SLOWER
    ]


def test_the_page_has_a_line_for_each_target_and_each_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, tables = tmp_path / "page.md", [tmp_path / f"{name}.csv" for name in SLOWER]
    page.write_text("before\n<!-- measured -->\nold\n<!-- end of measured -->\nafter\n")
    table = runs(6)
    is_cnn = table["model"].str.contains("cnn")
    for path, part in zip(tables, (table[is_cnn], table[~is_cnn]), strict=True):
        part.to_csv(path, index=False)
    monkeypatch.setattr("sys.argv", ["ratios.py", *map(str, tables), "--page", str(page)])
    ratios.main()
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    # a row for each network of a target, and one for their mean
    targets = sum(1 if each.network else 2 + (each.at_most is None) for each in ratios.TARGETS)
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == (
        2 * 5 + targets + 2 * len(TIMES)
    )
    assert "2026-11-22" in text
