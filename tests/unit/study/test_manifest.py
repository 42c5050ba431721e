"""The run manifest: what is planned, and its way through a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import REGISTRIES, raw_config, valid_config
from tfscaling.study import acceptance, config_validation
from tfscaling.study.config_types import Config
from tfscaling.study.manifest import Manifest, ManifestError

PRICE = {"usd_per_node_hour": 2.5, "price_date": "2022", "price_source": "list"}


def manifest_of(config: Config) -> Manifest:
    return acceptance.plan_grid(config, REGISTRIES)


def test_the_platforms_of_the_grid_with_their_titles() -> None:
    raw = raw_config((("platforms", "cluster", "title"), "Cloud"), (("grid", 0, "nodes"), [1, 9]))
    raw["platforms"]["cluster"].update(PRICE, cloud="gcp", published_as="gcp-n1")
    assert list(manifest_of(config_validation.convert_to_types(raw)).platforms) == ["cluster"]
    raw["grid"].append({**raw["grid"][0], "platform": "laptop"})
    platforms = manifest_of(config_validation.convert_to_types(raw)).platforms
    assert [platform.title for platform in platforms.values()] == ["Cloud", "laptop"]
    assert platforms["cluster"].published_as == "gcp-n1"


def test_the_price_of_a_run_is_that_of_its_nodes_with_their_gpus() -> None:
    raw = raw_config((("grid", 0, "gpus_per_node"), [0, 1, 4]), (("grid", 0, "nodes"), 1))
    raw["platforms"]["cluster"].update(PRICE, usd_per_gpu_hour=2.0)
    runs = manifest_of(config_validation.convert_to_types(raw)).runs
    assert [run.usd_per_node_hour for run in runs] == [2.5, 4.5, 10.5]


def test_targets_are_passed_on_and_change_no_run() -> None:
    without = manifest_of(valid_config())
    limits = {"test_accuracy": {"at_least": 0.97}, "execution_time_s": {"at_most": "1 h"}}
    with_target = manifest_of(valid_config((("question",), {"limits": limits})))
    assert (without.targets, with_target.targets) == ({}, {"test_accuracy": 0.97})
    assert with_target.runs == without.runs


def test_strategies_that_train_the_same_model_are_named() -> None:
    names = manifest_of(valid_config()).synchronous_strategies
    assert "multi_worker_mirrored" in names
    assert "parameter_server" not in names


def test_a_manifest_survives_its_way_through_a_file(tmp_path: Path) -> None:
    raw = raw_config((("grid", 0, "nodes"), [1, 2, 9]))
    raw["platforms"]["cluster"].update(PRICE, setup=["a"], env={"A": "1"})
    written = manifest_of(config_validation.convert_to_types(raw))
    written.write(tmp_path / "manifest.json")
    read = Manifest.read(tmp_path / "manifest.json")
    assert read == written
    # thousands of runs need the memory of one recipe
    assert len({id(run.spec.recipe) for run in read.runs}) == 1 < len(read.runs)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"schema_version": 1, "runs": []}, "schema_version 1, not 4"),
        ({"runs": []}, "missing required field `schema_version`"),
        ({"schema_version": 4, "runs": []}, "missing required field"),
    ],
)
def test_a_manifest_of_another_version_is_refused(
    content: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ManifestError) as caught:
        Manifest.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
