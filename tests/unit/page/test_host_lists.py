"""Names of hosts on the page: folded as Slurm writes them, and the same names when written out."""

from __future__ import annotations

import random

import pytest
from tfscaling.cluster.nodelist import expand_node_list
from tfscaling.page.host_lists import fold_host_names


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ("", ""),
        ("login", "login"),
        ("n1", "n1"),
        ("n1 n1", "n1"),
        ("n9 n10 n11", "n[9-11]"),
        ("n08 n09 n10 n12 login", "n[08-10,12],login"),
        ("n1 n01", "n1,n01"),
        ("n2-ib n1-ib m3", "n[1-2]-ib,m3"),
        ("r0n1 r0n2 r1n1", "r0n[1-2],r1n1"),
        ("n0 n1", "n[0-1]"),
        ("n n1", "n,n1"),
    ],
)
def test_consecutive_numbers_are_in_brackets(names: str, folded: str) -> None:
    assert fold_host_names(names.split()) == folded


def test_the_folded_names_are_the_names(dice: random.Random) -> None:
    for _ in range(50):
        width, before = dice.randint(1, 4), dice.choice(["n", "gpu-", "r0c"])
        numbers = dice.sample(range(1200), dice.randint(1, 40))
        names = [f"{before}{number:0{width}d}" for number in numbers] + ["login"]
        dice.shuffle(names)
        assert sorted(expand_node_list(fold_host_names(names))) == sorted(names)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["node[1"], ["node[1"]),
        (["node]", "node1", "node2"], ["node]", "node[1-2]"]),
        (["a,1", "a,2", "a1"], ["a,1", "a,2", "a1"]),
        (["n[1-8]", "n[1-9]"], ["n[1-8]", "n[1-9]"]),
        (["<b1>", "<b2>", "\\x1b[31m", "\\x1b[32m"], ["<b1>", "<b2>", "\\x1b[31m", "\\x1b[32m"]),
        (["fe80::1%eth0", "fe80::1%eth1"], ["fe80::1%eth0", "fe80::1%eth1"]),
    ],
)
def test_names_that_no_host_has_are_shown_as_they_are(
    names: list[str], shown: list[str], dice: random.Random
) -> None:
    folded = fold_host_names(dice.sample(names, len(names)))
    assert all(name in folded for name in shown)
    assert len(folded) == len(",".join(shown))
