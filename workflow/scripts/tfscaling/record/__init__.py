"""What is measured: events and reports of ranks, their checks, records of runs and benchmarks.

What is written in a job and read by the tables belongs here, with the list of metrics.
"""

#: Modules that other packages may import.
__all__ = [
    "aborts",
    "attempts",
    "benchmark_record",
    "checks",
    "clock",
    "earlier",
    "events",
    "failure_report",
    "gradient_noise",
    "metrics",
    "node_check",
    "observers",
    "phases",
    "prepared_data",
    "quality",
    "queue_notes",
    "rank_report",
    "resumption",
    "run_record",
    "run_results",
    "run_states",
    "short_runs",
    "staleness",
    "tensorboard",
    "tracebacks",
]
