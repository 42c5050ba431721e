"""Configuration files are read as they look, or refused with file and line."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import REPOSITORY
from tfscaling.study import config_files
from tfscaling.study.config_validation import ConfigError


def read(folder: Path, text: str) -> dict[str, Any]:
    path = folder / "overlay.yaml"
    path.write_text(text)
    return dict(config_files.read_config_file(path))


def chain(link: str) -> str:
    """A mapping of 5,000 values from line 2 on; each value contains the one before."""
    links = [f"k{n}: &a{n} {link.format(n - 1)}" for n in range(1, 5000)]
    return "\n".join(["a: 1", "k0: &a0 {b: []}", *links])


#: Text → beginning of the error.
REFUSED = {
    "key_twice": ("grid: []\nseed: 1\ngrid: []\n", "line 3: "),
    "key_twice_below": ("platforms:\n  cpu: {a: 1, 'a': 2}\n", "line 2: "),
    "key_twice_in_a_list": ("grid:\n  - {}\n  - b: 1\n    b: 1\n", "line 4: "),
    "key_twice_in_json": ('{"seed": 1,\n"seed": 2}', "line 2: "),
    "merged_twice": ("a: &a {b: 1}\nc:\n  <<: *a\n  <<: *a\n", "line 4: "),
    "key_that_is_true": ("recipes:\n  true: {}\n", "line 2: "),
    "key_that_is_a_number": ("env: {1: a}", "line 1: "),
    "key_of_several_parts": ("? [1, 2]\n: 3\n", "line 1: "),
    "recursive_alias": ("a: &a [1, *a]", "line 1: "),
    "too_large": ("a: 1.0e+400", "line 1: "),
    "too_many_digits": (f"a: {'9' * 5000}", ""),
    "control_character": ("a: 1\nb: \x07\n", ""),
    "nothing": ("# nothing\n", "the file is empty"),
    "no_yaml": ("a: [1,\nb: 2\n", "line "),
    "tab": ("a:\n\tb: 1\n", "line 2: "),
    "tag_of_python": ("a: !!python/name:os.system ''", "line 1: "),
    "list": ("- 1\n", "the whole file is not a mapping"),
    "brackets": (f"a:\n {'[' * 100_000}", "line 2: not valid YAML: more than 100 "),
    "braces": (f"a: 1\nb: {'{a: ' * 200}1{'}' * 200}", "line 2: not valid YAML: more than 100 "),
    "chain_of_lists": (chain("[*a{}]"), "line 101: not valid YAML: more than 100 "),
    "chain_of_mappings": (chain("{{b: 1, c: *a{}}}"), "line 101: not valid YAML: more than 100 "),
    "chain_of_merges": (chain("{{<<: *a{}}}"), "line 101: not valid YAML: more than 100 "),
    "megabytes": (f"a: [{'1,' * 3_000_000}]", "larger than allowed: 4,000,000 bytes"),
}


@pytest.mark.parametrize(("text", "start"), REFUSED.values(), ids=REFUSED)
def test_an_error_names_file_and_line(text: str, start: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    name, _, message = str(caught.value).partition("overlay.yaml: ")
    assert name == f"{tmp_path}/" and message.startswith(start)
    assert "\n" not in message


READ = {
    "numbers": ("a: [0, 7, -7, +7, 064, 0.5, .5, 5., -1.5, 1e-3, 1.5E+3, 01.5]\n", {
        "a": [0, 7, -7, 7, 64, 0.5, 0.5, 5.0, -1.5, 0.001, 1500.0, 1.5]}),
    "texts": ("a: ['064', 1:30, .nan, -.inf, on, yes, 0x10, 1_000, 2022-05-01]\non: '0x1'\n", {
        "a": ["064", "1:30", ".nan", "-.inf", "on", "yes", "0x10", "1_000", "2022-05-01"],
        "on": "0x1"}),
    "others": ("a: [true, False, null, ~, ]\nb:", {"a": [True, False, None, None], "b": None}),
    "text_of_several_lines": ("a: |\n  064\n  07\n", {"a": "064\n07\n"}),
    "key_of_a_merge_given_again": ("a: &a {b: 1, c: 2}\nd: {<<: *a, b: 3}\n", {
        "a": {"b": 1, "c": 2}, "d": {"b": 3, "c": 2}}),
    "merged_and_merged_again": ("a: &a {b: 1}\nc: {d: &d {<<: *a, b: 2}}\ne: {<<: *d}\n", {
        "a": {"b": 1}, "c": {"d": {"b": 2}}, "e": {"b": 2}}),
    "the_same_key_in_other_mappings": ("a: {x: 1}\nb: {x: 1}\nc: [{x: 1}, {x: 1}]\n", {
        "a": {"x": 1}, "b": {"x": 1}, "c": [{"x": 1}, {"x": 1}]}),
    "empty": ("{}\n", {}),
    "json": ('{"a":\t[1, 1e-3, null, true]}', {"a": [1, 0.001, None, True]}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "content"), READ.values(), ids=READ)
def test_what_is_as_it_looks_is_read(text: str, content: object, tmp_path: Path) -> None:
    assert read(tmp_path, text) == content


@pytest.mark.parametrize(
    "path",
    sorted(
        path
        for pattern in ("config/*.yaml", "studies/*/*.yaml", "provision/clouds/platforms.yaml")
        for path in REPOSITORY.glob(pattern)
    ),
    ids=str,
)
def test_the_projects_own_files_are_read_as_by_yaml(path: Path) -> None:
    assert config_files.read_config_file(str(path)) == yaml.safe_load(path.read_text())


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "overlay.yaml"
    path.write_bytes(b"seed: 1\nstudy: \xff\n")
    with pytest.raises(ConfigError):
        config_files.read_config_file(str(path))


#: Ways in which VALUE, forgotten quotes or a tag make a file of no YAML.
BROKEN_VALUES = (
    *("!VALUE", "!!VALUE", "!!VALUE x", "!a!VALUE x", "*VALUE", "&VALUE$", "%VALUE", "@VALUE"),
    *("`VALUE", '"VALUE', "'VALUE", "'a'VALUE", '"a"VALUE', '"\\VALUE"', "a: VALUE", "VALUE: a"),
    *("[VALUE", "{VALUE", "[VALUE}", "}VALUE", "- VALUE", "|VALUE", ">VALUE", "? VALUE"),
    *("!!int VALUE", "!!float VALUE", "!!bool VALUE", "!!timestamp VALUE", "!!binary VALUE"),
    *("!!omap VALUE", "!!set VALUE", "!!map VALUE", "!!pairs VALUE", "!!null VALUE", "!!seq VALUE"),
    *("!VALUE'x", "!!int VALUE's", """!!int 'VALUE"s "x'""", """!!int "VALUE's" """, "!VALUE'x'"),
    *("\x01VALUE", "\n <<: VALUE", "\n <<: [VALUE]", "\n\tVALUE", "\nVALUE", "\n VALUE"),
)


@pytest.mark.parametrize("form", BROKEN_VALUES)
def test_a_message_about_yaml_has_no_value(form: str, tmp_path: Path, dice: random.Random) -> None:
    """It may be a password that begins with a character of YAML."""
    secret = "".join(dice.choices("ghjkmnpqrtvwxyz", k=12))
    path = tmp_path / "study.yaml"
    path.write_text(f"platforms: {{}}\nenv:\n  TOKEN: {form.replace('VALUE', secret)}\nseed: 1\n")
    said = f"{path}: "
    try:
        config_files.read_config_file(path)  # some are YAML
    except ConfigError as error:
        said = str(error)
    assert secret not in said.lower() and said.startswith(f"{path}: ")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Is a directory"):
        config_files.read_config_file(str(tmp_path))


def test_mappings_are_merged_key_by_key_and_other_values_replaced() -> None:
    first = {"a": {"b": 1, "c": [1, 2]}, "d": 4, "e": {"f": 1}, "g": None}
    second = {"a": {"c": [3]}, "d": {"x": 1}, "e": None, "g": {"y": 2}}
    before = copy.deepcopy((first, second))
    merged = config_files.merge_configurations([("first", first), ("second", second)])
    assert merged == {"a": {"b": 1, "c": [3]}, "d": {"x": 1}, "e": None, "g": {"y": 2}}
    merged["a"]["c"].append(4)
    assert (first, second) == before


def test_a_platform_with_a_launcher_takes_nothing_from_one_with_its_name() -> None:
    known = {"gpu": {"launcher": "srun", "usd_per_node_hour": 2}, "cpu": {"launcher": "srun"}}
    complete = {"gpu": {"launcher": "local"}, "new": {"launcher": "srun"}}
    change = {"gpu": {"nodes_max": 3}}
    sources = [(str(number), {"platforms": each}) for number, each in enumerate((known, complete))]
    merged = config_files.merge_configurations([*sources, ("last", {"platforms": change})])
    assert merged["platforms"] == {
        "gpu": {"launcher": "local", "nodes_max": 3},
        "cpu": {"launcher": "srun"},
        "new": {"launcher": "srun"},
    }
    wrong = config_files.merge_configurations(
        [("a", {"platforms": known}), ("b", {"platforms": ["gpu"]})]
    )
    assert wrong["platforms"] == ["gpu"]
