"""The list of expected runs, with which the records are compared."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import raw_config, valid_config
from tfscaling.study import configuration, manifest, parameters, platforms
from tfscaling.study.grid import AXES

PRICE = {"usd_per_node_hour": 2.5, "price_date": "2022", "price_source": "list"}


def test_one_entry_for_each_run_with_all_that_the_tables_need() -> None:
    first, second = manifest.expected_runs(valid_config())["runs"]
    assert (first["axes"]["nodes"], second["axes"]["nodes"]) == (1, 2)
    assert tuple(second["axes"]) == AXES
    assert second["path"].startswith("platform=cluster/")
    assert second["path"].endswith("/nodes=2/gpus_per_node=0/tasks_per_node=1/repeat=1")
    sizes = ("replicas", "per_replica_batch_size", "global_batch_size", "batch_scaling")
    assert [second[size] for size in sizes] == [2, 64, 128, "weak"]
    assert second["usd_per_node_hour"] is None
    for entry in (first, second):
        expected = parameters.parameters_hash(entry["axes"], entry["parameters"])
        assert entry["parameters_hash"] == expected
    assert first["parameters_hash"] != second["parameters_hash"]


def test_excluded_points_keep_their_reasons() -> None:
    expected = manifest.expected_runs(valid_config((("grid", 0, "nodes"), [1, 9])))
    (left_out,) = expected["excluded"]
    assert left_out["reason"] == "9 nodes exceed nodes_max 8"
    assert left_out["axes"]["nodes"] == 9


def test_what_the_tables_say_of_the_platforms_of_the_grid() -> None:
    raw = raw_config((("platforms", "cluster", "title"), "Cloud"), (("grid", 0, "nodes"), [1, 9]))
    raw["platforms"]["cluster"].update(PRICE, cloud="gcp", published_as="gcp-n1")
    raw["grid"].append({**raw["grid"][0], "platform": "laptop"})
    config = configuration.validate(raw)
    expected = manifest.expected_runs(config)
    assert expected["platforms"] == {
        name: platforms.shown(config["platforms"], name) for name in ("cluster", "laptop")
    }
    shown = [expected["platforms"]["cluster"][key] for key in ("title", "cloud", "published_as")]
    assert shown == ["Cloud", "gcp", "gcp-n1"]
    assert expected["platforms"]["laptop"]["title"] == "laptop"


def test_platforms_that_the_grid_does_not_name_are_left_out() -> None:
    assert list(manifest.expected_runs(valid_config())["platforms"]) == ["cluster"]


def test_the_price_of_a_run_is_that_of_its_nodes_with_their_gpus() -> None:
    raw = raw_config((("grid", 0, "gpus_per_node"), [0, 1, 4]), (("grid", 0, "nodes"), 1))
    raw["platforms"]["cluster"].update(PRICE, usd_per_gpu_hour=2.0)
    runs = manifest.expected_runs(configuration.validate(raw))["runs"]
    assert [entry["usd_per_node_hour"] for entry in runs] == [2.5, 4.5, 10.5]


def test_the_dataset_is_the_models_own_unless_the_recipe_names_one() -> None:
    config = valid_config()
    (run, _) = manifest.grid.expand(config, manifest.MODELS, manifest.STRATEGIES).runs
    assert manifest.dataset_of(config, run) == "mnist"
    named = valid_config((("recipes", "weak", "dataset"), "other"))
    assert manifest.dataset_of(named, run) == "other"
    assert manifest.expected_runs(named)["runs"][0]["parameters"]["dataset"] == "other"


def test_the_target_accuracy_is_passed_on_to_the_tables() -> None:
    assert manifest.expected_runs(valid_config())["target_accuracy"] is None
    config = valid_config((("comparison",), {"target_accuracy": 0.97}))
    expected = manifest.expected_runs(config)
    assert expected["target_accuracy"] == 0.97
    # the runs are the same with any target: none is made again for it
    assert expected["runs"] == manifest.expected_runs(valid_config())["runs"]


@pytest.mark.parametrize("target", [0, 1, 97, -0.5, "0.97"])
def test_a_target_that_is_no_accuracy_is_refused(target: Any) -> None:
    with pytest.raises(configuration.ConfigError, match="target_accuracy"):
        valid_config((("comparison",), {"target_accuracy": target}))


def test_the_list_survives_its_way_through_a_file() -> None:
    expected = manifest.expected_runs(valid_config())
    assert json.loads(json.dumps(expected)) == expected
