"""Recipes that are alike but for `stop_after_steps`: short runs and the whole training."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tfscaling.study.config import Quality
from tfscaling.study.run_spec import Point, RunSpec


def wholes(specs: Iterable[RunSpec]) -> dict[Point, RunSpec]:
    """Point of short runs → a run of the same training to its end there, if one is planned."""
    first = {spec.point: spec for spec in specs}
    short = [spec for spec in first.values() if spec.recipe.stop_after_steps is not None]
    places: dict[tuple[str | int, ...], list[RunSpec]] = {}
    for spec in first.values() if short else ():
        if spec.recipe.stop_after_steps is None:
            places.setdefault(_place(spec.point), []).append(spec)
    found = {}
    for spec in short:
        alike = (w for w in places.get(_place(spec.point), ()) if _training(w) == _training(spec))
        if (whole := next(alike, None)) is not None:
            found[spec.point] = whole
    return found


def _place(point: Point) -> tuple[str | int, ...]:
    return tuple(value for axis, value in point.axes.items() if axis != "recipe")


def _training(spec: RunSpec) -> RunSpec:
    """What is trained and where, by whatever recipe, short or not."""
    recipe = msgspec.structs.replace(
        spec.recipe, stop_after_steps=None, quality=Quality(), compare_resumed=False
    )
    point = msgspec.structs.replace(spec.point, recipe="")
    return msgspec.structs.replace(spec, point=point, recipe=recipe, repeat=1, seed=0)
