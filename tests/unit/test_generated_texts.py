"""What `make schemas` writes: schemas of the configuration and of records, tables of the README."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator
from project import REPOSITORY
from tfscaling.study.config_types import Config
from tfscaling.study.config_validation import json_schema, nested_structs

#: Files of the configuration, and the folder in which each is used if it is another one.
CONFIGURATIONS: dict[str, str | None] = dict.fromkeys(
    str(path.relative_to(REPOSITORY))
    for pattern in (
        *("config/*.yaml", "examples/*/config.yaml", ".test/config/*.yaml"),
        *("docs/screenshots/*/config.yaml", "studies/*/*.yaml", "provision/clouds/platforms.yaml"),
    )
    for path in sorted(REPOSITORY.glob(pattern))
) | {"resources/own/config.yaml": "own"}
SCHEMAS = sorted((REPOSITORY / "workflow/schemas").glob("*.schema.yaml"))


def generate(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = repository / "workflow/schemas/generate.py"
    return subprocess.run(
        [sys.executable, str(script), *arguments], text=True, capture_output=True, check=False
    )


def test_limits_and_texts_are_those_of_the_types() -> None:
    done = generate(REPOSITORY, "--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_new_key_reaches_schema_and_readme(tmp_path: Path) -> None:
    for name in ("workflow", "config", "docs"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    types = tmp_path / "workflow/scripts/tfscaling/study/config_types.py"
    head = "class PlotOptions(ConfigMapping, frozen=True, kw_only=True):\n"
    key = '    dpi: Annotated[int, number_meta("dpi", ge=50)] = 100\n'
    key += '    """This is the resolution."""\n'
    before, after = types.read_text().split(head)
    docstring, rest = after.split("\n\n", 1)
    types.write_text(f"{before}{head}{docstring}\n\n{key}{rest}")

    checked = generate(tmp_path, "--check")
    assert checked.returncode == 1
    assert checked.stderr.strip().endswith(": config.schema.yaml, overlay.schema.yaml, README.md")
    assert generate(tmp_path).returncode == 0
    schema = yaml.safe_load((tmp_path / "workflow/schemas/config.schema.yaml").read_text())
    assert (
        schema["properties"]["plots"]["additionalProperties"]["properties"]["dpi"]["minimum"] == 50
    )
    row = "| `dpi` | dpi, ≥ 50 | `100` | This is the resolution. |"
    assert row in (tmp_path / "config/README.md").read_text().splitlines()


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_schemas_are_valid_and_closed(path: Path) -> None:
    schema = yaml.safe_load(path.read_text())
    Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("kind", sorted(set(nested_structs(Config)), key=str))
def test_every_key_is_described_by_sentences(kind: type[msgspec.Struct]) -> None:
    for key, rules in json_schema(kind)["properties"].items():
        text = rules["description"]
        assert text[0] in "`12345" or text[0].isupper() or text.startswith("sbatch "), key
        assert text.endswith("."), key


@functools.cache
def validator(schema: str) -> Draft202012Validator:
    """That of the schema in a file, read once."""
    return Draft202012Validator(yaml.safe_load(Path(schema).read_text()))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_each_configuration_passes_the_schema_that_it_names(name: str) -> None:
    path = REPOSITORY / name
    (named,) = re.findall(
        r"^# yaml-language-server: \$schema=(.+)$", path.read_text(), re.MULTILINE
    )
    schema = os.path.normpath(REPOSITORY / (CONFIGURATIONS[name] or Path(name).parent) / named)
    assert list(validator(schema).iter_errors(yaml.safe_load(path.read_text()))) == []


@pytest.mark.parametrize(
    ("overlay", "is_right"),
    [
        ({"platforms": {"laptop": {"nodes_max": 2}}}, True),
        ({"recipes": {"own": {"quality": {"unit": "min"}}}, "plots": {"epochs": None}}, True),
        ({"platforms": {"laptop": {"node_max": 2}}}, False),
        ({"grid": [{"platform": "laptop", "recipe": "own"}]}, False),
        ({"grids": []}, False),
    ],
)
def test_an_overlay_may_be_partial_but_not_wrong(overlay: dict[str, Any], is_right: bool) -> None:
    schema = str(REPOSITORY / "workflow/schemas/overlay.schema.yaml")
    assert validator(schema).is_valid(overlay) is is_right
