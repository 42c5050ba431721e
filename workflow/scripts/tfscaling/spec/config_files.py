"""Configuration files read strictly: every value is what it looks like.

Snakemake reads the same files by YAML 1.1, in which 064 is 52, 0x10 is 16, 1_000 is 1000 and 1:30
is 90, the key `on` is true, and the first of two equal keys is dropped. Here each of these is an
error with file, line and key.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from tfscaling.spec.configuration import ConfigError, RawConfig, key_of, plain

#: The parser of libyaml where PyYAML has it: ten times as quick.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\Z")

#: A file has at most this many values, those that aliases repeat counted each time.
VALUES_MAX = 1_000_000

#: Lists and mappings in each other.
DEPTH_MAX = 100

_Path = tuple[str | int, ...]


def read(name: str) -> RawConfig:
    """The content of a configuration file.

    Raises ConfigError for the first value that YAML does not read as it looks, and for duplicate
    keys.
    """
    text = _text_of(name)
    try:
        content = json.loads(text, object_pairs_hook=_pairs, parse_constant=_no_constant)
    except _NotStrictError as error:
        raise ConfigError(f"{name}: {error}") from None
    except (ValueError, RecursionError):
        content = _read_yaml(name, text)
    if not isinstance(content, dict):
        raise ConfigError(f"{name}: the whole file is not a mapping; allowed: keys with values")
    return content


def _text_of(name: str) -> str:
    try:
        content = Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        wrong = f"the byte 0x{content[error.start]:02x} is no text"
        raise ConfigError(f"{name}: line {line}: not valid YAML: {wrong}; allowed: UTF-8") from None


class _NotStrictError(Exception):
    """A JSON file has a duplicate key, NaN or infinity."""


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise _NotStrictError(
                f"{key}: a duplicate key is not allowed; its mapping has the key already"
            )
        found[key] = value
    return found


def _no_constant(text: str) -> Any:
    raise _NotStrictError(f"{text} is not allowed; allowed: finite numbers")


def _read_yaml(name: str, text: str) -> Any:
    loader = _Loader(text)
    try:
        _check_depth(text)
        node = loader.get_single_node()
        if node is None:
            return None
        for line, message in _problems(node, (), loader, set(), ()):
            raise ConfigError(f"{name}: line {line}: {message}")
        if _count(node, {}) > VALUES_MAX:
            rule = f"allowed: {VALUES_MAX} values, those that aliases repeat counted each time"
            raise ConfigError(f"{name}: the whole file is not allowed; {rule}")
        return loader.construct_document(node)
    except ConfigError:
        raise
    except RecursionError:
        rule = f"allowed: {DEPTH_MAX} lists and mappings in each other"
        raise ConfigError(f"{name}: the whole file is not allowed; {rule}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        wrong = f"the character {text[error.position]!a} is not allowed"
        raise ConfigError(f"{name}: line {line}: not valid YAML: {wrong}") from None
    except (ValueError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        reason = " ".join((getattr(error, "problem", None) or str(error)).split())
        raise ConfigError(f"{name}: {where}not valid YAML: {plain(reason, 300)}") from None
    finally:
        loader.dispose()


def _check_depth(text: str) -> None:
    """Raise RecursionError beyond DEPTH_MAX; libyaml would take all of the stack and be ended."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX:
            raise RecursionError


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """Values of a node with all below it, an alias like what it repeats; `known` by their ids."""
    if id(node) not in known:
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            inner = [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            inner = node.value
        known[id(node)] = 1 + sum(_count(each, known) for each in inner)
    return known[id(node)]


def _problems(
    node: yaml.Node, path: _Path, loader: Any, done: set[int], above: tuple[yaml.Node, ...]
) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) in the order of the file.

    `done` has the ids of the nodes looked at: what an alias repeats is looked at once. `above` are
    the nodes around this one.
    """
    if any(node is other for other in above):
        message = "a recursive alias is not allowed; it is part of the value that it repeats"
        yield _line(node), f"{key_of(path)}: {message}"
    elif id(node) not in done:
        done.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield from _problems_of_mapping(node, path, loader, done, (*above, node))
        elif isinstance(node, yaml.SequenceNode):
            for number, item in enumerate(node.value):
                yield from _problems(item, (*path, number), loader, done, (*above, node))
        elif _is_plain(node) and (rule := _rule(node, loader)) is not None:
            yield _line(node), f"{key_of(path)}: {plain(node.value)} is not allowed; {rule}"


def _problems_of_mapping(
    node: yaml.MappingNode, path: _Path, loader: Any, done: set[int], above: tuple[yaml.Node, ...]
) -> Iterator[tuple[int, str]]:
    lines: dict[str, int] = {}
    for key, value in node.value:
        if key.tag not in (_TAG + "str", _TAG + "merge"):
            scalar = isinstance(key, yaml.ScalarNode)
            name = plain(key.value) if scalar else ""
            shown, example = (name, f', "{name}"') if scalar else ("of several parts", "")
            rule = f"allowed: a text; write it in quotes{example}"
            yield _line(key), f"{key_of(path)}: the key {shown} is not allowed; {rule}"
        elif key.value in lines:
            rule = f"line {lines[key.value]} has the key already"
            shown = key_of((*path, key.value))
            yield _line(key), f"{shown}: a duplicate key is not allowed; {rule}"
        else:
            lines[key.value] = _line(key)
            # what is merged (`<<: *other`) becomes part of this mapping
            below = path if key.tag == _TAG + "merge" else (*path, key.value)
            yield from _problems(value, below, loader, done, above)


def _is_plain(node: yaml.Node) -> TypeGuard[yaml.ScalarNode]:
    return isinstance(node, yaml.ScalarNode) and not node.style


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _rule(node: yaml.ScalarNode, loader: Any) -> str | None:
    """What is allowed instead of a plain value that YAML does not read as it looks, or None."""
    kind, text = node.tag.removeprefix(_TAG), node.value
    try:
        return _rule_of(kind, text, node, loader)
    except ValueError as error:  # no date of the calendar, more digits than Python reads
        return f"{error}; write quotes around it where text is meant"


def _rule_of(kind: str, text: str, node: yaml.ScalarNode, loader: Any) -> str | None:
    if kind == "timestamp":
        loader.construct_yaml_timestamp(node)
    if kind == "int":
        value = loader.construct_yaml_int(node)
    if kind == "int" and not _INTEGER.match(text):
        digits = text.replace("_", "")
        meant = int(digits) if digits.lstrip("+-").isdecimal() else value
        return f"YAML reads {value} here; write {meant}, or quotes around it where text is meant"
    if kind == "float":
        value = loader.construct_yaml_float(node)
        if not math.isfinite(value):
            return "allowed: a finite number"
        if not _FLOAT.match(text):
            return f"YAML reads {value} here; write that, or quotes around it where text is meant"
    return None
