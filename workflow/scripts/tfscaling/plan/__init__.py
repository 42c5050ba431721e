"""What to run next: plan with cost, budget, extra repeats, what is made again, merges."""

#: Modules that other packages may import.
__all__ = [
    "costed_plan",
    "drivers",
    "extra_repeats",
    "lasting_failures",
    "libraries",
    "merging",
    "partial_tables",
    "plan_rows",
    "preflight",
    "reruns",
    "sweep_jobs",
    "sweep_start",
]
