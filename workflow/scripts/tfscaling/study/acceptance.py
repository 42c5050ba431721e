"""Validation of a configuration, followed by the expansion of its grid."""

from __future__ import annotations

from tfscaling.study import (
    config_validation,
    grid,
    grid_checks,
    platforms,
    question_checks,
    recipes,
    variants,
)
from tfscaling.study.config_types import Config
from tfscaling.study.config_validation import RawConfig, Sources, naming_files
from tfscaling.study.manifest import Manifest
from tfscaling.study.registries import Registries


def accept(
    merged: RawConfig, registries: Registries, sources: Sources = ()
) -> tuple[Config, Manifest]:
    """Validate a configuration and return it with its types, and the manifest of its grid.

    Args:
        merged: The configuration, merged from its files.
        registries: The models, strategies, datasets and further names that exist.
        sources: The files that it was merged from.

    Raises:
        ConfigError: For the first value that is not allowed: one line with file, key, value and
            what is allowed.
    """
    config = config_validation.validate(merged, sources)
    with naming_files(sources):
        config_validation.check_folders(config)
        platforms.check(config.platforms)
        platforms.check_cluster(config)
        registries.check_names(config)
        grid_checks.check_revisions(config)
        planned = plan(config, registries)
        question_checks.check_baseline(config, planned)
        question_checks.check_question(config, planned)
    return config, planned


def plan(config: Config, registries: Registries) -> Manifest:
    """Return the manifest of the grid.

    Raises:
        NotAllowed: If a recipe or a block of the grid is not possible.
    """
    recipes.check(config)
    recipe_variants = variants.variants_by_recipe(config.recipes)
    grid_checks.check_blocks(config, recipe_variants, registries)
    found = grid.candidates(config, recipe_variants, registries)
    grid_checks.check_configurations(config, found)
    return grid.manifest_of(config, found, registries)
