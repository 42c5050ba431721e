"""What is asked: configuration, grid, runs, geometry, order, platforms, prices, manifest.

What is known before anything runs belongs here. Nothing here imports TensorFlow or pandas.
"""

#: Modules that other packages may import.
__all__ = [
    "acceptance",
    "config",
    "config_files",
    "configuration",
    "costs",
    "geometry",
    "grid",
    "manifest",
    "order",
    "platforms",
    "programs",
    "registries",
    "run_spec",
    "schemas",
    "short_recipes",
    "user_code",
    "user_source",
    "variants",
]
