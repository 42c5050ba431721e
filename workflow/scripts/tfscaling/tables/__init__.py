"""Tables of runs and configurations: medians, intervals, speed-up, published values, warnings.

Conclusions are drawn from these tables in `conclusions`.
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
    "run_environment",
    "run_samples",
    "runs_table",
    "table_files",
    "timings",
]
