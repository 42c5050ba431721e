"""Configuration files are read as they look, or refused with file, line and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import REPOSITORY
from tfscaling.spec import config_files
from tfscaling.spec.configuration import ConfigError


def read(folder: Path, text: str) -> dict[str, Any]:
    path = folder / "overlay.yaml"
    path.write_text(text)
    return config_files.read(str(path))


def error_of(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    name, separator, message = str(caught.value).partition("overlay.yaml: ")
    assert (name, separator) == (f"{folder}/", "overlay.yaml: ")
    assert "\n" not in message
    return message


#: text → (line, key, value) and what the rule must contain
REFUSED: dict[str, tuple[str, str, str]] = {
    "leading_zero": (
        "recipes:\n  weak:\n    per_replica_batch_size: 064\n",
        "line 3: recipes.weak.per_replica_batch_size: 064 is not allowed; ",
        "YAML reads 52 here; write 64",
    ),
    "leading_zero_in_a_list": (
        "grid:\n  - {nodes: [1, 010]}\n", "line 2: grid[0].nodes[1]: 010 is not allowed; ",
        "YAML reads 8 here; write 10",
    ),
    "leading_zero_behind_a_sign": ("seed: -017", "line 1: seed: -017 is not ", "write -17"),
    "hexadecimal": ("seed: 0x40", "line 1: seed: 0x40 is not allowed; ", "write 64"),
    "binary": ("seed: 0b11", "line 1: seed: 0b11 is not allowed; ", "write 3"),
    "underscore": ("seed: 1_000", "line 1: seed: 1_000 is not allowed; ", "write 1000"),
    "base_60": ("runtime_min: 1:30", "line 1: runtime_min: 1:30 is not ", "YAML reads 90 here"),
    "fraction_of_base_60": ("a: 1:30.5", "line 1: a: 1:30.5 is not ", "YAML reads 90.5 here"),
    "fraction_with_underscore": ("a: 1_0.5", "line 1: a: 1_0.5 is not ", "YAML reads 10.5 here"),
    "fraction_with_leading_zero": ("a: 01.5", "line 1: a: 01.5 is not ", "YAML reads 1.5 here"),
    "not_a_number": ("a: {b: .NaN}", "line 1: a.b: .NaN is not allowed; ", "a finite number"),
    "infinity": ("a: [-.inf]", "line 1: a[0]: -.inf is not allowed; ", "a finite number"),
    "too_large": ("a: 1.0e+400", "line 1: a: 1.0e+400 is not allowed; ", "a finite number"),
    "key_twice": (
        "grid: []\nseed: 1\ngrid: []\n", "line 3: grid: a duplicate key is not allowed; ",
        "line 1 has the key already",
    ),
    "key_twice_below": (
        "platforms:\n  laptop: {}\n  cpu: {a: 1, 'a': 2}\n",
        "line 3: platforms.cpu.a: a duplicate key is not allowed; ", "line 3 has",
    ),
    "key_twice_in_a_list": (
        "grid:\n  - {}\n  - b: 1\n    b: 1\n", "line 4: grid[1].b: a duplicate key", "line 3",
    ),
    "merged_twice": (
        "a: &a {b: 1}\nc:\n  <<: *a\n  <<: *a\n", "line 4: c.<<: a duplicate key", "line 3",
    ),
    "leading_zero_in_what_is_merged": ("a:\n  <<: {b: 07}\n", "line 2: a.b: 07 is not", "write 7"),
    "key_that_is_true": (
        "recipes:\n  on: {}\n", "line 2: recipes: the key on is not allowed; ", 'quotes, "on"',
    ),
    "key_that_is_a_number": ("env: {1: a}", "line 1: env: the key 1 is not ", 'quotes, "1"'),
    "key_that_is_a_date": ("a: {2022-05-01: a}", "line 1: a: the key 2022-05-01", "2022-05-01"),
    "key_that_is_empty": ("a: {~: a}", "line 1: a: the key ~ is not ", "in quotes"),
    "key_of_several_parts": ("? [1, 2]\n: 3\n", "line 1: the whole file: the key of ", "a text"),
    "recursive_alias": ("a: &a [1, *a]", "line 1: a[1]: a recursive alias is not allowed; ", ""),
    "date_that_there_is_not": (
        "a: 2020-13-45", "line 1: a: 2020-13-45 is not allowed; ", "month must be in 1..12",
    ),
    "too_many_digits": (f"a: {'9' * 5000}", "line 1: a: \"999", "write quotes"),
    "too_many_brackets": (
        f"a: {'[' * 100_000}", "the whole file is not allowed; ", "100 lists and mappings",
    ),
    "control_character": ("a: 1\nb: \x07\n", "line 2: not valid YAML: ", "'\\x07' is not allowed"),
    "odd_key": ("'a\tb': 07\n", 'line 1: "a\\tb": 07 is not allowed; ', "write 7"),
    "nothing": ("# nothing\n", "the whole file is not a mapping", "keys with values"),
    "no_yaml": ("a: [1,\nb: 2\n", "line 3: not valid YAML: ", ""),
    "tab": ("a:\n\tb: 1\n", "line 2: not valid YAML: ", ""),
    "tag_of_python": ("a: !!python/name:os.system ''", "line 1: not valid YAML: ", ""),
    "list": ("- 1\n", "the whole file is not a mapping", ""),
    "json_key_twice": ('{"seed": 1,\t"seed": 2}', "seed: a duplicate key is not allowed; ", ""),
    "json_not_a_number": ('{"seed":\tNaN}', "NaN is not allowed; allowed: finite numbers", ""),
}  # fmt: skip


@pytest.mark.parametrize(("text", "start", "rule"), REFUSED.values(), ids=list(REFUSED))
def test_what_would_be_read_as_something_else_is_refused(
    text: str, start: str, rule: str, tmp_path: Path
) -> None:
    message = error_of(tmp_path, text)
    assert message.startswith(start)
    assert rule in message


READ = {
    "numbers": ("a: [0, 7, -7, +7, 10, 0.5, .5, 5., -1.5, 1.0e-3, 1.5E+3, 2.e+2]\n", {
        "a": [0, 7, -7, 7, 10, 0.5, 0.5, 5.0, -1.5, 0.001, 1500.0, 200.0]}),
    "quoted": ("a: ['064', \"1:30\", '.nan', 'on']\n'on': '0x1'\n", {
        "a": ["064", "1:30", ".nan", "on"], "on": "0x1"}),
    "truth_values": ("a: [true, false, yes, off]", {"a": [True, False, True, False]}),
    "text_of_several_lines": ("a: |\n  064\n  07\n", {"a": "064\n07\n"}),
    "key_of_a_merge_given_again": ("a: &a {b: 1, c: 2}\nd: {<<: *a, b: 3}\n", {
        "a": {"b": 1, "c": 2}, "d": {"b": 3, "c": 2}}),
    "several_merged": ("a: &a {b: 1}\nc: &c {d: 2}\ne: {<<: [*a, *c]}\n", {
        "a": {"b": 1}, "c": {"d": 2}, "e": {"b": 1, "d": 2}}),
    "the_same_key_in_other_mappings": ("a: {x: 1}\nb: {x: 1}\nc: [{x: 1}, {x: 1}]\n", {
        "a": {"x": 1}, "b": {"x": 1}, "c": [{"x": 1}, {"x": 1}]}),
    "empty": ("{}\n", {}),
    "json": ('{"a":\t[1, 1e-3, null, true]}', {"a": [1, 0.001, None, True]}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "content"), READ.values(), ids=list(READ))
def test_what_is_as_it_looks_is_read(text: str, content: object, tmp_path: Path) -> None:
    assert read(tmp_path, text) == content


@pytest.mark.parametrize("path", sorted((REPOSITORY / "config").glob("*.yaml")), ids=str)
def test_the_projects_own_files_pass_and_are_read_as_by_yaml(path: Path) -> None:
    assert config_files.read(str(path)) == yaml.safe_load(path.read_text())


def aliases(depth: int) -> str:
    """A list of lists, each of which repeats the one before nine times."""
    lines = ["a0: &a0 [1, 2]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, depth)]
    return "\n".join(lines)


def test_what_aliases_repeat_may_not_be_more_than_memory_holds(tmp_path: Path) -> None:
    assert len(read(tmp_path, aliases(6))) == 6
    message = error_of(tmp_path, aliases(60))  # 9 to the power of 59 values
    assert message.startswith("the whole file ")


def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "overlay.yaml"
    path.write_bytes(b"seed: 1\nstudy: \xff\n")
    with pytest.raises(ConfigError, match=r"line 2: .* 0xff"):
        config_files.read(str(path))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Is a directory"):
        config_files.read(str(tmp_path))


def test_without_libyaml_the_same_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_files, "_Loader", yaml.SafeLoader)
    for text, start, _ in REFUSED.values():
        if "not valid YAML" not in start:  # the parsers differ in the line that they name
            assert error_of(tmp_path, text).startswith(start)
    for text, content in READ.values():
        assert read(tmp_path, text) == content
