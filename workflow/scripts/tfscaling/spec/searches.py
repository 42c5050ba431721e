"""Which points a search chooses from: those of the same model and recipe, of all its blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tfscaling.spec.config import LINE_AXES, Config, Recipe, Search
from tfscaling.spec.configuration import ConfigError, Sources, problem
from tfscaling.spec.manifest import PlannedRun, PlannedSearch, SearchedPoint
from tfscaling.spec.programs import WITHOUT_TIMES
from tfscaling.spec.run_spec import Point

#: Model and recipe: points that share these do the same work.
Work = tuple[str, str]

#: Goals that need no quality.
_OF_WHOLE = "execution_time_s, cost_usd"
_NO_QUALITY = "the recipe has stop_after_steps, and the quality of the whole is not projected"


class Searches:
    """The searches of a grid while its blocks are expanded; raises ConfigError."""

    def __init__(self, config: Config, sources: Sources) -> None:
        self._config, self._sources = config, sources
        self._blocks: dict[Work, int] = {}
        self._searches: dict[Work, Search] = {}
        self._points: dict[Work, list[SearchedPoint]] = {}

    def add(self, number: int, search: Search, point: Point, recipe: Recipe) -> None:
        """A point of block `number`, which this search may choose."""
        work = (point.model, point.recipe)
        first = self._blocks.setdefault(work, number)
        if self._searches.setdefault(work, search) != search:
            rule = f"grid[{first}] searches among points of the same model and recipe: the same"
            self._fail(number, "search", search.goal, f"{rule} `search`, best for the whole grid")
        self._check_goals(number, search, point, recipe)
        self._check_constraint(number, search, recipe)
        repeats = self._config.grid[number].repeats
        self._points.setdefault(work, []).append(SearchedPoint(point=point, repeats=repeats))

    def check(self) -> None:
        """Raise ConfigError for a search that has nothing to choose from."""
        for work, points in self._points.items():
            if len(points) < 2:
                number, search = self._blocks[work], self._searches[work]
                rule = "the only configuration of its model and recipe; allowed: two or more"
                self._fail(number, "search", search.goal, rule)

    @property
    def planned(self) -> tuple[PlannedSearch, ...]:
        """The search of each model and recipe, in the order of the grid."""
        return tuple(
            PlannedSearch(model=model, recipe=recipe, search=search, points=tuple(points))
            for ((model, recipe), search), points in zip(
                self._searches.items(), self._points.values(), strict=True
            )
        )

    def first_runs(self, runs: Sequence[PlannedRun]) -> Iterator[PlannedRun]:
        """The runs, of which those of points that others may rule out become extra repeats."""
        later: set[Point] = set()
        for work, search in self._searches.items():
            if search.at_most_linear:
                points = [each.point for each in self._points[work]]
                least: dict[tuple[object, ...], int] = {}
                for point in points:
                    nodes = least.setdefault(_line(point), point.nodes)
                    least[_line(point)] = min(nodes, point.nodes)
                later |= {point for point in points if point.nodes > least[_line(point)]}
        for run in runs:
            is_later = run.spec.point in later
            yield msgspec.structs.replace(run, extra_repeat=True) if is_later else run

    def _check_goals(self, number: int, search: Search, point: Point, recipe: Recipe) -> None:
        platform = self._config.platforms[point.platform]
        for goal in search.goals:
            if goal.startswith("cost_") and not platform.price_usd(point.gpus_per_node):
                rule = f"needs a usd_per_node_hour above 0 of platform {point.platform}"
                self._fail(number, "goal", goal, rule)
            metric = recipe.quality.metric
            if "_to_target" in goal and recipe.stop_after_steps is not None:
                rule = f"{_NO_QUALITY}; allowed: {_OF_WHOLE}"
                self._fail(number, "goal", goal, rule)
            if "_to_target" in goal and recipe.program and recipe.observe in WITHOUT_TIMES:
                rule = f"the recipe's `observe: {recipe.observe}` tells no times of epochs; allowed"
                ways = "with observe: fit, events, mllog or tensorboard this one, too"
                self._fail(number, "goal", goal, f"{rule}: {_OF_WHOLE}; {ways}")
            if "_to_target" in goal and metric not in self._config.comparison.targets:
                rule = f"needs a target of {metric} in comparison.targets"
                self._fail(number, "goal", goal, rule)

    def _check_constraint(self, number: int, search: Search, recipe: Recipe) -> None:
        if search.constraint and search.screen:
            rule = "one run does not tell whether the best keeps the constraint; allowed: false"
            self._fail(number, "screen", True, rule)
        if search.at_most_linear and search.screen:
            rule = "at_most_linear says which points have their runs first; allowed: false"
            self._fail(number, "screen", True, rule)
        for metric, limit in search.constraint.items():
            if recipe.stop_after_steps is not None:
                self._fail(number, "constraint", metric, f"{_NO_QUALITY}; allowed: leave it out")
            if metric != recipe.quality.metric:
                rule = f"allowed: the quality of the recipe, {recipe.quality.metric}"
                self._fail(number, "constraint", metric, rule)
            if (limit.at_least is None) == (limit.at_most is None):
                rule = "allowed: exactly one of at_least and at_most"
                self._fail(number, "constraint", metric, rule)

    def _fail(self, number: int, key: str, value: object, rule: str) -> None:
        has_own = isinstance(self._config.grid[number].search, Search)
        where: list[str | int] = ["grid", number, "search"] if has_own else ["search"]
        where += [key] * (key != "search")
        raise ConfigError(problem(where, value, rule, self._sources))


def _line(point: Point) -> tuple[object, ...]:
    """What points share that differ in their nodes alone."""
    return tuple(getattr(point, axis) for axis in LINE_AXES)
