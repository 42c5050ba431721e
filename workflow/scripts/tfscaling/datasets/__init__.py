"""Datasets: where each comes from, its checksums, its format, the prepared arrays."""

#: Modules that other packages may import.
__all__ = [
    "catalogue",
]
