"""Lines of keys in configuration files, for error messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml


def line_of(name: str, place: Sequence[str | int]) -> int | None:
    """Return the line of the deepest key or item on the way to a place.

    Args:
        name: The file. It is read again: only errors need the lines of its keys.
        place: Keys and indices from the top of the file to a value, which may be missing.

    Returns:
        The line, counted from 1; None if there is no such file, or if it has no key on the way.
    """
    try:
        node = yaml.compose(Path(name).read_bytes(), Loader=yaml.SafeLoader)
    except (OSError, yaml.YAMLError):
        return None
    line = None
    for step in place:
        found = _find_entry(node, step)
        if found is None:
            break
        key, node = found
        line = key.start_mark.line + 1
    return line


def _find_entry(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the nodes of a key and its value, or twice the node of an item; None without it."""
    if isinstance(node, yaml.MappingNode):
        return next((entry for entry in node.value if entry[0].value == step), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None
