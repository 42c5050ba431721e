"""Runs start repeat by repeat, each repeat in a random order that the seed gives."""

from __future__ import annotations

import random

from builders import REGISTRIES, raw_config, valid_config
from scipy.stats import spearmanr
from tfscaling.study import acceptance, grid
from tfscaling.study.manifest import PlannedRun


def runs(repeats: int = 6) -> tuple[PlannedRun, ...]:
    nodes = (("grid", 0, "nodes"), list(range(1, 9)))
    config = valid_config(nodes, (("grid", 0, "repeats"), repeats))
    return acceptance.plan_grid(config, REGISTRIES).runs


def test_every_run_starts_once_and_repeats_follow_one_another(dice: random.Random) -> None:
    ordered = grid.randomise_order(runs(), seed=dice.randrange(2**32))
    assert sorted(run.spec.path for run in ordered) == sorted(run.spec.path for run in runs())
    assert [run.spec.repeat for run in ordered] == [n for n in range(1, 7) for _ in range(8)]


def test_the_seed_gives_the_order_whatever_the_order_of_the_grid(dice: random.Random) -> None:
    seed = dice.randrange(2**32)
    ordered = grid.randomise_order(runs(), seed)
    assert ordered == grid.randomise_order(tuple(dice.sample(runs(), len(runs()))), seed)
    assert ordered != grid.randomise_order(runs(), seed + 1)
    assert ordered == grid.randomise_order(runs(7), seed)[:48]  # a further repeat comes last


def test_each_repeat_has_an_order_of_its_own_that_does_not_follow_the_nodes() -> None:
    ordered = grid.randomise_order(runs(), seed=1)
    nodes = [[run.spec.point.nodes for run in ordered[8 * n : 8 * n + 8]] for n in range(6)]
    assert len(set(map(tuple, nodes))) == 6
    many = grid.randomise_order(runs(40), seed=1)
    rho = spearmanr(range(len(many)), [run.spec.point.nodes for run in many]).statistic
    assert abs(rho) < 2 / len(many) ** 0.5


def test_revisions_of_a_configuration_start_one_after_the_other(dice: random.Random) -> None:
    usual = raw_config()["recipes"]["weak"]
    revisions = ("weak", "weak2", "other")
    config = valid_config(
        (("recipes",), dict.fromkeys((*revisions, "strong"), usual)),
        (("grid", 0, "recipe"), ["strong", *revisions]),
        (("grid", 0, "nodes"), [1, 2, 4]),
        (("grid", 0, "repeats"), 6),
        (("compare_revisions",), list(revisions)),
    )
    planned = acceptance.plan_grid(config, REGISTRIES)
    assert planned.revisions == revisions
    seed = dice.randrange(2**32)
    ordered = grid.randomise_order(planned.runs, seed, planned.revisions)
    assert sorted(run.spec.path for run in ordered) == sorted(run.spec.path for run in planned.runs)
    points = [run.spec.point for run in ordered if run.spec.point.recipe in revisions]
    groups = [points[n : n + 3] for n in range(0, len(points), 3)]
    for group in groups:
        assert {point.recipe for point in group} == {*revisions}
        assert len({point.nodes for point in group}) == 1
    assert len({tuple(point.recipe for point in group) for group in groups}) > 1
    starts = [run.spec.point.recipe in revisions for run in ordered]
    assert starts != sorted(starts)  # other configurations start between them
