"""Configuration files, read by YAML 1.2.

By YAML 1.1, 064 is 52, 1:30 is 90, the key `on` is true, and the first of two equal keys is
ignored. Here 064 is 64, 1:30 and `on` are texts, and a duplicate key is an error.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml
from yaml.constructor import ConstructorError

from tfscaling.study.config_validation import ConfigError, RawConfig, Sources, quote_for_message

_TAG = "tag:yaml.org,2002:"
#: Largest size of a file in bytes, and largest depth of nested lists and mappings: beyond them,
#: libyaml's composer would take all memory, or overflow its stack and end Python.
BYTES_MAX, DEPTH_MAX = 4_000_000, 100
#: A part of the file in a message of PyYAML: it may be a secret. Single characters and names of
#: tokens, such as `<block end>`, are none.
_QUOTED = re.compile(r"""(['"])((?:\\.|(?!\1).)*)\1""")
_TOO_DEEP = f"more than {DEPTH_MAX} lists or mappings in each other"
#: Kind of a plain value → regular expression of its form, and the characters with which it begins.
_FORMS = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?[0-9]+", list("-+0123456789")),
    "float": (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    "merge": (r"<<", ["<"]),
}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's loader, with libyaml if it is installed; it reads plain values as in YAML 1.2."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def get_single_node(self) -> yaml.Node | None:
        """Return the document as YAML nodes, None if it is empty.

        Raises:
            ConstructorError: For a key that is no text or is duplicate, a recursive alias, and
                aliases that nest values too deep.
        """
        node: yaml.Node | None = super().get_single_node()
        if node is not None:
            _check_node(node, {})
        return node

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        """Return the integer of a node, read as decimal digits: 064 is 64."""
        return int(node.value)

    def construct_number(self, node: yaml.ScalarNode) -> float:
        """Return the floating-point number of a node.

        Raises:
            ConstructorError: If it is too large for a float.
        """
        if not math.isfinite(value := float(node.value)):
            raise ConstructorError(None, None, "the number is not finite", node.start_mark)
        return value


for _kind, (_form, _first) in _FORMS.items():
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"(?:{_form})\Z"), _first)
_Loader.add_constructor(_TAG + "int", _Loader.construct_integer)
_Loader.add_constructor(_TAG + "float", _Loader.construct_number)


def _check_node(node: yaml.Node, depths: dict[int, int], above: tuple[int, ...] = ()) -> int:
    """Check keys, aliases and depth of a YAML node; return its depth.

    The depth is the number of lists and mappings that are nested in each other, this node included;
    0 for a plain value. An alias is as deep as the value that it repeats.

    Args:
        node: The node to check, with all nodes inside.
        depths: Identity of each node that was checked already → its depth.
        above: Identities of the nodes that contain this node.

    Raises:
        ConstructorError: For a key that is no text or is duplicate, an alias inside the value that
            it repeats, and a depth of more than DEPTH_MAX.
    """
    if id(node) in above:
        raise ConstructorError(None, None, "an alias in the value that it repeats", node.start_mark)
    if id(node) in depths or isinstance(node, yaml.ScalarNode):
        return depths.get(id(node), 0)
    inside, depth, lines = (*above, id(node)), 0, dict[str, int]()
    for item in node.value:
        if isinstance(node, yaml.SequenceNode):
            depth = max(depth, _check_node(item, depths, inside))
            continue
        key, value = item
        if key.tag not in (_TAG + "str", _TAG + "merge"):
            rule = "the key is not a text: write it in quotes"
            is_in_braces = isinstance(node, yaml.MappingNode) and node.flow_style
            if is_in_braces and node.value[0][0] is not key:
                rule += ", or a number without commas"
            raise ConstructorError(None, None, rule, key.start_mark)
        if key.value in lines:
            name = quote_for_message(key.value)
            rule = f"a duplicate key, {name}: line {lines[key.value]} has it already"
            raise ConstructorError(None, None, rule, key.start_mark)
        lines[key.value] = key.start_mark.line + 1
        depth = max(depth, _check_node(value, depths, inside))
    depths[id(node)] = depth + 1
    if depth >= DEPTH_MAX:
        raise ConstructorError(None, None, _TOO_DEEP, node.start_mark)
    return depth + 1


def _check_depth(text: str) -> None:
    """Raise ConstructorError if lists and mappings are nested more than DEPTH_MAX deep."""
    depth = 0
    event: Any  # libyaml's marks have another type than PyYAML's
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX:
            raise ConstructorError(None, None, _TOO_DEEP, event.start_mark)


def merge_configurations(sources: Sources) -> dict[str, Any]:
    """Return configurations merged key by key, also in nested mappings; later values override.

    A platform that has the key `launcher` is complete: it replaces earlier entries with its name.
    """
    merged: dict[str, Any] = {}
    for _, content in sources:
        platforms, earlier = content.get("platforms"), merged.get("platforms")
        if isinstance(platforms, Mapping) and isinstance(earlier, dict):
            for name, platform in platforms.items():
                if isinstance(platform, Mapping) and "launcher" in platform:
                    earlier.pop(name, None)
        _merge_into(merged, content)
    return merged


def _merge_into(merged: dict[str, Any], content: RawConfig) -> None:
    """Update `merged` with `content` in place, nested mappings key by key; values are copied."""
    for key, value in content.items():
        if not isinstance(value, Mapping):
            merged[key] = copy.deepcopy(value)
            continue
        if not isinstance(merged.get(key), dict):
            merged[key] = {}
        _merge_into(merged[key], value)


def read_config_file(name: str | Path) -> RawConfig:
    """Return the top-level mapping of a YAML file, not yet validated.

    Args:
        name: Path of the file.

    Raises:
        ConfigError: If the file cannot be read, is empty, not UTF-8, or no YAML; with the line.
    """
    try:
        with Path(name).open("rb") as file:
            encoded = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from None
    if len(encoded) > BYTES_MAX:
        raise ConfigError(f"{name}: larger than allowed: {BYTES_MAX:,} bytes")
    try:
        text = encoded.decode("utf-8-sig")
        _check_depth(text)
        content = _Loader(text).get_single_data()
    except UnicodeDecodeError as error:
        line, byte = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        rule = f"not UTF-8: byte {byte:#04x}; save the file in the encoding UTF-8"
        raise ConfigError(f"{name}: line {line}: {rule}") from None
    except (AttributeError, KeyError):  # PyYAML's, as of `!!timestamp x` and `!!bool x`
        rule = "a value has not the form of its tag; write it without the tag"
        raise ConfigError(f"{name}: not valid YAML: {rule}") from None
    except (ValueError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        reason = " ".join((getattr(error, "problem", None) or str(error)).split())
        reason = _QUOTED.sub(_mask_quoted_value, reason)
        hint = (
            _syntax_hint(reason, text.splitlines()[mark.line : mark.line + 1], mark.column)
            if mark
            else ""
        )
        raise ConfigError(
            f"{name}: {where}not valid YAML: {quote_for_message(reason, 300)}{hint}"
        ) from None
    if content is None:
        raise ConfigError(f"{name}: the file is empty; allowed: keys with values")
    if not isinstance(content, dict):
        raise ConfigError(f"{name}: the whole file is not a mapping; allowed: keys with values")
    return content


def _mask_quoted_value(quoted: re.Match[str]) -> str:
    """Return a match of `_QUOTED` unchanged if it is a character or a token, else `***`."""
    return quoted[0] if len(quoted[2]) == 1 or quoted[2].startswith("<") else "***"


def _syntax_hint(reason: str, lines: list[str], column: int) -> str:
    """Return how to correct a YAML syntax error, as the end of a message; "" if unknown.

    Args:
        reason: The parser's description of the error.
        lines: A list with the line of the error; empty if the text has no such line.
        column: Position of the error in the line, from 0.
    """
    line = lines[0] if lines else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "; indent with spaces, not with tabs"
    if "cannot start any token" in reason:
        return f"; write the value that begins with {line[column : column + 1]} in quotes"
    if "mapping values are not allowed" in reason:
        quotes = "write a value that contains a colon and a space in quotes"
        return f"; {quotes}, or correct the indentation"
    if "undefined alias" in reason:
        return "; write a value that begins with * in quotes"
    if "expected ',' or" in reason:
        return "; a bracket or a comma is missing before it"
    if "expected key" in reason or "expected <block end>" in reason:
        return "; indent the keys of a mapping equally"
    if "expected '-' indicator" in reason:
        return "; indent the keys of an item equally, or begin a new item with a hyphen"
    if "unexpected end of stream" in reason:
        return "; a quote is missing before it"
    return "; write `key: value`, with a space" if "expected ':'" in reason else ""
