"""Before the runs: which are to do, what they cost, whether they may start, and retries."""

#: Modules that other packages may import.
__all__ = [
    "budget",
    "costed_plan",
    "extra_repeats",
    "local_checks",
    "preflight",
    "queue_waits",
    "retries",
    "run_durations",
    "sweep_start",
    "to_do",
    "unrequested_runs",
]
