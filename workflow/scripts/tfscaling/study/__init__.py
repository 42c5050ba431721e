"""What a study runs: its configuration, its grid of runs, its platforms with prices, its manifest.

Everything that is known before a run starts belongs here. The rules read a study by `acceptance`;
jobs, tables and conclusions read the manifest. Nothing here imports TensorFlow or pandas.
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
