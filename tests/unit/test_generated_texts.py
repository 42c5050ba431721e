"""What `make schemas` writes: schemas of the configuration and of records, tables of the README."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator
from project import REPOSITORY
from tfscaling.study.config import Config
from tfscaling.study.schemas import of, structs

SCHEMAS = sorted((REPOSITORY / "workflow/schemas").glob("*.schema.yaml"))


def generate(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = repository / "workflow/schemas/generate.py"
    return subprocess.run(
        [sys.executable, str(script), *arguments], text=True, capture_output=True, check=False
    )


def test_the_files_are_those_of_the_types() -> None:
    assert generate(REPOSITORY, "--check").stderr == ""


def test_a_new_key_reaches_schema_and_readme(tmp_path: Path) -> None:
    for name in ("workflow", "config", "docs"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    types = tmp_path / "workflow/scripts/tfscaling/study/config.py"
    head = "class PlotOptions(Keys, frozen=True, kw_only=True):\n"
    key = '    dpi: Annotated[int, Meta(ge=50), about("This is the resolution.", "dpi")] = 100\n'
    before, after = types.read_text().split(head)
    docstring, rest = after.split("\n\n", 1)
    types.write_text(f"{before}{head}{docstring}\n\n{key}{rest}")

    checked = generate(tmp_path, "--check")
    assert checked.returncode == 1
    assert checked.stderr.strip().endswith(": config.schema.yaml, README.md")
    assert generate(tmp_path).returncode == 0
    assert generate(tmp_path, "--check").returncode == 0
    schema = yaml.safe_load((tmp_path / "workflow/schemas/config.schema.yaml").read_text())
    assert (
        schema["properties"]["plots"]["additionalProperties"]["properties"]["dpi"]["minimum"] == 50
    )
    row = "| `dpi` | integer | dpi | `100` | ≥ 50 | This is the resolution. |"
    assert row in (tmp_path / "config/README.md").read_text().splitlines()


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_schemas_are_valid_and_closed(path: Path) -> None:
    schema = yaml.safe_load(path.read_text())
    Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("kind", sorted(set(structs(Config)), key=str))
def test_every_key_is_described_by_sentences(kind: type[msgspec.Struct]) -> None:
    for key, rules in of(kind)["properties"].items():
        text = rules["description"]
        assert text[0] in "`12345" or text[0].isupper() or text.startswith("sbatch "), key
        assert text.endswith("."), key
