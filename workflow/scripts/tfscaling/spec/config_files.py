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
from typing import Any, NoReturn

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

_Place = tuple[str | int, ...]


def read(name: str) -> RawConfig:
    """The content of a configuration file.

    Raises ConfigError for the first value that YAML does not read as it looks, and for duplicate
    keys.
    """
    text = _text_of(name)
    try:
        content = json.loads(text, object_pairs_hook=_pairs, parse_constant=_refuse_constant)
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
    """A value is not what it looks like: the key and what is wrong, in YAML after the line."""


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    for key, _ in pairs if len(found) < len(pairs) else ():
        if sum(other == key for other, _ in pairs) > 1:
            rule = "its mapping has the key already"
            raise _NotStrictError(f"{plain(key)}: a duplicate key is not allowed; {rule}")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise _NotStrictError(f"{text} is not allowed; allowed: finite numbers")


def _read_yaml(name: str, text: str) -> Any:
    loader = _Loader(text)
    try:
        _check_depth(text)
        node = loader.get_single_node()
        if node is None:
            return None
        seen: set[int] = set()
        for count, (place, value) in enumerate(_values(node, ())):
            if count >= VALUES_MAX:
                rule = f"allowed: {VALUES_MAX} values, those that aliases repeat counted each time"
                raise _NotStrictError(f"the whole file is not allowed; {rule}")
            if id(value) not in seen:
                seen.add(id(value))
                _check(value, place, loader)
        return loader.construct_document(node)
    except _NotStrictError as error:
        raise ConfigError(f"{name}: {error}") from None
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
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            raise RecursionError


def _values(
    node: yaml.Node, place: _Place, above: tuple[yaml.Node, ...] = ()
) -> Iterator[tuple[_Place, yaml.Node]]:
    """All values of a file in its order, with their places; `above` are the nodes around this."""
    if any(node is other for other in above):
        message = "a recursive alias is not allowed; it is part of the value that it repeats"
        raise _wrong(node, place, message)
    yield place, node
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _values(item, (*place, number), (*above, node))
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            # what is merged (`<<: *other`) becomes part of this mapping
            below = place if key.tag == _TAG + "merge" else (*place, key.value)
            yield from _values(value, below, (*above, node))


def _check(node: yaml.Node, place: _Place, loader: Any) -> None:
    """Raise _NotStrictError for keys that are no texts or duplicates, and for unclear values."""
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if key.tag not in (_TAG + "str", _TAG + "merge"):
                scalar = isinstance(key, yaml.ScalarNode)
                name = plain(key.value) if scalar else ""
                shown, example = (name, f', "{name}"') if scalar else ("of several parts", "")
                rule = f"allowed: a text; write it in quotes{example}"
                raise _wrong(key, place, f"the key {shown} is not allowed; {rule}")
            if key.value in lines:
                rule = f"line {lines[key.value]} has the key already"
                raise _wrong(key, (*place, key.value), f"a duplicate key is not allowed; {rule}")
            lines[key.value] = key.start_mark.line + 1
    elif isinstance(node, yaml.ScalarNode) and not node.style:
        try:
            rule = _rule(node.tag.removeprefix(_TAG), node, loader)
        except ValueError as error:  # no date of the calendar, more digits than Python reads
            rule = f"{error}; write quotes around it where text is meant"
        if rule:
            raise _wrong(node, place, f"{plain(node.value)} is not allowed; {rule}")


def _wrong(node: yaml.Node, place: _Place, message: str) -> _NotStrictError:
    return _NotStrictError(f"line {node.start_mark.line + 1}: {key_of(place)}: {message}")


def _rule(kind: str, node: yaml.ScalarNode, loader: Any) -> str:
    """What is allowed instead of a plain value that YAML does not read as it looks, or nothing."""
    text = node.value
    if kind == "timestamp":
        loader.construct_yaml_timestamp(node)
    if kind == "int" and not _INTEGER.match(text):
        digits = text.replace("_", "")
        value = loader.construct_yaml_int(node)
        meant = int(digits) if digits.lstrip("+-").isdecimal() else value
        return f"YAML reads {value} here; write {meant}, or quotes around it where text is meant"
    if kind == "int":
        loader.construct_yaml_int(node)
    if kind == "float":
        value = loader.construct_yaml_float(node)
        if not math.isfinite(value):
            return "allowed: a finite number"
        if not _FLOAT.match(text):
            return f"YAML reads {value} here; write that, or quotes around it where text is meant"
    return ""
