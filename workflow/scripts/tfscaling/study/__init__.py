"""What a study runs: configuration, grid, runs, platforms, prices, and the manifest of them.

Everything that is known before a run starts belongs here. Nothing here imports TensorFlow or
pandas.
"""

#: Modules that other packages may import.
__all__ = [
    "acceptance",
    "config_files",
    "config_types",
    "config_validation",
    "geometry",
    "grid",
    "manifest",
    "platforms",
    "recipes",
    "registries",
    "run_spec",
    "user_code",
    "variants",
]
