"""Measurements: events and reports of ranks, their checks, records of runs.

Everything that a job writes and the tables read, with the list of metrics.
"""

#: Modules that other packages may import.
__all__ = [
    "attempts",
    "checks",
    "clock",
    "crashes",
    "events",
    "metrics",
    "observers",
    "phases",
    "prepared_data",
    "rank_report",
    "run_record",
    "run_results",
    "run_states",
    "run_times",
    "step_estimates",
]
