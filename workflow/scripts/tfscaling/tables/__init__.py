"""One row per run, one row per point: medians, intervals, significance, published values, warnings.

What conclusions are drawn from belongs here; the conclusions themselves belong to `analysis`.
"""

#: Modules that other packages may import.
__all__ = [
    "comparison",
    "csv_files",
    "data_dictionary",
    "data_warnings",
    "display",
    "environments",
    "estimates",
    "formats",
    "intervals",
    "pareto",
    "published",
    "published_results",
    "runs_table",
    "significance",
    "table_rows",
    "wording",
]
