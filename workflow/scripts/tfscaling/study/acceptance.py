"""A configuration accepted as a whole: all checks, each after those that it relies on."""

from __future__ import annotations

from typing import NamedTuple

from tfscaling.study import configuration, grid, platforms
from tfscaling.study.config import Config
from tfscaling.study.configuration import RawConfig, Sources
from tfscaling.study.manifest import Grid
from tfscaling.study.registries import Registries


class Accepted(NamedTuple):
    """What a configuration asks for."""

    config: Config
    grid: Grid


def accept(merged: RawConfig, registries: Registries, sources: Sources = ()) -> Accepted:
    """The merged configuration with its types, and the grid that it expands to.

    `sources` are the files that it was merged from. Raises ConfigError for the first thing that is
    not allowed: one line with file, key, value and what is allowed.
    """
    config = configuration.validate(merged, sources)
    configuration.check_study(config, sources)
    configuration.check_reference(config, sources)
    platforms.check(config.platforms, sources)
    platforms.check_cluster(config, sources)
    configuration.check_names(config, registries, sources)
    expanded = grid.expand(config, registries, sources)
    grid.check_baseline(config, expanded, sources)
    grid.check_times(config, expanded, sources)
    return Accepted(config, expanded)
