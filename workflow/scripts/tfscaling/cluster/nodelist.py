"""Slurm's two compact notations, written out: node lists and task counts per node.

Slurm writes a node list as ``node[001-003,010],login1`` and the numbers of tasks on those
nodes, in the same order, as ``2(x3),1``.  The rank of a task follows that order, so nothing
here sorts or removes duplicates.

Source of the notations: the Slurm manual pages of ``srun`` (output environment variables) and
``scontrol`` (``show hostnames``), with which the results are compared in the tests.
"""

from __future__ import annotations

import re

import hostlist  # type: ignore[import-untyped, unused-ignore]

# Far beyond any real cluster; stops a list such as n[0-999999999] from filling the memory.
# It is the limit of the node-list library, checked here to be able to mark the place.
MAX_NODES: int = hostlist.MAX_SIZE

_NAME_CHARACTERS = re.compile(r"[A-Za-z0-9._-]")
# Longer numbers are no node numbers, and Python refuses to convert very long ones.
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_TASK_COUNT = re.compile(r"([0-9]{1,18})(?:\(x([0-9]{1,18})\))?")


class NodeListError(ValueError):
    """A node list or list of task counts that cannot be read.

    The message has three lines: what is wrong, the text, and a caret below the place.

    Attributes:
        text: the text that was read.
        position: index into ``text`` of the place that is wrong.
    """

    def __init__(self, what: str, text: str, position: int, reason: str) -> None:
        self.text = text
        self.position = position
        super().__init__(
            f"cannot read the {what}: {reason}\n    {_printable(text)}\n    {' ' * position}^"
        )


def expand(text: str) -> list[str]:
    """Write out a Slurm node list.

    Args:
        text: for example ``n[8-10],rack[0-1]n[0-1],login``; white space around it is ignored.

    Returns:
        The node names, shape [nodes], in Slurm's order; leading zeros and duplicates are kept,
        and of several bracket groups in a name the last one varies fastest.

    Raises:
        NodeListError: the list is empty or broken; the message marks the place.
    """
    stripped = text.strip()
    _check_node_list(stripped)
    try:
        names: list[str] = hostlist.expand_hostlist(stripped, allow_duplicates=True)
    except hostlist.BadHostlist as error:  # such as several groups whose product is too large
        raise NodeListError("node list", stripped, 0, str(error)) from error
    return names


def expand_task_counts(text: str) -> list[int]:
    """Write out Slurm's numbers of tasks per node.

    Args:
        text: for example ``2(x3),1``; white space around it is ignored.

    Returns:
        One count per node, shape [nodes], in the order of the node list: ``[2, 2, 2, 1]``.

    Raises:
        NodeListError: the text is empty or broken; the message marks the place.
    """
    what = "list of task counts"
    stripped = text.strip()
    counts: list[int] = []
    position = 0
    while True:
        match = _TASK_COUNT.match(stripped, position)
        if match is None:
            raise NodeListError(what, stripped, position, "expected a number of tasks")
        repetitions = 1 if match[2] is None else int(match[2])
        if not 1 <= repetitions <= MAX_NODES - len(counts):
            reason = f"a repetition must be from 1 to {MAX_NODES} nodes in all"
            raise NodeListError(what, stripped, match.start(2), reason)
        counts.extend([int(match[1])] * repetitions)
        position = match.end()
        if position == len(stripped):
            return counts
        if stripped[position] != ",":
            reason = "expected a comma, or a repetition such as (x3)"
            raise NodeListError(what, stripped, position, reason)
        position += 1


def _check_node_list(text: str) -> None:
    """Raise NodeListError at the first fault.

    The library alone would let ``n1,,n2``, ``a b`` and ``(null)`` pass, and does not say where
    a fault is.
    """

    def fail(position: int, reason: str) -> None:
        raise NodeListError("node list", text, position, reason)

    if not text:
        fail(0, "it is empty")
    name_is_empty = True
    position = 0
    while position < len(text):
        character = text[position]
        if character == ",":
            if name_is_empty:
                fail(position, "expected a node name before the comma")
            name_is_empty = True
            position += 1
        elif character == "[":
            closing = text.find("]", position)
            if closing < 0:
                fail(position, "this bracket is never closed")
            _check_ranges(text, position + 1, closing)
            name_is_empty = False
            position = closing + 1
        elif character == "]":
            fail(position, "this bracket was never opened")
        elif _NAME_CHARACTERS.match(character):
            name_is_empty = False
            position += 1
        else:
            fail(position, f"{character!r} cannot be part of a node name")
    if name_is_empty:
        fail(len(text), "expected a node name after the comma")


def _check_ranges(text: str, start: int, end: int) -> None:
    """Raise NodeListError at the first fault in ``text[start:end]``, the inside of brackets."""
    position = start
    for part in text[start:end].split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            reason = "expected a number or a range such as 1-3"
            raise NodeListError("node list", text, position, reason)
        if match[2] is not None:
            length = int(match[2]) - int(match[1]) + 1
            if length < 1:
                raise NodeListError("node list", text, position, "the range runs backwards")
            if length > MAX_NODES:
                reason = f"the range has more than {MAX_NODES} nodes"
                raise NodeListError("node list", text, position, reason)
        position += len(part) + 1


def _printable(text: str) -> str:
    """Replace control characters one for one, so that the caret stays below its place."""
    return "".join(character if character.isprintable() else "?" for character in text)
