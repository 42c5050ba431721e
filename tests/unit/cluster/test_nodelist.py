"""Expansion of Slurm's node lists and task counts, and the errors for broken ones."""

from __future__ import annotations

import pytest
from tfscaling.cluster.nodelist import NodeListError, expand, expand_task_counts

EXPANSIONS = {
    "single_name": ("login", ["login"]),
    "single_name_with_number": ("n1", ["n1"]),
    "white_space_around": (" n1\n", ["n1"]),
    "range": ("n[1-3]", ["n1", "n2", "n3"]),
    "single_number_in_brackets": ("n[7]", ["n7"]),
    "range_over_ten_keeps_numeric_order": ("n[8-11]", ["n8", "n9", "n10", "n11"]),
    "zero_padding": ("node[001-003,010]", ["node001", "node002", "node003", "node010"]),
    "padding_grows_past_its_width": ("n[08-10]", ["n08", "n09", "n10"]),
    "padding_overflows_its_width": ("n[9-11]", ["n9", "n10", "n11"]),
    "ranges_with_commas": ("n[1-2,5,7-8]", ["n1", "n2", "n5", "n7", "n8"]),
    "several_prefixes": ("b[1-2],a3", ["b1", "b2", "a3"]),
    "two_groups": ("rack[0-1]n[0-1]", ["rack0n0", "rack0n1", "rack1n0", "rack1n1"]),
    "three_groups": ("r[0-1]c[1-2]n[3,1]", [
        f"r{r}c{c}n{n}" for r in (0, 1) for c in (1, 2) for n in (3, 1)
    ]),
    "suffix": ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
    "suffix_and_another_name": ("n[1-2]-ib,m", ["n1-ib", "n2-ib", "m"]),
    "dots_and_hyphens": ("gpu-[1-2].a.b", ["gpu-1.a.b", "gpu-2.a.b"]),
    "no_prefix": ("[1-2]", ["1", "2"]),
    "descending_order_is_kept": ("n[2,1]", ["n2", "n1"]),
    "order_of_groups_is_kept": ("n3,n[1-2]", ["n3", "n1", "n2"]),
    "duplicates_are_kept": ("n1,n[1-2],n[1,1]", ["n1", "n1", "n2", "n1", "n1"]),
    "gcp": ("tfbench-cpu-[0-2]", ["tfbench-cpu-0", "tfbench-cpu-1", "tfbench-cpu-2"]),
    "gcp_over_ten": ("g1-c-0-[8-10]", ["g1-c-0-8", "g1-c-0-9", "g1-c-0-10"]),
    "aws": (
        "gpu1-st-g4dnxl-1,gpu1-dy-g4dnxl-[1-2]",
        ["gpu1-st-g4dnxl-1", "gpu1-dy-g4dnxl-1", "gpu1-dy-g4dnxl-2"],
    ),
    "aws_addresses": (
        "ip-172-31-22-[12,130],ip-172-31-45-2",
        ["ip-172-31-22-12", "ip-172-31-22-130", "ip-172-31-45-2"],
    ),
    "hundreds": ("c[0001-0640]", [f"c{number:04d}" for number in range(1, 641)]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "names"), EXPANSIONS.values(), ids=EXPANSIONS)
def test_expand(text: str, names: list[str]) -> None:
    assert expand(text) == names


BROKEN_LISTS = {
    "empty": ("", 0, "empty"),
    "white_space": ("  ", 0, "empty"),
    "open_bracket": ("a,n[1-2", 3, "never closed"),
    "closing_bracket": ("n1-2],a", 4, "never opened"),
    "second_closing_bracket": ("n[1-2]]", 6, "never opened"),
    "nested_brackets": ("n[1-[2]]", 2, "number or a range"),
    "empty_brackets": ("n[]", 2, "number or a range"),
    "letters_in_range": ("n[1-2,a]", 6, "number or a range"),
    "half_a_range": ("n[1-]", 2, "number or a range"),
    "three_part_range": ("n[1-2-3]", 2, "number or a range"),
    "backwards": ("m,n[1,3-2]", 6, "backwards"),
    "too_long": ("n[0-999999999]", 2, "more than"),
    "too_many_digits": (f"n[{'9' * 5000}]", 2, "number or a range"),
    "product_too_long": ("n[0-999][0-999]", 0, "too large"),
    "leading_comma": (",n1", 0, "before the comma"),
    "double_comma": ("n1,,n2", 3, "before the comma"),
    "trailing_comma": ("n1,", 3, "after the comma"),
    "space_inside": ("n1 n2", 2, "cannot be part"),
    "tab_inside": ("n1\tn2", 2, "cannot be part"),
    "slurm_null": ("(null)", 0, "cannot be part"),
    "slurm_none_assigned": ("None assigned", 4, "cannot be part"),
    "letter_of_another_alphabet": ("n[1-2],ñ1", 7, "cannot be part"),
    "digit_of_another_alphabet": ("n[٣]", 2, "number or a range"),
}


@pytest.mark.parametrize(("text", "position", "reason"), BROKEN_LISTS.values(), ids=BROKEN_LISTS)
def test_broken_list_is_shown_with_the_place(text: str, position: int, reason: str) -> None:
    with pytest.raises(NodeListError) as caught:
        expand(text)
    assert isinstance(caught.value, ValueError)
    assert caught.value.position == position
    _check_message(str(caught.value), text, position, reason)


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


BROKEN_COUNTS = {
    "empty": ("", 0, "number of tasks"),
    "letters": ("2,x", 2, "number of tasks"),
    "negative": ("-1", 0, "number of tasks"),
    "trailing_comma": ("2,", 2, "number of tasks"),
    "open_parenthesis": ("2(x3", 1, "repetition such as"),
    "no_x": ("1,2(3)", 3, "repetition such as"),
    "space": ("2, 1", 2, "number of tasks"),
    "no_repetitions": ("2(x0)", 3, "repetition"),
    "too_many_repetitions": ("1,2(x9999999)", 5, "repetition"),
    "too_many_nodes_in_all": ("2(x99999),1(x2)", 13, "repetition"),
}


@pytest.mark.parametrize(("text", "position", "reason"), BROKEN_COUNTS.values(), ids=BROKEN_COUNTS)
def test_broken_counts_are_shown_with_the_place(text: str, position: int, reason: str) -> None:
    with pytest.raises(NodeListError) as caught:
        expand_task_counts(text)
    _check_message(str(caught.value), text, position, reason)


def _check_message(message: str, text: str, position: int, reason: str) -> None:
    first, shown, caret = message.split("\n")
    assert reason in first
    assert shown == "    " + text.strip().replace("\t", "?")
    assert caret == " " * (4 + position) + "^"
