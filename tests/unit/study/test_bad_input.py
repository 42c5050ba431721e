"""Whatever the files of the configuration say: a plan, or one line that says what is wrong.

`make fuzz` draws some thousands of cases; hypothesis prints those that fail and how to draw them
again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import bad_values
import msgspec
import pytest
import yaml
from builders import MINIMAL, REGISTRIES, REPOSITORY
from hypothesis import given
from hypothesis import strategies as st
from tfscaling.page.plot_registry import plot_titles
from tfscaling.study import (
    acceptance,
    config_files,
    config_validation,
    platforms,
    run_spec,
    variants,
)
from tfscaling.study.config_types import Config, MeasuredKeys
from tfscaling.study.config_validation import ConfigError
from tfscaling.study.manifest import Manifest
from tfscaling.tables import published_results

PLACES = bad_values.places()
#: FILE: [line N:] KEY: VALUE is not allowed; what is, or a key that is missing or unknown.
MESSAGE = re.compile(
    r"(?:\S+\.yaml|--config|\S+\.csv)(?::.*)?: "
    r".*(?:not allowed; .+|missing; it has no default.*|unknown key; .+|not valid YAML: .+"
    r"|not a mapping; .+|the file is empty; .+|cannot be read: .+|not UTF-8.*)"
)


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The project folder of all cases, with a model of the user's, and nothing else at the end."""
    path, before = tmp_path_factory.mktemp("project"), Path.cwd()
    (path / "own.py").write_text("def model(depth=1): ...\ndef data(depth=1): ...\n")
    os.chdir(path)
    try:
        yield path
        written = {each.name for each in path.iterdir()}
        assert written <= {"own.py", "overlay.yaml", *WHOLE, *(each.name for each in FILES)}
    finally:
        os.chdir(before)


def accepted(*names: str) -> tuple[Config, Manifest] | str:
    """What the workflow makes of the files, or its message."""
    try:
        sources = [(name, config_files.read_config_file(name)) for name in names]
        found = acceptance.validate_and_plan(
            config_files.merge_configurations(sources), REGISTRIES, sources
        )
        published_results.check_file(found[0].published.path, sources)
    except ConfigError as error:
        return str(error)
    return found


def check(found: tuple[Config, Manifest] | str) -> str | Manifest:
    """Assert one line with all that it must say, or a plan that stays in its place; return it."""
    if isinstance(found, str):
        assert "\n" not in found and len(found) < 3000 and MESSAGE.fullmatch(found), found
        return found
    config, manifest = found
    assert msgspec.json.decode(manifest.encode(), type=Manifest) == manifest
    plot_titles(config.plots, manifest.qualities.values())
    for run in manifest.runs[:20]:
        spec = run.spec
        assert re.fullmatch(r"([a-z_]+=[A-Za-z0-9][\w.+:=-]*/?)+", spec.path), spec.path
        assert re.fullmatch(r"[\w.+:=-]+", variants.data_name_of_run(spec) or "none")
        run_spec.encode_spec(spec)
        resources = platforms.slurm_resources(
            found[0].platforms[spec.point.platform], spec.geometry
        )
        assert all("\n" not in str(value) for value in resources.values())
    return manifest


@given(bad_values.changes(PLACES))
def test_every_key(folder: Path, wanted: list[bad_values.Change]) -> None:
    content = bad_values.changed(MINIMAL, wanted)
    Path("overlay.yaml").write_text(yaml.safe_dump(content, allow_unicode=True))
    assert check(accepted("overlay.yaml"))


#: Files that each study needs.
WHOLE = {
    "config.yaml": REPOSITORY / "config/config.yaml",
    "platforms.yaml": REPOSITORY / "config/platforms.yaml",
    "clouds.yaml": REPOSITORY / "provision/clouds/platforms.yaml",
}
FILES = sorted([*REPOSITORY.glob("config/*.yaml"), *REPOSITORY.glob("studies/*/*.yaml")])


@given(st.data())
def test_every_file(folder: Path, data: st.DataObject) -> None:
    damaged = data.draw(st.sampled_from(FILES))
    text = data.draw(bad_values.mutated(damaged.read_bytes()))
    whole = {name: path.read_bytes() for name, path in WHOLE.items()}
    files = {**whole, damaged.name: text}
    for name, content in files.items():
        Path(name).write_bytes(content)
    assert check(accepted(*files))


def test_every_key_of_the_types_is_drawn() -> None:
    drawn = {place.path[-1] for place in PLACES}
    kinds = set(config_validation.nested_structs(Config)) - {MeasuredKeys}
    keys = {field.encode_name for kind in kinds for field in msgspec.structs.fields(kind)}
    assert keys <= drawn
