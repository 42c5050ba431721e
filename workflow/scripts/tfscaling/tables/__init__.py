"""One row per run, one row per point: medians, intervals, significance, published values, warnings.

What conclusions are drawn from belongs here; the conclusions themselves belong to `conclusions`.
"""

#: Modules that other packages may import.
__all__ = [
    "comparison",
    "console_table",
    "data_warnings",
    "display",
    "node_effects",
    "published_results",
    "row_types",
    "row_values",
    "run_samples",
    "runs_table",
    "table_files",
    "timings",
]
