"""Decisions before runs start: which are to do, what they cost, whether they may start; retries.

The rules and the stages `plan` and `assess-repeats` use it, and the executor plugin by `retries`.
"""

#: Modules that other packages may import.
__all__ = [
    "budget",
    "conditional_runs",
    "costed_plan",
    "driver_signals",
    "local_checks",
    "preflight",
    "queue_waits",
    "retries",
    "run_durations",
    "sweep_start",
    "to_do",
    "unrequested_runs",
]
