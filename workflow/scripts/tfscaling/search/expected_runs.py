"""How many runs of each candidate a search is expected to make, by simulated searches.

Candidates without runs get times from random scaling curves, the others their own median; all runs
scatter by SCATTER. A candidate without runs keeps a constraint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tfscaling.record.metrics import QUALITY
from tfscaling.search.interim import Candidate, Run, decide
from tfscaling.search.study_searches import StudySearch
from tfscaling.spec.config import LINE_AXES
from tfscaling.spec.run_spec import Point
from tfscaling.tables.estimates import Array

Dice = np.random.Generator
SCATTER = 0.05
TRIALS = 20


def scaling_times(devices: Array, lines: Array, dice: Dice) -> Array:
    """Times by Amdahl's law and by the universal scalability law, with wiggles of 2 %: (points,).

    `lines` are the numbers of the curves that the points belong to, from 0.
    """
    count = int(lines.max()) + 1
    one = np.exp(dice.normal(np.log(600), 0.5, count))[lines]
    sigma = dice.uniform(0.01, 0.25, count)[lines]
    has_kappa = dice.random(count) < 0.6
    kappa = np.where(has_kappa, 10 ** dice.uniform(-4, -2, count), 0)[lines]
    time_s = one * (1 + sigma * (devices - 1) + kappa * devices * (devices - 1)) / devices
    return np.asarray(time_s * np.exp(dice.normal(0, 0.02, len(devices))))


def expected_runs(
    search: StudySearch, prices: Mapping[Point, float | None], trials: int = TRIALS
) -> dict[Point, float]:
    """Point → mean number of runs when the search has ended, including the runs made."""
    points = [search.points[each.name] for each in search.candidates]
    if not points:
        return {}
    names = [tuple(getattr(point, axis) for axis in LINE_AXES) for point in points]
    own = {name: number for number, name in enumerate(dict.fromkeys(names))}
    lines = np.array([own[name] for name in names])
    devices = np.array([point.nodes * max(1, point.gpus_per_node) for point in points], float)
    rates = {
        goal: [prices.get(p) or 1.0 if goal.startswith("cost_") else 1 / p.nodes for p in points]
        for goal in search.planned.search.goals
    }
    kept: dict[str, float] = {}
    for limit in search.planned.search.constraint.values():  # a quality that keeps the limit
        inside = 10 * limit.indifference
        most, least = limit.at_most, limit.at_least or 0.0
        kept[QUALITY] = least + inside if most is None else most - inside
    dice, sums = np.random.default_rng(1), np.zeros(len(points))
    for _ in range(trials):
        time_s = scaling_times(devices, lines, dice)
        filled = [
            _filled(each, {goal: time * point.nodes * rates[goal][n] for goal in rates}, kept, dice)
            for n, (each, point, time) in enumerate(
                zip(search.candidates, points, time_s.tolist(), strict=True)
            )
        ]
        found = decide(filled, search.planned.search)
        sums += [found.runs[each.name] for each in filled]
    return dict(zip(points, (sums / trials).tolist(), strict=True))


def _filled(
    candidate: Candidate, usual: Mapping[str, float], kept: Mapping[str, float], dice: Dice
) -> Candidate:
    """The candidate with a simulated run in each block without one.

    Without any run it has the goals `usual` and the quality `kept`, which does not scatter.
    """
    made = [run for run in candidate.runs if run is not None]
    goals = {goal: _middle([run[goal] for run in made], value) for goal, value in usual.items()}
    of_made = {name: [run[name] for run in made if name in run] for name in kept}
    quality = {name: _middle(of_made[name], value) for name, value in kept.items()}
    factors = np.exp(SCATTER * dice.standard_normal(len(candidate.runs))).tolist()
    runs: list[Run] = [
        run if run is not None else {n: value * factor for n, value in goals.items()} | quality
        for run, factor in zip(candidate.runs, factors, strict=True)
    ]
    return replace(candidate, runs=tuple(runs))


def _middle(values: Sequence[float], otherwise: float) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return float(np.median(finite)) if finite else otherwise
