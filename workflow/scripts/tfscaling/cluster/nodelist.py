"""Slurm's two compact notations, written out: node lists and task counts per node.

Slurm writes a node list as ``node[001-003,010],login1`` and the numbers of tasks on the same nodes,
in the same order, as ``2(x3),1``. The rank of a task follows that order, so no function here sorts
or removes duplicates.

Source of the notations: the Slurm manual pages of ``srun`` (output environment variables) and
``scontrol`` (``show hostnames``), with which the results are compared in the tests.
"""

from __future__ import annotations

import itertools
import math
import re

# Far beyond any real cluster; stops a list such as n[0-999999999] from filling the memory.
MAX_NODES = 100_000

# Longer numbers are no node numbers, and Python refuses to convert very long ones.
_RANGE = r"[0-9]{1,18}(?:-[0-9]{1,18})?"
_NAME = rf"(?:[A-Za-z0-9._-]|\[{_RANGE}(?:,{_RANGE})*\])+"
_NODE_LIST = re.compile(rf"{_NAME}(?:,{_NAME})*")
_TASK_COUNT = re.compile(r"([0-9]{1,18})(?:\(x([0-9]{1,18})\))?")


class NodeListError(ValueError):
    """A node list or list of task counts that cannot be read."""


def expand_node_list(text: str) -> list[str]:
    """Return the node names in a Slurm node list.

    Args:
        text: for example ``n[8-10],rack[0-1]n[0-1],login``; white space around it is ignored.

    Returns:
        The node names, shape [nodes], in Slurm's order; leading zeros and duplicates are kept. If a
        name has several bracket groups, the last one varies fastest.

    Raises:
        NodeListError: the list is empty, broken or longer than MAX_NODES.
    """
    if not _NODE_LIST.fullmatch(text.strip()):
        raise NodeListError(f"{text!r} is no node list; expected one such as n[1-3,7],login")
    names: list[str] = []
    for name in re.findall(_NAME, text.strip()):
        # fixed parts alternate with the ranges in brackets
        pieces = [
            _expand_ranges(piece, text) if number % 2 else [piece]
            for number, piece in enumerate(re.split(r"\[(.*?)\]", name))
        ]
        _check_size(len(names) + math.prod(map(len, pieces)), text)
        names += map("".join, itertools.product(*pieces))
    return names


def _expand_ranges(ranges: str, text: str) -> list[str]:
    """Return the numbers in brackets as texts, with their leading zeros.

    Args:
        ranges: The part between brackets: ``001-003,010``.
        text: The node list, for the error.

    Raises:
        NodeListError: a range ends before it begins, or is longer than MAX_NODES.
    """
    numbers: list[str] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        own = range(int(first), int(last or first) + 1)
        if not own:
            raise NodeListError(f"{text!r} is no node list: {part} ends before it begins")
        _check_size(len(numbers) + len(own), text)
        numbers += (f"{number:0{len(first)}d}" for number in own)
    return numbers


def _check_size(names: int, text: str) -> None:
    """Raise NodeListError for a list with more than MAX_NODES names."""
    if names > MAX_NODES:
        raise NodeListError(f"{text!r} is no node list: it has more than {MAX_NODES} names")


def expand_task_counts(text: str) -> list[int]:
    """Return the number of tasks on each node, from Slurm's compact notation.

    Args:
        text: for example ``2(x3),1``; white space around it is ignored.

    Returns:
        One count per node, shape [nodes], in the order of the node list: ``[2, 2, 2, 1]``.

    Raises:
        NodeListError: the text is empty or broken.
    """
    counts: list[int] = []
    for part in text.strip().split(","):
        match = _TASK_COUNT.fullmatch(part)
        repetitions = int(match[2] or 1) if match else 0
        if not match or not 1 <= repetitions <= MAX_NODES - len(counts):
            raise NodeListError(
                f"{text!r} is no list of task counts; expected one such as 2(x3),1 for"
                f" 1 to {MAX_NODES} nodes"
            )
        counts += [int(match[1])] * repetitions
    return counts
