"""Expansion of Slurm's node lists and task counts, and the errors for broken ones."""

from __future__ import annotations

import re

import pytest
from tfscaling.cluster.nodelist import NodeListError, expand, expand_task_counts

EXPANSIONS = {
    "single_name": ("login", ["login"]),
    "white_space_around": (" n1\n", ["n1"]),
    "zero_padding": ("node[001-003,010]", ["node001", "node002", "node003", "node010"]),
    "padding_overflows_its_width": ("n[9-11]", ["n9", "n10", "n11"]),
    "ranges_with_commas": ("n[1-2,5,7-8]", ["n1", "n2", "n5", "n7", "n8"]),
    "three_groups": ("r[0-1]c[1-2]n[3,1]", [
        f"r{r}c{c}n{n}" for r in (0, 1) for c in (1, 2) for n in (3, 1)
    ]),
    "suffix_and_another_name": ("n[1-2]-ib,m", ["n1-ib", "n2-ib", "m"]),
    "no_prefix": ("[1-2]", ["1", "2"]),
    "descending_order_is_kept": ("n[2,1]", ["n2", "n1"]),
    "duplicates_are_kept": ("n1,n[1-2],n[1,1]", ["n1", "n1", "n2", "n1", "n1"]),
    "aws": (
        "gpu1-st-g4dnxl-1,gpu1-dy-g4dnxl-[1-2]",
        ["gpu1-st-g4dnxl-1", "gpu1-dy-g4dnxl-1", "gpu1-dy-g4dnxl-2"],
    ),
    "hundreds": ("c[0001-0640]", [f"c{number:04d}" for number in range(1, 641)]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "names"), EXPANSIONS.values(), ids=EXPANSIONS)
def test_expand(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    ["", "  ", "a,n[1-2", "n1-2],a", "n[1-2]]", "n[1-[2]]", "n[]", "n[1-2,a]", "n[1-]", "n[1-2-3]",
     "m,n[1,3-2]", "n[0-999999999]", f"n[{'9' * 5000}]", "n[0-999][0-999]", ",n1", "n1,,n2", "n1,",
     "n1 n2", "n1\tn2", "(null)", "None assigned", "n[1-2],ñ1", "n[٣]"],
)  # fmt: skip
def test_a_broken_list_is_shown(text: str) -> None:
    with pytest.raises(NodeListError, match=re.escape(repr(text))):
        expand(text)


COUNTS = {
    "one": ("2", [2]),
    "repeated": ("2(x3),1", [2, 2, 2, 1]),
    "each": ("4,2", [4, 2]),
    "repeated_once": ("2(x1)", [2]),
    "mixed": ("1,16(x2),3", [1, 16, 16, 3]),
    "white_space_around": (" 2(x2)\n", [2, 2]),
}


@pytest.mark.parametrize(("text", "counts"), COUNTS.values(), ids=COUNTS)
def test_expand_task_counts(text: str, counts: list[int]) -> None:
    assert expand_task_counts(text) == counts


@pytest.mark.parametrize(
    "text",
    ["", "2,x", "-1", "2,", "2(x3", "1,2(3)", "2, 1", "2(x0)", "1,2(x9999999)", "2(x99999),1(x2)"],
)
def test_broken_counts_are_shown(text: str) -> None:
    with pytest.raises(NodeListError, match=re.escape(repr(text))):
        expand_task_counts(text)
