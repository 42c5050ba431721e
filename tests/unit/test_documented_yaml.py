"""Every block of YAML in the documentation goes through the plan, as a reader would use it.

A block with a grid is complete, but for the platforms of config/platforms.yaml. Other blocks are
added to a small study; recipes and platforms that they change get what these require.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import documents
import pytest
import yaml
from builders import REGISTRIES, REPOSITORY
from tfscaling.study import acceptance, config_files
from tfscaling.study.config_validation import REFERENCE_FILES
from tfscaling.tables import timings

PRICE = {"usd_per_node_hour": 1.0, "price_date": "2026", "price_source": "a list"}
PLATFORM = {"launcher": "srun", "nodes_max": 20, "cpus_per_node": 8, "gpus_per_node_max": 4}
RECIPE = {"per_replica_batch_size": 64, "learning_rate": 0.1, "epochs": 90}
BLOCK = {"model": "mnist_cnn", "recipe": "weak", "nodes": [1, 2]}
STUDY: dict[str, Any] = {
    "study": "documented",
    "grid": [{**BLOCK, "platform": "cpu"}, {**BLOCK, "platform": "gpu", "gpus_per_node": 1}],
    "recipes": {"weak": RECIPE, "shrunk": RECIPE},
    "platforms": {"cpu": PRICE, "gpu": PRICE, "virtual-cpu": PLATFORM, "virtual-gpu": PLATFORM},
}
BLOCKS = [
    (str(page.relative_to(REPOSITORY)), number, fence.text)
    for page in documents.pages()
    for number, fence in enumerate(documents.fences(page.read_text()))
    if fence.language == "yaml"
]


def sources_of(page: str, block: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the files that a reader has: the platforms, a small study if needed, the block."""
    content = yaml.safe_load(block)
    platforms: dict[str, Any] = dict(
        config_files.read_config_file(REPOSITORY / "config/platforms.yaml")
    )
    if page.startswith("docs/clouds/"):
        clouds = config_files.read_config_file(REPOSITORY / "provision/clouds/platforms.yaml")
        platforms["platforms"] |= clouds["platforms"]
    if "timings" in content or ("grid" in content and "recipes" in content):
        return [("config/platforms.yaml", platforms), ("block.yaml", content)]
    recipes = {
        name: {} if any(key.endswith("_batch_size") for key in recipe) else RECIPE
        for name, recipe in content.get("recipes", {}).items()
    }
    new = content.get("platforms", {}).keys() - platforms["platforms"].keys()
    study = {**STUDY, "recipes": {**STUDY["recipes"], **recipes}}
    study["platforms"] = {**STUDY["platforms"], **dict.fromkeys(new, PLATFORM)}
    return [("config/platforms.yaml", platforms), ("study.yaml", study), ("block.yaml", content)]


def write_files_of_reader(page: str, block: str) -> None:
    """Write what the block names into the current folder: programs, modules, folders."""
    shutil.copytree(REPOSITORY / "resources/own", "own")
    Path("examples").symlink_to(REPOSITORY / "examples")
    for environment in (".venv-torch", ".venv-jax", ".venv-tf_keras"):
        Path(environment).symlink_to(sys.prefix)
    for program in re.findall(r"[\w/.-]+\.py\b", block):
        Path(program).parent.mkdir(parents=True, exist_ok=True)
        Path(program).touch()
    for module in re.findall(r"\bown\.(\w+):data", block):
        Path(f"own/{module}.py").write_text("def data(context=None): ...\n")
    for other in documents.fences((REPOSITORY / page).read_text()):
        first = other.text.partition("\n")[0]
        if first.startswith("# ") and first.endswith(".py"):
            Path(first[2:]).parent.mkdir(exist_ok=True)
            Path(first[2:]).write_text(other.text)
    for name, rows in documents.timings((REPOSITORY / page).read_text()).items():
        Path(name).write_text(rows)
    for folder in re.findall(r"compare_with: (\S+)", block):
        for name in REFERENCE_FILES:
            Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, name).touch()


@pytest.mark.parametrize(
    ("page", "number", "block"), BLOCKS, ids=[f"{page}-{number}" for page, number, _ in BLOCKS]
)
def test_a_block_is_planned(
    page: str, number: int, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    write_files_of_reader(page, block)
    for absolute in ("/shared/envs/my-conda-env", "/shared/envs/tf218", "/data/mnist"):
        block = block.replace(absolute, sys.prefix)
    sources = sources_of(page, block)
    merged = timings.add_grid_of_timings(config_files.merge_configurations(sources))
    _, manifest = acceptance.validate_and_plan(merged, REGISTRIES, sources)
    assert manifest.runs
