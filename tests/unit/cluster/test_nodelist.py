"""Expansion of Slurm's node lists and task counts, and the errors for broken ones."""

from __future__ import annotations

import random
import re

import pytest
from tfscaling.cluster.nodelist import NodeListError, expand_node_list, expand_task_counts

EXPANSIONS = {
    "single_name": ("login", ["login"]),
    "white_space_around": (" n1\n", ["n1"]),
    "zero_padding": ("node[001-003,010]", ["node001", "node002", "node003", "node010"]),
    "padding_overflows_its_width": ("n[9-11]", ["n9", "n10", "n11"]),
    "suffix_and_another_name": ("n[1-2]-ib,m", ["n1-ib", "n2-ib", "m"]),
    "no_prefix": ("[1-2]", ["1", "2"]),
    "descending_order_is_kept": ("n[2,1]", ["n2", "n1"]),
    "duplicates_are_kept": ("n1,n[1-2],n[1,1]", ["n1", "n1", "n2", "n1", "n1"]),
    "aws": (
        "gpu1-st-g4dnxl-1,gpu1-dy-g4dnxl-[1-2]",
        ["gpu1-st-g4dnxl-1", "gpu1-dy-g4dnxl-1", "gpu1-dy-g4dnxl-2"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "names"), EXPANSIONS.values(), ids=EXPANSIONS)
def test_expand(text: str, names: list[str]) -> None:
    assert expand_node_list(text) == names


def drawn_group(dice: random.Random) -> tuple[str, list[str]]:
    """A name with numbers in brackets, and the names that it means."""
    prefix, width, parts, names = dice.choice(["n", "gpu-", "r0c"]), dice.randint(1, 4), [], []
    for _ in range(dice.randint(1, 4)):
        first = dice.randrange(1000)
        last = first + dice.choice([0, 1, dice.randrange(700)])
        texts = [f"{number:0{width}d}" for number in range(first, last + 1)]
        parts.append(texts[0] if first == last else f"{texts[0]}-{texts[-1]}")
        names += [prefix + text for text in texts]
    return f"{prefix}[{','.join(parts)}]", names


def test_expand_what_is_drawn(dice: random.Random) -> None:
    groups = [drawn_group(dice) for _ in range(dice.randint(1, 3))]
    text = ",".join(text for text, _ in groups)
    assert expand_node_list(text) == [name for _, names in groups for name in names]
    (one, ones), (other, others) = drawn_group(dice), ("c[1-2]", ["c1", "c2"])
    assert expand_node_list(one + other) == [first + second for first in ones for second in others]


@pytest.mark.parametrize(
    "text",
    ["", "  ", "a,n[1-2", "n1-2],a", "n[1-2]]", "n[1-[2]]", "n[]", "n[1-2,a]", "n[1-]", "n[1-2-3]",
     "m,n[1,3-2]", "n[0-999999999]", f"n[{'9' * 5000}]", "n[0-999][0-999]", ",n1", "n1,,n2", "n1,",
     "n1 n2", "n1\tn2", "(null)", "None assigned", "n[1-2],ñ1", "n[٣]"],
)  # fmt: skip
def test_a_broken_list_is_shown(text: str) -> None:
    with pytest.raises(NodeListError, match=re.escape(repr(text))):
        expand_node_list(text)


def test_expand_task_counts(dice: random.Random) -> None:
    drawn = [(dice.randint(1, 128), dice.randint(1, 40)) for _ in range(dice.randint(1, 5))]
    texts = [f"{n}" if times == 1 else f"{n}(x{times})" for n, times in drawn]
    counts = [n for n, times in drawn for _ in range(times)]
    assert expand_task_counts(",".join(texts)) == counts
    assert expand_task_counts(f" {texts[0]}\n") == [drawn[0][0]] * drawn[0][1]
    assert expand_task_counts("2(x1),3") == [2, 3]


@pytest.mark.parametrize(
    "text",
    ["", "2,x", "-1", "2,", "2(x3", "1,2(3)", "2, 1", "2(x0)", "1,2(x9999999)", "2(x99999),1(x2)"],
)
def test_broken_counts_are_shown(text: str) -> None:
    with pytest.raises(NodeListError, match=re.escape(repr(text))):
        expand_task_counts(text)
