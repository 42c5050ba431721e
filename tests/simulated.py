"""Sweeps with a known truth, by the hundred: what conclusions claim of them can be counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from measured import measured

Tables = tuple[pd.DataFrame, pd.DataFrame]
Point = tuple[str, int]
RUNS = 6
#: Noise of the logarithm of a value, with its size; its median is 0.
NOISES = (
    ("normal", 0.02), ("normal", 0.2), ("skewed", 0.1), ("outliers", 0.05), ("mixed", 0.2),
)  # fmt: skip
#: Columns that are read although nothing has a value of them.
EMPTY = ("target", "quality_unit", "quality_best")
_SKEWED_MEDIAN = 1.67834699  # of a gamma distribution of shape 2


def noise(name: str, size: float, points: int, dice: np.random.Generator) -> np.ndarray:
    """(points, RUNS)."""
    shape = (points, RUNS)
    usual = dice.standard_normal(shape)
    if name == "skewed":
        return np.asarray(size * (dice.gamma(2, 1, shape) - _SKEWED_MEDIAN) / np.sqrt(2))
    if name == "outliers":  # one run in twenty takes three times as long
        return np.asarray(size * usual + np.log(3) * (dice.random(shape) < 0.05))
    if name == "mixed":  # every point scatters otherwise, by 2 % to `size`
        sizes = np.exp(dice.uniform(np.log(0.02), np.log(size), (points, 1)))
        return np.asarray(sizes * usual)
    return np.asarray(size * usual)


class Sweeps:
    """Runs and comparison of points, the same again for each of some recipes, to fill in values."""

    def __init__(self, points: Sequence[Point], recipes: int = 1) -> None:
        comparison, runs, self.planned = measured({point: [1.0] * RUNS for point in points})
        self.count = len(points) * recipes
        places = {point: number for number, point in enumerate(points)}

        def copied(table: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
            # what nothing has a value of takes time in every sweep
            table = table.loc[:, table.notna().any() | table.columns.isin(EMPTY)]
            pairs = zip(table["platform"].tolist(), table["nodes"].tolist(), strict=True)
            own = np.array([places[pair] for pair in pairs])
            names = [f"recipe{number}" for number in range(recipes)]
            copies = pd.concat([table.assign(recipe=name) for name in names], ignore_index=True)
            return copies, np.concatenate([own + n * len(points) for n in range(recipes)])

        self.comparison, self.places = copied(comparison)
        self.runs, self.run_places = copied(runs)
        self.repeats = (self.runs["repeat"] - 1).to_numpy()
        self.usd_per_s = self.runs["cost_usd"].to_numpy(float)

    def tables(self, **values: np.ndarray) -> Tables:
        """Comparison and runs with these values by metric: (points, RUNS). Costs follow times."""
        comparison, runs = self.comparison.copy(), self.runs.copy()
        for metric, own in values.items():
            runs[metric] = own[self.run_places, self.repeats]
            if metric in comparison:
                comparison[metric] = np.median(own, axis=1)[self.places]
        if "execution_time_s" in values:
            runs["cost_usd"] = self.usd_per_s * runs["execution_time_s"]
            costs = np.empty((self.count, RUNS))
            costs[self.run_places, self.repeats] = runs["cost_usd"]
            comparison["cost_usd"] = np.median(costs, axis=1)[self.places]
        return comparison, runs

    def times(
        self, true_s: Sequence[float], kind: tuple[str, float], trials: int, seed: int = 1
    ) -> Iterator[Tables]:
        """Sweeps of these true times in seconds."""
        dice = np.random.default_rng(seed)
        for _ in range(trials):
            scatter = np.exp(noise(*kind, self.count, dice))
            yield self.tables(execution_time_s=np.asarray(true_s)[:, None] * scatter)


def line(platform: str = "east", nodes: Sequence[int] = (1, 2, 4, 8)) -> list[Point]:
    return [(platform, number) for number in nodes]


def share(found: Sequence[bool]) -> float:
    """How often it is true."""
    return sum(found) / len(found)
