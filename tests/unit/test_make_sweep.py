"""`make sweep`: variables to an overlay, and clear errors; plan and sweep are Snakemake's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import make_sweep
import pytest
import yaml
from jsonschema import Draft202012Validator
from make_sweep import DEFAULTS, SweepError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which snakemake runs, with two platforms."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    platforms = {"laptop": {"launcher": "local"}, "cpu": {"launcher": "srun"}}
    (tmp_path / "config/platforms.yaml").write_text(yaml.safe_dump({"platforms": platforms}))
    return tmp_path


def written(**given: str) -> dict[str, Any]:
    """The overlay of these variables."""
    content: dict[str, Any] = yaml.safe_load(path_of(**given).read_text())
    return content


def path_of(**given: str) -> Path:
    variables = {**DEFAULTS, **given}
    return make_sweep.write(variables["study"], make_sweep.overlay_of(variables))


def test_the_grid_is_what_was_asked_for() -> None:
    overlay = written(nodes="1,2,4", gpus="0, 2", platform="cpu", repeats="3", study="mine")
    assert overlay["study"] == "mine"
    assert overlay["grid"] == [
        {
            "platform": "cpu", "model": "mnist_cnn", "recipe": "epochs-2-batch-64",
            "nodes": [1, 2, 4], "gpus_per_node": [0, 2], "repeats": 3,
        }
    ]  # fmt: skip
    assert overlay["recipes"]["epochs-2-batch-64"]["learning_rate"] > 0


def test_editors_find_the_schema_that_the_overlay_passes() -> None:
    path = path_of(nodes="1")
    (named,) = re.findall(r"\$schema=(.+)", path.read_text())
    schema = yaml.safe_load((path.parent / named).read_text())
    assert Draft202012Validator(schema).is_valid(yaml.safe_load(path.read_text()))


def test_a_model_of_the_users_keeps_its_optimizer() -> None:
    overlay = written(nodes="1", model="own.mine:model", dataset="own.mine:data", epochs="5")
    assert overlay["recipes"] == {
        "own.mine-data-epochs-5-batch-64": {
            "per_replica_batch_size": 64, "epochs": 5, "dataset": "own.mine:data"
        }
    }  # fmt: skip


def test_a_recipe_of_the_configuration_is_taken_as_it_is() -> None:
    overlay = written(nodes="1", recipe="weak")
    assert "recipes" not in overlay
    assert overlay["grid"][0]["recipe"] == "weak"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "NODES"),
        ({"nodes": "1,x"}, 'NODES: "x"'),
        ({"nodes": "0"}, 'NODES: "0"'),
        ({"nodes": "1", "gpus": "-1"}, 'GPUS: "-1"'),
        ({"nodes": "1", "repeats": "0"}, 'REPEATS: "0"'),
        ({"nodes": "1", "study": "../config/config"}, 'STUDY: "../config/config"'),
        ({"nodes": "1", "recipe": "weak", "epochs": "3"}, 'EPOCHS: "3"'),
        ({"nodes": "1", "model": "own.mine:model"}, 'MODEL: "own.mine:model"'),
    ],
)
def test_a_wrong_variable_is_named_with_its_value(given: dict[str, str], named: str) -> None:
    with pytest.raises(SweepError) as error:
        make_sweep.overlay_of({**DEFAULTS, **given})
    assert str(error.value).startswith(named)


def test_the_platform_decides_how_runs_are_submitted() -> None:
    assert make_sweep.launcher_of("laptop") == "local"
    assert make_sweep.profile_of("local").endswith("profiles/local")
    assert make_sweep.profile_of("srun").endswith("profiles/slurm")
    with pytest.raises(SweepError, match="did you mean 'laptop'"):
        make_sweep.launcher_of("laptp")


def test_it_writes_over_its_own_files_alone(folder: Path) -> None:
    written(nodes="1")
    assert written(nodes="2")["grid"][0]["nodes"] == [2]
    (folder / "sweeps/sweep.yaml").write_text("study: sweep\n")
    with pytest.raises(SweepError, match="STUDY"):
        written(nodes="1")
    assert (folder / "sweeps/sweep.yaml").read_text() == "study: sweep\n"
