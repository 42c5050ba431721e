"""config/README.md explains every key of the schemas, with its default, and no key of the past."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tfscaling.plots.plot_registry import PLOTS
from tfscaling.records.metrics import METRICS
from tfscaling.study import configuration
from tfscaling.training.models import MODELS
from tfscaling.training.strategies import STRATEGIES

README = (Path(__file__).parents[2] / "config/README.md").read_text()


def rows(heading: str) -> dict[str, str]:
    """Key → its row, of the first table below a heading."""
    section = README.split(f"## {heading}\n")[1].split("\n## ")[0]
    return {m[1]: m[0] for m in re.finditer(r"^\| `([^`]+)`.*$", section, re.MULTILINE)}


@pytest.mark.parametrize(("heading", "schema"), [("Recipes", "recipe"), ("Platforms", "platform")])
def test_tables_of_keys(heading: str, schema: str) -> None:
    table, properties = rows(heading), configuration.properties(schema)
    assert list(table) == list(properties)
    for key, definition in properties.items():
        assert definition["description"] in table[key]
        assert ("` * |" in table[key]) == bool(definition.get("measured"))
        if "default" in definition:
            assert f"`{json.dumps(definition['default'])}`" in table[key]
        else:
            assert "| required |" in table[key]


def test_table_of_the_grid() -> None:
    block = configuration.load_schema("config")["$defs"]["block"]
    table = rows("The grid")
    assert list(table) == list(block["properties"])
    for key in block["required"]:
        assert "| required |" in table[key]


@pytest.mark.parametrize("key", ["comparison", "published", "all_reduce_benchmark"])
def test_keys_of_the_rest_are_described_with_their_defaults(key: str) -> None:
    table = rows("The rest of config.yaml")
    for name, definition in configuration.properties("config")[key]["properties"].items():
        row = table[f"{key}.{name}"]
        default = json.dumps(definition["default"], ensure_ascii=False)
        assert f"| `{default}` |" in row or "see `config.yaml`" in row
    assert [name for name in table if name.startswith(f"{key}.")] == [
        f"{key}.{name}" for name in configuration.properties("config")[key]["properties"]
    ]


def test_every_registered_name_is_listed() -> None:
    for name in [*METRICS, *PLOTS, *MODELS, *STRATEGIES]:
        assert f"`{name}`" in README


def test_every_key_of_the_top_level_is_listed() -> None:
    for key in configuration.properties("config"):
        assert f"`{key}" in README or f"## {key.capitalize()}\n" in README or f"{key}:\n" in README
