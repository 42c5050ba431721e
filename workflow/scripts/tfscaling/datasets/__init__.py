"""Datasets of the workflow: their sources, checksums, file formats and prepared arrays."""

#: Modules that other packages may import.
__all__ = [
    "catalogue",
]
