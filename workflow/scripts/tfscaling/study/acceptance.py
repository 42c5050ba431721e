"""Validation of a configuration, followed by the expansion of its grid.

The rules call `validate_and_plan` once, while Snakemake reads the workflow.
"""

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
from tfscaling.study.config_validation import RawConfig, Sources, add_file_to_errors
from tfscaling.study.manifest import Manifest
from tfscaling.study.registries import Registries


def validate_and_plan(
    merged: RawConfig, registries: Registries, sources: Sources = ()
) -> tuple[Config, Manifest]:
    """Validate a configuration; return it as types, with the manifest of all runs that it plans.

    Args:
        merged: The configuration, merged from its files.
        registries: The models, strategies, datasets and further names that exist.
        sources: The files that it was merged from, for messages.

    Raises:
        ConfigError: For the first value that is not allowed: one line with file, key, value and
            what is allowed.
    """
    config = config_validation.convert_to_types(merged, sources)
    with add_file_to_errors(sources):
        config_validation.check_folders(config)
        platforms.check_keys(config.platforms)
        platforms.check_cluster(config)
        registries.check_names(config)
        grid_checks.check_revisions(config)
        planned = plan_grid(config, registries)
        question_checks.check_baseline(config, planned)
        question_checks.check_question(config, planned)
    return config, planned


def plan_grid(config: Config, registries: Registries) -> Manifest:
    """Return the manifest of all planned runs; check recipes and blocks of the grid before.

    Raises:
        NotAllowed: If a recipe or a block of the grid is not possible.
    """
    recipes.check_recipes(config)
    recipe_variants = variants.variants_by_recipe(config.recipes)
    grid_checks.check_blocks(config, recipe_variants, registries)
    found = grid.make_candidates(config, recipe_variants, registries)
    grid_checks.check_configurations(config, found)
    return grid.make_manifest(config, found, registries)
